"""Compare everything in two results folders of one experiment.

    python -m tests.golden OLD NEW

Every file is compared, by its path below the folder:

tables      every bit of every column but `created_by`, the schema, and the provenance in the metadata
folders     all their files; and their provenance, with the hashes of these files
metrics     stage, hash of the settings, names of the outputs, and all measured values
others      every byte: config.json, fidelity.json, the pages, figures and the summary as CSV, for example

Times and memory are left out: in metrics, in the report's summary, and with them the report's page. So are logs, hidden
files and MLflow's database. Of the code that made something only the version is compared. If its commits differ, so do
the hashes of what an artifact was made from, and they are left out: `tests.golden_runs` runs both from copies without
a commit.

One line is printed for each difference. The exit status is 1 if anything differs, is missing on one side, or if there
was nothing to compare.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

IGNORED_COLUMNS = ("created_by",)
#: of a metrics file: times, memory, and hashes of files that are compared themselves
UNSTEADY = {"started", "wall_s", "cpu_s", "peak_mb", "hash"}
META = b"turncredit"


def files_of(results: Path) -> dict[str, Path]:
    """The files that are compared, by path below the folder."""
    found = {path.relative_to(results): path for path in sorted(results.rglob("*")) if path.is_file()}
    return {
        name.as_posix(): path
        for name, path in found.items()
        if name.parts[0] not in ("logs", "mlruns")
        and not name.name.startswith("mlflow.db")
        and not any(part.startswith(".") for part in name.parts)
    }


def differences(name: str, old: Path, new: Path) -> list[str]:
    """One line for each thing in which two files of the same name differ."""
    if name == "report/index.html" or old.read_bytes() == new.read_bytes():
        return []
    if old.suffix == ".parquet":
        return _table_differences(old, new)
    if name == "report/summary.csv":
        left, right = (_without_times(pa_csv.read_csv(path)) for path in (old, new))
        return [] if left.equals(right) else ["numbers differ; summary.parquet has them too"]
    if old.name == "provenance.json":
        return _entry_differences(*_comparable(*(json.loads(path.read_text()) for path in (old, new))))
    if old.parent.name == "metrics":
        return _entry_differences(*(_steady(json.loads(path.read_text())) for path in (old, new)))
    return ["bytes differ"]


def _comparable(old: dict[str, Any], new: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Two provenances without the commits, and without the hashes of the inputs where the commits differ."""
    for made_by in (old, new):
        inputs = made_by.get("inputs", {})
        version = str(made_by.get("code")).partition("+")[0]
        yield {**made_by, "code": version, "inputs": inputs if old.get("code") == new.get("code") else sorted(inputs)}


def _steady(metrics: dict[str, Any]) -> dict[str, Any]:
    """A metrics file without what differs from run to run."""
    kept = {key: value for key, value in metrics.items() if key not in UNSTEADY}
    return {**kept.pop("metrics"), **kept, "files": sorted(kept.get("files", {}))}


def _without_times(summary: pa.Table) -> pa.Table:
    """The report's summary; of its rows in seconds only their names."""
    if "unit" not in summary.column_names:
        return summary
    times = pc.equal(summary["unit"], "seconds")
    for number in ("value", "low", "high"):
        index = summary.column_names.index(number)
        kept = pc.if_else(times, pa.scalar(None, summary[number].type), summary[number])
        summary = summary.set_column(index, summary.schema.field(number), kept)
    return summary


def _entry_differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    texts = [{key: json.dumps(value, sort_keys=True) for key, value in side.items()} for side in (old, new)]
    return [
        f"{key} is {texts[0].get(key, 'missing')} in OLD, {texts[1].get(key, 'missing')} in NEW"
        for key in dict.fromkeys((*old, *new))
        if texts[0].get(key) != texts[1].get(key)
    ]


def _table_differences(old: Path, new: Path) -> list[str]:
    # One file, not a data set: names of folders must not become columns.
    left, right = (pq.ParquetFile(path).read() for path in (old, new))
    meta = [dict(table.schema.metadata or {}) for table in (left, right)]
    made_by = [json.loads(one.pop(META, b"{}")) for one in meta]
    lines = [f"provenance: {line}" for line in _entry_differences(*_comparable(*made_by))]
    lines += [] if meta[0] == meta[1] else [f"metadata are {meta[0]} in OLD, {meta[1]} in NEW"]
    left, right = (
        _without_times(table.drop_columns([name for name in IGNORED_COLUMNS if name in table.column_names]))
        for table in (left, right)
    )
    lines += [f"column {name} only in OLD" for name in left.column_names if name not in right.column_names]
    lines += [f"column {name} only in NEW" for name in right.column_names if name not in left.column_names]
    shared = [name for name in left.column_names if name in right.column_names]
    if shared != [name for name in right.column_names if name in shared]:
        lines.append("columns are in another order")
    if left.num_rows != right.num_rows:
        return [*lines, f"{left.num_rows} rows in OLD, {right.num_rows} in NEW"]
    for name in shared:
        fields = [table.schema.field(name) for table in (left, right)]
        if fields[0].equals(fields[1], check_metadata=True):
            lines += _column_differences(name, *(table[name].combine_chunks() for table in (left, right)))
        else:
            lines.append(f"column {name} is {_kind(fields[0])} in OLD, {_kind(fields[1])} in NEW")
    return lines


def _kind(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}{f' with {field.metadata}' if field.metadata else ''}"


def _column_differences(name: str, left: pa.Array, right: pa.Array) -> list[str]:
    if pa.types.is_floating(left.type):
        bits = f"u{left.type.bit_width // 8}"
        null = [np.asarray(pc.is_null(side)) for side in (left, right)]
        value = [np.ascontiguousarray(pc.fill_null(side, 0.0).to_numpy(zero_copy_only=False)) for side in (left, right)]
        unequal = (null[0] != null[1]) | (value[0].view(bits) != value[1].view(bits))
        with np.errstate(invalid="ignore"):
            worst = np.nanmax(np.abs(value[0] - value[1])[unequal], initial=0.0)
        detail = f", by at most {worst:.3g}"
    else:
        # As text: of floats in lists, NaN equals NaN, and -0.0 is not 0.0.
        unequal = np.array([repr(a) != repr(b) for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)], bool)
        detail = ""
    if not unequal.any():
        return []
    row = int(np.flatnonzero(unequal)[0])
    first = f"; first in row {row}: {left[row].as_py()!r} in OLD, {right[row].as_py()!r} in NEW"
    return [f"column {name} differs in {unequal.sum()} of {len(unequal)} rows{detail}{first}"]


def compare(old: Path, new: Path) -> tuple[list[str], bool]:
    """A line for each difference, a last one with the counts, and whether everything is the same."""
    left, right = files_of(old), files_of(new)
    lines = [f"MISSING   {name}: only in {'OLD' if name in left else 'NEW'}" for name in sorted({*left} ^ {*right})]
    both = sorted(left.keys() & right.keys())
    for name in both:
        lines += [f"DIFFERENT {name}: {line}" for line in differences(name, left[name], right[name])]
    tables, folders = (sum(name.endswith(end) for name in both) for end in (".parquet", "provenance.json"))
    metrics = sum("/metrics/" in f"/{name}" for name in both)
    counts = (
        f"{len(both)} files compared ({tables} tables, {folders} folders, {metrics} metrics), {len(lines)} differences"
    )
    if not both:
        counts += "; nothing was compared: is each folder one of results, such as results/household?"
    return [*lines, counts], bool(both) and not lines


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    lines, same = compare(Path(arguments[0]), Path(arguments[1]))
    print("\n".join(lines))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
