"""Rollouts whose environment fails from outside are played again, and are what they would have been."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.envs import own
from tests.helpers import nonempty
from tests.rollouts.test_when_ready import InAnyOrder, player, starts_of, turns
from turncredit import envs
from turncredit.config import EnvSlice
from turncredit.errors import OutsideFault, UserError
from turncredit.pipeline.stages.rollout import warning
from turncredit.policy.open import OpenPolicy
from turncredit.rollouts import seats
from turncredit.rollouts.play import Checkpoint, Start
from turncredit.rollouts.rollout import summary, turn_table
from turncredit.rollouts.tasks import Games, make_tasks

KINDS = [OpenPolicy, InAnyOrder]
COMMON = {"env": "own", "policy_id": "p", "agent": "transcript", "seed": 0, "temperature": 1.0}


class Echo(own.Doors):
    """Doors that repeat the action, so that a rollout shows which ones were played before. Goes wrong as planned.

    `plan`   by task and method: which of its calls raises, and what
    """

    plan: dict[tuple[str, str], tuple[Sequence[int], Exception]] = {}  # noqa: RUF012 - each test has its own
    calls: Counter[tuple[str, str]] = Counter()  # noqa: RUF012

    def __init__(self, row, settings):
        super().__init__(row, settings)
        self._call("open")

    def _call(self, method):
        key = self.row["task_id"], method
        Echo.calls[key] += 1
        which, error = Echo.plan.get(key, ((), None))
        if Echo.calls[key] in which:
            raise error

    async def reset(self):
        self._call("reset")
        self.said = []
        return own.Doors.reset(self)

    async def step(self, action):
        self.said.append(action)
        if self.row["task_id"] == "hangs" and len(own.Doors.opened) == 2 and self.at == 1:
            await asyncio.sleep(60)
        self._call("step")
        return own.Doors.step(self, action)._replace(observation=" | ".join(self.said))

    def close(self):
        self._call("close")
        super().close()


@pytest.fixture
def games(monkeypatch):
    """Games of `Echo`, or another environment, with a plan of what goes wrong."""
    monkeypatch.setattr(seats, "PAUSES", (0.01, 0.02))

    def made(names, plan=None, kind=Echo, timeout=5.0):
        rows = [{"task_id": name, "goal": "pass three doors."} for name in names]
        environment = own.environment(kind, make_tasks=lambda *_: rows)
        monkeypatch.setattr(envs, "load", lambda _: environment)
        monkeypatch.setattr(Echo, "plan", plan or {})
        Echo.calls.clear()
        own.Doors.opened.clear()
        config = EnvSlice(name="own")
        return Games(config, make_tasks(config, "train", len(rows), 0, key="tasks.train"), timeout=timeout)

    return made


LOST = ConnectionResetError("by peer")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("method", "call"), [("open", 1), ("reset", 1), ("step", 2), ("step", 3), ("close", 1)])
def test_a_rollout_whose_connection_is_lost_once_is_the_one_that_it_would_have_been(
    world, games, kind, method, call, capsys
):
    names = ["one", "two", "three"]
    whole = games(names)
    undisturbed = player(world, whole, 2, kind).play(starts_of(whole, 3, 1), temperature=1.0)
    found = games(names, {("two", method): ([call], LOST)})
    played = player(world, found, 2, kind).play(starts_of(found, 3, 1), temperature=1.0)
    assert turns(played)[0] == turns(undisturbed)[0]
    assert [one.turns[-1].redone for one in played] == [0, 1, 0]
    opened = 0 if method == "open" else 1  # before it was played again
    assert Echo.calls["two", "reset"] == opened + 1
    assert capsys.readouterr().err.count("raised ConnectionResetError: by peer") == 1
    assert sum(not env.closed for env in own.Doors.opened if hasattr(env, "said")) == (method == "close")


def test_how_many_were_played_again_is_in_the_metrics_the_turns_and_the_warning(world, games):
    found = games(["one", "two"], {("two", "step"): ([2], LOST)})
    one = player(world, found, 2, OpenPolicy)
    played = one.play(starts_of(found, 2, 1), temperature=1.0)
    metrics = summary(played)
    assert metrics["redone"] == 1
    assert "1 rollouts were played again from their start" in warning(metrics)
    table = turn_table(played, COMMON, one.turn_columns)
    assert table.column("redone").to_pylist() == [0, 0, 0, 1, 1, 1]
    whole = games(["one", "two"])
    undisturbed = player(world, whole, 2, OpenPolicy).play(starts_of(whole, 2, 1), temperature=1.0)
    assert "redone" not in summary(undisturbed)
    assert "redone" not in turn_table(undisturbed, COMMON).column_names


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_takes_too_long_costs_only_its_own_rollout(world, games, kind):
    found = games(["one", "hangs"], timeout=0.5)
    played = player(world, found, 2, kind).play(starts_of(found, 2, 1), temperature=1.0)
    assert [one.turns[-1].redone for one in played] == [0, 1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["open", "reset", "step"])
def test_a_rollout_is_played_three_times_at_most(world, games, kind, method):
    found = games(["one", "two"], {("two", method): (range(1, 99), LOST)})
    with pytest.raises(OutsideFault, match=r"raised ConnectionResetError: by peer \(task 'two'"):
        player(world, found, 2, kind).play(starts_of(found, 2, 1), temperature=1.0)
    assert Echo.calls["two", method] == 3
    assert all(nonempty(env.closed for env in own.Doors.opened if method != "open" or env.row["task_id"] == "one"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_mistake_in_the_environment_is_not_tried_again(world, games, kind):
    found = games(["one", "two"], {("two", "step"): ([2], ValueError("no"))})
    with pytest.raises(UserError, match="raised ValueError: no") as caught:
        player(world, found, 2, kind).play(starts_of(found, 2, 1), temperature=1.0)
    assert not isinstance(caught.value, OutsideFault)
    assert Echo.calls["two", "open"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_continuation_begins_again_at_its_checkpoint(world, games, kind):
    def continued(plan):
        found = games(["one"], plan)
        one = player(world, found, 2, kind)
        (start,) = starts_of(found, 1, 1)
        before = one.seat(0, start)
        before.begin(before.env.reset())
        state = before.env.snapshot()
        checkpoint = Checkpoint(0, before.observation, state, before.agent.fork(), before.prompt.ids)
        starts = [Start("one", f"one#{copy}", start.task, copy, checkpoint) for copy in range(2)]
        return one.play(starts, temperature=1.0)

    undisturbed = continued({})
    for method, call in (("reset", 2), ("step", 1)):
        found = continued({("one", method): ([call], LOST)})
        assert turns(found)[0] == turns(undisturbed)[0]
        assert sum(one.turns[-1].redone for one in found) == 1


class Redoes(Echo):
    """It plays rollouts again itself."""

    redone = 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_environment_that_plays_rollouts_again_itself_has_had_its_attempts(world, games, kind):
    found = games(["one", "two"], {("two", "step"): ([2], LOST)}, Redoes)
    with pytest.raises(OutsideFault, match="by peer"):
        player(world, found, 2, kind).play(starts_of(found, 2, 1), temperature=1.0)
    assert Echo.calls["two", "open"] == 1


def test_rollouts_that_end_together_share_a_pause(world, games, monkeypatch):
    slept = []
    found = games(["one", "two", "three"], {(name, "step"): ([2], LOST) for name in ("one", "two", "three")})
    monkeypatch.setattr(seats, "PAUSES", (60.0, 60.0))
    monkeypatch.setattr(seats.time, "sleep", slept.append)
    played = player(world, found, 3, OpenPolicy).play(starts_of(found, 3, 1), temperature=1.0)
    assert [one.turns[-1].redone for one in played] == [1, 1, 1]
    assert slept == [60.0]
