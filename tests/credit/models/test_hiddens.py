"""Hidden states: read where they are said to be read, for both ways of prompting, once for each rollout."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests import tiny
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.pipeline.plan import Plan
from turncredit.policy import models, tokenizer


@pytest.fixture(scope="module")
def window_turns(world, tmp_path_factory):
    """Rollouts of the window agent: a fresh prompt for every turn."""
    agent = {"name": "window", "max_response_tokens": 4, "window": {"history": 1, "show_admissible": False}}
    changes = {"agent": agent, "rollout": {"tasks": 2, "group_size": 2}}
    at = Plan(tiny.experiment(**changes)).turns_at("flat_grpo", 0, 1)
    return world.run("rollout", at, tmp_path_factory.mktemp("window"), changes).output["turns"]


def made(world, turns, folder, point="observation"):
    """What the stage hiddens writes of these turns, and what it measured."""
    at = replace(world.turns, hidden_policy="sft", hidden_position=point)
    ran = world.run("hiddens", at, folder, turns=turns)
    return tables.read(ran.output["hiddens"], "hiddens"), ran.metrics


def read_again(world, turns, point):
    """Each turn's state from a forward pass over its own context alone."""
    body = models.load_model(world.path("sft_policy"), dtype="float32").eval().get_decoder()
    found, context = [], []
    for row in turns.select(["context_reset", "prompt_ids", "response_ids"]).to_pylist():
        context = ([] if row["context_reset"] else context) + row["prompt_ids"]
        read = context if point == "observation" else context + row["response_ids"]
        with torch.no_grad():
            found.append(body(input_ids=torch.tensor([read])).last_hidden_state[0, -1].numpy())
        context = context + row["response_ids"]
    return np.stack(found)


@pytest.mark.parametrize("agent", ["transcript", "window"])
@pytest.mark.parametrize("point", ["observation", "action"])
def test_a_turns_state_is_the_one_at_the_end_of_what_it_had_read(world, window_turns, tmp_path, agent, point):
    path = world.path("turns") if agent == "transcript" else window_turns
    table, metrics = made(world, path, tmp_path, point=point)
    turns = tables.read(path, "turns").slice(0, 12)
    hidden = np.array(table.column("hidden").slice(0, 12).to_pylist(), dtype=np.float32)
    assert hidden == pytest.approx(read_again(world, turns, point), abs=5e-3, rel=1e-3)
    contexts = sum(turn["context_reset"] for turn in tables.read(path, columns=["context_reset"]).to_pylist())
    assert metrics["contexts"] == contexts


def test_a_goal_is_stored_once_a_rollout_as_the_mean_of_its_tokens_embeddings(world, tmp_path):
    path = world.path("turns")
    table, _ = made(world, path, tmp_path)
    turns = tables.read(path, "turns")
    given = table.column("goal").is_valid().to_pylist()
    assert given == [turn == 0 for turn in turns.column("turn").to_pylist()]
    encoder = tokenizer.load(world.path("sft_policy"))
    ids = encoder.encode(f" {turns.column('goal')[0].as_py()}")
    first = turns.column("prompt_ids")[0].as_py()
    assert any(first[start : start + len(ids)] == ids for start in range(len(first)))
    embeddings = models.load_model(world.path("sft_policy"), dtype="float32").get_input_embeddings().weight
    wanted = embeddings[torch.tensor(ids)].mean(0).detach().numpy()
    assert np.array(table.column("goal")[0].as_py(), dtype=np.float32) == pytest.approx(wanted, abs=1e-3)


def test_the_table_has_the_turns_keys_and_the_same_bytes_each_time(world, tmp_path):
    path = world.path("turns")
    at = replace(world.turns, hidden_policy="sft", hidden_position="action")
    one, two = (world.run("hiddens", at, tmp_path / name, turns=path).output["hiddens"] for name in "ab")
    assert one.read_bytes() == two.read_bytes()
    table = tables.read(one, "hiddens")
    turns = tables.read(path, columns=list(tables.KEYS))
    assert all(table.column(key).equals(turns.column(key)) for key in tables.KEYS)


def test_a_turn_without_a_response_is_refused_by_its_keys(world, tmp_path):
    turns = pq.read_table(world.path("turns"))
    responses = turns.column("response_ids").to_pylist()
    responses[3] = []
    at = turns.column_names.index("response_ids")
    broken = turns.set_column(at, "response_ids", pa.array(responses, pa.list_(pa.int32())))
    pq.write_table(broken, tmp_path / "turns.parquet")
    with pytest.raises(UserError, match=r"turns\.parquet: no response tokens at group_id .* turn 3"):
        made(world, tmp_path / "turns.parquet", tmp_path / "out")
    assert not (tmp_path / "out").exists()
