"""Run a method on rollouts: the tables it is given, a limit on its time, and how two credits compare."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from turncredit.audit.score.groups import Groups
from turncredit.credit.parts.compose import Method, compute
from turncredit.data.tables import TRAINED
from turncredit.data.turns import Turns
from turncredit.errors import UserError

#: Seconds that a method may take for one table.
LIMIT = 60.0
#: Credits that differ by less, in units of the largest one, are the same.
SAME = 1e-9
#: What is wrong with a method whose credits of the same turns differ by more.
TWO_CREDITS = (
    "gives the same turns two different credits; draw random numbers from a seed, as in def credit(turns, *, seed=0)"
)
#: The side tables that an exact world can give.
GIVEN = ("continuations",)


class _TimeIsUp(BaseException):
    """Not an Exception: a method that catches every Exception must end, too."""


def can_score(method: Method) -> str | None:
    """None if the exact worlds have all that the method reads; otherwise what they lack."""
    missing = [name for name in method.needs if name not in GIVEN]
    if missing:
        return f"reads the side table '{missing[0]}', which the exact worlds do not have"
    if method.forks:
        return f"credits a tree of rollouts ({method.forks} forks of each task), which the exact worlds do not sample"
    return None


def advantages(method: Method, groups: Groups, seed: int = 0) -> np.ndarray:
    """The method's advantage of each turn (N); 0 at a turn that it leaves out of training.

    Raises UserError for whatever the method does wrong, and if it takes longer than `LIMIT` seconds.
    """
    side = {}
    if method.continuations:
        side["continuations"] = groups.continuations(method.continuations, seed)
    return advantages_of_table(method, groups.table(), side, seed)


def advantages_of_table(
    method: Method, table: pa.Table, side: dict[str, pa.Table], seed: int = 0, limit: float = LIMIT
) -> np.ndarray:
    """`advantages` of any table of turns with its side tables, in the order of its rows."""
    with at_most(limit, f"{method.name}: takes more than {limit:g} s for {table.num_rows:,} turns"):
        credits = compute(Turns(table, side, where="the rollouts of score"), method, seed=seed)
    advantage_N = credits.column("advantage").to_numpy()
    if TRAINED in credits.column_names:
        advantage_N = np.where(credits.column(TRAINED).to_numpy() == 0, 0.0, advantage_N)
    return advantage_N


def same(x_N: np.ndarray, y_N: np.ndarray) -> bool:
    """Whether two credits are the same up to rounding."""
    return bool(np.abs(x_N - y_N).max() <= SAME * max(np.abs(x_N).max(), np.abs(y_N).max()))


def explained(x_N: np.ndarray, cell_N: np.ndarray) -> float:
    """The share of the variance of x between cells; 0 where x does not vary."""
    total = x_N.var()
    if total <= (SAME * np.abs(x_N).max(initial=0.0)) ** 2:
        return 0.0
    count_C = np.maximum(np.bincount(cell_N), 1)
    mean_C = np.bincount(cell_N, x_N) / count_C
    return float(mean_C[cell_N].var() / total)


@contextmanager
def at_most(seconds: float, message: str) -> Iterator[None]:
    """UserError with `message` if the block takes longer. Only the main thread of a Unix process can be interrupted;
    elsewhere there is no limit."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again each second, if the block goes on all the same
    try:
        yield
    except _TimeIsUp:
        raise UserError(f"{message}; vectorise it, or score fewer rollouts (--rollouts)") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
