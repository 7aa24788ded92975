"""SCPO's scorers: the lexical one by hand, the model-based ones on tiny random models, the cache of both."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.credit import synthetic
from tests.credit.tables import numbers
from turncredit.credit import compute, resolve
from turncredit.credit.parts import text_similarity as similarity
from turncredit.errors import UserError

TEXTS = pa.array(["go to Shelf 1", "go to shelf 2", "", "Ärger, 1 shelf!", "..."])


def test_the_lexical_scorer_is_jaccard_over_lower_cased_words_and_numbers() -> None:
    rows, columns = np.array([0, 2]), np.array([0, 1, 2, 3, 4])
    (got,) = similarity.lexical(TEXTS, [(rows, columns)])
    assert got.tolist() == [[1, 3 / 5, 0, 2 / 5, 0], [0, 0, 0, 0, 0]]


def test_blocks_are_scored_independently_and_texts_may_come_twice() -> None:
    blocks = [(np.array([0, 0]), np.array([1])), (np.array([1]), np.array([0, 3]))]
    first, second = similarity.lexical(TEXTS, blocks)
    assert first.tolist() == [[3 / 5], [3 / 5]]
    assert second.shape == (1, 2)


def test_texts_without_a_single_word_are_alike_to_none() -> None:
    (got,) = similarity.lexical(pa.array(["", "!"]), [(np.array([0, 1]), np.array([0, 1]))])
    assert not got.any()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A tiny random BERT as an encoder, as a reranker with one output, and as a classifier with two."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("models")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "go", "to", "shelf", "1", "2", "you", "arrive", "at", "desk"]
    (folder / "vocab.txt").write_text("\n".join(words))
    tokenizer = transformers.BertTokenizerFast(vocab_file=str(folder / "vocab.txt"))
    shape = {
        "vocab_size": len(words),
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "initializer_range": 0.5,
    }
    made = {}
    for name, labels in (("encoder", None), ("reranker", 1), ("classifier", 2)):
        torch.manual_seed(0)
        config = transformers.BertConfig(**shape, **({"num_labels": labels} if labels else {}))
        kind = transformers.BertForSequenceClassification if labels else transformers.BertModel
        kind(config).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        made[name] = str(folder / name)
    return made


BLOCK = (np.array([0, 1]), np.array([0, 1, 3]))


@pytest.mark.parametrize("kind", ["bi-encoder:encoder", "cross-encoder:reranker"])
def test_a_models_scores_are_between_zero_and_one_and_come_from_the_cache_the_second_time(
    kind: str, models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, model = kind.split(":")
    score = similarity.scorer(f"{name}:{models[model]}", str(tmp_path / "cache.sqlite"))
    (first,) = score(TEXTS, [BLOCK])
    assert first.shape == (2, 3)
    assert ((first >= 0) & (first <= 1)).all()
    assert len(np.unique(first.round(6))) > 1
    monkeypatch.setattr(similarity, "_load", lambda *_: pytest.fail("everything was scored before"))
    (again,) = score(TEXTS, [BLOCK])
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("kind", ["bi-encoder:encoder", "cross-encoder:reranker"])
def test_a_model_replaced_in_its_folder_is_scored_anew_and_so_is_another_at_the_same_relative_path(
    kind: str, models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    name, made = kind.split(":")
    auto = transformers.AutoModel if name == "bi-encoder" else transformers.AutoModelForSequenceClassification
    scores = []
    for project in ("one", "two", "one"):
        folder = tmp_path / project / "model"
        shutil.copytree(models[made], folder, dirs_exist_ok=True)
        torch.manual_seed(len(scores) + 1)
        auto.from_config(transformers.AutoConfig.from_pretrained(folder)).save_pretrained(folder)
        monkeypatch.chdir(folder.parent)
        (score,) = similarity.scorer(f"{name}:model", str(tmp_path / "cache.sqlite"))(TEXTS, [BLOCK])
        scores.append(score)
    assert all(np.abs(scores[a] - scores[b]).max() > 1e-3 for a, b in ((0, 1), (0, 2), (1, 2)))


def test_an_embedding_is_most_like_itself(models: dict[str, str], tmp_path: Path) -> None:
    score = similarity.scorer(f"bi-encoder:{models['encoder']}", str(tmp_path / "cache.sqlite"))
    (got,) = score(TEXTS, [(np.array([0, 1]), np.array([0, 1]))])
    np.testing.assert_allclose(np.diag(got), 1, atol=1e-6)


def test_only_new_texts_are_embedded(models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    embed = similarity._embed
    monkeypatch.setattr(similarity, "_embed", lambda texts, model: asked.append(texts) or embed(texts, model))
    score = similarity.scorer(f"bi-encoder:{models['encoder']}", str(tmp_path / "cache.sqlite"))
    score(TEXTS, [(np.array([0, 0, 1]), np.array([1, 0]))])
    score(TEXTS, [(np.array([0]), np.array([1, 3]))])
    assert asked == [["go to Shelf 1", "go to shelf 2"], ["Ärger, 1 shelf!"]]


def test_a_batch_does_not_change_a_pairs_score(models: dict[str, str], tmp_path: Path) -> None:
    score = similarity.scorer(f"cross-encoder:{models['reranker']}", str(tmp_path / "one.sqlite"))
    (whole,) = score(TEXTS, [BLOCK])
    other = similarity.scorer(f"cross-encoder:{models['reranker']}", str(tmp_path / "two.sqlite"))
    (alone,) = other(TEXTS, [(np.array([1]), np.array([3]))])
    assert alone[0, 0] == pytest.approx(whole[1, 2], abs=1e-5)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("lexcal", r"unknown scorer 'lexcal' \(did you mean 'lexical'\?\)"),
        ("lexical:x", "lexical takes no model"),
        ("cross-encoder", "needs a model"),
    ],
)
def test_a_scorer_that_does_not_exist_is_told_in_one_line(spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        similarity.scorer(spec, None)


def test_a_model_that_does_not_exist_and_one_that_is_no_reranker(models: dict[str, str], tmp_path: Path) -> None:
    cache = str(tmp_path / "cache.sqlite")
    with pytest.raises(UserError, match="the model cannot be loaded"):
        similarity.scorer(f"bi-encoder:{tmp_path}/nowhere", cache)(TEXTS, [BLOCK])
    with pytest.raises(UserError, match="has 2 outputs; a reranker has one"):
        similarity.scorer(f"cross-encoder:{models['classifier']}", cache)(TEXTS, [BLOCK])


def test_a_cache_that_is_no_database_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a database, but long enough to be taken for one by its first bytes " * 20)
    with pytest.raises(UserError, match="not a cache of similarity scores"):
        similarity.scorer("minilm", str(tmp_path / "cache"))


def test_scpo_runs_on_a_cross_encoder(models: dict[str, str], tmp_path: Path) -> None:
    table, side = synthetic.tables(synthetic.rows(2, 4, 6, seed=0))
    params = {"scorer": f"cross-encoder:{models['reranker']}", "cache": str(tmp_path / "c.sqlite"), "theta": 0.0}
    made = compute(table, resolve({"base": "scpo", "params": params}), side)
    assert (numbers(made, "scpo_reference") >= 0).any()
