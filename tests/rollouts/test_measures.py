"""Progress and distance beside the turns: had by replaying recorded actions, or refused."""

from __future__ import annotations

import time
from itertools import count

import numpy as np
import pyarrow as pa
import pytest

from tests.envs import own
from turncredit import envs
from turncredit.config import EnvSlice
from turncredit.data import tables
from turncredit.envs.protocol import Step
from turncredit.errors import UserError
from turncredit.pipeline.plan import Plan, load
from turncredit.rollouts.measures import COLUMNS, measure
from turncredit.rollouts.tasks import Games, make_tasks


@pytest.fixture
def household(world) -> Games:
    return Games(world.plan.env, tables.read(world.path("tasks", split="train"), "tasks"))


def turns_of(world) -> pa.Table:
    return tables.read(world.path("turns"), "turns")


# ---------------------------------------------------------------- the household


def test_measures_are_those_of_the_states_before_and_after_each_turn(world, household):
    frame = turns_of(world).to_pandas().merge(tables.read(world.path("measures"), "measures").to_pandas())
    rows = {row["task_id"]: row for row in household.rows}
    for _, turns in frame.groupby("rollout_id"):
        env = household.open(rows[turns.task_id.iloc[0]])
        env.reset()
        for turn in turns.sort_values("turn").itertuples():
            assert (env.progress(), env.distance()) == (turn.progress_before, turn.distance_before)
            env.step(turn.action)
            assert (env.progress(), env.distance()) == (turn.progress, turn.distance)
        assert (turns.progress.iloc[-1] == 1) == turns.success.iloc[-1]
    assert frame.progress.nunique() > 1
    assert frame.distance.nunique() > 1


@pytest.mark.parametrize("slots", [1, 3, 64])
def test_measures_do_not_depend_on_the_order_of_rows_or_on_how_many_are_replayed_side_by_side(world, household, slots):
    turns, expected = turns_of(world), tables.read(world.path("measures"), "measures")
    order = np.random.default_rng(slots).permutation(turns.num_rows)
    assert measure(household, turns.take(order), slots=slots).equals(expected.replace_schema_metadata().take(order))


def test_rollouts_of_a_game_that_is_not_in_the_table_are_refused(world, household):
    turns = turns_of(world)
    household.rows = [row for row in household.rows if row["task_id"] != turns.column("task_id")[0].as_py()]
    with pytest.raises(
        UserError, match=r"^turns: group .*, rollout .* is of the game '.*', which is not in the tasks table"
    ):
        measure(household, turns, slots=8)


def test_another_game_under_the_same_name_is_said_to_play_differently(world, household):
    turns = turns_of(world)
    played = turns.column("task_id")[0].as_py()
    other = next(row for row in household.rows if row["task_id"] != played)
    household.rows = [{**row, "game": other["game"]} if row["task_id"] == played else row for row in household.rows]
    with pytest.raises(UserError, match="turn 0: the first observation differs when the recorded actions are replayed"):
        measure(household, turns, slots=8)


# ---------------------------------------------------------------- environments of anybody's own


class Half(own.Doors):
    """Doors that tell how far one is."""

    def progress(self):
        return self.at / 3


class HalfFarAway(own.Slow):
    """The same behind a network, measured there too; counts how many are waited for at a time."""

    waiting: list[int] = []  # noqa: RUF012 - the test looks at it

    async def step(self, action):
        self.waiting.append(self.waiting[-1] + 1)
        step = await super().step(action)
        self.waiting.append(self.waiting[-1] - 1)
        return step

    async def progress(self):
        return self.at / 3


class Dice(Half):
    """What is seen in turn 1 is another thing every time."""

    thrown = count()

    def step(self, action):
        step = super().step(action)
        return step if self.at != 2 else Step(f"a {next(self.thrown)}", *step[1:])


class Hangs(Half):
    """Does not answer in turn 1."""

    def step(self, action):
        if self.at == 1:
            time.sleep(60)
        return super().step(action)


@pytest.fixture
def games(monkeypatch):
    def made(kind, timeout=5.0):
        environment = own.environment(kind)
        monkeypatch.setattr(envs, "load", lambda _: environment)
        own.Doors.opened.clear()
        config = EnvSlice(name="own")
        return Games(config, make_tasks(config, "train", 16, 0, key="tasks.train"), timeout=timeout)

    return made


def recorded(games: Games) -> pa.Table:
    """Each game played once, as the columns of its turns that a replay reads."""
    rows = []
    for task in games.rows:
        env = games.open(task)
        seen, step = env.reset(), None
        while step is None or not step.done:
            step = env.step("open")
            keys = {"group_id": task["task_id"], "rollout_id": f"{task['task_id']}#0", "task_id": task["task_id"]}
            rows.append({**keys, "turn": 0 if not rows or rows[-1]["done"] else rows[-1]["turn"] + 1})
            rows[-1] |= {"observation": seen, "action": "open", "next_observation": step.observation}
            rows[-1] |= {"reward": step.reward, "done": step.done}
            seen = step.observation
        env.close()
    assert set(rows[0]) == set(COLUMNS)
    return pa.Table.from_pylist(rows)


def test_a_measure_that_the_environment_lacks_is_null(games):
    doors = games(Half)
    found = measure(doors, recorded(doors), slots=5).to_pydict()
    assert found["progress_before"] == [0.0, 1 / 3, 2 / 3] * 16
    assert found["progress"] == [1 / 3, 2 / 3, 1.0] * 16
    assert set(found["distance"]) == set(found["distance_before"]) == {None}
    assert len(own.Doors.opened) == 32
    assert all(env.closed for env in own.Doors.opened)


def test_asynchronous_steps_of_a_replay_overlap(games):
    plain = games(Half)
    turns = recorded(plain)
    expected = measure(plain, turns, slots=16)
    slow = games(HalfFarAway)
    for slots in (5, 16):
        HalfFarAway.waiting[:] = [0]
        assert measure(slow, turns, slots=slots).equals(expected)
        assert max(HalfFarAway.waiting) == slots


def test_a_step_that_does_not_replay_names_environment_rollout_and_turn(games):
    dice = games(Dice)
    turns = recorded(dice)
    where = (
        "environment 'dice': group 'train-0', rollout 'train-0#0', turn 1: the observation differs when the recorded"
    )
    with pytest.raises(UserError, match=f"^{where} actions are replayed. Its steps are not deterministic") as error:
        measure(dice, turns, slots=16)
    assert "progress would have to be recorded while playing" in str(error.value)
    assert "\n" not in str(error.value)
    assert all(env.closed for env in own.Doors.opened)


@pytest.mark.parametrize(("column", "value"), [("reward", 0.5), ("done", True)])
def test_rewards_and_ends_must_be_the_recorded_ones_too(games, column, value):
    doors = games(Half)
    turns = recorded(doors)
    changed = [value, *turns.column(column).to_pylist()[1:]]
    turns = turns.set_column(turns.column_names.index(column), column, pa.array(changed))
    what = {"reward": "reward", "done": "end"}[column]
    with pytest.raises(UserError, match=f"turn 0: the {what} differs when"):
        measure(doors, turns, slots=16)


def test_a_step_that_hangs_is_given_up(games):
    turns = recorded(games(Half))
    with pytest.raises(UserError, match=r"step\(\) took longer than env.timeout, 0.2 s \(task '.*', turn 1\)"):
        measure(games(Hangs, timeout=0.2), turns, slots=1)


# ---------------------------------------------------------------- the stage


def test_the_stage_replays_as_many_rollouts_side_by_side_as_were_played(world, tmp_path):
    at = world.turns
    ran = world.run("measures", at, tmp_path, {"rollout": {"processes": 2}})
    assert ran.output["measures"].read_bytes() == world.path("measures").read_bytes()
    assert ran.metrics["turns"] == turns_of(world).num_rows
    assert 0 < ran.metrics["progress"] < 1
    narrow = Plan(
        world.experiment.model_copy(update={"rollout": world.experiment.rollout.model_copy(update={"slots": 3})})
    )
    assert load("measures").runtime_options(narrow, narrow.turns_at("flat_grpo", 0, 1)).slots == 3
