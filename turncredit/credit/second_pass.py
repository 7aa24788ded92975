"""The side table `logprobs`: how likely recorded responses are in a second pass over the turns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turncredit.errors import UserError
from turncredit.turns import SideTable, Turns


def sums_of(column: pa.ChunkedArray) -> np.ndarray:
    """The sum (N) of each row's list, in float64."""
    lists = column.combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks)
    length_N = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    row_L = np.repeat(np.arange(len(lists)), length_N)
    sum_N: np.ndarray = np.bincount(row_L, pc.list_flatten(lists).to_numpy(zero_copy_only=False), len(lists))
    return sum_N


def second_pass(turns: Turns, method: str) -> SideTable:
    """The side table `logprobs`. Raises UserError where it was not given."""
    if "logprobs" not in turns.side:
        raise UserError(
            f"{method} needs the side table 'logprobs' with the columns 'tokens', 'logprob' and 'sampled'; give it "
            "with --logprobs"
        )
    return turns.side["logprobs"]


def gold_mean_logprob_N(turns: Turns, method: str) -> np.ndarray:
    """The mean log-probability (N) of the gold answer's tokens, had each turn given it (readers `gold`, `gold_sft`)."""
    table = second_pass(turns, method)
    return table.numbers("logprob", method) / np.maximum(table.numbers("tokens", method), 1)


def log_ratio_N(turns: Turns, method: str) -> np.ndarray:
    """log pi_reader(a_t | s_t) - log pi_old(a_t | s_t) (N), summed over the response's tokens."""
    table = second_pass(turns, method)
    return table.numbers("logprob", method) - table.numbers("sampled", method)
