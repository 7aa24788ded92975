"""Turns in a batch of padded sequences: the runs of tokens that the policy sampled.

Shapes: `_B` sequences, `_L` tokens, `_N` turns, sequence by sequence and in order within each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turncredit.credit.parts.compose import Method
from turncredit.credit.parts.lookup import named, resolve
from turncredit.errors import UserError


@dataclass(frozen=True)
class Spans:
    """The runs of a mask: turn `number_N` of sequence `row_N` is its tokens `start_N` to `end_N` (exclusive)."""

    mask_BL: np.ndarray
    row_N: np.ndarray
    number_N: np.ndarray
    start_N: np.ndarray
    end_N: np.ndarray

    @property
    def turns_B(self) -> np.ndarray:
        """How many turns each sequence has."""
        return np.bincount(self.row_N, minlength=len(self.mask_BL))

    @property
    def last_B(self) -> np.ndarray:
        """The last turn of each sequence; meaningless for one without turns."""
        return np.cumsum(self.turns_B) - 1

    def spread(self, x_N: np.ndarray) -> np.ndarray:
        """(B, L): each turn's number on all of its tokens, 0 elsewhere."""
        out_BL = np.zeros(self.mask_BL.shape)
        out_BL[self.mask_BL] = np.repeat(x_N, self.end_N - self.start_N)
        return out_BL

    def sums(self, x_BL: np.ndarray) -> np.ndarray:
        """(N): the sum of `x_BL` over each turn's tokens and those after it, up to the next turn.

        What is before the first turn counts to it, so that the turns' sums add up to the sequence's.
        """
        total_BL = np.cumsum(np.pad(x_BL.astype(np.float64), ((0, 0), (1, 0))), axis=1)
        start_N = np.where(self.number_N == 0, 0, self.start_N)
        end_N = np.append(start_N[1:], 0)
        end_N[self.last_B[self.turns_B > 0]] = x_BL.shape[1]
        return total_BL[self.row_N, end_N] - total_BL[self.row_N, start_N]


def spans(mask_BL: np.ndarray) -> Spans:
    """The runs of true values in each row of `mask_BL`."""
    mask_BL = np.asarray(mask_BL).astype(bool)
    edge_BL = np.diff(np.pad(mask_BL.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    row_N, start_N = np.nonzero(edge_BL == 1)
    end_N = np.nonzero(edge_BL == -1)[1]
    before_B = np.cumsum(np.bincount(row_N, minlength=len(mask_BL))) - np.bincount(row_N, minlength=len(mask_BL))
    return Spans(mask_BL, row_N, np.arange(len(row_N)) - before_B[row_N], start_N, end_N)


def method_of(
    name: str, params: Mapping[str, Any], preset: str | None, where: str, columns: Sequence[str] | None = None
) -> Method:
    """The method, if a trainer can run it. Raises UserError for one that needs a side table, and for a mistake.

    columns   what the trainer's turns have beside keys and rewards; None: not known before the first batch
    """
    method = resolve({**named(name), "params": params}, preset=preset)
    if method.needs:
        raise UserError(
            f"{where}: {method.name} needs {' and '.join(method.needs)}, which a trainer does not have; choose "
            "a method that needs none (docs/integrations.md)"
        )
    missing = [column for column in method.reads if columns is not None and column not in columns]
    if missing:
        raise UserError(
            f"{where}: {method.name} reads '{missing[0]}', which these turns do not have; choose another method"
        )
    return method
