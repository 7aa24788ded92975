"""Training that diverges stops at that step, and weights that are not finite are never saved."""

from __future__ import annotations

import math
from collections.abc import Mapping

from turncredit.errors import UserError


def check_step(numbers: Mapping[str, float | None], *, training: str, step: int, instead: str) -> None:
    """Raise UserError for the first of a step's `numbers` (loss, grad_norm, ...) that is infinite or NaN.

    training   what is trained, for the message; step   from 1, in this job; instead   what to change
    """
    for name, value in numbers.items():
        if value is not None and not math.isfinite(value):
            raise UserError(f"{training}: step {step}: {name} is {value}, so training has diverged; {instead}")
