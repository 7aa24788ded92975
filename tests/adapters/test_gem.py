"""Three games of gem, and one of TextArena, as environments: `make test-adapters`, in an environment of their own."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from turncredit import envs
from turncredit.envs.gym_text import Arena, Game, gym_text

pytest.importorskip("gem", reason="gem is in an environment of its own: make test-adapters")

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "gem_env.py")
LETTERS = ("up", "down", "left", "right")


def task(family, number=0):
    rows = envs.load(EXAMPLE).make_tasks("train", 30, number, None)
    return next(row for row in rows if row["family"] == family)


def opened(family, number=0):
    environment = envs.load(EXAMPLE)
    return environment.open_task(task(family, number), environment.Settings(horizon=30))


def actions(family):
    """Actions of a game that are well formed, whatever they lead to."""
    rng = random.Random(0)
    while True:
        if family == "2048":
            yield f"\\boxed{{{rng.choice(LETTERS)}}}"
        elif family == "mines":
            yield f"\\boxed{{reveal {rng.randrange(5)} {rng.randrange(5)}}}"
        else:
            yield f"\\boxed{{{rng.randint(1, 10)}}}"


def played(running, chosen):
    """What a rollout shows, until its end, and the actions that led there."""
    shown, taken = [running.reset()], []
    for action in chosen:
        shown.append(running.step(action))
        taken.append(action)
        if shown[-1].done:
            break
    return shown, taken


@pytest.mark.parametrize("family", ["guess", "2048", "mines"])
@pytest.mark.parametrize("number", range(5))
def test_a_recorded_rollout_is_replayed_and_continued_from_the_middle(family, number):
    recorded, taken = played(opened(family, number), actions(family))
    again, other = opened(family, number), opened(family, number + 1)
    other_actions = actions(family)
    shown, states = [again.reset()], []
    other.reset()
    for action in taken:  # while another rollout of the same game draws from the same generators
        states.append(again.snapshot())
        shown.append(again.step(action))
        if other.step(next(other_actions)).done:
            other.reset()
    assert shown == recorded
    assert all(state.env is not None for state in states), "gem's games can be copied"
    elsewhere = opened(family, number)
    for turn, state in enumerate(states):
        elsewhere.restore(state)
        assert [elsewhere.step(action) for action in taken[turn:]] == recorded[turn + 1 :]


def test_halving_the_interval_wins_and_gibberish_is_not_valid():
    running = opened("guess")
    observation = running.reset()
    low, high, step = 1, 10, None
    assert "between 1 and 10" in observation
    for _ in range(4):
        middle = (low + high) // 2
        step = running.step(f"\\boxed{{{middle}}}")
        if step.done:
            break
        higher = re.search(r"is (higher|lower) than", step.observation)[1] == "higher"
        low, high = (middle + 1, high) if higher else (low, middle - 1)
    assert (step.success, step.valid, step.reward) == (True, True, 1.0)
    running.reset()
    step = running.step("five?")
    assert (step.done, step.success, step.valid) == (True, False, False)


def test_the_board_is_part_of_the_observation():
    running = opened("2048")
    assert "Current board:" in running.reset()
    assert "Current board:" in running.step("\\boxed{left}").observation


def test_a_game_of_textarena_is_won_and_restored_through_its_arena():
    textarena = pytest.importorskip("textarena", reason="textarena is in an environment of its own: make test-adapters")
    games = {"guess": Game(lambda: Arena(textarena.make("GuessTheNumber-v0")), "guess the number.")}
    environment = gym_text("arena", games)
    row = environment.make_tasks("train", 1, 0, None)[0]
    running, other = (environment.open_task(row, environment.Settings()) for _ in range(2))
    assert "between 1 and 20" in running.reset()
    low, high, taken, states, steps = 1, 20, [], [], []
    while not steps or not steps[-1].done:
        states.append(running.snapshot())
        taken.append(f"[{(low + high) // 2}]")
        steps.append(running.step(taken[-1]))
        higher = steps[-1].observation.rfind("higher") > steps[-1].observation.rfind("lower")
        low, high = ((low + high) // 2 + 1, high) if higher else (low, (low + high) // 2 - 1)
    assert (steps[-1].success, steps[-1].reward) == (True, 1.0)
    assert not any(step.success or step.reward for step in steps[:-1])
    assert all(state.env is not None for state in states)
    for turn, state in enumerate(states):
        other.restore(state)
        assert [other.step(action) for action in taken[turn:]] == steps[turn:]
