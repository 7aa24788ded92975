"""A judge's labels, the side table `labels`, as the parts of methods read them.

A turn without a label (null: the judge failed) is neutral. A table without any label is not one of the part's question,
and nor is one whose scores are off that question's scale: both are errors.
"""

from __future__ import annotations

import numpy as np

from turncredit.config.judge import SCALES, Ask
from turncredit.data.turns import Turns
from turncredit.errors import UserError, nearest


def scores_N(turns: Turns, ask: Ask, part: str) -> np.ndarray:
    """The judge's score of each turn (N), NaN where there is none.

    Raises UserError where there is none at all, and for one that is off the scale of `ask`; `part` reads them.
    """
    score_N = turns.side_table("labels", part).numbers("score", part, nulls=True)
    _check_any(not np.isnan(score_N).all(), "score", ask, part)
    low, high = SCALES[ask]
    bad = np.flatnonzero((score_N < low) | (score_N > high))
    if len(bad):
        raise UserError(
            f"labels: the score is {score_N[bad[0]]:g} at {turns.row_name(int(bad[0]))} ({len(bad)} such turns); "
            f"{part} needs labels of `--ask {ask}`, from {low:g} to {high:g}"
        )
    return score_N


def role_credits_N(turns: Turns, credit_of: dict[str, float], roles: dict[str, str], part: str) -> np.ndarray:
    """The credit of each turn's role (N), 0 where there is none.

    credit_of   the credit of each role
    roles       the role behind each way to write it
    Raises UserError where no turn has a role, and for one that is not among `roles`.
    """
    code_N, names = turns.side_table("labels", part).texts("role", part)
    _check_any(any(names[code] for code in np.unique(code_N)), "role", "role", part)
    written = [(name or "").lower().replace(" ", "_").replace("-", "_") for name in names]
    unknown = [name for name, role in zip(names, written, strict=True) if role and role not in roles]
    if unknown:
        raise UserError(
            f"labels: unknown role '{unknown[0]}'{nearest(str(unknown[0]), roles)}; choose "
            f"one of {', '.join(credit_of)}"
        )
    return np.array([credit_of[roles[role]] if role else 0.0 for role in written])[code_N]


def _check_any(there: bool, column: str, ask: Ask, part: str) -> None:
    if not there:
        raise UserError(f"labels: {part} needs labels of `--ask {ask}`, but every '{column}' is null")
