"""Token sequences to train on, and batches of them.

A context runs from one reset to the next: an append-only rollout is a single sequence that holds all its turns,
a rollout with fresh prompts is one sequence a turn. Every response token carries its turn's number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import torch


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """One context. `turn` is, for each token, the row of the table whose response it belongs to, or -1.

    ids (L,) int64, turn (L,) int64, logprobs (L,) float32 (zero where the token is not a response's).
    """

    rollout: int
    ids: np.ndarray
    turn: np.ndarray
    logprobs: np.ndarray


def cut(
    rollout_N: Sequence[int],
    reset_N: Sequence[bool],
    prompts_N: Sequence[np.ndarray],
    responses_N: Sequence[np.ndarray],
    logprobs_N: Sequence[np.ndarray],
    learn_N: Sequence[bool] | None = None,
) -> list[TokenSequence]:
    """Sequences from turns in rollout order. Turns with `learn_N` false are read but never trained on."""
    sequences: list[TokenSequence] = []
    parts: list[tuple[np.ndarray, int, np.ndarray]] = []

    def close(rollout: int) -> None:
        if parts:
            ids = np.concatenate([part[0] for part in parts]).astype(np.int64)
            turn = np.concatenate([np.full(len(part[0]), part[1], dtype=np.int64) for part in parts])
            logprobs = np.concatenate([part[2] for part in parts]).astype(np.float32)
            sequences.append(TokenSequence(rollout, ids, turn, logprobs))
            parts.clear()

    for row in range(len(rollout_N)):
        if reset_N[row] and row:
            close(rollout_N[row - 1])
        prompt, response = prompts_N[row], responses_N[row]
        learn = learn_N is None or learn_N[row]
        parts.append((prompt, -1, np.zeros(len(prompt), dtype=np.float32)))
        parts.append((response, row if learn else -1, logprobs_N[row]))
    if len(rollout_N):
        close(rollout_N[-1])
    return sequences


def list_column(table: pa.Table, name: str) -> list[np.ndarray]:
    """A list column as one array a row, cut from its flat values without copying."""
    column = table.column(name).combine_chunks()
    values, offsets = column.values.to_numpy(), column.offsets.to_numpy()
    return [values[start:end] for start, end in pairwise(offsets)]


def batches(sequences: Sequence[TokenSequence], tokens: int) -> Iterator[list[TokenSequence]]:
    """Sequences of like length together, each batch of at most `tokens` padded tokens (or a single sequence)."""
    ordered = sorted(sequences, key=lambda sequence: (len(sequence.ids), sequence.rollout))
    batch: list[TokenSequence] = []
    for sequence in ordered:
        if batch and len(sequence.ids) * (len(batch) + 1) > tokens:
            yield batch
            batch = []
        batch.append(sequence)
    if batch:
        yield batch


def stack(batch: Sequence[TokenSequence], device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Right-padded `ids`, `turn` (-1 where nothing is learnt) and `logprobs`, each (B, L).

    A causal model needs no mask for right padding: no real token ever attends to it.
    """
    longest = max(len(sequence.ids) for sequence in batch)
    ids = np.zeros((len(batch), longest), dtype=np.int64)
    turn = np.full((len(batch), longest), -1, dtype=np.int64)
    logprobs = np.zeros((len(batch), longest), dtype=np.float32)
    for row, sequence in enumerate(batch):
        ids[row, : len(sequence.ids)] = sequence.ids
        turn[row, : len(sequence.ids)] = sequence.turn
        logprobs[row, : len(sequence.ids)] = sequence.logprobs
    return tuple(torch.from_numpy(array).to(device) for array in (ids, turn, logprobs))  # type: ignore[return-value]


def token_logprobs(
    model: torch.nn.Module, ids: torch.Tensor, learned: torch.Tensor, temperature: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability and entropy of the tokens where `learned` (B, L) is true, flattened in row order.

    The vocabulary's logits are computed only there: most tokens of a transcript are observations.
    """
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    body, head = inner.get_decoder(), inner.get_output_embeddings()
    hidden = body(input_ids=ids, use_cache=False).last_hidden_state
    at = learned[:, 1:]
    logits = head(hidden[:, :-1][at]).float() / temperature
    logprobs = torch.log_softmax(logits, dim=-1)
    chosen = logprobs.gather(1, ids[:, 1:][at][:, None])[:, 0]
    with torch.no_grad():
        entropy = -(logprobs.exp() * logprobs).sum(-1)
    return chosen, entropy
