"""Rollouts that do not wait for each other: the same ones, whatever the order in which responses come."""

from __future__ import annotations

import asyncio
import random
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import tiny
from tests.envs import own
from turncredit import envs
from turncredit.config import EnvSlice
from turncredit.data import tables
from turncredit.data.seeding import derive_seed
from turncredit.envs.protocol import Step
from turncredit.errors import UserError
from turncredit.policy.open import OpenPolicy
from turncredit.rollouts.play import Player, Start
from turncredit.rollouts.tasks import Games, make_tasks


class AnyOrder:
    """An engine that answers some of its requests at a time, by chance, each sampled alone by the engine `inner`."""

    def __init__(self, inner, rng):
        self.slots, self._inner, self._rng = inner.slots, inner, rng
        self.unanswered, self.cancelled = {}, 0

    def submit(self, request, temperature, max_new):
        assert request.slot not in self.unanswered, "a slot has one request at a time"
        self.unanswered[request.slot] = request, temperature, max_new

    def answered(self, *, wait):
        assert self.unanswered
        least = 1 if wait else 0
        chosen = self._rng.sample(sorted(self.unanswered), self._rng.randint(least, len(self.unanswered)))
        asked = [(slot, *self.unanswered.pop(slot)) for slot in chosen]
        return [(slot, self._inner.sample([request], *how)[0]) for slot, request, *how in asked]

    def cancel(self):
        self.cancelled += 1
        self.unanswered = {}

    def sample(self, requests, temperature, max_new):
        return self._inner.sample(requests, temperature, max_new)


class InAnyOrder(OpenPolicy):
    """A policy whose engine answers in any order."""

    def __init__(self, folder, *, rng=None, **given):
        super().__init__(folder, **given)
        self._rng = rng or random.Random(0)

    def sampler(self, slots, **given):
        return AnyOrder(super().sampler(slots, **given), self._rng)


def player(world, games, slots, kind=InAnyOrder, **given):
    policy = kind(world.path("sft_policy"), dtype="float32", **given)
    return Player(policy, tiny.experiment().agent.chosen(), games, slots)


def starts_of(games, tasks, copies):
    return [
        Start(row["task_id"], f"{row['task_id']}#{copy}", row, derive_seed(row["task_id"], copy))
        for row in games.rows[:tasks]
        for copy in range(copies)
    ]


def turns(rollouts):
    """All that rollouts have been, and the log-probabilities apart, which guesses of the engine round."""
    said = {
        one.start.rollout_id: [
            (turn.prompt.ids, turn.response.ids, turn.action, turn.next_observation, turn.done) for turn in one.turns
        ]
        for one in rollouts
    }
    return said, np.concatenate([turn.response.logprobs for one in rollouts for turn in one.turns])


@pytest.fixture(scope="module")
def household(world):
    return Games(tiny.experiment().env.chosen(), tables.read(world.path("tasks", split="train"), "tasks"))


@pytest.fixture(scope="module")
def in_lockstep(world, household):
    return turns(player(world, household, 12, OpenPolicy).play(starts_of(household, 4, 3), temperature=1.0))


@settings(max_examples=10, deadline=None)
@given(rng=st.randoms(use_true_random=False), slots=st.integers(1, 14))
def test_the_rollouts_are_those_of_lockstep_in_whatever_order_responses_come(world, household, in_lockstep, rng, slots):
    found = player(world, household, slots, rng=rng).play(starts_of(household, 4, 3), temperature=1.0)
    said, logprobs = turns(found)
    assert said == in_lockstep[0]
    np.testing.assert_allclose(logprobs, in_lockstep[1], atol=1e-5)


def test_an_environment_that_takes_steps_together_gets_those_of_all_rollouts_at_once(household, world, in_lockstep):
    """Such as one request to a search engine for all of them: apart, each would wait for its own."""
    taken, together = [], copy(household)
    together.env = replace(household.env, before_steps=lambda running, _: taken.append(len(running)))
    found = player(world, together, 12).play(starts_of(household, 4, 3), temperature=1.0)
    assert turns(found)[0] == in_lockstep[0]
    lengths = [len(one.turns) for one in found]
    assert taken == [sum(length > turn for length in lengths) for turn in range(max(lengths))]


class Waits(own.Doors):
    """The second step of `first` ends only when `second` has ended. In lockstep neither would get there."""

    async def reset(self):
        await asyncio.sleep(0)
        return own.Doors.reset(self)

    async def step(self, action):
        name = self.row["task_id"]
        if name == "first" and self.at == 1:
            await Waits.over.wait()
        step = own.Doors.step(self, action)
        if name == "second" and step.done:
            Waits.over.set()
        return step

    async def close(self):
        own.Doors.close(self)


@pytest.fixture
def games(monkeypatch):
    """Games of one of the test environments, under the name `own`."""

    def made(kind, names, timeout=5.0):
        rows = [{"task_id": name, "goal": "pass three doors."} for name in names]
        environment = own.environment(kind, make_tasks=lambda *_: rows)
        monkeypatch.setattr(envs, "load", lambda _: environment)
        own.Doors.opened.clear()
        config = EnvSlice(name="own")
        return Games(config, make_tasks(config, "train", len(rows), 0, key="tasks.train"), timeout=timeout)

    return made


def test_a_rollout_whose_environment_is_slow_holds_up_no_other(world, games):
    Waits.over = asyncio.Event()
    slow = games(Waits, ["first", "second", "third"])
    order = [number for number, _ in player(world, slow, 2).stream(starts_of(slow, 3, 1), temperature=1.0)]
    assert sorted(order) == [0, 1, 2]
    assert order.index(1) < order.index(0)
    assert all(env.closed for env in own.Doors.opened)


@pytest.mark.parametrize("kind", [own.Faulty, own.FaultyLater])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", r"step\(\) raised ValueError: the hinge broke \(task 'raises', turn 1\)"),
        ("hangs", r"step\(\) took longer than env.timeout, 1 s \(task 'hangs', turn 1\)"),
    ],
)
def test_an_environment_that_goes_wrong_ends_all_and_leaves_no_request(world, games, monkeypatch, kind, name, said):
    monkeypatch.setattr(own.Faulty, "fine", lambda self: own.Doors.step(self, "open"), raising=False)
    wrong = games(kind, ["fine", name], timeout=1.0)
    one = player(world, wrong, 2)
    with pytest.raises(UserError, match=said):
        one.play(starts_of(wrong, 2, 1), temperature=1.0)
    engine = one._sampler
    assert (engine.unanswered, engine.cancelled) == ({}, 1)
    assert own.Doors.opened[0].closed


def test_an_engine_that_dies_is_what_is_said_and_every_environment_is_closed(world, games, monkeypatch):
    def die(_engine, **_):
        raise UserError("the engine is gone")

    monkeypatch.setattr(AnyOrder, "answered", die)
    monkeypatch.setattr(AnyOrder, "cancel", lambda engine: engine.missing)
    two = games(own.Doors, ["one", "two"])
    with pytest.raises(UserError, match="the engine is gone"):
        player(world, two, 2).play(starts_of(two, 2, 1), temperature=1.0)
    assert [env.closed for env in own.Doors.opened] == [True, True]


def test_who_stops_listening_leaves_no_request_and_no_open_environment(world, games):
    three = games(own.Doors, ["one", "two", "three"])
    one = player(world, three, 2)
    playing = one.stream(starts_of(three, 3, 1), temperature=1.0)
    next(playing)
    playing.close()
    assert (one._sampler.unanswered, one._sampler.cancelled) == ({}, 1)
    assert all(env.closed for env in own.Doors.opened)


def test_an_environment_may_end_a_rollout_in_its_first_step(world, games):
    class Short(own.Doors):
        def step(self, action):  # noqa: ARG002
            return Step("out", 1.0, True, True)

    found = games(Short, ["one", "two", "three", "four"])
    played = player(world, found, 2).play(starts_of(found, 4, 1), temperature=1.0)
    assert [len(one.turns) for one in played] == [1] * 4
