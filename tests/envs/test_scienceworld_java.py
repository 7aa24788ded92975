"""ScienceWorld's simulator in Java: rewards, several worlds in one process, what goes wrong, the pipeline."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests import tiny
from turncredit.data import tables
from turncredit.envs.scienceworld import Expert, Settings, make_tasks, open_task, simulator, tasks
from turncredit.envs.scienceworld.commands import app
from turncredit.envs.scienceworld.world import BROKEN
from turncredit.errors import UserError
from turncredit.pipeline import loop
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan, load
from turncredit.rollouts.tasks import Games

try:
    simulator.check_installed()
except UserError as missing:
    pytest.skip(str(missing), allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.reference]

#: Little is compiled in tests so short.
QUICK = "-XX:TieredStopAtLevel=1"
SETTINGS = Settings(tasks=("find-non-living-thing",), horizon=12)
CHANGES = {
    "env": {"name": "scienceworld", "scienceworld": {"tasks": ["find-non-living-thing"], "horizon": 4}},
    "rounds": 1,
    "methods": ["has_progressive"],
    "tasks": {"train": 2, "eval": 1, "eval_split": "test"},
    "agent": {"max_response_tokens": 24},
    "demos": {"count": 4, "noise": 0.1, "slips": 0.1},
    "sft": {"epochs": 16, "successful_only": False},
    "rollout": {"tasks": 2, "group_size": 2},
    "eval": {"games": 1, "fresh": False},
    "audit": {
        "rounds": [1],
        "branch": {"turns": 1, "min_continuations": 2, "max_continuations": 2, "reference_continuations": 2},
    },
}


@pytest.fixture(scope="module", autouse=True)
def stopped():
    """No Java process is left behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator, "_OPTIONS", (*simulator._OPTIONS, QUICK))
        yield
    simulator.stop()


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """The tiny experiment on ScienceWorld: warm start, a round, an audit of it."""
    made = Plan(tiny.experiment(**CHANGES), tmp_path_factory.mktemp("scienceworld"))
    first = made.turns_at("has_progressive", 0, 1)
    shared = [
        ("tasks", JobKeys(split="train")),
        ("tasks", JobKeys(split="eval")),
        ("demos", JobKeys()),
        ("base", JobKeys()),
        ("sft", JobKeys()),
    ]
    own = loop.block(made, "has_progressive", 0, [1])
    for stage, at in [*shared, ("rollout", first), ("measures", first), *own, ("branch", first)]:
        load(stage).run(made.job(stage, at))
    return made


@pytest.fixture(scope="module")
def rows(plan):
    """Two tasks with their gold paths."""
    return tables.read(plan.layout.path("tasks", split="train"), "tasks").to_pylist()


def table(plan, name):
    keys = plan.turns_at("has_progressive", 0, 1).keys
    return tables.read(plan.layout.path(name, keys, method="has_progressive", seed=0, round=1), name)


def test_a_round_learns_from_scores_and_no_rollout_was_redone(plan):
    turns, credits = table(plan, "turns").to_pandas(), table(plan, "credits").to_pandas()
    assert (turns.redone == 0).all()
    assert turns.groupby("rollout_id").reward.sum().between(-1e-9, 1 + 1e-9).all()
    progress = table(plan, "measures").to_pandas().progress
    assert progress.to_numpy() == pytest.approx(turns.groupby("rollout_id").reward.cumsum().to_numpy())
    assert credits.advantage.notna().all()
    assert table(plan, "evals").num_rows > 0


def test_the_audit_branches_from_states_that_are_restored_by_replay(plan):
    branches = table(plan, "branches").to_pandas()
    assert branches.replayed.all()
    assert (branches.continuations >= 2).all()
    assert branches.v_true.between(0, 1).all()


def played(env, actions):
    steps = []
    for action in actions:
        steps.append(env.step(action))
        if steps[-1].done:
            break
    return steps


def test_rows_have_gold_paths_and_a_larger_count_adds_rows(rows):
    assert [row["task_id"] for row in make_tasks("train", 1, 0, SETTINGS)] == [rows[0]["task_id"]]
    assert {row["family"] for row in rows} == {"find-non-living-thing"}
    assert rows[0]["goal"].startswith("find a(n) non-living thing.")
    assert len(set(simulator.simulator().variations("boil")["test"])) == 9
    with pytest.raises(UserError, match=r"unknown split 'eval' of ScienceWorld.*; choose one of train, dev, test"):
        make_tasks("eval", 1, 0, SETTINGS)
    with pytest.raises(UserError, match=r"'train' of ScienceWorld has 150 variations .* not 151; ask for fewer"):
        make_tasks("train", 151, 0, SETTINGS)


@pytest.mark.parametrize(("reward", "paid"), [("score", 10.0), ("success", 10.0)])
def test_the_expert_completes_a_task_and_the_rewards_add_up_to_the_score(rows, reward, paid):
    settings = SETTINGS.model_copy(update={"reward": reward, "success_reward": 10.0})
    env = open_task(rows[0], settings)
    expert = Expert(env, random.Random(0))
    expert.observe(env.reset())
    steps = []
    while not steps or not steps[-1].done:
        steps.append(env.step(expert.act()))
        expert.observe(steps[-1].observation)
    env.close()
    assert [step.success for step in steps] == [False] * (len(steps) - 1) + [True]
    assert all(step.valid for step in steps)
    assert sum(step.reward for step in steps) == pytest.approx(paid)
    assert sum(step.reward != 0 for step in steps) == (1 if reward == "success" else len(steps) - 1)
    assert env.progress() == 1.0


def test_a_running_world_keeps_its_simplifications_when_the_variations_of_a_task_are_asked_for():
    running = simulator.simulator()
    world = running.world("find-plant", 0, "openDoors")
    running.variations("find-animal")
    world.look()
    assert running._processor.isSimplificationEnabled("openDoors")
    world.close()


def test_a_fatal_mistake_takes_the_score_back_and_ends_the_rollout(rows, monkeypatch):
    env = open_task(rows[0], SETTINGS)
    env.reset()
    steps = played(env, env.task.gold[:-1])
    assert env.progress() == pytest.approx(sum(step.reward for step in steps))
    assert env.progress() > 0.5
    fatal = simulator.Reply("You focus on the red box.", -1.0, True)
    monkeypatch.setattr(simulator.World, "_step", lambda *_: fatal)
    steps.append(env.step("focus on red box"))
    env.close()
    assert (steps[-1].observation, steps[-1].done, steps[-1].success) == (fatal.text, True, False)
    assert env.progress() == 0.0
    assert sum(step.reward for step in steps) == pytest.approx(0.0)
    with pytest.raises(RuntimeError, match="has ended"):
        env.step("look around")


def test_malformed_actions_change_nothing_and_take_a_turn(rows):
    env = open_task(rows[0], SETTINGS)
    seen = env.reset()
    steps = played(env, ["", "x" * 10_000, "\x00\x1b[2J\ud800", "go to\x00 nowhere", "open " * 50, "]["])
    assert {step.observation for step in steps} == {simulator.NO_MATCH}
    assert not any(step.valid or step.reward or step.done for step in steps)
    assert env.step("  look\n around\t").observation == seen
    assert [step.done for step in played(env, ["?"] * 9)] == [False] * 4 + [True]
    env.close()


def test_a_simulator_that_breaks_ends_the_rollout_with_what_it_has(rows, monkeypatch):
    env = open_task(rows[0], SETTINGS)
    env.reset()
    reply = simulator.Reply("java.util.NoSuchElementException: None.get", -1.0, True)
    monkeypatch.setattr(simulator.World, "_step", lambda *_: reply)
    step = env.step("look around")
    assert (step.observation, step.reward, step.done, step.success) == (BROKEN, 0.0, True, False)
    env.close()


def test_worlds_of_one_process_have_random_numbers_and_object_ids_of_their_own():
    java = simulator.simulator()

    def shared():
        return java._random_state.get(java._random), java._next_id.get(java._ids)

    one = java.world("find-plant", 3, "openDoors")
    one.step("wait1")
    kept = shared()
    other = java.world("boil", 5, "")
    other.step("wait1")
    assert shared() != kept
    assert java._processor.getSimplificationsUsed() == ""
    one.look()
    assert shared() == kept
    assert java._processor.getSimplificationsUsed() == "openDoors"
    one.close()
    other.close()


def test_a_task_at_which_java_always_dies_is_named(rows, monkeypatch):
    env = open_task(rows[0], SETTINGS)
    env.reset()

    def dies(*_):
        raise simulator.Died

    monkeypatch.setattr(simulator.World, "step", dies)
    with pytest.raises(UserError, match=r"Java process died 3 times in a row \(task find-non-living-thing, variation"):
        env.step("look around")
    env.close()


def test_java_may_die_while_tasks_are_listed_and_described_and_gold_paths_extracted(monkeypatch):
    deaths = []

    def dies_first(name):
        asked = getattr(simulator.Simulator, name)

        def ask(self, *arguments):
            if name not in deaths:
                deaths.append(name)
                self.process.kill()
            return asked(self, *arguments)

        monkeypatch.setattr(simulator.Simulator, name, ask)

    for name in ("variations", "world", "gold_path"):
        dies_first(name)
    row = make_tasks("train", 1, 0, Settings(tasks=("find-animal",)))[0]
    assert deaths == ["variations", "world", "gold_path"]
    assert row["goal"].startswith("find a(n) animal.")
    assert json.loads(row["game"])["gold"]


def test_a_gold_path_at_which_java_always_dies_is_named(monkeypatch):
    def dies(*_):
        raise simulator.Died

    monkeypatch.setattr(simulator.Simulator, "gold_path", dies)
    env = open_task(make_tasks("test", 1, 0, SETTINGS)[0], SETTINGS)
    message = r"died 3 times in a row \(task find-non-living-thing, variation \d+, its gold path\); it has 2048 MB"
    with pytest.raises(UserError, match=message):
        Expert(env, random.Random(0))


def test_java_ends_with_its_parent_even_if_that_is_killed():
    script = (
        "from turncredit.envs.scienceworld.simulator import simulator\n"
        "print(simulator().process.pid, flush=True)\nimport time\ntime.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=tiny.ROOT)
    java = int(parent.stdout.readline())
    assert Path(f"/proc/{java}").exists()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    ended_by = time.monotonic() + 60
    while _runs(java) and time.monotonic() < ended_by:
        time.sleep(0.05)
    assert not _runs(java)


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_java_process_that_dies_is_started_again_and_its_rollouts_are_redone_and_marked(rows):
    envs = [open_task(row, SETTINGS) for row in rows]
    undisturbed = open_task(rows[0], SETTINGS)
    undisturbed.reset()
    expected = played(undisturbed, undisturbed.task.gold)
    for env in envs:
        env.reset()
    before = played(envs[0], envs[0].task.gold[:2])
    os.kill(simulator.simulator().process.pid, signal.SIGKILL)
    assert before + played(envs[0], envs[0].task.gold[2:]) == expected
    played(envs[1], envs[1].task.gold[:1])
    assert [env.redone for env in (*envs, undisturbed)] == [1, 1, 0]
    envs[0].reset()
    assert envs[0].redone == 0
    for env in envs:
        env.close()


@pytest.mark.parametrize(("kept", "completed", "code"), [(99, 1, 0), (-1, 0, 1)])
def test_the_command_gold_plays_paths_and_fails_where_one_does_not_complete_its_task(
    monkeypatch, kept, completed, code
):
    path = tasks.path
    monkeypatch.setattr(tasks, "path", lambda *asked: path(*asked)[:kept])
    names = ("find-non-living-thing", "lifespan-shortest-lived")
    result = CliRunner().invoke(app, ["gold", *(word for name in names for word in ("--task", name))])
    played = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(one["task"], one["variations"], one["completed"]) for one in played] == [(n, 1, completed) for n in names]
    assert all(2 <= one["longest"] <= 5 for one in played)
    assert result.exit_code == code


def test_a_person_can_play_with_hints_and_measure():
    runner = CliRunner()
    played = runner.invoke(app, ["play", "--task", "find-non-living-thing"], input="!\nfly\n\n")
    assert played.exit_code == 0
    assert "Your task is to find a(n) non-living thing." in played.stdout
    assert simulator.NO_MATCH in played.stdout
    (figures,) = json.loads(runner.invoke(app, ["bench", "--rollouts", "2", "--steps", "1"]).stdout)["measured"]
    assert figures["steps"] == 2
    assert figures["java_mb"] > 50


def test_a_simulator_that_hangs_is_named(plan, rows):
    games = Games(plan.env, tables.read(plan.layout.path("tasks", split="train"), "tasks"), timeout=60.0)
    env = games.open(rows[0])
    env.reset()
    env.timeout = 0.5
    pid = simulator.simulator().process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(UserError, match=r"'scienceworld': step\(\) took longer than env.timeout, 0.5 s"):
            env.step("look around")
    finally:
        os.kill(pid, signal.SIGKILL)
