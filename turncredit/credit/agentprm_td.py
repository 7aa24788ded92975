"""AgentPRM of Xi et al.: the progress of a learned Q(s, a) from turn to turn."""

from __future__ import annotations

import numpy as np

from turncredit.credit.flat_grpo import flat_grpo
from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Share
from turncredit.credit.parts.normalisers import RMS
from turncredit.credit.ppo import values_N
from turncredit.data.turns import Turns


def agentprm_td(turns: Turns, *, lam: Share = 0.95) -> dict[str, np.ndarray]:
    """A_t = sum_k lam^k d_{t+k} with d_t = Q_t - Q_{t-1}, and d_T = R - Q_{T-1} at the last turn.

    Q_t is column `value` of the side table `values`, the predicted return of the whole rollout once turn t's action is
    known. Before the first turn it is the mean of the group's Q_0, since all its rollouts begin in one state. lam = 0
    is the step of Q alone, the paper's progress. The named method scales to unit RMS over the batch, without centring.

    In the first round no model has been trained (all values null): the advantage is then flat GRPO's.

    Source: arXiv 2511.08325, of which we had secondary transcriptions: this is the A^ that its model is trained on,
    with lam .95. They disagree on how its PPO run uses the model; that the policy is given A^ is decided here, and so
    is the value before the first turn. Relative: `turn_value`, with values read before the action.

    Returns `value` (NaN in the first round), `step` (d) and `advantage` (each N).
    """
    value_N = values_N(turns, "agentprm_td")
    if value_N is None:
        return {"value": np.full(turns.n, np.nan), "step": np.full(turns.n, np.nan), **flat_grpo(turns)}
    start_G = turns.stats_G(value_N[turns.first_R]).mean_C
    before_N = turns.previous_N(value_N, 0.0)
    before_N[turns.first_R] = start_G[turns.group_R]
    after_N = value_N.copy()
    after_N[turns.last_R] = turns.return_R
    step_N = after_N - before_N
    return {"value": value_N, "step": step_N, "advantage": turns.discounted_sum_N(step_N, lam)}


AGENTPRM_TD = Part("agentprm_td", agentprm_td, "estimator", model="agentprm_td")

PARTS = (AGENTPRM_TD,)
METHODS = (
    Method(
        "agentprm_td",
        "GAE on the steps of a learned Q of state and action",
        AGENTPRM_TD,
        normaliser=RMS,
        family="agentprm",
    ),
)
