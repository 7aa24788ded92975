"""ReBN: REINFORCE with the returns to go normalised over the batch."""

from __future__ import annotations

import numpy as np

from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Ddof, NonNegative, Share, standardise
from turncredit.data.turns import Turns


def rebn(
    turns: Turns,
    *,
    step_bonus_N: np.ndarray | None = None,
    gamma: Share = 1.0,
    ddof: Ddof = 1,
    eps: NonNegative = 1e-9,
) -> dict[str, np.ndarray]:
    """A_t = (G_t - mean G) / (std G + eps) over all turns of the batch, with G_t = r_t + gamma G_{t+1} + the bonus.

    No group enters: tasks may have one rollout each. A long rollout counts once for each of its turns. A batch of one
    turn, or one whose G are all equal, gives 0.

    Source: GEM (arXiv 2510.01051) and its code, whose three trainers agree in eps; two of them take the sample's
    deviation (ddof 1), one the population's. gamma is 0.9 on its games. AgileRL has 1e-8.

    Returns `step_return` (G) and `advantage` (each N).
    """
    return_N = turns.step_return_N(gamma)
    if step_bonus_N is not None:
        return_N = return_N + step_bonus_N
    batch_N = np.zeros(turns.n, dtype=np.int64)
    advantage_N = standardise(return_N, batch_N, 1, norm="mean_std", ddof=ddof, eps=eps, singleton="zero")
    return {"step_return": return_N, "advantage": advantage_N}


REBN = Part("rebn", rebn, "estimator")

PARTS = (REBN,)
METHODS = (Method("rebn", "each turn's return to go relative to all turns of the batch", REBN),)
