"""`turncredit env check` finds a broken promise, names it, and finds none where there is none."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turncredit import envs
from turncredit.audit import environment_check
from turncredit.audit.environment_check import check_environment
from turncredit.audit.environment_trial import Tried
from turncredit.cli.env import app
from turncredit.config import EnvSlice
from turncredit.errors import UserError

SOUND = '''
import asyncio, functools, itertools, random, time
from turncredit.envs.environment import Environment
from turncredit.envs.protocol import Step

class Line:
    """A position on a line from 0 to `goal`; at -1 the goal is out of reach."""
    opened = 0

    def __init__(self, row, settings):
        self.goal = len(row["game"])
        Line.opened += 1

    def reset(self):
        self.at, self.turn = 1, 0
        return f"you are at {self.at}"

    def step(self, action):
        move = {"right": 1, "left": -1}.get(action, 0)
        if self.at > -1:
            self.at += move
        self.turn += 1
        won = self.at == self.goal
        return Step(f"you are at {self.at}", float(won), won or self.turn == 12, won, action in ("left", "right"))

    def close(self): ...

    def progress(self):
        return max(self.at, 0) / self.goal

    def distance(self):
        return -1 if self.at == -1 else self.goal - self.at

    def oracle(self):
        return ["right"] * max(self.distance(), 0)

    def snapshot(self):
        return self.at, self.turn

    def restore(self, state):
        self.at, self.turn = state

    def admissible(self):
        return ["left", "right"]


class Expert:
    def __init__(self, env, rng): ...
    def observe(self, observation, action=None): ...
    def act(self):
        return "right"


def make_tasks(split, count, seed, settings):
    first = 2 if split == "train" else 5
    return [{"task_id": f"{split}-{n}", "goal": f"{split} {n}.", "game": "x" * (first + n % 3)} for n in range(count)]
'''

END = "\nENVIRONMENT = Environment(name='line', open_task=Line, make_tasks=make_tasks, expert=Expert)\n"


def findings(tmp_path: Path, fault: str = "", **changes: int | float) -> dict[str, tuple[str, str]]:
    """The outcome and the detail of each check of the sound environment, with the code `fault` behind it."""
    path = tmp_path / "line_env.py"
    path.write_text(SOUND + textwrap.dedent(fault) + END)
    tried = Tried(EnvSlice(name=str(path), settings={}), tasks=4, **changes)  # type: ignore[arg-type]
    return {found.check: (found.outcome, found.detail) for found in check_environment(tried)}


def test_everything_holds_for_a_sound_environment(tmp_path: Path) -> None:
    found = findings(tmp_path)
    assert list(found) == list(environment_check.CHECKS)
    assert {outcome for outcome, _ in found.values()} == {"holds"}
    assert found["expert"][1] == (
        "wins 4 of 4 tasks, with a mean return of 1; 0 of its 7 actions were not valid; wins 4 where 10% of turns are "
        "random"
    )


#: by check: code that breaks one promise, and what is said of it
FAULTS = {
    "tasks": (
        """
        make_some = make_tasks
        def make_tasks(*given): return make_some(*given)[::-1]
        """,
        "do not begin with the same 4 tasks",
    ),
    "splits": (
        """
        make_some = make_tasks
        def make_tasks(split, *given): return make_some("train", *given)
        """,
        "64 of 64 evaluation tasks are training tasks, such as",
    ),
    "odd actions": (
        """
        step = Line.step
        Line.step = lambda self, action: step(self, action + " "[1 // len(action):])
        """,
        "raised ZeroDivisionError",
    ),
    "determinism": (
        """
        reset, numbers = Line.reset, itertools.count()
        Line.reset = lambda self: f"{reset(self)} {next(numbers)}"
        """,
        "the second reset gives another observation",
    ),
    "together": (
        """
        reset = Line.reset
        Line.at = property(lambda self: Line.shared, lambda self, value: setattr(Line, "shared", value))
        """,
        "while others are played; do rollouts share a state?",
    ),
    "end": (
        """
        step = Line.step
        Line.step = lambda self, action: step(self, action)._replace(done=False)
        Line.admissible = lambda self: ["left"]
        """,
        "task 'train-0' has not ended after 1,000 turns",
    ),
    "progress": ("Line.progress = lambda self: self.at / self.goal", "progress is -0."),
    "distance": ("Line.distance = lambda self: 2 * (self.goal - self.at)", "actions are left after 1 of a plan"),
    "snapshot": ("Line.snapshot = lambda self: (self.at, 0)", "restored in the rollout after"),
    "admissible": ("Line.admissible = lambda self: ['left', 'right', 'jump']", "'jump' is admissible and not valid"),
    "expert": ("Expert.act = lambda self: 'left'", "the expert wins none of 4 tasks"),
}


@pytest.mark.parametrize("check", FAULTS)
def test_a_broken_promise_is_found_by_its_check(tmp_path: Path, check: str) -> None:
    fault, message = FAULTS[check]
    outcome, detail = findings(tmp_path, fault)[check]
    assert (outcome, message in detail) == ("fails", True), detail
    assert "\n" not in detail


@pytest.mark.parametrize("without", ["random actions", "an expert, too"])
def test_without_random_actions_others_find_what_is_not_deterministic(tmp_path: Path, without: str) -> None:
    fault = """
        del Line.admissible
        reset, numbers = Line.reset, itertools.count()
        Line.reset = lambda self: reset(self) and f"you are at {next(numbers)}"
    """
    fault += "    Expert = None\n" if without == "an expert, too" else ""
    outcome, detail = findings(tmp_path, fault)["determinism"]
    assert outcome == "fails", detail
    assert "gives another observation" in detail


def test_what_a_finished_rollout_leaves_behind_is_found(tmp_path: Path) -> None:
    sticky = """
        reset = Line.reset
        Line.reset = lambda self: reset(self) + "!" * vars(self).setdefault("over", 0)
        step = Line.step
        Line.step = lambda self, action: (done := step(self, action)).done and vars(self).update(over=1) or done
    """
    assert "a reset at the end gives another observation" in findings(tmp_path, sticky)["determinism"][1]


def test_rollouts_of_one_task_at_a_time_are_tried_too(tmp_path: Path) -> None:
    by_task = """
        states = {}
        opened = Line.__init__
        def __init__(self, row, settings):
            opened(self, row, settings)
            self.task = row["task_id"]
        Line.__init__ = __init__
        Line.at = property(lambda self: states[self.task], lambda self, value: states.update({self.task: value}))
    """
    assert findings(tmp_path, by_task)["together"][0] == "fails"


def test_tasks_that_begin_like_training_tasks_are_counted_unless_a_key_tells_them_apart(tmp_path: Path) -> None:
    leak = """
        make_some = make_tasks
        def make_tasks(split, *given):
            rows = make_some(split, *given)
            return [{**row, "goal": "go.", "game": "xx", "uid": row["task_id"]} for row in rows]
    """
    assert findings(tmp_path, leak)["splits"] == (
        "holds",
        "64 evaluation tasks against 64 training tasks; 64 of 64 have the goal and the first observation of a training "
        "task: if they are the same tasks, give task_key",
    )
    keyed = """
        Environment = functools.partial(Environment, task_key=lambda row: row["uid"])
    """
    found = findings(tmp_path, textwrap.dedent(leak) + textwrap.dedent(keyed))["splits"]
    assert found == ("holds", "64 evaluation tasks against 64 training tasks")


def test_a_success_that_is_not_the_end_fails(tmp_path: Path) -> None:
    goes_on = """
        step = Line.step
        Line.step = lambda self, action: (now := step(self, action))._replace(done=self.turn >= 12)
    """
    found = findings(tmp_path, goes_on)
    assert found["expert"][0] == "fails"
    assert "played by the expert, turn 0 ('right'): success is true, and done is false" in found["expert"][1]


def test_a_return_without_success_is_told_of_the_expert(tmp_path: Path) -> None:
    silent = """
        step = Line.step
        Line.step = lambda self, action: step(self, action)._replace(success=False)
    """
    expected = "the expert wins none of 4 tasks; its rollouts return up to 1, but have success=False"
    assert findings(tmp_path, silent)["expert"] == ("fails", expected)


def test_an_error_of_the_tasks_is_said_once(tmp_path: Path) -> None:
    found = findings(tmp_path, "def make_tasks(*given): raise ValueError('no tasks today')")
    assert found.pop("tasks") == ("fails", "environment 'line': make_tasks() raised ValueError: no tasks today")
    assert set(found.values()) == {("not tried", "it goes wrong as 'tasks' does")}


def test_an_expert_that_loses_its_way_after_random_turns_is_found(tmp_path: Path) -> None:
    lost = """
        Expert.observe = lambda self, observation, action=None: vars(self).update(lost=action is not None)
        Expert.act = lambda self: "left" if self.lost else "right"
        admissible, Line.admissible = Line.admissible, lambda self: ["left", "right"][: 1 + (self.at < 1)]
    """
    outcome, detail = findings(tmp_path, lost, noise=0.99)["expert"]
    assert outcome == "fails"
    assert detail.startswith(
        "the expert wins 4 of 4 tasks, and none where 99% of turns are random, as in demonstrations"
    )
    assert findings(tmp_path, lost, noise=0.0)["expert"] == (
        "holds",
        "wins 4 of 4 tasks, with a mean return of 1; 0 of its 7 actions were not valid",
    )


def test_what_an_environment_cannot_do_is_not_tried(tmp_path: Path) -> None:
    fault = """
        for name in ("progress", "distance", "snapshot", "admissible"):
            delattr(Line, name)
        Expert = None
    """
    found = findings(tmp_path, fault)
    outcomes = {check: outcome for check, (outcome, _) in found.items()}
    assert {check for check, outcome in outcomes.items() if outcome == "not tried"} == {
        *("progress", "distance", "admissible", "expert")
    }
    assert found["progress"][1] == "the environment has no capability 'progress'"


def test_a_call_that_hangs_fails_its_checks_and_ends(tmp_path: Path) -> None:
    hangs = """
        step = Line.step
        Line.step = lambda self, action: step(self, action) if action else time.sleep(60)
    """
    found = findings(tmp_path, hangs, timeout=0.2)
    assert found["odd actions"] == ("fails", found["odd actions"][1])
    assert "took longer" in found["odd actions"][1]
    assert found["expert"][0] == "holds"


def test_splits_are_compared_on_fewer_tasks_where_making_one_is_slow(tmp_path: Path) -> None:
    assert findings(tmp_path)["splits"][1] == "64 evaluation tasks against 64 training tasks"
    slow = """
        make_fast = make_tasks
        def make_tasks(split, count, *given): return time.sleep(0.05 * count) or make_fast(split, count, *given)
    """
    assert findings(tmp_path, slow, timeout=2.0)["splits"] == ("holds", "8 evaluation tasks against 8 training tasks")


def test_steps_may_be_coroutines(tmp_path: Path) -> None:
    fault = """
        plain = Line.step
        async def step(self, action):
            await asyncio.sleep(0)
            return plain(self, action)
        Line.step = step
    """
    assert {outcome for outcome, _ in findings(tmp_path, fault).values()} == {"holds"}


@pytest.mark.parametrize(
    "name", ["household", "webshop", "searchqa", "virtualhome", "sokoban", "desk", "examples/counting_env.py"]
)
def test_the_environments_that_come_with_it_keep_their_promises(name: str) -> None:
    settings = envs.load(name).Settings().model_dump()
    found = {one.check: one for one in check_environment(Tried(EnvSlice(name=name, settings=settings), tasks=4))}
    assert [one for one in found.values() if one.outcome == "fails"] == []
    assert found["determinism"].outcome == "holds"


def test_the_command_prints_a_line_for_each_check_and_fails_where_one_does(tmp_path: Path) -> None:
    path = tmp_path / "line_env.py"
    path.write_text(SOUND + END)
    done = CliRunner().invoke(app, ["check", str(path), "--tasks", "2"])
    assert done.exit_code == 0, done.output
    assert [line.split("  ")[0] for line in done.stdout.splitlines()] == list(environment_check.CHECKS)
    path.write_text(SOUND + "\ndel Line.admissible, Line.progress" + END)
    done = CliRunner().invoke(app, ["check", str(path), "--tasks", "2"])
    assert done.stdout.splitlines()[-1] == (
        "not tried: progress, admissible; random actions: without admissible() or random_command, those played were "
        "the expert's"
    )
    path.write_text(SOUND + "\nExpert.act = lambda self: 'left'" + END)
    failed = CliRunner().invoke(app, ["check", str(path), "--tasks", "2"])
    assert failed.exit_code == 1
    assert "the expert wins none of 2 tasks" in failed.stdout


def test_a_world_whose_data_are_missing_is_refused_in_one_line(monkeypatch) -> None:
    monkeypatch.delenv("APPWORLD_ROOT", raising=False)
    refused = CliRunner().invoke(app, ["check", "appworld", "--settings", "{command: elsewhere}"])
    assert isinstance(refused.exception, UserError)
    assert "no executable 'elsewhere'" in str(refused.exception)
    assert refused.stdout == ""


@pytest.mark.parametrize(("name", "split"), [("household", "eval"), ("scienceworld", "dev"), ("appworld", "dev")])
def test_without_a_split_tasks_are_held_out_of_the_worlds_own(name: str, split: str) -> None:
    assert envs.load(name).held_out_split == split


def test_an_environment_of_ones_own_is_listed_and_played(tmp_path: Path) -> None:
    path = tmp_path / "line_env.py"
    path.write_text(SOUND + END)
    assert "line: \n    capabilities: progress, distance" in CliRunner().invoke(app, ["list", str(path)]).stdout
    typed = CliRunner().invoke(app, ["play", str(path), "--task", "1"], input="?\n!\nright\nright\n")
    assert typed.exit_code == 0, typed.output
    assert "line: train 1." in typed.stdout
    assert typed.stdout.index("left\nright") < typed.stdout.index("you are at 2") < typed.stdout.index("You won.")
