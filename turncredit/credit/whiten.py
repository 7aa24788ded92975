"""Normalisers, the last step: they scale all advantages of a batch together."""

from __future__ import annotations

import numpy as np

from turncredit.credit.compose import Part
from turncredit.credit.conventions import Ddof, NonNegative
from turncredit.turns import Turns, cell_stats


def whiten(turns: Turns, advantage_N: np.ndarray, *, ddof: Ddof = 1, var_eps: NonNegative = 1e-8) -> np.ndarray:
    """(A - mean) / sqrt(var + var_eps) over all turns of the batch.

    Source: verl's `masked_whiten` (epsilon inside the root, unbiased variance), as used after GAE and by REINFORCE++;
    TRIAGE, eq. 4. Departure: the batch is its turns, where verl counts each token of a response.
    """
    stats = cell_stats(advantage_N, np.zeros(turns.n, dtype=np.int64), 1, ddof)
    white_N: np.ndarray = (advantage_N - stats.mean_C[0]) / np.sqrt(stats.std_C[0] ** 2 + var_eps)
    return white_N


def rms(turns: Turns, advantage_N: np.ndarray) -> np.ndarray:  # noqa: ARG001  (a normaliser's signature)
    """A / sqrt(mean A^2) over all turns of the batch: unit size, signs and zeros kept. All zeros stay zeros."""
    size = float(np.sqrt(np.mean(advantage_N**2)))
    return advantage_N / size if size > 0 else advantage_N.copy()


WHITEN = Part("whiten", whiten, "normaliser")
RMS = Part("rms", rms, "normaliser")

PARTS = (WHITEN, RMS)
