"""The policy's last hidden state at each turn, and a vector for each rollout's goal.

These are what a learned credit model reads. One forward pass per context: a whole append-only rollout, or one turn's
prompt where the agent writes a fresh one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import torch

from turncredit.data import tables
from turncredit.data.progress import progress
from turncredit.errors import UserError
from turncredit.policy import tokenizer
from turncredit.policy.open import OpenPolicy
from turncredit.policy.sampling import device
from turncredit.policy.states import states_at
from turncredit.training.sequences import TokenSequence, batches, contexts, stack

Point = Literal["observation", "action"]


#: the columns of the turns that are read
COLUMNS = (*tables.KEYS, "goal", "context_reset", "prompt_ids", "response_ids", "policy_id")


def hiddens(
    policy: OpenPolicy, turns: pa.Table, *, reader: str | None, point: Point, tokens_per_pass: int, where: str = "turns"
) -> pa.Table:
    """A `hiddens` table, one row for each turn in the order of `turns`.

    hidden   (D) float16: the last layer's state (after the final norm) of `policy` at the prompt's last token, when
             all of the observation has been read and nothing of the action (`point` "observation"); or at the
             response's last token ("action")
    goal     (D) float16: the mean of the input embeddings of the goal's tokens; only at a rollout's turn 0, else null
    policy_id  whose state it is: `reader`, the SFT policy's name; None: the policy that sampled the turns

    Read after the observation, increments of a value of the state rank turns better than after the action (offline
    rank correlation .32 against .19 in the experiment that the default comes from).

    Raises UserError for turns without a response and for states that float16 can't hold.
    """
    model = policy.model().eval()
    hidden_ND = hidden_states(model, contexts(turns, where), turns.num_rows, point, tokens_per_pass)
    if not np.isfinite(hidden_ND).all():
        raise UserError(f"{policy.folder}: hidden states exceed the range of float16; credit models cannot use them")
    first_N = turns.column("turn").to_numpy() == 0
    goals = goal_vectors(model, policy.tokenizer, turns.column("goal").filter(pa.array(first_N)).to_pylist())
    return pa.table(
        {
            **{key: turns.column(key) for key in tables.KEYS},
            "policy_id": turns.column("policy_id") if reader is None else pa.repeat(reader, turns.num_rows),
            "hidden": _lists(hidden_ND, np.ones(len(hidden_ND), dtype=bool)),
            "goal": _lists(goals, first_N),
        }
    )


def read_positions(sequence: TokenSequence, point: Point) -> tuple[np.ndarray, np.ndarray]:
    """(rows, positions): the turns whose responses are in the sequence, and the token at which each is read."""
    rows, first, count = np.unique(sequence.turn, return_index=True, return_counts=True)
    keep = rows >= 0
    at = first - 1 if point == "observation" else first + count - 1
    return rows[keep], at[keep]


@torch.no_grad()
def hidden_states(
    model: torch.nn.Module, sequences: Sequence[TokenSequence], turns: int, point: Point, tokens_per_pass: int
) -> np.ndarray:
    """The hidden state (N, D) float16 at which each of N turns is read, contexts of like length in one pass."""
    where = device()
    out_ND: np.ndarray | None = None
    done = 0
    for batch in batches(sequences, tokens_per_pass):
        ids, _, _ = stack(batch, where)
        positions = [read_positions(sequence, point) for sequence in batch]
        wanted = np.zeros(ids.shape, dtype=bool)
        for number, (_, at) in enumerate(positions):
            wanted[number, at] = True
        states = states_at(model, ids, torch.from_numpy(wanted).to(where)).float().cpu().numpy()
        if out_ND is None:
            out_ND = np.zeros((turns, states.shape[-1]), dtype=np.float16)
        with np.errstate(over="ignore"):  # states come row by row, and a row's turns in the order of its tokens
            out_ND[np.concatenate([rows for rows, _ in positions])] = states.astype(np.float16)
        done += len(batch)
        progress(done, len(sequences))
    assert out_ND is not None
    return out_ND


@torch.no_grad()
def goal_vectors(model: torch.nn.Module, encoder: tokenizer.Tokenizer, goals: Sequence[str]) -> np.ndarray:
    """The mean input embedding (R, D) float16 of the tokens of each goal, spelt as inside a prompt."""
    table = model.get_input_embeddings().weight
    means = {
        goal: table[torch.tensor(encoder.encode(f" {goal}"), device=table.device)].float().mean(0).cpu().numpy()
        for goal in dict.fromkeys(goals)
    }
    return np.stack([means[goal] for goal in goals]).astype(np.float16)


def _lists(x_MD: np.ndarray, valid_N: np.ndarray) -> pa.ListArray:
    """A list column with the rows of `x_MD` where `valid_N` is true, in order, and null elsewhere."""
    size_N = np.where(valid_N, x_MD.shape[1], 0)
    offsets = np.concatenate([[0], np.cumsum(size_N)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(x_MD.ravel()), mask=pa.array(~valid_N))
