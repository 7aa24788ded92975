"""Credit assignment: pure functions from a table of turns to an advantage (and its components) for each turn.

Each file of this folder is a method, with its variants. `parts` holds what methods share, `models` the learned ones.
`METHODS` are the built-in methods; `resolve` also knows those of installed packages and of files. The package can be
called: `from turncredit import credit; credit(turns, method="scpo")`.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pyarrow as pa

from turncredit.credit.parts.compose import Method, Part, compute
from turncredit.credit.parts.lookup import builtin, resolve, resolve_for_table
from turncredit.data.turns import Turns

METHODS = builtin().methods

__all__ = ["METHODS", "Method", "Part", "compute", "credit", "resolve"]


def credit(
    turns: Any,
    method: str | Callable[..., Any],
    *,
    labels: Any = None,
    values: Any = None,
    logprobs: Any = None,
    continuations: Any = None,
    measures: Any = None,
    preset: str | None = None,
    seed: int = 0,
    **params: Any,
) -> pa.Table:
    """The credit of every turn under a method: keys, method, components and `advantage`, one row for each input row.

    turns     an Arrow table, a pandas or polars frame, a DuckDB relation or a mapping of columns, with `group_id`,
              `rollout_id`, `turn`, `reward` and the columns that the method reads; in any order
    method    a method's name (`turncredit methods` lists them), `FILE.py:NAME`, or a function of turns
    labels, values, logprobs, continuations, measures
              side tables with the same keys, for methods that need them; of the same kinds as `turns`
    preset    a reference implementation's conventions: `verl`, `verl_agent` or `trl`; `params` take precedence
    seed      for methods that draw random numbers
    params    the method's parameters, or a composition (`shapers=["scpo"]`, `estimator="gigpo"`); a parameter of one
              part is `**{"scpo.alpha": 0.1}`

    The result is an Arrow table in the row order of `turns`: `frame["advantage"] = credit(frame)["advantage"]`. Neither
    torch nor transformers is imported. Raises UserError, with one line, for a table that is not one of turns, an
    unknown method or parameter, and a column or side table that the method needs and does not get.
    """
    given = {
        "labels": labels,
        "values": values,
        "logprobs": logprobs,
        "continuations": continuations,
        "measures": measures,
    }
    side = {name: table for name, table in given.items() if table is not None}
    chosen = resolve_for_table(method, preset, params, side, "credit(..., {name}=...)")
    return compute(Turns(turns, side), chosen, seed=seed)


class _Package(ModuleType):
    """This package as a callable: `from turncredit import credit; credit(turns)`."""

    def __call__(self, turns: Any, method: Any, **options: Any) -> pa.Table:
        return credit(turns, method, **options)


_Package.__call__.__doc__ = credit.__doc__
_Package.__call__.__wrapped__ = credit  # type: ignore[attr-defined]
sys.modules[__name__].__class__ = _Package
