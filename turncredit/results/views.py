"""DuckDB views over a results folder: one view per kind of table, across all experiments, methods, seeds and rounds.

The columns `experiment`, `method`, `seed` and `round` (for what an audit makes also `run`) come from a file's place in
the folder (docs/sql.md), so a query is the same for one run and for a whole sweep. Views are made only for the tables
that a query names. Tables about turns join on `turn_id`, one number: seven columns of text took four times as long and
three times the memory over ten million turns (benchmarks/sql).
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa

from turncredit import tables
from turncredit.errors import UserError

#: view -> (its schema, where its files lie below results/<experiment>). Side tables lie beside the turns they describe.
_TURNS = ("sft/rollouts/*/seed*/{}", "runs/*/seed*/round*/rollouts/{}")
_AUDIT = "audit/*/seed*/round*/{}"
PATTERNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "turns": ("turns", tuple(place.format("turns.parquet") for place in _TURNS)),
    "credits": ("credits", ("runs/*/seed*/round*/credits.parquet",)),
    "evals": ("evals", ("sft/evals/round*.parquet", "runs/*/seed*/round*/evals.parquet")),
    "updates": ("updates", ("runs/*/seed*/round*/updates.parquet",)),
    "labels": ("labels", tuple(place.format("labels/*.parquet") for place in _TURNS)),
    "hiddens": (
        "hiddens",
        (*(place.format("hiddens*.parquet") for place in _TURNS), _AUDIT.format("hiddens*.parquet")),
    ),
    "values": ("values", ("runs/*/seed*/round*/values.parquet",)),
    "branches": ("branches", (_AUDIT.format("branches.parquet"),)),
    "audit_credits": ("credits", (_AUDIT.format("credits/*.parquet"),)),
    "audit_values": ("values", (_AUDIT.format("values/*.parquet"),)),
    "fidelity": ("fidelity", (_AUDIT.format("fidelity.parquet"),)),
    "gradients": ("gradients", (_AUDIT.format("gradients.parquet"),)),
    "leaks": ("leaks", (_AUDIT.format("leaks.parquet"),)),
    "invariants": (
        "invariants",
        (
            _AUDIT.format("invariants.parquet"),
            "runs/*/seed*/invariants.parquet",
            "runs/*/seed*/round*/invariants.parquet",
        ),
    ),
    "tasks": ("tasks", ("tasks/*.parquet",)),
    "demos": ("demos", ("demos/demos.parquet",)),
    "sft_log": ("sft_log", ("sft/log.parquet",)),
    "judge_cache": ("judge_cache", ("../judge_cache/*.parquet",)),
}
#: `metrics` is a table made from the stages' JSON files.
VIEWS = (*PATTERNS, "metrics")
#: What a query may take before it goes on in temporary files: audits run beside other work.
MEMORY = "2GB"

METRICS_SCHEMA = pa.schema(
    [
        ("experiment", pa.string()),
        ("method", pa.string()),
        ("run", pa.string()),
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
    """(method, run, seed, round) of an artifact, by its path below the experiment's `folder`; None where it has none.

    What belongs to the SFT policy has the method `sft`; its rollouts are those of round 1. `run` is the method whose
    rollouts an audit looks at; what an audit makes belongs to no method by its place.
    """
    parts = path.relative_to(folder).parts
    text = "/".join(parts)
    seed, round_ = re.search(r"/seed(\d+)/", text), re.search(r"/round(\d+)(?=[/.])", text)
    shared = parts[:2] == ("sft", "rollouts")
    return {
        "method": parts[1] if parts[0] == "runs" else "sft" if parts[0] == "sft" else None,
        "run": parts[1] if parts[0] == "audit" else None,
        "seed": int(seed.group(1)) if seed else None,
        "round": int(round_.group(1)) if round_ else 1 if shared else None,
    }


def files(view: str, folders: list[Path]) -> list[Path]:
    """The Parquet files behind a view, in sorted order."""
    found = (path for folder in folders for pattern in PATTERNS[view][1] for path in folder.glob(pattern))
    return sorted({path.resolve() if ".." in path.parts else path for path in found})


def connect(results: str | Path, query: str, *, alike: bool = False) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB connection with the views that `query` names. UserError for a folder without results.

    `alike`: take each kind's first file for all of them, instead of opening every file to learn its columns, which
    takes a second for some thousand files. A query that needs a column that one of the files lacks then fails.
    """
    folders = [folder.resolve() for folder in experiment_folders(results)]
    connection = duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": tempfile.gettempdir()})
    # It would go to stdout, between the lines of a CSV, where a query takes longer than two seconds.
    connection.execute("SET enable_progress_bar = false")
    words = set(re.findall(r"[a-z_]+", query.lower()))
    for view in PATTERNS:
        if view in words:
            _create_view(connection, view, folders, alike=alike)
    if "metrics" in words:
        connection.register("metrics", metrics_table(folders))
    return connection


def _create_view(connection: duckdb.DuckDBPyConnection, view: str, folders: list[Path], *, alike: bool) -> None:
    """A view over all files of its kind. Without a file it has no rows, so that a query says "0 rows" and not that
    there is no such table."""
    schema = tables.schema(PATTERNS[view][0])
    if view == "judge_cache":
        # One cache for all experiments: it has no place.
        parts = [_select(paths, "", alike)] if (paths := files(view, folders)) else []
        empty = ""
    else:
        parts = [
            _select(paths, _place_sql(view, folder), alike) for folder in folders if (paths := files(view, [folder]))
        ]
        names = ["experiment VARCHAR", "method VARCHAR", *(["run VARCHAR"] if _audited(view) else [])]
        names += ["seed BIGINT", "round INTEGER", *(["turn_id UBIGINT"] if _by_turn(schema) else [])]
        empty = "".join(f"NULL::{kind} AS {name}, " for name, kind in (each.split() for each in names))
    if not parts:
        own = (f'NULL::{_sql_type(field.type)} AS "{field.name}"' for field in schema if field.name not in _PLACE)
        parts = [f"SELECT {empty}{', '.join(own)}, NULL::VARCHAR AS path WHERE false"]
    connection.execute(f"CREATE VIEW {view} AS {' UNION ALL BY NAME '.join(parts)}")


def _select(paths: list[Path], place: str, alike: bool) -> str:
    """One experiment's files with `place` before their own columns."""
    listed = ", ".join(_quote(str(path)) for path in paths)
    taken = ", ".join(
        _quote(name) for name in ("filename", "turn_id", *_PLACE) if name == "filename" or f" AS {name}," in place
    )
    return (
        f"SELECT {place}COLUMNS(lambda name: name NOT IN ({taken})), filename AS path "
        f"FROM read_parquet([{listed}], filename = true, union_by_name = {not alike}) AS own"
    )


#: What a file's path below its experiment says, as SQL over `rel`.
_PLACE = {
    "method": r"CASE WHEN {rel} LIKE 'runs/%' THEN regexp_extract({rel}, '^runs/([^/]+)/', 1) "
    r"WHEN {rel} LIKE 'sft/%' THEN 'sft' END",
    "run": r"CASE WHEN {rel} LIKE 'audit/%' THEN regexp_extract({rel}, '^audit/([^/]+)/', 1) END",
    "seed": r"TRY_CAST(regexp_extract({rel}, '/seed([0-9]+)/', 1) AS BIGINT)",
    "round": r"coalesce(TRY_CAST(regexp_extract({rel}, '/round([0-9]+)[/.]', 1) AS INTEGER), "
    r"CASE WHEN {rel} LIKE 'sft/rollouts/%' THEN 1 END)",
}


def _audited(view: str) -> bool:
    return any(pattern.startswith("audit/") for pattern in PATTERNS[view][1])


def _by_turn(schema: pa.Schema) -> bool:
    return set(tables.KEYS) <= set(schema.names)


def _place_sql(view: str, folder: Path) -> str:
    """The columns that begin every view: where a row is from, and `turn_id`, which joins all tables about turns.

    What the path does not say (an evaluation's seed, say) is taken from the table, where the table has it.
    """
    schema = tables.schema(PATTERNS[view][0])
    rel = f"substr(filename, {len(str(folder)) + 2})"
    sql = {name: text.format(rel=rel) for name, text in _PLACE.items()}
    owner = f"CASE WHEN {sql['round']} = 1 THEN 'sft' ELSE coalesce({sql['run']}, {sql['method']}) END"
    if not _audited(view):
        del sql["run"]
    elif "method" not in schema.names:
        # Ground truth, hidden states: they belong to the run whose rollouts they are about.
        sql["method"] = f"coalesce({sql['method']}, {sql['run']})"
    columns = [f"{_quote(folder.name)} AS experiment"]
    for name, text in sql.items():
        columns.append(f"{f'coalesce({text}, own.{name})' if name in schema.names else text} AS {name}")
    if _by_turn(schema):
        # The place is the same for a whole file, so it is hashed apart.
        who = f"hash({_quote(folder.name)}, {owner}, {sql['seed']}, {sql['round']})"
        columns.append(f"hash({who}, {', '.join(f'own.{key}' for key in tables.KEYS)}) AS turn_id")
    return "".join(f"{column}, " for column in columns)


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
