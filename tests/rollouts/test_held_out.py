"""No evaluated game is a training game: in our worlds, in the example, and in environments that ignore the split."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import tiny
from tests.envs import own
from tests.envs.test_every_world import ANY, rows
from turncredit import envs
from turncredit.audit.checked_round import CheckSettings, RoundFiles
from turncredit.audit.invariants import check
from turncredit.config import EnvSlice
from turncredit.config.judge import JudgeConfig
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.pipeline import checks
from turncredit.pipeline.job import JobKeys
from turncredit.rollouts.held_out import shared_games, task_key
from turncredit.rollouts.tasks import make_tasks, split_rows

EXAMPLE = str(tiny.ROOT / "examples" / "counting_env.py")


@pytest.mark.parametrize("world", ANY)
def test_no_two_splits_of_a_world_share_a_game_whatever_their_seeds(world):
    environment = envs.load(world)
    train = rows(world, "train", 60)
    assert shared_games(environment, train, rows(world, "train", 5)) == [
        (r["task_id"], r["task_id"]) for r in train[:5]
    ]
    for seed, split in enumerate(("demos", "valid", "eval")):
        assert shared_games(environment, train, rows(world, split, 60, seed)) == []


@pytest.mark.parametrize("world", ANY)
def test_the_key_of_a_game_forgets_its_id_and_split(world):
    environment, row = envs.load(world), rows(world)[0]
    renamed = {**row, "task_id": "another", "split": "eval", "seed": 7}
    assert task_key(environment, row) == task_key(environment, renamed)
    assert len({task_key(environment, one) for one in rows(world, count=40)}) == 40


def test_virtualhomes_key_forgets_the_order_in_which_a_household_was_drawn():
    environment, row = envs.load("virtualhome"), drawn()
    game = json.loads(row["game"])
    turned = list(range(len(game["nodes"])))[::-1]
    other = {
        "nodes": [game["nodes"][n] for n in turned],
        "edges": [[turned.index(a), kind, turned.index(b)] for a, kind, b in game["edges"]],
    }
    assert task_key(environment, row) == task_key(environment, {**row, "game": json.dumps(other)})
    moved = {**game, "edges": [[a, kind, 0] if kind == "ON" else [a, kind, b] for a, kind, b in game["edges"]]}
    assert task_key(environment, row) != task_key(environment, {**row, "game": json.dumps(moved)})


def drawn() -> dict:
    nodes = [["kitchen", []], ["character", []], ["table", []], ["cup", ["CLEAN"]]]
    edges = [[1, "INSIDE", 0], [2, "INSIDE", 0], [3, "ON", 2], [3, "INSIDE", 0]]
    return {"task_id": "a", "goal": "put cup in sink", "game": json.dumps({"nodes": nodes, "edges": edges})}


def test_the_examples_splits_are_disjoint():
    env = EnvSlice(name=EXAMPLE)
    train, evaluated = (make_tasks(env, split, 200, 0, key="tasks").to_pylist() for split in ("train", "eval"))
    assert shared_games(envs.load(EXAMPLE), train, evaluated) == []
    assert len({row["game"] for row in train}) == 16
    assert len({row["game"] for row in evaluated}) == 8


def test_the_same_layout_with_another_instruction_is_another_game():
    (row,) = make_tasks(EnvSlice(name=EXAMPLE), "train", 1, 0, key="tasks").to_pylist()
    train, other = {**row, "game": "a layout"}, {**row, "goal": "another goal.", "game": "a layout"}
    assert shared_games(envs.load(EXAMPLE), [train], [other]) == []
    assert shared_games(envs.load(EXAMPLE), [train], [train]) == [(row["task_id"], row["task_id"])]


def same_games(_split, count, _seed, _settings):
    return [{"task_id": f"game-{number}", "goal": "pass three doors."} for number in range(count)]


def renamed_games(split, count, _seed, _settings):
    return [{"task_id": f"{split}-{n}", "goal": "pass three doors.", "game": str(n)} for n in range(count)]


def own_column(split, count, _seed, _settings):
    return [{"task_id": f"{split}-{n}", "goal": "pass three doors.", "height": n} for n in range(count)]


@pytest.mark.parametrize("games", [same_games, renamed_games, own_column])
def test_an_environment_that_ignores_the_split_is_found(games):
    environment = own.environment(own.Doors, make_tasks=games)
    train, evaluated = (split_rows(environment, split, 6, 0, None) for split in ("train", "eval"))
    assert len(shared_games(environment, train, evaluated)) == 6


def test_where_only_the_id_can_tell_two_layouts_apart_other_ids_are_other_games():
    environment = own.environment(own.Doors)
    train, evaluated = (split_rows(environment, split, 6, 0, None) for split in ("train", "eval"))
    assert shared_games(environment, train, evaluated) == []


@given(st.lists(st.sampled_from("abcdefgh"), max_size=8), st.lists(st.sampled_from("abcdefgh"), max_size=8))
def test_shared_games_are_those_of_both_tables(train, evaluated):
    environment = own.environment(own.Doors)
    tabled = [
        [{"task_id": f"{split}{n}", "goal": "pass.", "game": one} for n, one in enumerate(games)]
        for split, games in (("train", train), ("eval", evaluated))
    ]
    found = [name for name, _ in shared_games(environment, *tabled)]
    assert found == [f"eval{n}" for n, one in enumerate(evaluated) if one in train]


IGNORES = """
from tests.envs import own
from tests.rollouts.test_held_out import renamed_games
ENVIRONMENT = own.environment(own.Doors, make_tasks=renamed_games)
"""


def test_the_stage_refuses_shared_games_by_name_unless_they_are_declared(world, tmp_path):
    (tmp_path / "doors.py").write_text(IGNORES)
    changes = {"env": {"name": str(tmp_path / "doors.py")}, "tasks": {"train": 9, "eval": 8}}
    folder = tmp_path / "results"
    train = world.run("tasks", JobKeys(split="train"), folder, changes).output["tasks"]
    given = {"learned": [train]}
    with pytest.raises(
        UserError, match=r"^8 of 8 held-out games have .* first one 'eval-0' that of 'train-0'.*tasks\.shared"
    ):
        world.run("tasks", JobKeys(split="eval"), folder, changes, **given)
    declared = {**changes, "tasks": {**changes["tasks"], "shared": 8}}
    made = world.run("tasks", JobKeys(split="eval"), folder, declared, **given).output["tasks"]
    found = {shared: invariant(world, train, made, changes["env"]["name"], shared) for shared in (0, 8)}
    assert {shared: (row["holds"], row["worst"]) for shared, row in found.items()} == {0: (False, 8.0), 8: (True, 8.0)}
    assert "the evaluated game 'eval-0' is the training game 'train-0' (and 7 more)" in found[8]["detail"]


def invariant(world, train, evaluated, env, shared) -> dict:
    settings = CheckSettings(
        methods={}, judge=JudgeConfig(), temperature=1.0, dtype="float32", dropout=0.0, tokens_per_pass=100, env=env,
        shared=shared,
    )  # fmt: skip
    files = RoundFiles(
        run="flat_grpo", seed=0, round=1, sampler="sft", turns=world.path("turns"), learned=(train,),
        eval_tasks=evaluated,
    )  # fmt: skip
    (found,) = [row for row in check(settings, files) if row["name"] == "held_out"]
    return found


def test_games_for_evaluation_out_of_the_training_split_are_refused_unless_declared():
    same = tiny.experiment(tasks={"eval_split": "train"})
    several = {"eval_split": ["eval", "train"]}
    with pytest.raises(UserError, match=r"tasks\.eval_split is also tasks\.train_split, 'train'"):
        checks.check(tiny.experiment(tasks=several))
    with pytest.raises(UserError, match=r"tasks\.eval_split is tasks\.train_split, 'train'.*tasks\.shared"):
        checks.check(same)
    checks.check(tiny.experiment(tasks={"eval_split": "train", "shared": 8}))


def test_demonstrations_may_have_a_split_of_their_own_and_it_is_held_apart_from_evaluation(world, tmp_path):
    changes = {"tasks": {"demo_split": "demos", "demos": 5}, "demos": {"count": 7}}
    made = world.run("tasks", JobKeys(split="demos"), tmp_path, changes)
    assert made.metrics["games"] == 5
    games = tables.read(made.output["tasks"], "tasks")
    assert set(games.column("split").to_pylist()) == {"demos"}
    demos = world.run("demos", JobKeys(), tmp_path, changes, tasks=made.output["tasks"]).output["demos"]
    assert set(tables.read(demos, "demos").column("task_id").to_pylist()) == set(games.column("task_id").to_pylist())
    plan = world.job("tasks", JobKeys(split="eval"), tmp_path, changes)
    assert [path.rpartition("/")[2] for path in plan.input["learned"]] == ["train.parquet", "demos.parquet"]
    assert world.job("demos", JobKeys(), tmp_path).path("tasks").endswith("tasks/train.parquet")


def test_a_number_of_demonstrated_games_needs_a_split_of_theirs():
    with pytest.raises(UserError, match="tasks: demos counts the games of demo_split, which is not set"):
        tiny.experiment(tasks={"demos": 5})
    with pytest.raises(UserError, match=r"tasks\.eval_split is tasks\.demo_split, 'eval'"):
        checks.check(tiny.experiment(tasks={"demo_split": "eval"}))
