"""Agreement between two sets of labels, by role and outcome, as TRIAGE measures its judges (section 5.3, table 4).

The conflict cells matter most: R inside successful rollouts and E inside failed ones, which a judge that only echoes
the outcome gets wrong. The outcome is read here, after labelling, and nowhere else.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turncredit.data import tables
from turncredit.data.columns import cast
from turncredit.data.counts import number_of
from turncredit.data.json_lines import json_table
from turncredit.errors import UserError, nearest
from turncredit.judges.rubric import ROLES

#: the judge's role for a turn (None if it gave none) and the gold label
Pair = tuple[Any, Any]


class Cell(NamedTuple):
    """One role within one outcome: how often each side has it, how often both do, and F1 (None without any)."""

    role: str
    outcome: str
    gold: int
    judged: int
    both: int
    f1: float | None


class LabelAgreement(NamedTuple):
    """Labels against gold labels, over the turns that both have.

    turns        how many; `missing` of them have no label and count as disagreement
    agreement    share with the same role
    kappa        Cohen's kappa, agreement beyond chance (None where chance agreement is complete)
    confusion    gold role -> {judged role, or "-" for a missing one: count}
    cells        F1 by role and outcome; outcome `any` where the outcome is not known
    disagreements   a table: keys, goal, action, outcome where known, both roles, both pieces of evidence
    """

    turns: int
    missing: int
    agreement: float
    kappa: float | None
    confusion: dict[str, dict[str, int]]
    cells: list[Cell]
    disagreements: pa.Table


def calibration() -> pa.Table:
    """Our hand-labelled household rollouts: turns with `success`, `part`, `role`, and the reason as `evidence`."""
    with as_file(files("turncredit.judges") / "data" / "calibration.jsonl") as path:
        return json_table(path)


def compare(labels: pa.Table, gold: pa.Table, success: pa.Table | None = None) -> LabelAgreement:
    """Compare `labels` with `gold`, both with keys and `role`; turns that only one of them has are left out.

    The outcome of a rollout comes from the column `success` of the table `success` (any table with the keys, such as
    the turns), or else of `gold`; without either, cells are not split by outcome. Raises UserError for a missing
    column, an unknown role, duplicate keys, or tables with no turn in common.
    """
    left, right = _by_key(labels, "labels"), _by_key(gold, "gold labels")
    keys = [key for key in right if key in left]
    if not keys:
        raise UserError("the labels and the gold labels have no turn in common; compare group_id, rollout_id and turn")
    outcome = _outcomes(success if success is not None else gold)
    pairs = [(left[key].get("role"), right[key].get("role")) for key in keys]
    unlabelled = [key for key, (_, role) in zip(keys, pairs, strict=True) if role is None]
    if unlabelled:
        raise UserError(
            f"gold labels: {number_of(len(unlabelled), 'turn')} without a role; gold labels must not be missing"
        )
    outcomes = [outcome.get(key[:2], "any") for key in keys]
    missing = sum(role is None for role, _ in pairs)
    agreement = sum(a == b for a, b in pairs) / len(pairs)
    return LabelAgreement(
        len(pairs),
        missing,
        agreement,
        _kappa(pairs),
        _confusion(pairs),
        _cells(pairs, outcomes),
        _disagreements(keys, left, right, outcomes),
    )


def cohen_kappa(first: list[Any], second: list[Any]) -> float | None:
    """Cohen's kappa of two raters, (p_o - p_e) / (1 - p_e); None where p_e is 1: both always give the same role."""
    values = sorted({*first, *second}, key=str)
    code = {value: at for at, value in enumerate(values)}
    counts = np.zeros((len(values), len(values)))
    np.add.at(counts, ([code[x] for x in first], [code[x] for x in second]), 1)
    share = counts / counts.sum()
    expected = float(share.sum(axis=1) @ share.sum(axis=0))
    return None if expected >= 1.0 else (float(np.trace(share)) - expected) / (1.0 - expected)


def _kappa(pairs: list[Pair]) -> float | None:
    return cohen_kappa([a or "-" for a, _ in pairs], [b for _, b in pairs])


def _confusion(pairs: list[Pair]) -> dict[str, dict[str, int]]:
    columns = (*ROLES, "-")
    return {g: {j: sum((a or "-") == j and b == g for a, b in pairs) for j in columns} for g in ROLES}


def _cells(pairs: list[Pair], outcomes: list[str]) -> list[Cell]:
    cells = []
    for name in [name for name in ("success", "failure", "any") if name in outcomes]:
        here = [pair for pair, outcome in zip(pairs, outcomes, strict=True) if outcome == name]
        for role in ROLES:
            gold, judged = sum(b == role for _, b in here), sum(a == role for a, _ in here)
            both = sum(a == b == role for a, b in here)
            cells.append(Cell(role, name, gold, judged, both, 2 * both / (gold + judged) if gold + judged else None))
    return cells


def _disagreements(keys: list, left: dict, right: dict, outcomes: list[str]) -> pa.Table:
    rows = []
    for key, outcome in zip(keys, outcomes, strict=True):
        a, b = left[key], right[key]
        if a.get("role") != b.get("role"):
            judged_evidence = a.get("evidence") if a.get("role") else a.get("reason")
            group, rollout, turn = key
            shown = {name: b.get(name) or a.get(name) for name in ("goal", "action", "next_observation")}
            rows.append(
                {"group_id": group, "rollout_id": rollout, "turn": turn, "outcome": outcome, **shown}
                | {
                    "gold": b["role"],
                    "gold_evidence": b.get("evidence"),
                    "judged": a.get("role"),
                    "judged_evidence": judged_evidence,
                }
            )
    text = ("outcome", "goal", "action", "next_observation", "gold", "gold_evidence", "judged", "judged_evidence")
    fields = [("group_id", pa.string()), ("rollout_id", pa.string()), ("turn", pa.int64())]
    return pa.Table.from_pylist(rows, schema=pa.schema([*fields, *((name, pa.string()) for name in text)]))


def _by_key(table: pa.Table, where: str) -> dict[tuple[str, str, int], dict[str, Any]]:
    keys = _keys(table, (*tables.KEYS,), where)
    _require(table, "role", where)
    columns = ("role", "evidence", "reason", "goal", "action", "next_observation")
    table = table.select([name for name in columns if name in table.column_names])
    rows: dict[tuple[str, str, int], dict[str, Any]] = {}
    for key, row in zip(keys, table.to_pylist(), strict=True):
        if key in rows:
            raise UserError(f"{where}: group {key[0]!r}, rollout {key[1]!r}, turn {key[2]} occurs more than once")
        if row["role"] is not None and row["role"] not in ROLES:
            raise UserError(f"{where}: '{row['role']}' is not a role; choose one of {', '.join(ROLES)}")
        rows[key] = row
    return rows


def _keys(table: pa.Table, names: tuple[str, ...], where: str) -> list[Any]:
    """The values of these keys of each row: ids as text, turns as whole numbers. UserError for nulls and others."""
    columns = []
    for name in names:
        _require(table, name, where)
        if table.column(name).null_count:
            raise UserError(f"{where}: the column '{name}' has nulls; each row needs its {name}")
        kind = pa.int64() if name == "turn" else pa.string()
        columns.append(cast(table.column(name), kind, where, name).to_pylist())
    return list(zip(*columns, strict=True))


def _require(table: pa.Table, name: str, where: str) -> None:
    if name not in table.column_names:
        raise UserError(f"{where}: the column '{name}' is missing{nearest(name, table.column_names)}")


def _outcomes(table: pa.Table) -> dict[tuple[str, str], str]:
    if "success" not in table.column_names:
        return {}
    if not pa.types.is_boolean(table.schema.field("success").type):
        raise UserError(f"column 'success' must be true or false, not {table.schema.field('success').type}")
    keys = _keys(table, tables.KEYS[:2], "the table with 'success'")
    won = pc.fill_null(table.column("success"), False).to_pylist()
    # `success` may be given on the last turn only, or on each.
    outcome: dict[tuple[str, str], bool] = {}
    for (group, rollout), one in zip(keys, won, strict=True):
        outcome[group, rollout] = outcome.get((group, rollout), False) or one
    return {key: "success" if one else "failure" for key, one in outcome.items()}
