"""Which turns failed: the turn table's own columns, or, for tables made elsewhere, what the replies say."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow.compute as pc

from turncredit import envs
from turncredit.data.turns import Turns
from turncredit.envs.failures import PUBLISHED, TextRule


def failed_N(
    turns: Turns, column: Literal["failed", "error_reply"], method: Literal["mgr", "hipif", "scpo"]
) -> np.ndarray:
    """The boolean column `failed` or `error_reply` of the turns (N), which the rollouts' environment has written.

    Where the table lacks it, or it is null, `next_observation` is judged by the rule of the environment that the
    column `env` names (`Environment.failures`); where there is no such rule, by the patterns that the method's paper
    gives (`turncredit.envs.failures.PUBLISHED`).
    """
    if not turns.has(column):
        return _from_replies_N(turns, column, method)
    values = turns.table.column(column)
    if values.null_count == 0:
        return turns.truths(column, method)
    null_N = values.is_null().to_numpy()[turns.order_N]
    recorded_N = pc.fill_null(values, False).to_numpy()[turns.order_N]
    return np.where(null_N, _from_replies_N(turns, column, method), recorded_N)


def _from_replies_N(turns: Turns, column: str, method: str) -> np.ndarray:
    code_N, texts = turns.texts("next_observation", method)
    if not turns.has("env"):
        return _judged(texts, PUBLISHED[method])[code_N]
    env_N, names = turns.texts("env", method)
    failed_N = np.zeros(turns.n, dtype=bool)
    for number, name in enumerate(names):
        env = envs.find(name)
        rule = env.failures.column(column) if env is not None and env.failures else PUBLISHED[method]
        failed_N |= (env_N == number) & _judged(texts, rule)[code_N]
    return failed_N


def _judged(texts: list[str], rule: TextRule) -> np.ndarray:
    return np.fromiter((rule(text) for text in texts), dtype=bool, count=len(texts))
