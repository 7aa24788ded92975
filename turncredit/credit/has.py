"""HAS, hybrid advantage shaping: the rollout's advantage blended with a credit for each turn.

    A_t = alpha A_rollout + (1 - alpha) A_turn_t                                                      (HAS, eq. 2)

A *decomposer* gives a credit c_t for each turn; A_turn is c_t made relative to the group (`turn_norm`), and the blend
is not standardised again. alpha = 1 is the estimator below it bit for bit (proposition 1).

Here are the decomposers that only read a column: Progressive and LLM-Judge. TurnRD's is in `turnrd.py`.
Conventions: std with ddof 1 and eps 1e-6 after the root, a credit alone at its position gives 0.
Source: HAS, section 3.2. Departures: the paper does not define its Progressive signal beyond "environment shaping";
it is the change of the environment's progress over the turn. `turn_norm` `group` is ours.
"""

from __future__ import annotations

import numpy as np

from turncredit.credit.flat_grpo import FLAT_GRPO
from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Ddof, NonNegative, Share, TurnNorm, blend, turn_relative_N
from turncredit.credit.parts.judge_labels import scores_N
from turncredit.data.turns import Turns


def shape(
    turns: Turns,
    base_N: np.ndarray,
    credit_N: np.ndarray,
    *,
    alpha: float,
    turn_norm: TurnNorm,
    ddof: int,
    eps: float,
) -> dict[str, np.ndarray]:
    """The blend of eq. 2 with its components: the base advantage, the credit, its turn advantage."""
    turn_N = turn_relative_N(turns, credit_N, turn_norm, ddof=ddof, eps=eps)
    return {
        "advantage_rollout": base_N,
        "credit": credit_N,
        "advantage_turn": turn_N,
        "advantage": blend(base_N, turn_N, alpha),
    }


def progressive(
    turns: Turns,
    base_N: np.ndarray,
    *,
    alpha: Share = 0.5,
    turn_norm: TurnNorm = "position",
    ddof: Ddof = 1,
    eps: NonNegative = 1e-6,
) -> dict[str, np.ndarray]:
    """HAS with the environment's own progress: A_t = alpha A_rollout + (1 - alpha) A_turn_t, A_turn from the change.

    c_t = progress - progress_before, where progress is the environment's (ALFWorld: fraction of the goal's conditions
    that hold; WebShop: score of buying now, with the purchase as one more condition; ScienceWorld: score).
    `turn_norm` says with which credits a turn's is compared: `position`, the rollouts that reached its number (the
    paper's); `group`, all turns of the group (ours); `none`, with none. `alpha` 1 is flat GRPO.
    Source: HAS, section 3.2, which does not define its progressive signal ("environment shaping").
    Returns `advantage_rollout`, `credit`, `advantage_turn`, `advantage` (each N).
    """
    credit_N = turns.numbers("progress", "has_progressive") - turns.numbers("progress_before", "has_progressive")
    return shape(turns, base_N, credit_N, alpha=alpha, turn_norm=turn_norm, ddof=ddof, eps=eps)


def judged(
    turns: Turns,
    base_N: np.ndarray,
    *,
    alpha: Share = 0.5,
    turn_norm: TurnNorm = "position",
    ddof: Ddof = 1,
    eps: NonNegative = 1e-6,
) -> dict[str, np.ndarray]:
    """HAS with a judge's score: A_t = alpha A_rollout + (1 - alpha) A_turn_t, A_turn from column `score` of `labels`.

    A turn without a score (null: the judge failed) is left out of the statistics and gets the turn advantage 0.
    `turn_norm` says with which credits a turn's is compared: `position`, the rollouts that reached its number (the
    paper's); `group`, all turns of the group (ours); `none`, with none. `alpha` 1 is flat GRPO.
    Source: HAS, section 3.2. The judge's model, question and scale are not in the paper; ours are in judges.
    Returns `advantage_rollout`, `credit`, `advantage_turn`, `advantage` (each N).
    """
    credit_N = scores_N(turns, "score", "has_judge")
    return shape(turns, base_N, credit_N, alpha=alpha, turn_norm=turn_norm, ddof=ddof, eps=eps)


HAS_PROGRESSIVE = Part(
    "has_progressive",
    progressive,
    "turn_term",
    reads=("progress_before", "progress"),
    requires=("progress",),
    neutral={"alpha": 1.0},
)
HAS_JUDGE = Part("has_judge", judged, "turn_term", asks="score", neutral={"alpha": 1.0})

PARTS = (HAS_PROGRESSIVE, HAS_JUDGE)
METHODS = (
    Method(
        "has_progressive", "flat GRPO blended with the environment's own progress", FLAT_GRPO, turn_term=HAS_PROGRESSIVE
    ),
    Method(
        "has_judge",
        "flat GRPO blended with a judge's score of each turn",
        FLAT_GRPO,
        turn_term=HAS_JUDGE,
        family="triage",
    ),
)
