"""The policy's last hidden states at each turn, and a vector for each rollout's goal.

These are what a learned credit model reads. One forward pass per context: a whole append-only rollout, or one turn's
prompt where the agent writes a fresh one.

No loss ever trains a policy's state at the token that ends a response: nothing is sampled after it. In a policy from
scratch this state says little of the action, so it is never read (benchmarks/learned/RESULTS.md has the probe).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

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

    hidden   (D) float16, of the last layer of `policy` after its final norm. `point` "observation": the state at the
             prompt's last token, when all of the observation has been read and nothing of the action. "action": the
             mean of that state and of the mean state over the response's tokens, without the one that ends it (of a
             response that is nothing else, the first alone)
    goal     (D) float16: the mean of the input embeddings of the goal's tokens; only at a rollout's turn 0, else null
    policy_id  whose state it is: `reader`, the SFT policy's name; None: the policy that sampled the turns

    Read after the observation, increments of a value of the state rank turns better than after the action (offline
    rank correlation .32 against .19 in the experiment that the default comes from).

    Raises UserError for turns without a response and for states that float16 can't hold.
    """
    model = policy.model().eval()
    hidden_ND = hidden_states(
        model,
        contexts(turns, where),
        turns.num_rows,
        point=point,
        eos=policy.tokenizer.eos_id,
        tokens_per_pass=tokens_per_pass,
    )
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


class Reading(NamedTuple):
    """What is read of one context: state `position_P` counts with `weight_P` towards the turn `row_P`.

    Weights of a turn sum to 1; the same position may count for one turn more than once.
    """

    row_P: np.ndarray
    position_P: np.ndarray
    weight_P: np.ndarray


def reading(sequence: TokenSequence, point: Point, eos: int) -> Reading:
    """What is read of the turns whose responses are in the sequence; `eos` is the token that ends a response."""
    row_M, first_M, count_M = np.unique(sequence.turn, return_index=True, return_counts=True)
    keep = row_M >= 0
    row_M, first_M, count_M = row_M[keep], first_M[keep], count_M[keep]
    if point == "observation":
        return Reading(row_M, first_M - 1, np.ones(len(row_M)))
    length_M = count_M - (sequence.ids[first_M + count_M - 1] == eos)
    start_M = np.cumsum(length_M) - length_M
    in_action = np.arange(length_M.sum()) - np.repeat(start_M - first_M, length_M)
    return Reading(
        np.concatenate([row_M, np.repeat(row_M, length_M)]),
        np.concatenate([first_M - 1, in_action]),
        np.concatenate([np.where(length_M > 0, 0.5, 1.0), np.repeat(0.5 / np.maximum(length_M, 1), length_M)]),
    )


@torch.no_grad()
def hidden_states(
    model: torch.nn.Module,
    sequences: Sequence[TokenSequence],
    turns: int,
    *,
    point: Point,
    eos: int,
    tokens_per_pass: int,
) -> np.ndarray:
    """What is read of each of N turns (N, D) float16, contexts of like length in one pass."""
    where = device()
    out_ND: np.ndarray | None = None
    done = 0
    for batch in batches(sequences, tokens_per_pass):
        ids, _, _ = stack(batch, where)
        readings = [reading(sequence, point, eos) for sequence in batch]
        wanted = np.zeros(ids.shape, dtype=bool)
        for number, one in enumerate(readings):
            wanted[number, one.position_P] = True
        states_MD = states_at(model, ids, torch.from_numpy(wanted).to(where)).float().cpu().numpy()
        if out_ND is None:
            out_ND = np.zeros((turns, states_MD.shape[-1]), dtype=np.float16)
        place = np.cumsum(wanted).reshape(wanted.shape) - 1  # states come row by row
        for number, one in enumerate(readings):
            weighted_PD = states_MD[place[number, one.position_P]] * one.weight_P[:, None].astype(np.float32)
            rows, which_P = np.unique(one.row_P, return_inverse=True)
            sum_MD = np.zeros((len(rows), states_MD.shape[-1]), dtype=np.float32)
            np.add.at(sum_MD, which_P, weighted_PD)
            with np.errstate(over="ignore"):
                out_ND[rows] = sum_MD.astype(np.float16)
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
