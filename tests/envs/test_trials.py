"""Several trials of a game in one rollout, on a game that is won by guessing a word in two steps."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.envs import own
from turncredit.data.transcript_markers import FAILED
from turncredit.envs import guard, household
from turncredit.envs.environment import Environment
from turncredit.envs.failures import FailureRule
from turncredit.envs.protocol import Step
from turncredit.envs.trials import Trials, with_trials
from turncredit.errors import OutsideFault, UserError


class Guess:
    """`yes` in the second step wins; in the first one it earns a half."""

    def __init__(self, _row, _settings):
        self.state = None

    def reset(self):
        self.state = 0
        return "begin"

    def step(self, action):
        self.state += 1
        won = self.state == 2 and action == "yes"
        return Step(f"seen {self.state}", (0.5, 1.0)[self.state - 1] * (action == "yes"), self.state == 2, won, True)

    def close(self):
        pass

    def admissible(self):
        return ["yes", "no"]

    def snapshot(self):
        return self.state

    def restore(self, state):
        self.state = state


class Later(Guess):
    """The same, asynchronous."""

    async def reset(self):
        await asyncio.sleep(0)
        return Guess.reset(self)

    async def step(self, action):
        await asyncio.sleep(0)
        return Guess.step(self, action)


def opened(kind=Guess, trials=3):
    return guard.open_guarded(with_trials(own.environment(kind), trials), {"task_id": "a", "goal": ""}, None, 5.0)


def steps(env, actions):
    env.reset()
    return [env.step(action) for action in actions]


@pytest.mark.parametrize("kind", [Guess, Later])
def test_a_failed_trial_is_followed_by_a_lesson_and_the_next_trial(kind):
    found = steps(opened(kind, trials=2), ["no", "no", "a lesson", "no", "yes"])
    assert [step.observation for step in found] == ["seen 1", f"seen 2{FAILED}", "begin", "seen 1", "seen 2"]
    assert [step.done for step in found] == [False, False, False, False, True]
    assert [step.success for step in found] == [False, False, False, False, True]
    assert all(step.valid for step in found)


def test_the_last_trial_ends_the_rollout_whether_it_succeeds_or_not():
    last = steps(opened(trials=2), ["no", "no", "a lesson", "no", "no"])[-1]
    assert (last.observation, last.done, last.success) == ("seen 2", True, False)
    assert steps(opened(trials=3), ["no", "yes"])[-1].done, "a success ends it at once"
    assert steps(opened(trials=1), ["no", "no"])[-1].done


guesses = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=4)


def script(guesses):
    """Actions of all trials with a lesson between two of them, up to the first success."""
    actions = []
    for first, second in guesses:
        actions += [("no", "yes")[first], ("no", "yes")[second], "a lesson"]
        if second:
            break
    return actions[:-1]


@given(guesses)
def test_a_rollouts_return_is_that_of_its_last_trial(guesses):
    actions = script(guesses)
    found = steps(opened(trials=len(guesses)), actions)
    assert [step.done for step in found] == [False] * (len(found) - 1) + [True]
    assert sum(step.reward for step in found) == sum(step.reward for step in found[-2:])
    assert found[-1].success == (actions[-1] == "yes")


@given(guesses)
def test_every_state_can_be_restored_by_another_environment_on_the_task(guesses):
    actions = script(guesses)
    env, other = opened(trials=len(guesses)), opened(trials=len(guesses))
    env.reset()
    states, found, allowed = [], [], []
    for action in actions:
        states.append(env.snapshot())
        allowed.append(env.admissible())
        found.append(env.step(action))
    for number, state in enumerate(states):
        other.restore(state)
        assert other.admissible() == allowed[number] == ([] if number % 3 == 2 else ["yes", "no"])
        assert [other.step(action) for action in actions[number:]] == found[number:]


class Dying(Guess):
    """Its process dies in every first step, and the rollout is redone."""

    redone = 0

    def reset(self):
        self.redone = 0
        return super().reset()

    def step(self, action):
        self.redone += self.state == 0
        return super().step(action)


def test_what_was_redone_in_any_trial_counts_until_the_rollout_is_reset():
    env = opened(Dying)
    steps(env, ["no", "no", "a lesson"])
    assert env.redone == 1
    env.step("no")
    assert env.redone == 2
    env.reset()
    assert env.redone == 0


def test_reset_starts_over_with_the_first_trial():
    env = opened(trials=2)
    steps(env, ["yes", "no"])
    assert [step.done for step in steps(env, ["no", "no", "a lesson", "no", "no"])] == [False] * 4 + [True]


# ---------------------------------------------------------------- what may go wrong


class Once(Guess):
    """It can be reset once."""

    def reset(self):
        if self.state is not None:
            raise ConnectionError("the server\nis gone")
        return Guess.reset(self)


class OnceLater(Once):
    async def reset(self):
        return Once.reset(self)


@pytest.mark.parametrize("kind", [Once, OnceLater])
def test_an_environment_that_cannot_be_reset_is_one_line_that_names_it(kind):
    env = opened(kind)
    steps(env, ["no", "no"])
    name = kind.__name__.lower()
    said = (
        rf"^environment '{name}': reset\(\) raised ConnectionError: the server is gone .*\(task 'a'\).*\(agent.name\)$"
    )
    with pytest.raises(OutsideFault, match=said):
        env.step("a lesson")


class Numbered(Guess):
    """Its second first observation is a number."""

    def reset(self):
        first = self.state is None
        return Guess.reset(self) if first else 7


def test_a_reset_that_gives_no_text_is_found_by_the_guard():
    env = opened(Numbered)
    steps(env, ["no", "no"])
    with pytest.raises(UserError, match=r"step\(\) must return a text as observation, not 7"):
        env.step("a lesson")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [own.Faulty, own.FaultyLater])
@pytest.mark.parametrize(
    "name", ["raises", "hangs", "says_a_number", "sees_nothing", "pays_in_words", "is_vaguely_done"]
)
def test_the_guards_messages_are_the_same(kind, name):
    messages = []
    for trials in (1, 3):
        environment = own.environment(kind)
        environment = environment if trials == 1 else with_trials(environment, trials)
        env = guard.open_guarded(environment, {"task_id": name, "goal": ""}, None, 0.3)
        with pytest.raises(UserError) as caught:
            steps(env, ["open", "open"])
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


class Says(Guess):
    """It says itself that a trial has failed, where none has."""

    def reset(self):
        return Guess.reset(self) + FAILED

    def step(self, action):
        step = Guess.step(self, action)
        return step._replace(observation=step.observation + FAILED)


def test_only_a_failed_trial_is_marked_whatever_the_environment_says():
    env = opened(Says, trials=2)
    assert env.reset() == "begin"
    seen = [env.step(action).observation for action in ("no", "no", "a lesson", "no", "yes")]
    assert seen == ["seen 1", f"seen 2{FAILED}", "begin", "seen 1", "seen 2"]


# ---------------------------------------------------------------- the description


def test_the_description_keeps_its_capabilities():
    for environment in (own.environment(Guess), household.ENVIRONMENT):
        made = with_trials(environment, 3)
        assert made.capabilities == environment.capabilities
        assert (made.name, made.words, made.concurrent) == (environment.name, environment.words, environment.concurrent)


def test_the_rule_of_failed_actions_reads_the_reply_without_the_mark():
    rule = FailureRule(lambda reply: reply == "Nothing happens.", lambda reply: reply.endswith("."))
    made = with_trials(Environment(name="x", open_task=Guess, failures=rule), 2)
    assert made.failed(Step(f"Nothing happens.{FAILED}", 0.0, False)) == (True, True)
    assert made.failed(Step(f"seen{FAILED}", 0.0, False)) == (False, False)
    assert with_trials(household.ENVIRONMENT, 2).failed(Step(f"Nothing happens.{FAILED}", 0.0, False))[0]


def test_the_household_starts_each_trial_from_the_same_state(world):
    from turncredit.data import tables
    from turncredit.rollouts.tasks import Games

    games = Games(world.plan.env, tables.read(world.path("tasks", split="train"), "tasks")).with_trials(3)
    env = games.open(games.rows[0])
    assert isinstance(env, Trials), "built-in environments are not guarded"
    first = env.reset()
    horizon = world.plan.env.settings["horizon"]
    trial = ["go to sinkbasin 1", *["look"] * (horizon - 1)]
    found = [env.step(action).observation for action in [*trial, "a lesson", *trial, "another", *trial]]
    assert found[horizon] == found[2 * horizon + 1] == first
    one, two, three = (found[at : at + horizon] for at in (0, horizon + 1, 2 * horizon + 2))
    assert one == two == [*three[:-1], three[-1] + FAILED]
    assert all(a == b for a, b in pairwise(one[1:-1])), "looking changes nothing"
