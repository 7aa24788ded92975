"""The turns of a table and, for one of its rollouts, what other tables say of each turn.

A table of one's own needs only the keys here, and a table of credits only this rollout's turns; credit pages
(`turncredit.views.pages.data`) ask for more, since they compare all rollouts of a round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turncredit.data import tables
from turncredit.data.credits import by_method, credit_of
from turncredit.data.turns import SideTable, Turns
from turncredit.errors import UserError, nearest
from turncredit.stats.rank_correlation import mean_correlation, within


class OverAll(NamedTuple):
    """A credit's mean rank correlation with A* within rollouts, and the number of rollouts that it is over."""

    mean: float
    rollouts: int


NOT_KNOWN = OverAll(float("nan"), 0)


@dataclass(frozen=True)
class RolloutCredit:
    """One method's credit of a rollout: advantage and components by turn, and the group's largest |advantage|."""

    method: str
    advantage: dict[int, float]
    components: dict[int, dict[str, float]]
    scale: float
    over_all: OverAll = NOT_KNOWN


@dataclass(frozen=True)
class RolloutTables:
    """What other tables say of a rollout's turns: credits; labels by judge and turn; ground truth by turn."""

    credits: list[RolloutCredit]
    labels: list[tuple[str, dict[int, dict]]]
    truth: dict[int, dict]

    @cached_property
    def true(self) -> dict[int, float]:
        """A* of each branched turn."""
        return {turn: branch["advantage_true"] for turn, branch in self.truth.items()}


#: A row of a table, by column; an absent value is None.
Row = dict[str, Any]


def read_turns(path: Path) -> pa.Table:
    """The table's turns, ids as text, in order. Raises UserError if a key is missing."""
    table = tables.read(path)
    for key in tables.KEYS:
        if key not in table.column_names:
            raise UserError(f"{path}: showing rollouts needs the column '{key}'{nearest(key, table.column_names)}")
    for place, key in enumerate(table.column_names):
        if key in tables.KEYS[:2]:
            table = table.set_column(place, key, table.column(key).cast(pa.string()).fill_null("none"))
    return table.sort_by([(key, "ascending") for key in tables.KEYS])


def rollouts_of(turns: pa.Table) -> dict[tuple[str, str], range]:
    """The rows of each rollout of `read_turns`' table, by its group's and its own id."""
    ids = list(zip(*(turns.column(key).to_pylist() for key in tables.KEYS[:2]), strict=True))
    starts = [row for row in range(len(ids)) if row == 0 or ids[row] != ids[row - 1]]
    return {ids[start]: range(start, end) for start, end in zip(starts, [*starts[1:], len(ids)], strict=True)}


def pick(turns: pa.Table, name: str, where: Path) -> list[Row]:
    """The turns of the rollout called GROUP/ROLLOUT, or ROLLOUT if that is enough. UserError for none or several.

    An id that itself is GROUP/ROLLOUT, as in many imported files, is found by its second part as well.
    """
    rows_of = rollouts_of(turns)
    hits = [ids for ids in rows_of if name in (ids[1], "/".join(ids))]
    hits = hits or [ids for ids in rows_of if ids[1] == f"{ids[0]}/{name}"]
    if len(hits) > 1:
        groups = ", ".join(group for group, _ in hits[:3])
        raise UserError(f"{where}: rollout '{name}' is in {len(hits)} groups ({groups}, ...); write GROUP/ROLLOUT")
    if not hits:
        names = [*("/".join(ids) for ids in rows_of), *(rollout for _, rollout in rows_of)]
        raise UserError(
            f"{where}: no rollout '{name}'{nearest(name, names) or '; `show` without a rollout lists them'}"
        )
    rows = rows_of[hits[0]]
    return list(turns.slice(rows.start, len(rows)).to_pylist())


def read_tables(
    rows: Sequence[Row],
    *,
    measures: Path | None,
    credits: Sequence[Path],
    labels: Sequence[Path],
    truth: pa.Table | None,
) -> tuple[list[Row], RolloutTables]:
    """The turns of a rollout with their measures, and what the other tables say of them.

    Raises UserError for credits that lack one of the turns, and for a method given twice.
    """
    # `Turns` wants rewards, which a user's table may lack. Nothing here reads them.
    keys = {key: [row[key] for row in rows] for key in tables.KEYS}
    turns = Turns({**keys, "reward": [0.0] * len(rows)}, where="the shown rollout", excerpt=True)
    if measures is not None:
        side = SideTable(turns, tables.read(measures, "measures"), str(measures), partial=True)
        new = [name for name in side.table.column_names if name not in rows[0]]
        columns = {name: side.column(name, nulls=True) for name in new}
        rows = [{**row, **{name: columns[name][place] for name in new}} for place, row in enumerate(rows)]
    by_method_name: dict[str, RolloutCredit] = {}
    for path in credits:
        table = tables.read(path)
        named = table.column("method")[0].as_py() if "method" in table.column_names and table.num_rows else None
        for method, part in by_method(table, str(named or path.stem), str(path)).items():
            if method in by_method_name:
                raise UserError(f"{path}: credits of '{method}' were given twice")
            by_method_name[method] = _credit(turns, part, method, str(path), truth)
    return list(rows), RolloutTables(
        credits=list(by_method_name.values()),
        labels=[(path.stem, _by_turn(turns, tables.read(path, "labels"), str(path))) for path in labels],
        truth={} if truth is None else _by_turn(turns, truth, "branches"),
    )


def _by_turn(turns: Turns, table: pa.Table, where: str) -> dict[int, dict]:
    """A table's rows about the shown rollout, by turn."""
    side = SideTable(turns, table, where, partial=True)
    found = table.take(pa.array(side.row_N[side.has_N])).to_pylist()
    return dict(zip(turns.turn_N[side.has_N].tolist(), found, strict=True))


def _credit(turns: Turns, table: pa.Table, method: str, where: str, truth: pa.Table | None) -> RolloutCredit:
    """The credit of a rollout, which is all of `turns`; `truth` has that of all rollouts."""
    advantage_N, components = credit_of(turns, table, where, "show")
    number_N = [int(turn) for turn in turns.turn_N]
    group, _ = turns.ids_R()[0]
    of_group = table.filter(pc.equal(table.column("group_id").cast(pa.string()), group))
    return RolloutCredit(
        method=method,
        advantage=dict(zip(number_N, advantage_N.tolist(), strict=True)),
        components={
            turn: {name: float(x_N[row]) for name, x_N in components.items()} for row, turn in enumerate(number_N)
        },
        scale=float(np.abs(of_group.column("advantage").cast(pa.float64()).to_numpy()).max()),
        **({} if truth is None else {"over_all": _over_all(table, truth)}),
    )


def _over_all(credit: pa.Table, truth: pa.Table) -> OverAll:
    """The mean over all rollouts that both tables have turns of, as in the fidelity measures."""
    types = (pa.string(), pa.string(), pa.int64())

    def numbers(table: pa.Table, name: str) -> pa.Table:
        columns = {key: table.column(key).cast(kind) for key, kind in zip(tables.KEYS, types, strict=True)}
        return pa.table({**columns, name: table.column(name).cast(pa.float64())})

    both = numbers(truth, "advantage_true").join(numbers(credit, "advantage"), list(tables.KEYS), join_type="inner")
    both = both.sort_by([(key, "ascending") for key in tables.KEYS])
    ids = list(zip(*(both.column(key).to_pylist() for key in tables.KEYS[:2]), strict=True))
    cell_of = {rollout: cell for cell, rollout in enumerate(dict.fromkeys(ids))}
    cell_N = np.array([cell_of[rollout] for rollout in ids], dtype=np.int64)
    advantage_N, true_N = (both.column(name).to_numpy() for name in ("advantage", "advantage_true"))
    ranked = within(advantage_N, true_N, cell_N, len(cell_of))
    mean = mean_correlation(ranked, np.zeros(len(cell_of), dtype=np.int64), 1).value
    return OverAll(mean, int(ranked.scored_R.sum()))
