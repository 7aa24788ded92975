"""The environment keeps the promises of the protocol."""

from __future__ import annotations

import random

import pytest

from turncredit.envs import load
from turncredit.envs.household import Settings, make_tasks, open_task
from turncredit.envs.household.goals import FAMILIES
from turncredit.errors import UserError

SETTINGS = Settings(receptacles=(5, 8), distractors=(3, 8), horizon=25)
ROWS = make_tasks("train", 12, 0, SETTINGS)


def opened(row=ROWS[0], settings=SETTINGS):
    env = open_task(row, settings)
    env.reset()
    return env


def test_environments_are_loaded_by_name_and_a_misspelt_name_is_corrected():
    assert load("household").make_tasks is make_tasks
    with pytest.raises(UserError, match="did you mean 'household'"):
        load("houshold")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["task_id"])
def test_the_oracle_wins_in_the_optimal_number_of_commands(row):
    env = opened(row)
    commands = env.oracle()
    assert len(commands) == env.distance() == row["optimal_length"]
    steps = [env.step(command) for command in commands]
    assert [s.success for s in steps] == [False] * (len(steps) - 1) + [True]
    assert sum(s.reward for s in steps) == 1.0
    assert steps[-1].done
    assert env.progress() == 1.0
    assert env.oracle() == []


def test_only_the_winning_step_has_a_reward_and_its_size_is_a_setting():
    env = opened(settings=SETTINGS.model_copy(update={"success_reward": 10.0}))
    rewards = [env.step(command).reward for command in env.oracle()]
    assert rewards == [0.0] * (len(rewards) - 1) + [10.0]
    with pytest.raises(ValueError, match="greater than 0"):
        Settings(success_reward=0)


def test_the_first_observation_is_the_room_and_the_intro_has_banner_and_task_too():
    env = open_task(ROWS[0], SETTINGS)
    room = env.reset()
    assert room.startswith("You are in the middle of a room. Looking quickly around you, you see a ")
    assert env.intro == f"-= Welcome to TextWorld, ALFRED! =-\n\n{room}\n\nYour task is to: {env.goal}"
    assert env.goal == ROWS[0]["goal"]


def test_every_admissible_command_is_valid_and_garbage_is_not():
    env = opened()
    start = env.snapshot()
    for command in env.admissible():
        env.restore(start)
        assert env.step(command).valid
    for command in ("", "look around", "Look", "go  to drawer 1", "take moon 1 from sky 1"):
        env.restore(start)
        step = env.step(command)
        assert not step.valid
        assert step.observation == "Nothing happens."


def test_a_rollout_ends_at_its_horizon_and_stepping_on_is_an_error():
    env = opened(settings=SETTINGS.model_copy(update={"horizon": 3}))
    assert [env.step("look").done for _ in range(3)] == [False, False, True]
    with pytest.raises(RuntimeError, match="ended"):
        env.step("look")
    env.reset()
    assert not env.step("look").done


def test_stepping_before_a_reset_is_an_error():
    with pytest.raises(RuntimeError, match="reset"):
        open_task(ROWS[0], SETTINGS).step("look")


def test_stepping_after_the_goal_is_an_error():
    env = opened()
    for command in env.oracle():
        env.step(command)
    with pytest.raises(RuntimeError, match="ended"):
        env.step("look")


def test_a_restored_snapshot_continues_exactly_with_the_turn_counter_and_on_another_rollout():
    rng = random.Random(1)
    env = opened(settings=SETTINGS)
    for _ in range(8):
        env.step(rng.choice([c for c in env.admissible() if not c.startswith(("look", "help"))]))
    kept = env.snapshot()
    hash(kept)
    commands = [rng.choice(env.admissible()) for _ in range(SETTINGS.horizon - 8)]
    first = [env.step(c) for c in commands]
    env.restore(kept)
    assert [env.step(c) for c in commands] == first
    other = opened()
    other.restore(kept)
    assert [other.step(c) for c in commands] == first
    assert first[-1].done


def test_rollouts_of_one_task_do_not_disturb_each_other():
    left, right = opened(), opened()
    before = right.admissible(), right.progress(), right.distance()
    for command in left.oracle():
        left.step(command)
    assert (right.admissible(), right.progress(), right.distance()) == before


@pytest.mark.parametrize("family", FAMILIES)
def test_progress_is_one_exactly_when_won_and_the_distance_is_then_zero(family):
    settings = SETTINGS.model_copy(update={"families": (family,), "horizon": 200})
    seen = set()
    for n, row in enumerate(make_tasks("train", 6, 1, settings)):
        env, rng = opened(row, settings), random.Random(n)
        for _ in range(150):
            command = rng.choice(env.oracle()[:1]) if rng.random() < 0.5 else rng.choice(env.admissible())
            step = env.step(command)
            seen.add(env.progress())
            assert (env.progress() == 1.0) == step.success == (env.distance() == 0)
            if step.done:
                break
    expected = {"pick": {0, 1}, "look": {0, 1 / 3, 2 / 3, 1}}.get(family, {0, 0.5, 1})
    assert seen == expected


def test_no_random_walk_leads_into_a_dead_end_of_a_generated_game():
    settings = SETTINGS.model_copy(update={"horizon": 60})
    for n, row in enumerate(ROWS):
        env, rng = opened(row, settings), random.Random(n)
        for _ in range(60):
            if env.step(rng.choice(env.admissible())).done:
                break
            assert env.distance() > 0
