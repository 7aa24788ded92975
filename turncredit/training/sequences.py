"""Token sequences to train on, and batches of them.

A context runs from one reset to the next: an append-only rollout is a single sequence that holds all its turns,
a rollout with fresh prompts is one sequence a turn. Every response token carries its turn's number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from turncredit.agents import Prompt
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.policy.fsdp import FsdpModel
from turncredit.policy.states import logits_of, states_at

#: Logits that a training pass holds at a time: 0.25 GB of float32, beside their log-softmax and gradient.
LOGITS_AT_ONCE = 2**26
#: The entropy of a token's distribution: its value alone, or with a gradient.
Entropy = Literal["value", "gradient"]


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """One context. `turn` is, for each token, the row of the table whose response it belongs to, or -1.

    ids (L,) int64, turn (L,) int64, logprobs (L,) float32 (zero where the token is not a response's).
    """

    rollout: int
    ids: np.ndarray
    turn: np.ndarray
    logprobs: np.ndarray


def by_rollout(sequences: Iterable[TokenSequence]) -> dict[int, list[TokenSequence]]:
    """The sequences of each rollout, in their order; rollouts by number."""
    of_rollout: dict[int, list[TokenSequence]] = {}
    for sequence in sequences:
        of_rollout.setdefault(sequence.rollout, []).append(sequence)
    return dict(sorted(of_rollout.items()))


def cut(
    rollout_N: Sequence[int],
    reset_N: Sequence[bool],
    prompts_N: Sequence[np.ndarray],
    responses_N: Sequence[np.ndarray],
    logprobs_N: Sequence[np.ndarray],
    learn_N: Sequence[bool] | np.ndarray | None = None,
) -> list[TokenSequence]:
    """Sequences of turns in rollout order. Turns with `learn_N` false are context only."""
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


def rollout_numbers(table: pa.Table) -> list[int]:
    """The number (N,) of each turn's rollout, in the order in which rollouts first occur."""
    number_of: dict[str, int] = {}
    return [number_of.setdefault(name, len(number_of)) for name in table.column("rollout_id").to_pylist()]


def sequences_of(
    turns: pa.Table,
    learn_N: Sequence[bool] | np.ndarray | None = None,
    *,
    prompts_N: Sequence[Prompt] | None = None,
    logprobs_N: Sequence[np.ndarray] | None = None,
) -> list[TokenSequence]:
    """All token sequences of a table of turns; each response token refers to its turn's row, where it is learned.

    Prompts and log-probabilities are the recorded ones, unless others are given.
    """
    resets_N = turns.column("context_reset").to_pylist() if prompts_N is None else [one.reset for one in prompts_N]
    return cut(
        rollout_numbers(turns),
        resets_N,
        list_column(turns, "prompt_ids") if prompts_N is None else [np.array(one.ids) for one in prompts_N],
        list_column(turns, "response_ids"),
        list_column(turns, "response_logprobs") if logprobs_N is None else logprobs_N,
        learn_N,
    )


def contexts(turns: pa.Table, where: str, prompts_N: Sequence[Prompt] | None = None) -> list[TokenSequence]:
    """`sequences_of` for a model that only reads. Raises UserError for a turn without a response."""
    responses_N = list_column(turns, "response_ids")
    empty = [row for row, response in enumerate(responses_N) if len(response) == 0]
    if empty:
        raise UserError(f"{where}: no response tokens at {keys_of(turns, empty[0])}; a model reads only sampled tokens")
    unknown = [np.zeros(len(response), dtype=np.float32) for response in responses_N]
    return sequences_of(turns, prompts_N=prompts_N, logprobs_N=unknown)


def keys_of(turns: pa.Table, row: int) -> str:
    """A turn's keys, for a message."""
    return ", ".join(f"{key} {turns.column(key)[row].as_py()!r}" for key in tables.KEYS)


def list_column(table: pa.Table, name: str) -> list[np.ndarray]:
    """A list column as one array a row, cut from its flat values without copying."""
    column = table.column(name).combine_chunks()
    values, offsets = column.values.to_numpy(), column.offsets.to_numpy()
    return [values[start:end] for start, end in pairwise(offsets)]


def batches(sequences: Sequence[TokenSequence], tokens: int) -> Iterator[list[TokenSequence]]:
    """Batches of sequences of similar length, each of at most `tokens` padded tokens (or a single sequence)."""
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
) -> torch.Tensor:
    """Log-probability of the tokens where `learned` (B, L) is true, flattened in row order."""
    return token_distributions(model, ids, learned, temperature)[0]


def token_distributions(
    model: torch.nn.Module,
    ids: torch.Tensor,
    learned: torch.Tensor,
    temperature: float = 1.0,
    *,
    entropy: Entropy | None = None,
    at_once: int = LOGITS_AT_ONCE,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probability and, if wanted, entropy of the tokens where `learned` (B, L) is true.

    The vocabulary's logits are computed only there: most tokens of a transcript are observations. Not more than
    `at_once` of them are alive at a time; beyond that they are computed again for the gradient, a part at a time.
    """
    if isinstance(model, FsdpModel):
        return model(token_distributions, ids, learned, temperature, entropy=entropy, at_once=at_once)
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    head = inner.get_output_embeddings()
    predicts = F.pad(learned[:, 1:], (0, 1))  # the state before a token predicts it
    states, chosen = states_at(model, ids, predicts), ids[:, 1:][learned[:, 1:]]
    rows = max(1, at_once // head.weight.shape[0])
    if len(chosen) <= rows:
        return _distributions(states, chosen, head, inner.config, temperature, entropy)
    parts = [
        checkpoint(_distributions, *part, head, inner.config, temperature, entropy, use_reentrant=False)
        for part in zip(states.split(rows), chosen.split(rows), strict=True)
    ]
    logprobs, entropies = zip(*parts, strict=True)
    return torch.cat(logprobs), torch.cat(entropies) if entropy else None


def _distributions(
    states: torch.Tensor,
    chosen: torch.Tensor,
    head: torch.nn.Module,
    config: Any,
    temperature: float,
    entropy: Entropy | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probabilities (M,) of the chosen tokens after `states` (M, D), and the entropies (M,) if wanted."""
    logits = logits_of(head, states, config)
    if temperature != 1.0:
        logits = logits / temperature
    all_logprobs = torch.log_softmax(logits, dim=-1)
    logprobs = all_logprobs.gather(1, chosen[:, None])[:, 0]
    if not entropy:
        return logprobs, None
    with torch.set_grad_enabled(entropy == "gradient" and torch.is_grad_enabled()):
        return logprobs, -(all_logprobs.exp() * all_logprobs).sum(-1)
