"""Compare the tables of two results folders of one experiment, column by column.

    python -m tests.golden OLD NEW

Compared are `credits`, `evals` and `updates`: types, order of rows and every bit of every value (a NaN equals the same
NaN). Left out are paths, the column `created_by` and the files' metadata. Either folder may have either layout:

    before  runs/METHOD/seedK/roundRR/{credits,evals,updates}.parquet    sft/evals/roundRR.parquet
            audit/RUN/seedK/roundRR/credits/METHOD.parquet
    after   runs/METHOD/seedK/roundRR/{evals,updates}.parquet            runs/sft/seed0/roundRR/evals.parquet
            rollouts/POLICY/seedK/roundRR/credits/METHOD.parquet, where POLICY is sft-SAMPLING in round 1
            (sft_AGENT for another agent than the experiment's own)

The layout before does not say with which sampling a round 1 was sampled. Where a folder has several tables of one
method's credit in round 1, each needs an equal one on the other side.

One line is printed for each table; the exit status is 1 if anything differs, is missing on one side, or if there was
nothing to compare.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

IGNORED_COLUMNS = ("created_by",)
KEYS = ("group_id", "rollout_id", "turn")

_WHERE = r"seed(?P<seed>\d+)/round(?P<round>\d+)"
_LAYOUT = [
    re.compile(rf"runs/(?P<policy>[^/]+)/{_WHERE}/(?P<table>evals|updates)\.parquet"),
    re.compile(rf"runs/(?P<policy>[^/]+)/{_WHERE}/(?P<table>credits)\.parquet"),
    re.compile(r"(?P<policy>sft)/(?P<table>evals)/round(?P<round>\d+)\.parquet"),
    re.compile(rf"(?:audit|rollouts)/(?P<policy>[^/]+)/{_WHERE}/(?P<table>credits)/(?P<method>[^/]+)\.parquet"),
]


@dataclass(frozen=True, order=True)
class Identity:
    """What a table is, whatever the layout."""

    table: str
    policy: str
    seed: int
    round: int
    method: str

    def __str__(self) -> str:
        of = f" of {self.method}" if self.table == "credits" and self.method != self.policy else ""
        return f"{self.table}{of}, {self.policy}/seed{self.seed}/round{self.round:02d}"


def identify(path: str) -> Identity | None:
    """What the table at `path` (relative to the results folder) is; None if it is not compared."""
    for pattern in _LAYOUT:
        if match := pattern.fullmatch(path):
            part = match.groupdict()
            table, policy, round = part["table"], part["policy"], int(part["round"])
            method = part.get("method") or policy
            if table == "credits" and round == 1:  # the warm start, of one agent or another
                policy = policy.partition("-")[0] if "-" in policy else "sft"
            return Identity(table, policy, int(part.get("seed") or 0), round, method)
    return None


def find_tables(results: Path) -> dict[Identity, list[Path]]:
    found = defaultdict(list)
    for path in sorted(results.rglob("*.parquet")):
        if identity := identify(path.relative_to(results).as_posix()):
            found[identity].append(path)
    return dict(found)


def differences(old: Path, new: Path) -> list[str]:
    """One line for each thing in which two tables differ."""
    left, right = _read(old), _read(new)
    lines = [f"column {name} only in OLD" for name in left.column_names if name not in right.column_names]
    lines += [f"column {name} only in NEW" for name in right.column_names if name not in left.column_names]
    if left.num_rows != right.num_rows:
        return [*lines, f"{left.num_rows} rows in OLD, {right.num_rows} in NEW"]
    for name in left.column_names:
        if name in right.column_names:
            lines += _column_differences(name, left[name].combine_chunks(), right[name].combine_chunks())
    return lines


def _read(path: Path) -> pa.Table:
    # One file, not a data set: names of folders must not become columns.
    table = pq.ParquetFile(path).read()
    return table.drop_columns([name for name in IGNORED_COLUMNS if name in table.column_names])


def _column_differences(name: str, left: pa.Array, right: pa.Array) -> list[str]:
    if left.type != right.type:
        return [f"column {name} is {left.type} in OLD, {right.type} in NEW"]
    if pa.types.is_floating(left.type):
        bits = f"u{left.type.bit_width // 8}"
        null = [np.asarray(pc.is_null(side)) for side in (left, right)]
        value = [np.ascontiguousarray(pc.fill_null(side, 0.0).to_numpy(zero_copy_only=False)) for side in (left, right)]
        unequal = (null[0] != null[1]) | (value[0].view(bits) != value[1].view(bits))
        with np.errstate(invalid="ignore"):
            worst = np.nanmax(np.abs(value[0] - value[1])[unequal], initial=0.0)
        detail = f", by at most {worst:.3g}"
    else:
        unequal = np.array([a != b for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)], dtype=bool)
        detail = ""
    if not unequal.any():
        return []
    row = int(np.flatnonzero(unequal)[0])
    first = f"; first in row {row}: {left[row].as_py()!r} in OLD, {right[row].as_py()!r} in NEW"
    return [f"column {name} differs in {unequal.sum()} of {len(unequal)} rows{detail}{first}"]


def _same_keys(old: Path, new: Path) -> bool:
    left, right = (pq.ParquetFile(path).read(columns=list(KEYS)) for path in (old, new))
    return left.equals(right)


def _pair(old: list[Path], new: list[Path]) -> list[tuple[Path, Path]]:
    """Which tables of one identity to compare: each takes part at least once."""
    if len(old) == 1 or len(new) == 1:
        return list(product(old, new))

    def likeness(pair: tuple[Path, Path]) -> tuple[bool, bool]:
        return bool(differences(*pair)), not _same_keys(*pair)

    pairs = [min(((one, other) for other in new), key=likeness) for one in old]
    left_over = [other for other in new if other not in {other for _, other in pairs}]
    return pairs + [min(((one, other) for one in old), key=likeness) for other in left_over]


def compare(old: Path, new: Path) -> tuple[list[str], bool]:
    """The verdict on each table, and whether all are the same."""
    left, right = find_tables(old), find_tables(new)
    lines, same, compared = [], True, 0
    for identity in sorted(left.keys() | right.keys()):
        if identity not in right or identity not in left:
            side, other = ("OLD", old) if identity in left else ("NEW", new)
            paths = ", ".join(str(path.relative_to(other)) for path in (left | right)[identity])
            lines.append(f"MISSING   {identity}: only in {side} ({paths})")
            same = False
            continue
        unequal = []
        for one, another in _pair(left[identity], right[identity]):
            compared += 1
            where = f"{one.relative_to(old)} and {another.relative_to(new)}"
            unequal += [f"          {where}: {line}" for line in differences(one, another)]
        lines += [f"DIFFERENT {identity}", *unequal] if unequal else [f"same      {identity}"]
        same &= not unequal
    unlike = sum(not line.startswith(("same", " ")) for line in lines)
    sizes = f"{len(left)} tables in OLD, {len(right)} in NEW; {compared} pairs of files compared"
    lines.append(f"{sizes}; {unlike} tables missing or different")
    if not compared:
        lines.append("nothing was compared: is each folder one of results, such as results/household?")
    return lines, same and compared > 0


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    lines, same = compare(Path(arguments[0]), Path(arguments[1]))
    print("\n".join(lines))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
