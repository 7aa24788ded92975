"""Normalisers, the last step: they scale all advantages of a batch together."""

from __future__ import annotations

import numpy as np

from turncredit.credit.parts.compose import Part
from turncredit.credit.parts.conventions import Ddof, NonNegative
from turncredit.data.columns import NOISE
from turncredit.data.turns import Turns, cell_stats


def whitened(x_M: np.ndarray, ddof: int, var_eps: float) -> np.ndarray:
    """(x - mean) / sqrt(var + var_eps); 0 where all are equal."""
    stats = cell_stats(x_M, np.zeros(len(x_M), dtype=np.int64), 1, ddof)
    size = float(np.sqrt(stats.std_C[0] ** 2 + var_eps))
    return (x_M - stats.mean_C[0]) / size if size > 0 else np.zeros(len(x_M))


def whiten(
    turns: Turns,  # noqa: ARG001  (a normaliser's signature)
    advantage_N: np.ndarray,
    *,
    ddof: Ddof = 1,
    var_eps: NonNegative = 1e-8,
) -> np.ndarray:
    """(A - mean) / sqrt(var + var_eps) over all turns of the batch.

    Source: verl's `masked_whiten` (epsilon inside the root, unbiased variance), as used after GAE and by REINFORCE++;
    TRIAGE, eq. 4. Departure: the batch is its turns, where verl counts each token of a response.

    The column `advantage_raw` keeps the advantage before it.
    """
    return whitened(advantage_N, ddof, var_eps)


def rms(turns: Turns, advantage_N: np.ndarray) -> np.ndarray:
    """A / sqrt(mean A^2) over all turns of the batch: unit size, signs and zeros kept. Rounding noise alone is 0.

    The column `advantage_raw` keeps the advantage before it.
    """
    size = float(np.sqrt(np.mean(advantage_N**2)))
    return advantage_N / size if size > NOISE else np.zeros(turns.n)


WHITEN = Part("whiten", whiten, "normaliser")
RMS = Part("rms", rms, "normaliser")

PARTS = (WHITEN, RMS)
