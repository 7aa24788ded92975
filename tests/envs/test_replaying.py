"""States restored by playing the actions again, for environments that cannot save them."""

from __future__ import annotations

import asyncio
from itertools import count

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.envs import own
from tests.rollouts.walk import Walk, Words, walked
from turncredit import envs
from turncredit.config import EnvSlice
from turncredit.data.tables import schema
from turncredit.envs import guard
from turncredit.envs.replaying import Replaying, restorable
from turncredit.envs.trials import with_trials
from turncredit.errors import UserError
from turncredit.rollouts.restore import restore
from turncredit.rollouts.tasks import Games

ROW = {"task_id": "walk-1", "goal": "reach 3."}


class Plain:
    """The tests' walk, which cannot save its states here."""

    def __init__(self, _row, _settings):
        self.walk = Walk()

    def reset(self):
        return self.walk.reset()

    def step(self, action):
        return self.walk.step(action)

    def close(self):
        pass


class Later(Plain):
    """The same, asynchronous."""

    async def reset(self):
        return Plain.reset(self)

    async def step(self, action):
        await asyncio.sleep(0)
        return Plain.step(self, action)


class Fickle(Plain):
    """A walk that says something else each time."""

    said = count()

    def step(self, action):
        return Plain.step(self, action)._replace(observation=f"{next(Fickle.said)}")


def opened(kind):
    return restorable(own.environment(kind)).open_task(ROW, None)


@given(st.lists(st.sampled_from(["forward", "back"]), max_size=5), st.integers(1, 5))
def test_another_rollout_goes_on_from_a_restored_state_as_the_first_one_does(actions, more):
    first, second = opened(Plain), opened(Plain)
    first.reset()
    for action in actions:
        if first.step(action).done:
            first.reset()
    state = first.snapshot()
    second.reset()
    second.step("forward")
    second.restore(state)
    assert second.snapshot() == state
    assert (second.env.walk.at, second.env.walk.turn) == (first.env.walk.at, first.env.walk.turn)
    left = min(more, Walk.horizon - first.env.walk.turn)
    assert [first.step("back") for _ in range(left)] == [second.step("back") for _ in range(left)]


def test_a_deterministic_environment_has_snapshots_and_one_that_saves_its_states_keeps_its_own():
    plain = own.environment(Plain)
    assert {"replay", "snapshot"} <= plain.capabilities
    assert plain.restores_by_replay
    assert not {"replay", "snapshot"} & own.environment(Plain, deterministic=False).capabilities
    assert restorable(own.environment(Plain, deterministic=False)).open_task is Plain
    household = envs.load("household")
    assert not household.restores_by_replay
    assert restorable(household) is household


def test_an_asynchronous_environment_is_restored_behind_the_guard(monkeypatch):
    monkeypatch.setattr(envs, "load", lambda _: own.environment(Later))
    table = pa.Table.from_pylist([{**dict.fromkeys(schema("tasks").names), **ROW}])
    games = Games(EnvSlice(name="later"), table, timeout=5.0)
    one, other = games.open(games.rows[0]), games.open(games.rows[0])
    assert one.reset() == "at 0"
    one.step("forward")
    one.step("forward")
    other.restore(one.snapshot())
    assert other.turn == 2
    assert other.step("forward").success


def test_a_replay_that_leads_elsewhere_is_refused_by_name():
    env = opened(Fickle)
    env.reset()
    env.step("forward")
    with pytest.raises(UserError, match=r"'fickle': task 'walk-1': the same 1 actions led to another observation"):
        env.restore(env.snapshot())


@pytest.mark.parametrize("kind", [Plain, Later])
def test_a_later_trial_is_restored_from_its_own_first_action(kind):
    trials = with_trials(restorable(own.environment(kind)), 2)
    env, other = (guard.open_guarded(trials, ROW, None, 5.0) for _ in range(2))
    env.reset()
    for _ in range(Walk.horizon):
        env.step("back")
    env.step("a lesson")
    env.step("forward")
    state = env.snapshot()
    other.restore(state)
    assert state[-1][-1] == (("forward",), "at 1")
    assert [other.step("forward").success for _ in range(2)] == [False, True]


def test_checkpoints_of_a_recorded_rollout_are_replayed_once_and_a_changed_record_is_noticed():
    actions = ["forward", "back", "forward", "forward", "forward"]
    turns, played = walked(actions), []

    def open_counted():
        env = Replaying(Plain(None, None), "walk")
        played.append(env)
        return env

    found = restore(open_counted, Words(), turns, goal=Walk.goal, admissible=lambda _: ())
    assert found.replayed == [True] * 5
    assert [checkpoint.state[0] for checkpoint in found.checkpoints] == [tuple(actions[:n]) for n in range(5)]
    assert len(played) == 1
    turns[3]["reward"] = 0.5
    found = restore(open_counted, Words(), turns, goal=Walk.goal, admissible=lambda _: ())
    assert found.replayed == [False, False, False, False, False]
    turns[3]["reward"], turns[1]["next_observation"] = 0.0, "at 2"
    assert not any(restore(open_counted, Words(), turns, goal=Walk.goal, admissible=lambda _: ()).replayed)
