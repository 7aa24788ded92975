"""The turns of a table and, for one of its rollouts, what other tables say of each turn.

A table of one's own needs only the keys here, and a table of credits only this rollout's turns; credit pages
(`turncredit.views.pages.data`) ask for more, since they compare all rollouts of a round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from turncredit.data import tables
from turncredit.data.turns import Turns, by_method, credit_of
from turncredit.errors import UserError, nearest


@dataclass(frozen=True)
class RolloutCredit:
    """One method's credit of a rollout: advantage and components by turn, and the group's largest |advantage|."""

    method: str
    advantage: dict[int, float]
    components: dict[int, dict[str, float]]
    scale: float


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


def read_turns(path: Path, measures: Path | None) -> pd.DataFrame:
    """The table's turns and their measures, keys as text, in order. Raises UserError if a key is missing."""
    table = tables.read(path)
    for key in tables.KEYS:
        if key not in table.column_names:
            raise UserError(f"{path}: showing rollouts needs the column '{key}'{nearest(key, table.column_names)}")
    frame = _with_text_keys(table)
    if measures is not None:
        beside = tables.read(measures, "measures").to_pandas()
        new = [name for name in beside.columns if name not in frame.columns]
        frame = frame.merge(beside[[*tables.KEYS, *new]], how="left", on=list(tables.KEYS))
    return frame.sort_values(["group_id", "rollout_id", "turn"])


def read_truth(path: Path | None) -> pd.DataFrame | None:
    """The ground truth of the round's branched turns; None if there is none."""
    return None if path is None else _with_text_keys(tables.read(path, "branches"))


def read_tables(
    rows: pd.DataFrame, *, credits: Sequence[Path], labels: Sequence[Path], truth: pd.DataFrame | None
) -> RolloutTables:
    """What these tables say of the rollout whose turns are `rows`. UserError for credits that lack one of them."""
    return RolloutTables(
        credits=_credits(credits, rows),
        labels=[(path.stem, _by_turn(_with_text_keys(tables.read(path, "labels")), rows)) for path in labels],
        truth={} if truth is None else _by_turn(truth, rows),
    )


def pick(turns: pd.DataFrame, name: str, where: Path) -> pd.DataFrame:
    """The turns of the rollout called GROUP/ROLLOUT, or ROLLOUT if that is enough. UserError for none or several."""
    keys = turns[["group_id", "rollout_id"]].drop_duplicates()
    full = keys["group_id"] + "/" + keys["rollout_id"]
    hits = keys[(full == name) | (keys["rollout_id"] == name)]
    if len(hits) > 1:
        groups = ", ".join(hits["group_id"].head(3))
        raise UserError(f"{where}: rollout '{name}' is in {len(hits)} groups ({groups}, ...); write GROUP/ROLLOUT")
    if hits.empty:
        hint = nearest(name, [*full, *keys["rollout_id"]]) or "; `show` without a rollout lists them"
        raise UserError(f"{where}: no rollout '{name}'{hint}")
    group, rollout = hits.iloc[0]
    return turns[(turns["group_id"] == group) & (turns["rollout_id"] == rollout)]


def _with_text_keys(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas().astype({"group_id": str, "rollout_id": str})


def _by_turn(frame: pd.DataFrame, rows: pd.DataFrame) -> dict[int, dict]:
    """A table's rows about the shown rollout, by turn."""
    group, rollout = rows.iloc[0][["group_id", "rollout_id"]]
    own = frame[(frame["group_id"] == group) & (frame["rollout_id"] == rollout)]
    return {int(row["turn"]): row for row in own.to_dict("records")}


def _credits(paths: Sequence[Path], rows: pd.DataFrame) -> list[RolloutCredit]:
    """Each method's credit of the shown rollout; one that is not named, or null, has the file's name.

    Raises UserError for a method given twice.
    """
    if not paths:
        return []
    # `Turns` needs rewards, which a table of one's own may not have, as some turns; nothing here reads them.
    keys = {key: rows[key].to_numpy() for key in tables.KEYS}
    turns = Turns({**keys, "reward": [0.0] * len(rows)}, where="the shown rollout", excerpt=True)
    credits: dict[str, RolloutCredit] = {}
    for path in paths:
        table = tables.read(path)
        named = table.column("method")[0].as_py() if "method" in table.column_names and table.num_rows else None
        for method, part in by_method(table, str(named or path.stem), str(path)).items():
            if method in credits:
                raise UserError(f"{path}: credits of '{method}' were given twice")
            credits[method] = _credit(turns, part, method, str(path))
    return list(credits.values())


def _credit(turns: Turns, table: pa.Table, method: str, where: str) -> RolloutCredit:
    """The credit of a rollout, which is all of `turns`."""
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
    )
