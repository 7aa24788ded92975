"""EMPG: advantages scaled by how sure the policy was, plus a bonus for being sure next."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from turncredit.credit.flat_grpo import FLAT_GRPO
from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import NonNegative
from turncredit.data.columns import sums_of
from turncredit.data.turns import Turns, check_logprobs
from turncredit.errors import UserError


def entropy_N(turns: Turns) -> np.ndarray:
    """Mean token entropy of each turn's response: column `entropy`, else minus the mean of `response_logprobs`.

    The second is the one-sample estimate of the first: the expected value of -log p of a sampled token is the
    entropy of its distribution. It is NaN for a response without tokens; UserError where none has any.
    """
    if turns.has("entropy") or not turns.has("response_logprobs"):
        return turns.numbers("entropy", "empg")
    check_logprobs(turns.table, turns.where)
    column = turns.table.column("response_logprobs")
    if column.null_count:
        raise UserError(f"{turns.where}: empg needs 'response_logprobs', which has {column.null_count} null values")
    tokens_N = pc.list_value_length(column).to_numpy()
    if not tokens_N.any():
        raise UserError(f"{turns.where}: empg needs 'response_logprobs', but no response has a token")
    total_N = sums_of(column)
    mean_N = -np.divide(total_N, tokens_N, out=np.full(len(total_N), np.nan), where=tokens_N > 0)
    return mean_N[turns.order_N]


def empg(
    turns: Turns,
    base_N: np.ndarray,
    *,
    k: NonNegative = 1.0,
    k_future: NonNegative = 1.0,
    zeta: NonNegative = 0.1,
) -> dict[str, np.ndarray]:
    """A_t = A g(H_t) + zeta f(H_{t+1}), then minus the batch's mean; H is min-max normalised over the batch.

    g(H) = exp(-k H) / mean exp(-k H), f(H) = exp(-k_future H). The last turn of a rollout has no bonus. A turn whose
    response has no tokens has no H: its g is 1, the turn before it has no bonus, and no minimum or mean counts it.

    Source: Wang et al. 2025 (EMPG), eq. 8 and 10-12; zeta 0.1 is that of its authors' code, 1e-8 in the min-max and in
    the mean a public re-implementation's for agents. Departures: where the table has no `entropy`, the entropy is
    estimated from the sampled tokens' log-probabilities, which is all that is stored.

    Returns `entropy`, `scale` (g), `clarity` (f of the next turn), `advantage_rollout`, `advantage` (each N).
    """
    raw_N = entropy_N(turns)
    scaled_N = (raw_N - np.nanmin(raw_N)) / (np.nanmax(raw_N) - np.nanmin(raw_N) + 1e-8)
    sure_N = np.exp(-k * scaled_N)
    scale_N = np.nan_to_num(sure_N / (np.nanmean(sure_N) + 1e-8), nan=1.0)
    clarity_N = np.nan_to_num(turns.next_N(np.exp(-k_future * scaled_N), 0.0), nan=0.0)
    advantage_N = base_N * scale_N + zeta * clarity_N
    return {
        "entropy": raw_N,
        "scale": scale_N,
        "clarity": clarity_N,
        "advantage_rollout": base_N,
        "advantage": advantage_N - advantage_N.mean(),
    }


EMPG = Part("empg", empg, "turn_term", reads=("response_logprobs",))

PARTS = (EMPG,)
METHODS = (Method("empg", "flat GRPO scaled by the policy's certainty", FLAT_GRPO, turn_term=EMPG),)
