"""DuckDB views over a results folder: one view per kind of table, across all experiments, policies, methods and rounds.

Every view begins with `experiment` and the keys of its files (`turncredit.config.layout`), so the same query works for
one run and for a whole sweep. Views are created only for the tables that a query names. Tables about turns join on
`turn_id`, a single number: a join on seven text columns took four times as long and three times the memory over ten
million turns (benchmarks/sql).
"""

from __future__ import annotations

import json
import re
import secrets
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from turncredit.config.layout import JUDGE_CACHE, KEYS, Layout, Located, regex
from turncredit.config.stages import artifacts
from turncredit.data import provenance, tables
from turncredit.data.metrics import read_metrics
from turncredit.errors import UserError
from turncredit.views.experiments import paid_by, played_for, read_config, run_rounds

#: view -> the artifacts whose files it reads; all tables of one schema are in one view.
TABLES: dict[str, tuple[str, ...]] = {}
for _kind in artifacts().values():
    if _kind.schema is not None:
        TABLES[_kind.schema] = (*TABLES.get(_kind.schema, ()), _kind.name)
#: The credit from which each run learned: the part of `credits` whose turns are the run's own.
RUN_CREDITS = "run_credits"
#: Success of each policy in each mode, with its interval.
SUCCESS = "success"
#: The judge's answers, which need no experiment.
CACHE = "judge_cache"
#: Tables built for the query, from all experiments.
BUILT = ("runs", "metrics", "provenance")
#: All views.
VIEWS = (*TABLES, RUN_CREDITS, SUCCESS, CACHE, *BUILT)
#: What a row of each view is.
ROW_OF = {
    "turns": "turn of a training rollout; with its measures, where there are any",
    "measures": "turn: progress and distance before and after it",
    "credits": "turn and method: advantage and components, in runs and audits",
    "run_credits": "turn and method: only the credit that each run was trained on",
    "continuations": "turn: the returns of continuations from the state before it",
    "forks": "turn of a rollout that forked from a state of another, with its parent",
    "labels": "turn: a judge's label",
    "hiddens": "turn: hidden state",
    "logprobs": "turn: the response's log-probability in a second pass",
    "values": "turn and method: the outputs of its learned model",
    "branches": "branched turn: ground truth",
    "fidelity": "method and measure, on the turns of one round",
    "gradients": "method and measure, on the turns of one round",
    "leaks": "method and measure, on the turns of one round",
    "invariants": "invariant and round: whether it holds, worst, detail",
    "evals": "evaluated rollout",
    "success": "policy and mode of evaluation: success, its interval from low to high",
    "updates": "optimiser step of a policy update",
    "runs": "round of a run, with the policy that sampled its turns",
    "sft_log": "optimiser step of the warm start",
    "tasks": "game",
    "demos": "turn of a demonstration",
    "metrics": "metric of a job (name, value; wall_s, cpu_s, peak_mb, ...)",
    "summary": "number in a report",
    "provenance": "artifact: the stage, code, settings and inputs that made it",
    "judge_cache": "request to an LLM judge, from all experiments",
}
_Z = 1.959963984540054
_HALF = f"{_Z} * sqrt(k::DOUBLE * (n - k) / n / n / n + {_Z**2} / (4.0 * n * n))"
_CENTRE, _SCALE = f"k::DOUBLE / n + {_Z**2} / (2.0 * n)", f"(1 + {_Z**2} / n)"
#: Wilson's 95% interval of a rate of `k` in `n`, as in `turncredit.stats.intervals.wilson`; null without any trials.
WILSON = f"""CREATE MACRO wilson(k, n) AS CASE WHEN n > 0 THEN {{
    'low': CASE WHEN k = 0 THEN 0.0 ELSE ({_CENTRE} - {_HALF}) / {_SCALE} END,
    'high': CASE WHEN k = n THEN 1.0 ELSE ({_CENTRE} + {_HALF}) / {_SCALE} END}} END"""
_SUCCESS_SQL = """CREATE VIEW success AS
    SELECT *, wilson(successes, rollouts).low AS low, wilson(successes, rollouts).high AS high
    FROM (SELECT experiment, method, seed, round, mode, count(*) AS rollouts, sum(success::INT)::BIGINT AS successes,
                 avg(success::INT) AS success
          FROM evals GROUP BY ALL)"""
#: The memory that a query may use before it spills to temporary files: audits run next to other jobs.
MEMORY = "2GB"

_KEY_TYPES = {"seed": "BIGINT", "round": "INTEGER"}
_ARROW_TYPES = {"seed": pa.int64(), "round": pa.int32(), "value": pa.float64()}


def _schema(*names: str) -> pa.Schema:
    """A schema with these columns, text unless `_ARROW_TYPES` says otherwise."""
    return pa.schema([(name, _ARROW_TYPES.get(name, pa.string())) for name in names])


RUNS_SCHEMA = _schema("experiment", "method", "seed", "round", "policy")
METRICS_SCHEMA = _schema("experiment", "paid_by", "stage", *KEYS, "name", "value", "path")
PROVENANCE_SCHEMA = _schema("experiment", "artifact", "stage", *KEYS, "code", "config", "config_hash", "inputs", "path")


def connect(
    layouts: Sequence[Layout], query: str, *, alike: bool = False, results: Path | None = None
) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB connection with the views that `query` names, over the artifacts that `layouts` see.

    `results`: the folder that has the judge's cache, where there is no experiment, which would be beside it; that is
    then the only view.
    `alike`: take each kind's first file for all of them, instead of opening every file to learn its columns, which
    takes a second for some thousand files. A query that needs a column that the first file lacks then fails. One that
    names a column beyond the kind's schema opens all files: its type may differ between them, and DuckDB would cast
    every file's numbers to the first one's.
    """
    connection = open_connection()
    words = _words(query)
    if not layouts:
        words &= {CACHE}
    of_success = bool(layouts) and _asks_for_success(query)
    words |= {"evals"} if of_success else set()
    with_measures = bool(words & {*tables.MEASURED}) or asks_for_all_columns(query)
    for view in TABLES:
        if view in words:
            text = _table_view(layouts, view, query, alike=alike, with_measures=with_measures)
            connection.execute(f"CREATE VIEW {view} AS {text}")
    if of_success:
        connection.execute(_SUCCESS_SQL)
    if RUN_CREDITS in words:
        own = [(one.root, "credits", own_credits(one)) for one in layouts]
        connection.execute(f"CREATE VIEW {RUN_CREDITS} AS {_union(own, query, alike=alike)}")
    folders = [one.root for one in layouts]
    places = {folder.parent for folder in folders} or ({results.resolve()} if results else set())
    caches = [place / JUDGE_CACHE for place in sorted(places)]
    if CACHE in words:
        _create_cache_view(connection, caches, alike=alike)
    for name, make in (("runs", runs_table), ("metrics", metrics_table), ("provenance", provenance_table)):
        if name in words:
            connection.register(name, make(layouts))
    restrict(connection, [*folders, *caches])
    return connection


def read_by(layouts: Sequence[Layout], query: str) -> list[Layout]:
    """The experiments that have a file of one of the views that `query` names."""
    words = _words(query)
    words |= {"evals"} if _asks_for_success(query) else set()
    words |= {"credits"} if RUN_CREDITS in words else set()
    if words & {*BUILT}:
        return [*layouts]
    kinds = [kind for view in TABLES if view in words for kind in TABLES[view]]
    return [one for one in layouts if any(True for kind in kinds for _ in one.find(kind))]


def _words(query: str) -> set[str]:
    """The words of a query, among which are the views that it names."""
    return set(re.findall(r"[a-z_]+", query.lower()))


def _asks_for_success(query: str) -> bool:
    """Whether a query names the view `success`, whose name is also that of a column."""
    query = query.lower()
    after_word = re.search(rf'\b(from|join|describe|summarize|table|pivot|unpivot)\b[\s("]*{SUCCESS}\b', query)
    after_comma = re.search(rf'\bfrom\b[^;]*,[\s("]*{SUCCESS}\b', query)  # or of an ORDER BY, which costs little
    return bool(after_word or after_comma)


def connect_to_files(files: Sequence[Path]) -> duckdb.DuckDBPyConnection:
    """The same over Parquet files instead of results, each as a view of its own name without the ending.

    Raises UserError for two files of one name, and for one that is not Parquet.
    """
    path_of = _named(files)
    connection = open_connection()
    for name, path in path_of.items():
        view = name.replace('"', '""')  # a file may have any name
        connection.execute(f'CREATE VIEW "{view}" AS SELECT * FROM read_parquet({quoted_path(path)})')
    restrict(connection, [], path_of.values())
    return connection


def open_connection(memory: str = MEMORY) -> duckdb.DuckDBPyConnection:
    """An in-memory connection without views, with the macro `wilson`; `restrict` it before a query of a user's runs."""
    # A folder of its own, which DuckDB makes when it spills, and removes: a query may read what is in it.
    spill = f"{tempfile.gettempdir()}/turncredit-sql-{secrets.token_hex(8)}"
    connection = duckdb.connect(config={"memory_limit": memory, "temp_directory": spill})
    # It would appear on stdout, between the lines of a CSV, if a query takes longer than two seconds.
    connection.execute("SET enable_progress_bar = false")
    connection.execute(WILSON)
    return connection


def _named(files: Sequence[Path]) -> dict[str, Path]:
    """Each file by its name without the ending. UserError for two of one name, and for a file that is not Parquet."""
    path_of: dict[str, Path] = {}
    for path in files:
        if path.stem in path_of:
            raise UserError(f"{path}: '{path.stem}' was given twice, first as {path_of[path.stem]}; rename one of them")
        tables.metadata(path)
        path_of[path.stem] = path.resolve()
    return path_of


def restrict(connection: duckdb.DuckDBPyConnection, folders: Sequence[Path], files: Iterable[Path] = ()) -> None:
    """Let a query read only these folders and files: no others, no extensions, no network."""
    # DuckDB compares names before and after it has looked for files of a name with wildcards.
    readable = ", ".join(quoted(f"{name}/") for folder in folders for name in (folder, literal(folder)))
    paths = ", ".join(quoted(str(name)) for file in files for name in (file, literal(file)))
    connection.execute(f"SET allowed_directories = [{readable}]")
    connection.execute(f"SET allowed_paths = [{paths}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def own_credits(layout: Layout) -> list[Located]:
    """The credits of an experiment that its runs learned from."""
    rounds = run_rounds(layout, read_config(layout.root))
    credits = (Located("credits", row._asdict(), Path(layout.path("credits", row._asdict()))) for row in rounds)
    return [credit for credit in credits if credit.path.exists()]


def asks_for_all_columns(query: str) -> bool:
    """Whether the query may want columns that it does not name, which other files than the first may have."""
    text = re.sub(r"count\s*\(\s*\*\s*\)", "", query.lower())
    whole = re.search(r"\*|columns\s*\(|\(\s*(from|describe|summarize)\b|\bnatural\b", text)
    return bool(whole) or not re.match(r"\s*(select|with)\b", text)


def _table_view(layouts: Sequence[Layout], view: str, query: str, *, alike: bool, with_measures: bool) -> str:
    """A view over all files of one schema, as SQL; `with_measures`: that of the turns has the measures beside them."""
    files = [(one.root, name, list(one.find(name))) for one in layouts for name in TABLES[view]]
    text = _union(files, query, alike=alike)
    if view != "turns" or not with_measures:
        return text
    beside = [(one.root, "measures", list(one.find("measures"))) for one in layouts]
    return _with_measures(text, _union(beside, query, alike=alike))


def _with_measures(turns: str, measures: str) -> str:
    """The view `turns` with the measures beside them, null where there are none.

    Only for a query that may want them: a join of all turns takes longer than most queries.
    """
    columns = ", ".join(f"m.{name}" for name in tables.MEASURED)
    return (
        f"SELECT t.* EXCLUDE (path), {columns}, t.path FROM ({turns}) AS t LEFT JOIN ({measures}) AS m USING (turn_id)"
    )


def _union(sources: Sequence[tuple[Path, str, list[Located]]], query: str, *, alike: bool) -> str:
    """A view over files, as SQL; they are listed as (experiment's folder, artifact, its files), one at least.

    `alike`: the first file's columns stand for all files', except where `query` names a further column of it. Without
    a file the view has no rows, so that a query says "0 rows" and not that there is no such table.
    """
    parts = []
    for folder, name, files in sources:
        if files:
            first_of_all = alike and not _names_further_column(query, files[0].path, name)
            paths, own_path = [file.path for file in files], "path" in _columns(name)
            parts.append(_select(paths, _key_columns(name, folder), first_of_all, own_path=own_path))
    parts = parts or [_empty(name) for name in dict.fromkeys(name for _, name, _ in sources)]
    return " UNION ALL BY NAME ".join(parts)


def _names_further_column(query: str, path: Path, name: str) -> bool:
    """Whether the query names a column of the file that is not in the schema of its kind, and so may have any type.

    A name that is part of another word counts, too: that costs time only.
    """
    tables.metadata(path)  # reports what is wrong with a file that cannot be read
    further = set(pq.read_schema(path).names) - set(_columns(name))
    return any(column.lower() in query.lower() for column in further)


def _create_cache_view(connection: duckdb.DuckDBPyConnection, caches: Sequence[Path], *, alike: bool) -> None:
    """The judge's cache. There is one for all experiments, so it has no keys."""
    paths = [path for cache in caches for path in sorted(cache.glob("*.parquet"))]
    schema = tables.schema("judge_cache")
    text = _select(paths, {}, alike) if paths else _no_rows({field.name: _sql_type(field.type) for field in schema})
    connection.execute(f"CREATE VIEW judge_cache AS {text}")


def _keys_of(name: str) -> list[str]:
    """An artifact's keys in the order of the views' columns."""
    return [key for key in KEYS if key in artifacts()[name].keys]


def _by_turn(name: str) -> bool:
    """Whether it is about the turns that a policy sampled. Demonstrations have the same keys, and no policy."""
    kind = artifacts()[name]
    return "policy" in kind.keys and set(tables.KEYS) <= set(tables.schema(kind.schema or "").names)


def _key_columns(name: str, folder: Path) -> dict[str, str]:
    """The columns that begin a view, as SQL: the experiment, the file's keys, and `turn_id` in tables about turns.

    The file's keys take precedence over a column of the same name in the table.
    """
    pattern = artifacts()[name].pattern
    relative = f"substr(filename, {len(str(folder)) + 2})"
    numbered = {key: place + 1 for place, key in enumerate(artifacts()[name].keys)}
    columns = {"experiment": quoted(folder.name)}
    for key in _keys_of(name):
        text = f"regexp_extract({relative}, {quoted(f'^{regex(pattern)}$')}, {numbered[key]})"
        columns[key] = f"CAST({text} AS {_KEY_TYPES[key]})" if key in _KEY_TYPES else text
    if _by_turn(name):
        # The keys of the policy are the same for a whole file, so they are hashed separately.
        sampled = f"hash({', '.join(columns[key] for key in ('experiment', 'policy', 'seed', 'round'))})"
        columns["turn_id"] = f"hash({sampled}, {', '.join(f'own.{key}' for key in tables.KEYS)})"
    return columns


def _select(paths: Sequence[Path], columns: dict[str, str], alike: bool, *, own_path: bool = False) -> str:
    """One experiment's files of one kind, with `columns` before their own, and their path (unless they have `path`)."""
    listed = ", ".join(map(quoted_path, paths))
    begin = "".join(f"{text} AS {name}, " for name, text in columns.items())
    taken = ", ".join(quoted(name) for name in ("filename", *columns))
    return (
        f"SELECT {begin}COLUMNS(lambda name: name NOT IN ({taken})){'' if own_path else ', filename AS path'} "
        f"FROM read_parquet([{listed}], filename = true, union_by_name = {not alike}) AS own"
    )


def _columns(name: str) -> list[str]:
    """The columns of an artifact's own tables."""
    return tables.schema(artifacts()[name].schema or "").names


def _empty(name: str) -> str:
    """The view of an artifact without any file yet: its columns, and no rows."""
    types = {"experiment": "VARCHAR", **{key: _KEY_TYPES.get(key, "VARCHAR") for key in _keys_of(name)}}
    if _by_turn(name):
        types["turn_id"] = "UBIGINT"
    schema = tables.schema(artifacts()[name].schema or "")
    return _no_rows(types | {field.name: _sql_type(field.type) for field in schema if field.name not in types})


def _no_rows(types: dict[str, str]) -> str:
    columns = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in (types | {"path": "VARCHAR"}).items())
    return f"SELECT {columns} WHERE false"


def quoted(text: str) -> str:
    """A text as SQL writes it: in single quotes, those inside it doubled."""
    return "'" + text.replace("'", "''") + "'"


def quoted_path(path: Path) -> str:
    """The path of one file as SQL writes it, for `read_parquet`."""
    return quoted(literal(path))


def literal(path: Path) -> str:
    """A path in which DuckDB finds no wildcard: it would read `x1.parquet` for `x[1].parquet`, if both are there."""
    return re.sub(r"[*?[]", r"[\g<0>]", str(path))


def _sql_type(kind: pa.DataType) -> str:
    """DuckDB's name of an Arrow type, for the empty views."""
    if pa.types.is_list(kind):
        return _sql_type(kind.value_type) + "[]"
    return {"string": "VARCHAR", "int32": "INTEGER", "int64": "BIGINT", "bool": "BOOLEAN", "float": "FLOAT"}.get(
        str(kind), "FLOAT" if pa.types.is_float16(kind) else "DOUBLE"
    )


def runs_table(layouts: Sequence[Layout]) -> pa.Table:
    """Every round of every run, and the `policy` that sampled its training turns."""
    rows = [
        {"experiment": layout.root.name, **row._asdict()}
        for layout in layouts
        for row in run_rounds(layout, read_config(layout.root))
    ]
    return pa.Table.from_pylist(rows, schema=RUNS_SCHEMA)


def metrics_table(layouts: Sequence[Layout]) -> pa.Table:
    """All numbers of all jobs' metrics below the experiments, one row each.

    Raises UserError for a file that a stage did not write.
    """
    rows = []
    for layout in layouts:
        experiment = read_config(layout.root)
        rounds, played = frozenset(run_rounds(layout, experiment)), played_for(experiment)
        for stage, keys, path in layout.find_metrics():
            payer = paid_by(stage, keys, rounds, played)
            where = {"experiment": layout.root.name, "paid_by": payer, "stage": stage, **keys}
            numbers = stage_numbers(read_metrics(path))
            rows += [{**where, "path": str(path), "name": name, "value": value} for name, value in numbers.items()]
    return pa.Table.from_pylist(rows, schema=METRICS_SCHEMA)


def provenance_table(layouts: Sequence[Layout]) -> pa.Table:
    """What made each artifact: its stage, the version of the code, the stage's settings, and the hashes of its inputs.

    Settings and inputs are JSON. Artifacts without provenance (pages, figures) have no row.
    """
    rows = []
    for layout in layouts:
        for name in artifacts():
            for file in layout.find(name):
                made_by = provenance.made_from(file.path)
                if made_by:
                    as_json = {key: json.dumps(made_by.get(key), sort_keys=True) for key in ("config", "inputs")}
                    plain = {key: made_by.get(key) for key in ("stage", "code", "config_hash")}
                    where = {"experiment": layout.root.name, "artifact": name, **file.keys, "path": str(file.path)}
                    rows.append({**where, **plain, **as_json})
    return pa.Table.from_pylist(rows, schema=PROVENANCE_SCHEMA)


def stage_numbers(data: dict) -> dict[str, float]:
    """The numbers in a stage's metrics by name: its own ones and those of its process."""
    both = {**{key: value for key, value in data.items() if key not in ("metrics", "started")}, **data["metrics"]}
    return {
        name: float(value)
        for name, value in both.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
