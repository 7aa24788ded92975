"""Hidden states: read where they are said to be read, for both ways of prompting, once for each rollout."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests import tiny
from turncredit.credit.models.hiddens import reading
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.pipeline.plan import Plan
from turncredit.policy import models, tokenizer
from turncredit.training.sequences import cut


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
    eos = tokenizer.load(world.path("sft_policy")).eos_id
    found, context = [], []
    for row in turns.select(["context_reset", "prompt_ids", "response_ids"]).to_pylist():
        context = ([] if row["context_reset"] else context) + row["prompt_ids"]
        response = row["response_ids"]
        with torch.no_grad():
            states = body(input_ids=torch.tensor([context + response])).last_hidden_state[0].numpy()
        seen = states[len(context) - 1]
        acted = [states[len(context) + place] for place, token in enumerate(response) if token != eos]
        found.append((seen + np.mean(acted, axis=0)) / 2 if point == "action" and acted else seen)
        context = context + response
    return np.stack(found)


@pytest.mark.parametrize("agent", ["transcript", "window"])
@pytest.mark.parametrize("point", ["observation", "action"])
def test_a_turns_state_is_of_the_prompts_end_and_of_the_actions_tokens(world, window_turns, tmp_path, agent, point):
    path = world.path("turns") if agent == "transcript" else window_turns
    table, metrics = made(world, path, tmp_path, point=point)
    turns = tables.read(path, "turns").slice(0, 12)
    hidden = np.array(table.column("hidden").slice(0, 12).to_pylist(), dtype=np.float32)
    assert hidden == pytest.approx(read_again(world, turns, point), abs=5e-3, rel=1e-3)
    contexts = sum(turn["context_reset"] for turn in tables.read(path, columns=["context_reset"]).to_pylist())
    assert metrics["contexts"] == contexts


EOS = 2


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.lists(st.integers(3, 9), max_size=5), st.booleans()).filter(
            lambda turn: turn[1] or turn[2]
        ),
        min_size=1,
        max_size=4,
    )
)
def test_no_reading_touches_the_token_that_ends_a_response_and_its_weights_sum_to_one(given_turns):
    prompts = [np.full(length, 5) for length, _, _ in given_turns]
    responses = [np.array([*tokens, *([EOS] if ended else [])]) for _, tokens, ended in given_turns]
    none = [np.zeros(len(response)) for response in responses]
    count = len(responses)
    [sequence] = cut([0] * count, [True, *[False] * (count - 1)], prompts, responses, none)
    for point in ("observation", "action"):
        read = reading(sequence, point, EOS)
        assert np.bincount(read.row_P, read.weight_P) == pytest.approx(np.ones(count))
        assert not (sequence.ids[read.position_P] == EOS).any()
        # A state of a turn sees nothing of later turns.
        ends = np.cumsum([len(prompt) + len(response) for prompt, response in zip(prompts, responses, strict=True)])
        assert (read.position_P < ends[read.row_P]).all()
    # Every token of an action counts, and all of them as much as the state before it.
    acted = reading(sequence, "action", EOS)
    in_response = sequence.turn[acted.position_P] >= 0
    share = np.bincount(acted.row_P, acted.weight_P * in_response, count)
    assert share == pytest.approx([0.5 if tokens else 0.0 for _, tokens, _ in given_turns])
    assert in_response.sum() == sum(len(tokens) for _, tokens, _ in given_turns)


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
