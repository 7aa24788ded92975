"""The side table `logprobs`: how likely recorded responses are in a second pass over the turns."""

from __future__ import annotations

import numpy as np

from turncredit.data.turns import Turns


def gold_mean_logprob_N(turns: Turns, method: str) -> np.ndarray:
    """The mean log-probability (N) of the gold answer's tokens, had each turn given it (scorers `gold`, `gold_sft`)."""
    table = turns.side_table("logprobs", method)
    return table.numbers("logprob", method) / np.maximum(table.numbers("tokens", method), 1)


def log_ratio_N(turns: Turns, method: str) -> np.ndarray:
    """log pi_reader(a_t | s_t) - log pi_old(a_t | s_t) (N), summed over the response's tokens."""
    table = turns.side_table("logprobs", method)
    return table.numbers("logprob", method) - table.numbers("sampled", method)
