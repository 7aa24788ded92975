"""The hand-written agent reads only what it is shown, and wins."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from turncredit.envs.household import Expert, Settings, make_tasks, open_task, random_command, slip_command
from turncredit.envs.household.expert import read_goal

SIZES = [((4, 6), (2, 6)), ((6, 10), (4, 10)), ((18, 24), (15, 30))]


def roll(row, settings, noise=0.0, skip=False, seed=0):
    """The steps of the expert, with some commands replaced by random ones."""
    env, rng = open_task(row, settings), random.Random(seed)
    # only these two: the expert must not be able to look at the environment
    expert = Expert(SimpleNamespace(goal=env.goal, put_command=env.put_command), rng, skip=skip)
    expert.observe(env.reset())
    steps = []
    while not steps or not steps[-1][1].done:
        command = expert.act()
        if rng.random() < noise:
            command = random_command(env, rng)
        steps.append((command, env.step(command), expert))
        expert.observe(steps[-1][1].observation, command)
    return steps


@pytest.mark.parametrize(("receptacles", "distractors"), SIZES)
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_the_expert_wins_every_generated_game_also_when_disturbed(receptacles, distractors, noise):
    settings = Settings(receptacles=receptacles, distractors=distractors, horizon=150)
    for n, row in enumerate(make_tasks("train", 60, 0, settings)):
        steps = roll(row, settings, noise, seed=n)
        assert steps[-1][1].success, (row["task_id"], [c for c, _, _ in steps])


def test_undisturbed_it_says_nothing_that_is_refused_and_searches_in_the_listed_order():
    settings = Settings(horizon=100)
    for row in make_tasks("train", 30, 1, settings):
        steps = roll(row, settings)
        assert all(step.valid for _, step, _ in steps)
    room = open_task(row, settings).reset()
    goal = read_goal(row["goal"])
    first = next(
        name
        for name in room.split("you see a ")[1].rstrip(".").replace("and ", "").split(", a ")
        if name.rsplit(" ", 1)[0].removeprefix("a ") != goal[2]
    )
    assert steps[0][0] == f"go to {first}"


@pytest.mark.parametrize("family", ["clean", "heat", "cool"])
def test_with_skip_it_forgets_the_treatment_delivers_and_believes_to_be_finished(family):
    settings = Settings(families=(family,), horizon=60)
    for row in make_tasks("train", 10, 0, settings):
        steps = roll(row, settings, skip=True)
        commands = [command for command, _, _ in steps]
        assert not any(c.startswith(family) for c in commands)
        assert any(c.startswith("move ") for c in commands)
        assert not steps[-1][1].success
        assert steps[-1][2].finished


def test_noise_is_half_admissible_and_half_mostly_refused():
    settings = Settings()
    env = open_task(make_tasks("train", 1, 0, settings)[0], settings)
    env.reset()
    rng = np.random.default_rng(0)
    valid = []
    for _ in range(900):
        step = env.step(random_command(env, rng))
        valid.append(step.valid)
        if step.done:
            env.reset()
    assert 0.5 < np.mean(valid) < 0.75


def test_a_foreign_task_is_an_error():
    with pytest.raises(ValueError, match="not a household task"):
        read_goal("buy a red shirt")


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        ("put a clean mug in cabinet.", ("clean", "mug", "cabinet")),
        ("cool some winebottle and put it in diningtable.", ("cool", "winebottle", "diningtable")),
        ("find two cd and put them in safe.", ("pick2", "cd", "safe")),
        ("look at book under the desklamp.", ("look", "book", "desklamp")),
        ("put some hotpot on shelf.", ("pick", "hotpot", "shelf")),
    ],
)
def test_task_sentences_are_understood(goal, expected):
    assert read_goal(goal) == expected


def test_the_expert_wins_released_games(released_games):
    settings = Settings(source="real", data_root=str(released_games), horizon=150)
    for row in make_tasks("valid_seen", 30, 0, settings):
        assert roll(row, settings)[-1][1].success, row["task_id"]


def plans(row, settings, slips=0.0, seed=0):
    """(subgoal, completed, reflection, what the expert chose, what was carried out) of each turn."""
    env, rng = open_task(row, settings), random.Random(seed)
    expert = Expert(SimpleNamespace(goal=env.goal, put_command=env.put_command), rng)
    expert.observe(env.reset())
    out, done = [], False
    while not done:
        chosen = expert.act()
        command = slip_command(env, rng) if rng.random() < slips else chosen
        step = env.step(command)
        out.append((*expert.columns().values(), chosen, command))
        expert.observe(step.observation, command)
        done = step.done
    return out


@pytest.mark.parametrize(
    ("family", "wanted"),
    [
        ("pick", r"find a (\w+), take \1 \d, put \1 \d in \w+ \d"),
        ("look", r"find a (\w+), take \1 \d(, find a \w+)?, use \w+ \d"),
        ("heat", r"find a (\w+), take \1 \d, heat \1 \d, put \1 \d in \w+ \d"),
        ("pick2", r"find a (\w+), (take \1 \d, put \1 \d in \w+ \d(, find a \1, |, |)){2}"),
    ],
)
def test_the_plan_of_an_undisturbed_expert_completes_one_subgoal_after_the_other(family, wanted):
    settings = Settings(families=[family], horizon=80)
    for row in make_tasks("train", 12, 0, settings):
        turns = plans(row, settings)
        starts = [n for n, turn in enumerate(turns) if n == 0 or turn[0] != turns[n - 1][0]]
        assert re.fullmatch(wanted, ", ".join(turns[n][0] for n in starts)), [turns[n][0] for n in starts]
        assert [n for n, turn in enumerate(turns) if turn[1]] == starts[1:], "every subgoal but the last is completed"
        assert all(turn[2] for turn in turns)


def test_a_subgoal_that_a_disturbance_undoes_is_given_up_and_comes_back():
    settings = Settings(horizon=150)
    given_up = [
        (before, after)
        for number, row in enumerate(make_tasks("train", 60, 0, settings))
        for before, after in pairwise(plans(row, settings, slips=0.4, seed=number))
        if after[0] != before[0] and not after[1]
    ]
    assert all(before[3] != before[4] for before, _ in given_up), "only a slip makes the expert give up a subgoal"
    kinds = {(before[0].split()[0], after[0].split()[0]) for before, after in given_up}
    assert {("find", "put"), ("put", "take"), ("take", "put")} <= kinds


def test_a_refusal_is_what_a_reflection_says():
    expert = Expert(SimpleNamespace(goal="put a mug in shelf.", put_command="move {o} to {r}"), random.Random(0))
    expert.observe("You see a drawer 1, and a shelf 1.")
    assert (expert.act(), expert.columns()["reflection"]) == ("go to drawer 1", "no mug yet")
    expert.observe("The drawer 1 is closed.")
    assert (expert.act(), expert.columns()["reflection"]) == ("open drawer 1", "drawer 1 is closed")
    expert.observe("Nothing happens.", "help me")
    assert (expert.act(), expert.columns()["reflection"]) == ("open drawer 1", "nothing happened")
