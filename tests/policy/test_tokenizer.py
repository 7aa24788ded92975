from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

from turncredit.data.transcript_markers import MARKERS
from turncredit.errors import UserError
from turncredit.policy import tokenizer
from turncredit.policy.base import corpus


@pytest.fixture(scope="module")
def encoder(world):
    return tokenizer.load(world.path("base"))


def test_a_word_is_the_same_token_in_goals_observations_and_actions(encoder):
    goal, seen = (
        encoder.encode(" put a toiletpaper in shelf."),
        encoder.encode(" On the shelf 1, you see a toiletpaper 2."),
    )
    said = encoder.encode(" take toiletpaper 2 from shelf 1")
    paper, shelf = encoder.encode(" toiletpaper"), encoder.encode(" shelf")
    assert len(paper) == len(shelf) == 1
    assert all(paper[0] in ids and shelf[0] in ids for ids in (goal, seen, said))


SPECIAL = (tokenizer.PAD, tokenizer.EOS, tokenizer.BOS, *MARKERS)


@given(st.text(max_size=60).filter(lambda text: not any(mark in text for mark in SPECIAL)))
@settings(max_examples=200, deadline=None)
def test_any_text_survives_encoding_and_decoding(encoder, text):
    assert encoder.decode(encoder.encode(text)) == text


PIECES = [
    *SPECIAL,
    " mug",
    "mug",
    " shelf",
    "12",
    " ",
    "  ",
    "\n",
    "\t",
    "\x1c",
    "'s",
    ".",
    ",",
    "é",
    "Ω",
    "\u00a0",
    "[",
    "<|",
    "|>",
]


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_encoding_word_by_word_gives_the_ids_of_the_whole_text(encoder, text):
    assert encoder.encode(text) == encoder._backend.encode(text, add_special_tokens=False).ids


def test_contexts_made_anew_are_encoded_word_by_word(encoder):
    """Otherwise the property above compares the library with itself."""
    encoder.encode("<|task|> put a mug in shelf.\n<|obs|> On the shelf 77, you see a mug 1.")
    assert {"<|task|>", " mug", "\n", " 77", "."} <= encoder._ids_of_word.keys()


def test_a_cached_encoding_is_not_shared(encoder):
    first = encoder.encode(" go to shelf 1")
    first.append(0)
    assert encoder.encode(" go to shelf 1") != first


def test_markers_are_single_tokens(encoder):
    assert len(encoder.encode("<|task|><|obs|><|act|>")) == 3


def test_the_memory_of_encoded_texts_is_bounded_by_their_tokens(encoder, monkeypatch):
    """100,000 contexts of 8,000 tokens took 30 GB."""
    monkeypatch.setattr(tokenizer, "_REMEMBERED_TOKENS", 2000)
    long, short = ["go to shelf 1 " * count for count in range(60, 90)], [f"shelf {number}" for number in range(200)]
    expected = {text: encoder._whole(text) for text in (*long, *short)}
    for text in (*long, *short, *long):
        assert encoder.encode(text) == expected[text]
        kept = encoder._ids_of_text
        tokens = sum(len(ids) + tokenizer._ENTRY for ids in kept.values())
        assert text in kept
        assert tokens <= 2000
    assert len(encoder._ids_of_text) > 1


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    with pytest.raises(UserError, match="not a tokenizer folder"):
        tokenizer.load(tmp_path)


def test_transformers_reads_the_same_tokenizer(world, encoder):
    # Not AutoTokenizer: transformers 5 replaces the tokenizer of every "qwen2" folder by Qwen's own rules.
    from transformers import PreTrainedTokenizerFast

    other = PreTrainedTokenizerFast.from_pretrained(world.path("base"))
    text = "<|task|> put a mug 1 in shelf 2.<|act|>"
    assert other.encode(text, add_special_tokens=False) == encoder.encode(text)
    assert other.eos_token_id == encoder.eos_id


def test_a_new_tokenizer_is_trained_on_every_text_of_the_demonstrations_as_it_stands_after_a_marker():
    texts = ("goal", "observation", "action", "next_observation", "plan")
    columns = {name: [f"{name} 0", f"{name} 1"] for name in texts} | {"number": [1, 2]}
    columns["plan"][1] = None
    demos = pa.table({**columns, "admissible": [["look", "help"], []]})
    found = list(corpus(demos, ("plan", "number", "missing")))
    expected = [f" {name} {row}" for name in texts for row in range(2)]
    expected.remove(" plan 1")
    assert sorted(found) == sorted([*expected, " look", " help"])


def test_a_missing_special_token_is_an_error(world, tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((world.path("base") / name).read_bytes())
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "eos_token": "<nowhere>"}))
    with pytest.raises(UserError, match="<nowhere>"):
        tokenizer.load(tmp_path)


def test_training_on_counted_words_gives_what_training_on_the_texts_gives(tmp_path):
    rng = np.random.default_rng(0)
    said = ["take mug 1 from shelf 12.", " go to the café\n\nnow", "日本 12 ", "", "mug mug mugs", "a\tb  c", "<pad> x"]
    texts = [said[i] for i in rng.integers(len(said), size=300)] + [f"word{i % 7} {i}" for i in range(2500)]
    markers = ["<|go|>"]
    tokenizer.train(iter(texts), markers, 320, tmp_path, 64)

    whole = Backend(models.BPE())
    made = Backend.from_file(str(tmp_path / "tokenizer.json"))
    whole.pre_tokenizer, whole.decoder = made.pre_tokenizer, made.decoder
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=[tokenizer.PAD, tokenizer.EOS, tokenizer.BOS, *markers],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    whole.train_from_iterator(texts, trainer)
    assert made.get_vocab_size() == 320
    assert made.to_str() == whole.to_str()
