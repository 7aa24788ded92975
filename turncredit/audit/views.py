"""DuckDB views over a results folder: one view per kind of table, across all experiments, methods, seeds and rounds.

The columns `experiment`, `method`, `seed` and `round` come from a file's place in the folder (docs/sql.md), so a query
is the same for one run and for a whole sweep. Views are made only for the tables that a query names.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import pyarrow as pa

from turncredit import tables
from turncredit.errors import UserError

#: view -> where its files lie below results/<experiment>. Side tables lie beside the turns they describe.
_BESIDE_TURNS = ("sft/rollouts/*/seed*/{}", "runs/*/seed*/round[0-9][0-9]/rollouts/{}")
PATTERNS: dict[str, tuple[str, ...]] = {
    "turns": tuple(place.format("turns.parquet") for place in _BESIDE_TURNS),
    "credits": ("runs/*/seed*/round[0-9][0-9]/credits.parquet",),
    "evals": ("sft/evals/round[0-9][0-9].parquet", "runs/*/seed*/round[0-9][0-9]/evals.parquet"),
    "updates": ("runs/*/seed*/round[0-9][0-9]/updates.parquet",),
    "labels": tuple(place.format("labels/*.parquet") for place in _BESIDE_TURNS),
    "hiddens": tuple(place.format("hiddens*.parquet") for place in _BESIDE_TURNS),
    "values": ("runs/*/seed*/round[0-9][0-9]/values.parquet",),
    "branches": tuple(place.format("branches.parquet") for place in _BESIDE_TURNS),
    "tasks": ("tasks/*.parquet",),
    "demos": ("demos/demos.parquet",),
    "sft_log": ("sft/log.parquet",),
}
#: `metrics` is a table made from the stages' JSON files.
VIEWS = (*PATTERNS, "metrics")

METRICS_SCHEMA = pa.schema(
    [
        ("experiment", pa.string()),
        ("method", pa.string()),
        ("seed", pa.int64()),
        ("round", pa.int32()),
        ("stage", pa.string()),
        ("name", pa.string()),
        ("value", pa.float64()),
        ("path", pa.string()),
    ]
)


def experiment_folders(results: str | Path) -> list[Path]:
    """The experiments' folders: `results` itself if it is one, otherwise the ones directly below it.

    Raises UserError where the folder does not exist or holds no experiment.
    """
    results = Path(results)
    if not results.is_dir():
        raise UserError(f"{results}: no such folder; give the results folder with --results")
    if (results / "config.json").exists():
        return [results]
    found = sorted(path.parent for path in results.glob("*/config.json"))
    if not found:
        raise UserError(
            f"{results}: no experiment here (no */config.json); run one, or give another folder with --results"
        )
    return found


def place(path: Path, folder: Path) -> dict:
    """(method, seed, round) of an artifact, by its path below the experiment's `folder`; None where it has none.

    What belongs to the SFT policy has the method `sft`; its rollouts are those of round 1.
    """
    parts = path.relative_to(folder).parts
    text = "/".join(parts)
    seed, round_ = re.search(r"/seed(\d+)/", text), re.search(r"/round(\d\d)(?=[/.])", text)
    shared = parts[:2] == ("sft", "rollouts")
    return {
        "method": parts[1] if parts[0] == "runs" else "sft" if parts[0] == "sft" else None,
        "seed": int(seed.group(1)) if seed else None,
        "round": int(round_.group(1)) if round_ else 1 if shared else None,
    }


def files(view: str, folders: list[Path]) -> list[Path]:
    """The Parquet files behind a view, in sorted order."""
    return sorted({path for folder in folders for pattern in PATTERNS[view] for path in folder.glob(pattern)})


def connect(results: str | Path, query: str) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB connection with the views that `query` names. UserError for a folder without results."""
    folders = [folder.resolve() for folder in experiment_folders(results)]
    connection = duckdb.connect()
    words = set(re.findall(r"[a-z_]+", query.lower()))
    for view in PATTERNS:
        if view in words:
            _create_view(connection, view, files(view, folders))
    if "metrics" in words:
        connection.register("metrics", metrics_table(folders))
    return connection


def _create_view(connection: duckdb.DuckDBPyConnection, view: str, paths: list[Path]) -> None:
    schema = tables.schema(view)
    own = set(schema.names)
    if not paths:
        # No file yet: a view without rows, so that a query says "0 rows" and not "no such table".
        names = ", ".join(
            f'NULL::{_sql_type(field.type)} AS "{field.name}"' for field in schema if field.name not in _PLACE
        )
        connection.execute(f"CREATE VIEW {view} AS SELECT {_EMPTY_PLACE}, {names}, NULL::VARCHAR AS path WHERE false")
        return
    listed = ", ".join(_quote(str(path)) for path in paths)
    # What the path does not say (an evaluation's seed, say) is taken from the table, where the table has it.
    columns = [f"{f'coalesce({sql}, {name})' if name in own else sql} AS {name}" for name, sql in _PLACE.items()]
    drop = sorted({"filename", *(own & set(_PLACE))})
    connection.execute(
        f"CREATE VIEW {view} AS SELECT {', '.join(columns)}, * EXCLUDE ({', '.join(drop)}), filename AS path "
        f"FROM read_parquet([{listed}], filename = true, union_by_name = true)"
    )


#: What a file's path says, as SQL over DuckDB's `filename`. The functions run once per file, not once per row.
_PLACE = {
    "experiment": r"regexp_extract(filename, '([^/]+)/(?:sft|runs|tasks|demos)/', 1)",
    "method": r"CASE WHEN filename LIKE '%/runs/%' THEN regexp_extract(filename, '/runs/([^/]+)/seed', 1) "
    r"WHEN filename LIKE '%/sft/%' THEN 'sft' END",
    "seed": r"TRY_CAST(regexp_extract(filename, '/seed([0-9]+)/', 1) AS BIGINT)",
    "round": r"coalesce(TRY_CAST(regexp_extract(filename, '/round([0-9][0-9])[/.]', 1) AS INTEGER), "
    r"CASE WHEN filename LIKE '%/sft/rollouts/%' THEN 1 END)",
}
_EMPTY_PLACE = "NULL::VARCHAR AS experiment, NULL::VARCHAR AS method, NULL::BIGINT AS seed, NULL::INTEGER AS round"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _sql_type(kind: pa.DataType) -> str:
    """DuckDB's name of an Arrow type, for the empty views."""
    if pa.types.is_list(kind):
        return _sql_type(kind.value_type) + "[]"
    return {"string": "VARCHAR", "int32": "INTEGER", "int64": "BIGINT", "bool": "BOOLEAN", "float": "FLOAT"}.get(
        str(kind), "FLOAT" if pa.types.is_float16(kind) else "DOUBLE"
    )


def metrics_table(folders: list[Path]) -> pa.Table:
    """All numbers of all `metrics/<stage>.json` below the experiments, one row each.

    Raises UserError for a file that is not what a stage writes.
    """
    rows = []
    for folder in folders:
        for path in sorted(folder.rglob("metrics/*.json")):
            data = read_metrics(path)
            where = {"experiment": folder.name, **place(path, folder), "stage": data["stage"], "path": str(path)}
            rows += [{**where, "name": name, "value": value} for name, value in stage_numbers(data).items()]
    return pa.Table.from_pylist(rows, schema=METRICS_SCHEMA)


def read_metrics(path: Path) -> dict:
    """What a stage wrote of itself: `stage`, `wall_s`, `cpu_s`, `peak_mb` and its own `metrics`.

    Raises UserError for a file that is not a JSON object with these keys.
    """
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not readable as metrics ({error}); delete it and run again to remake it") from None
    absent = [key for key in ("stage", "started", "wall_s", "metrics") if not isinstance(data, dict) or key not in data]
    if absent:
        raise UserError(f"{path}: not a stage's metrics (no '{absent[0]}'); delete it and run again to remake it")
    return data


def stage_numbers(data: dict) -> dict[str, float]:
    """The numbers in a stage's metrics, its own ones and what was measured of its process, by name."""
    both = {**{key: value for key, value in data.items() if key not in ("metrics", "started")}, **data["metrics"]}
    return {
        name: float(value)
        for name, value in both.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
