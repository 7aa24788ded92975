"""Rollouts of environments that are not the household: side by side, asynchronous."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
import pytest

from tests import tiny
from tests.envs import appworld_server, gymnasium_games, own
from turncredit import envs
from turncredit.audit.noisy_expert import reference_values
from turncredit.config import EnvSlice
from turncredit.credit.mgr import validity_N
from turncredit.data import tables
from turncredit.data.turns import Turns
from turncredit.envs import household
from turncredit.envs.environment import Environment
from turncredit.errors import UserError
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan, load
from turncredit.policy.open import OpenPolicy
from turncredit.policy.sampling import Response
from turncredit.rollouts import tasks
from turncredit.rollouts.demos import make_demos
from turncredit.rollouts.play import Checkpoint, Player, Start
from turncredit.rollouts.tasks import Games, make_tasks


@pytest.fixture
def games(monkeypatch):
    """Games of one of the test environments, under the name `own`."""

    def made(kind, count=16, timeout=5.0, **fields):
        environment = own.environment(kind, **fields)
        monkeypatch.setattr(envs, "load", lambda _: environment)
        own.Doors.opened.clear()
        config = EnvSlice(name="own")
        return Games(config, make_tasks(config, "train", count, 0, key="tasks.train"), timeout=timeout)

    return made


@pytest.fixture
def policy(world):
    return OpenPolicy(world.path("sft_policy"), dtype="float32")


def play(policy, games, slots=16):
    player = Player(policy, tiny.experiment().agent.chosen(), games, slots)
    starts = [Start(row["task_id"], row["task_id"], row, number) for number, row in enumerate(games.rows)]
    return player.play(starts, temperature=1.0)


def test_the_steps_of_an_asynchronous_environment_overlap(games, policy):
    """16 rollouts of three steps of 20 ms take 60 ms and what sampling takes, not 960."""
    plain = games(own.Doors)
    expected = play(policy, plain)
    slow = games(own.Slow)
    running = [slow.open(row) for row in slow.rows]
    assert slow.each(running, "reset") == ["a door"] * 16
    started = time.monotonic()
    steps = [slow.each(running, "step", ["open"] * 16) for _ in range(3)]
    assert time.monotonic() - started < 0.5 * 16 * 3 * 0.02
    assert all(step.success for step in steps[-1])
    found = play(policy, slow)
    assert [[turn.response.ids for turn in one.turns] for one in found] == [
        [turn.response.ids for turn in one.turns] for one in expected
    ]


@pytest.mark.parametrize("kind", [own.Doors, own.Slow])
def test_every_environment_is_closed_when_it_has_ended(games, policy, kind):
    played = play(policy, games(kind), slots=4)
    assert all(len(one.turns) == 3 and one.success for one in played)
    assert [env.closed for env in own.Doors.opened] == [True] * 16
    assert {turn.failed for one in played for turn in one.turns} == {True}, "no action was 'open'"


def test_environments_are_closed_when_one_of_them_goes_wrong(games, policy):
    rows = [{"task_id": name, "goal": "pass three doors."} for name in ("fine", "raises")]
    broken = games(own.Faulty, count=2, make_tasks=lambda *_: rows)
    own.Faulty.fine = lambda self: own.Doors.step(self, "open")
    with pytest.raises(UserError, match=r"step\(\) raised ValueError: the hinge broke \(task 'raises', turn 1\)"):
        play(policy, broken)
    assert all(env.closed for env in own.Doors.opened)


class Opens:
    def __init__(self, env, rng): ...

    def observe(self, observation, action=None): ...

    def act(self):
        return "open"


@pytest.mark.parametrize("kind", [own.Doors, own.Slow])
def test_an_expert_of_ones_own_demonstrates(games, kind):
    settings = tiny.experiment(demos={"count": 4, "noise": 0.0}).demos
    table = make_demos(games(kind, expert=Opens), settings)
    assert table.column("action").to_pylist() == ["open"] * 12
    assert table.column("admissible").to_pylist() == [[]] * 12
    assert set(table.column("success").to_pylist()) == {True}


class Remembers(Opens):
    """Keeps the actions that `observe` was given."""

    given: list[str | None] = []  # noqa: RUF012 - the test looks at it

    def observe(self, _observation, action=None):
        Remembers.given.append(action)


def test_an_expert_is_told_of_actions_that_were_not_its_own_alone(games):
    noise = tiny.experiment(demos={"count": 1, "noise": 0.99}).demos
    Remembers.given.clear()
    make_demos(games(own.Doors, expert=Remembers, random_command=lambda _env, _rng: "open"), noise)
    noisy = games(own.Doors, expert=Remembers, random_command=lambda _env, _rng: "knock")
    make_demos(noisy, noise)
    start = [Checkpoint(0, "a door", (0, ((), "a door")), None, [])]
    for share in (0.0, 1.0):
        reference_values(noisy, noisy.rows[0], [], start, noise=share, count=1, seed=0, low=0.0, high=1.0)
    assert Remembers.given == [*[None] * 3, None, "knock", "knock", *[None] * 3, None, "knock", "knock"]


class Endless(own.Doors):
    def step(self, action):
        return super().step(action)._replace(done=False)


def test_a_demonstration_that_never_ends_names_its_task(games):
    error = r"^environment 'endless': the rollout of task 'train-0' is not done after 1,000 turns"
    endless = games(Endless, expert=Opens)
    with pytest.raises(UserError, match=error):
        make_demos(endless, tiny.experiment(demos={"count": 1, "noise": 0.0}).demos)
    start = [Checkpoint(0, "a door", (0, ((), "a door")), None, [])]
    with pytest.raises(UserError, match=error):
        reference_values(endless, endless.rows[0], [], start, noise=0.0, count=1, seed=0, low=0.0, high=1.0)


class Listing(own.Doors):
    """Says what may be done."""

    def admissible(self):
        return ["open", "knock"]


class Asks(Opens):
    """An expert that looks at what may be done before it acts."""

    def __init__(self, env, _rng):
        self.env = env

    def act(self):
        return self.env.admissible()[0]


def test_an_expert_and_random_commands_of_ones_own_may_ask_the_environment(games):
    """They are called by the thread that makes all calls, and must not wait for it."""

    def knock(env, _rng):
        return env.admissible()[1]

    listing = games(Listing, expert=Asks, random_command=knock, slip_command=knock)
    table = make_demos(listing, tiny.experiment(demos={"count": 12, "noise": 0.3, "slips": 0.3}).demos)
    imitated = table.filter(table.column("imitate")).column("action").to_pylist()
    noise = table.filter(pc.invert(table.column("imitate"))).column("action").to_pylist()
    assert set(imitated) == {"open", "knock"}
    assert set(noise) == {"knock"}


@pytest.mark.slow
def test_the_pipeline_plays_games_of_gymnasium_without_an_expert_with_a_pretrained_model(world, tmp_path):
    made = tiny.experiment(
        env={"name": gymnasium_games.__file__, "walks": {"horizon": 3}},
        policy={"source": str(world.path("base"))},
        demos={"noise": 0, "slips": 0},
        sft={"epochs": 0},
        audit={"rounds": []},
    )
    plan = Plan(made, tmp_path)
    turns_at = plan.turns_at("flat_grpo", 0, 1)
    for stage, at in [("tasks", JobKeys(split="train")), ("demos", JobKeys()), ("base", JobKeys()), ("sft", JobKeys())]:
        load(stage).run(plan.job(stage, at))
    load("rollout").run(plan.job("rollout", turns_at))
    assert tables.read(plan.layout.path("demos"), "demos").num_rows == 0
    turns = tables.read(plan.layout.path("turns", turns_at.keys), "turns").to_pandas()
    assert set(turns.env) == {"walks"}
    assert set(turns.family) == {"walk", "locked"}
    assert (turns.groupby("rollout_id").done.sum() == 1).all()
    assert turns.turn.max() == 2


def appworld_ready(world, tmp_path, method):
    """A plan with AppWorld's stand-in and all that its first rollouts read, and the keys of their turns."""
    made = tiny.experiment(
        env={"name": "appworld", "appworld": {**appworld_server.install(tmp_path), "servers": 4, "horizon": 2}},
        tasks={"train_split": "train", "eval_split": "dev", "train": 3, "eval": 8},
        agent={"name": "code"},
        policy={"source": str(world.path("base"))},
        demos={"noise": 0, "slips": 0},
        sft={"epochs": 0},
        rollout={"tasks": 2, "group_size": 2, "slots": 4},
        methods=[method],
        audit={"rounds": []},
    )
    plan = Plan(made, tmp_path / "results")
    for stage, at in [("tasks", JobKeys(split="train")), ("demos", JobKeys()), ("base", JobKeys()), ("sft", JobKeys())]:
        load(stage).run(plan.job(stage, at))
    return plan, plan.turns_at(method, 0, 1)


@pytest.mark.slow
def test_the_pipeline_plays_appworld_on_a_stand_in_and_mgr_credits_its_turns(world, tmp_path):
    plan, turns_at = appworld_ready(world, tmp_path, "mgr_no_critic")
    load("rollout").run(plan.job("rollout", turns_at))
    turns = tables.read(plan.layout.path("turns", turns_at.keys), "turns")
    frame = turns.to_pandas()
    assert set(frame.family) <= {"easy", "medium"}
    assert frame.groupby("rollout_id").turn.max().tolist() == [1] * 4
    # An untrained policy writes no block of code, which is no action at all.
    assert not frame.well_formed.any()
    assert set(frame.next_observation) == {"No code available to execute."}
    assert frame.error_reply.all()
    assert (validity_N(Turns(turns)) == -1).all()


LOOKS = "found = []\nfor number in range(3):\n    found.append(number)\nprint(sum(found))"
FINISHES = "if sum(found) == 3:\n    apis.notes.write('done')\n    apis.supervisor.complete_task()"
FAILS = "for one in found:\n    print(missing)"


class Coder:
    """An engine that writes code of several lines. In every second slot, the second block is wrong."""

    def __init__(self, policy, slots):
        self.slots, self._tokenizer = slots, policy.tokenizer

    def sample(self, requests, _temperature, _max_new):
        return [self._respond(request) for request in requests]

    def _respond(self, request):
        code = LOOKS if request.reset else [FINISHES, FAILS][request.slot % 2]
        ids = [*self._tokenizer.encode(f"I write:\n```python\n{code}\n```"), self._tokenizer.eos_id]
        return Response(ids, [0.0] * len(ids))


@pytest.mark.slow
def test_the_pipeline_executes_code_of_several_lines_in_appworld_and_credits_it(world, tmp_path, monkeypatch):
    plan, turns_at = appworld_ready(world, tmp_path, "flat_grpo")
    monkeypatch.setattr(OpenPolicy, "sampler", lambda policy, slots, **_: Coder(policy, slots))
    load("rollout").run(plan.job("rollout", turns_at))
    load("credit").run(plan.job("credit", replace(turns_at, method="flat_grpo")))
    turns = tables.read(plan.layout.path("turns", turns_at.keys), "turns").to_pandas()
    first, second = (turns[turns.turn == number].sort_values("rollout_id") for number in (0, 1))
    assert first.action.tolist() == [LOOKS] * 4
    assert first.next_observation.tolist() == ["3\n"] * 4
    assert second.action.tolist() == [FINISHES, FAILS] * 2
    assert turns.well_formed.all()
    # What the first block has defined is there for the second.
    replies = [text.splitlines()[-1] for text in second.next_observation]
    assert replies == ["Execution successful.", "NameError: name 'missing' is not defined"] * 2
    assert second.success.tolist() == [True, False] * 2
    credits = tables.read(plan.layout.path("credits", turns_at.keys, method="flat_grpo"), "credits").to_pandas()
    assert (np.sign(credits.advantage) == np.where(turns.success, 1, -1)).all()


def test_an_environments_own_task_columns_reach_it_from_the_table(monkeypatch):
    opened = []

    def rows(split, count, *_):
        return [{"task_id": f"{split}-{n}", "goal": "g", "good": "red", "odds": [n, 1]} for n in range(count)]

    def open_task(row, settings):
        opened.append((row["good"], row["odds"]))
        return own.Doors(row, settings)

    environment = Environment(name="own", open_task=open_task, env_class=own.Doors, make_tasks=rows)
    monkeypatch.setattr(envs, "load", lambda _: environment)
    table = make_tasks(EnvSlice(name="own"), "train", 3, 0, key="tasks.train")
    assert table.column_names == [*tables.schema("tasks").names, "good", "odds"]
    games = Games(EnvSlice(name="own"), table)
    games.open(games.rows[2])
    assert opened == [("red", [2, 1])]


def test_held_out_games_come_from_several_splits_in_turn(monkeypatch):
    chosen = EnvSlice(name="household", settings=household.Settings().model_dump())
    both = make_tasks(chosen, ["valid", "eval"], 5, 3, key="tasks.eval")
    assert both.column("split").to_pylist() == ["valid", "eval", "valid", "eval", "valid"]
    for split, count in (("valid", 3), ("eval", 2)):
        alone = make_tasks(chosen, split, count, 3, key="tasks.eval").to_pylist()
        assert [row for row in both.to_pylist() if row["split"] == split] == alone
    few = [{"task_id": "one", "goal": "win."}]
    monkeypatch.setattr(tasks, "split_rows", lambda *_: few)
    with pytest.raises(
        UserError, match=r"tasks.eval asks for 5 games, 3 of them of 'valid', but the split 'valid' has"
    ):
        make_tasks(chosen, ["valid", "eval"], 5, 3, key="tasks.eval")


def test_an_own_task_column_of_several_types_is_refused(monkeypatch):
    rows = [{"task_id": "a", "goal": "g", "x": 1}, {"task_id": "b", "goal": "g", "x": "one"}]
    environment = Environment(name="own", open_task=own.Doors, make_tasks=lambda *_: rows)
    monkeypatch.setattr(envs, "load", lambda _: environment)
    with pytest.raises(UserError, match="environment 'own': the tasks' column 'x' cannot be stored"):
        make_tasks(EnvSlice(name="own"), "train", 2, 0, key="tasks.train")
