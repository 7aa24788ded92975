"""The Arrow schemas of all artifacts, and the functions that write and read them.

A table is written under a temporary name, validated against its schema, then renamed: a reader sees a complete table or
none. The file's metadata state its schema version and what it was made from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from turncredit.data.files import new_file
from turncredit.errors import UserError, nearest

KEYS = ("group_id", "rollout_id", "turn")
#: the column of credits that is 0 at turns which are not learned from
TRAINED = "trained"
#: what is measured of an environment's state, with its columns before and after a turn in the table `measures`
MEASURES = {"progress": ("progress_before", "progress"), "distance": ("distance_before", "distance")}
MEASURED = tuple(column for columns in MEASURES.values() for column in columns)
META = b"turncredit"

_key_fields = [
    pa.field("group_id", pa.string(), nullable=False),
    pa.field("rollout_id", pa.string(), nullable=False),
    pa.field("turn", pa.int32(), nullable=False),
]


def _fields(**types: pa.DataType) -> list[pa.Field]:
    """Required fields, one per keyword."""
    return [pa.field(name, kind, nullable=False) for name, kind in types.items()]


def _optional(**types: pa.DataType) -> list[pa.Field]:
    """Fields that may be null, one per keyword."""
    return [pa.field(name, kind, nullable=True) for name, kind in types.items()]


_s, _f32, _f64, _i32, _i64, _b = pa.string(), pa.float32(), pa.float64(), pa.int32(), pa.int64(), pa.bool_()

_turn_fields = [
    *_key_fields,
    *_fields(env=_s, split=_s, task_id=_s, family=_s, goal=_s, observation=_s),
    *_fields(context_reset=_b, prompt_ids=pa.list_(_i32), response_ids=pa.list_(_i32)),
    *_fields(response_logprobs=pa.list_(_f32), response_text=_s, action=_s, valid=_b, well_formed=_b),
    *_optional(admissible=pa.list_(_s)),
    *_fields(next_observation=_s, reward=_f64),
    *_optional(failed=_b, error_reply=_b),
    *_fields(done=_b, success=_b, score=_f64, policy_id=_s, agent=_s, seed=_i64),
    *_fields(temperature=_f64, created_by=_s),
]

#: name -> (version, fields, whether further columns may follow)
SCHEMAS: dict[str, tuple[int, pa.Schema, bool]] = {
    # One row per game.
    "tasks": (
        1,
        pa.schema(
            [
                *_fields(task_id=_s, env=_s, split=_s, family=_s, goal=_s, source=_s),
                *_optional(seed=_i64, optimal_length=_i32),
                *_fields(game=_s),
            ]
        ),
        True,
    ),
    # One row per turn. `prompt_ids` are the tokens that entered the context since the last response (all of it
    # where `context_reset`), so a context is the concatenation of prompts and responses since the last reset and
    # no token is stored twice.
    # `failed` and `error_reply`: what the environment counts as a failed action (envs/failures.py).
    # `well_formed`: the response kept the agent's format; `valid`: it did, and the environment allowed the action.
    # The agent's own columns (`AgentSpec.turn_columns`) follow.
    "turns": (3, pa.schema(_turn_fields), True),
    # One row per turn of a rollout that forked from a state of another one: as `turns`, but numbered from its own first
    # turn, which leaves the state before turn `parent_turn` of `parent_rollout_id` (a rollout of the turns, or a fork).
    # Its first prompt is the whole context there; rewards, score and returns are those from there on.
    "forks": (1, pa.schema([*_turn_fields, *_fields(parent_rollout_id=_s, parent_turn=_i32)]), True),
    # One row per turn of another framework's rollouts (turncredit.bridges.importers): what its files say, and no more.
    # `source`: file and line. Columns that none of the turns has a value for are left out.
    "imported": (
        1,
        pa.schema(
            [
                *_key_fields,
                *_fields(reward=_f64),
                *_optional(done=_b),
                *_fields(source=_s),
                *_optional(task_id=_s, goal=_s, observation=_s, response_text=_s, action=_s, next_observation=_s),
                *_optional(success=_b, context_reset=_b, prompt_ids=pa.list_(_i32), response_ids=pa.list_(_i32)),
                *_optional(response_logprobs=pa.list_(_f32)),
            ]
        ),
        True,
    ),
    # One row per turn: a method's advantage for it. Components are further float columns.
    "credits": (1, pa.schema([*_key_fields, *_fields(method=_s, advantage=_f64)]), True),
    # One row per turn: sums over several continuations that were sampled from the state before it. Returns are of the
    # turns from there on, undiscounted.
    "continuations": (
        1,
        pa.schema(
            [
                *_key_fields,
                *_fields(policy_id=_s, temperature=_f64, continuations=_i32, return_sum=_f64, return_square_sum=_f64),
                *_fields(turns_played=_i32, tokens=_i64),
            ]
        ),
        True,
    ),
    # One row per turn: the environment's state before and after the action. Null if the environment lacks the measure.
    "measures": (
        1,
        pa.schema([*_key_fields, *_optional(progress_before=_f64, progress=_f64, distance_before=_i32, distance=_i32)]),
        False,
    ),
    # One row per turn: a judge's label. `role` is null if no label could be obtained; `reason` then explains why.
    "labels": (
        1,
        pa.schema(
            [
                *_key_fields,
                *_fields(judge=_s),
                *_optional(role=_s, score=_f64, evidence=_s, reason=_s),
                *_fields(prompt_hash=_s, cached=_b),
                *_optional(tokens_in=_i32, tokens_out=_i32, seconds=_f64),
            ]
        ),
        True,
    ),
    # One row per question to an LLM judge, from any job: `key` is the hash of model, ask, prompt version, prompt and
    # decoding parameters.
    "judge_cache": (
        1,
        pa.schema(
            [
                *_fields(key=_s, model=_s, ask=_s, prompt_version=_s, prompt=_s, decoding=_s, answer=_s),
                *_optional(finish_reason=_s, tokens_in=_i32, tokens_out=_i32),
                *_fields(seconds=_f64),
            ]
        ),
        False,
    ),
    # One row per turn: the policy's hidden state at one of its points (after the observation, or after the action).
    "hiddens": (1, pa.schema([*_key_fields, *_fields(policy_id=_s, hidden=pa.list_(pa.float16()))]), True),
    # One row per turn: the log-probability of its response (`tokens` long, summed over them) in a second pass over the
    # turns, at the temperature that they were sampled at, by the policy `policy_id`; and by the one that sampled. If
    # the reader is `gold` or `gold_sft`: of the gold answer instead, had the turn given it.
    "logprobs": (1, pa.schema([*_key_fields, *_fields(tokens=_i32, logprob=_f64, sampled=_f64, policy_id=_s)]), False),
    # One row per turn: the outputs of a learned credit model. Further outputs are further columns.
    "values": (1, pa.schema([*_key_fields, *_fields(model=_s)]), True),
    # One row per turn of a demonstration, as text; `imitate` is false where the action was noise.
    "demos": (
        1,
        pa.schema(
            [
                *_key_fields,
                *_fields(task_id=_s, family=_s, goal=_s, observation=_s, admissible=pa.list_(_s), action=_s),
                *_fields(valid=_b, imitate=_b, next_observation=_s, success=_b),
            ]
        ),
        True,
    ),
    # One row per evaluated rollout: success is counted once per rollout, never per turn.
    "evals": (
        1,
        pa.schema(
            [
                *_fields(policy_id=_s, method=_s, seed=_i64, round=_i32, mode=_s, split=_s, task_id=_s),
                *_fields(family=_s, repeat=_i32, success=_b, score=_f64, turns=_i32, invalid=_i32),
                *_fields(tokens=_i64),
            ]
        ),
        True,
    ),
    # One row per optimiser step. Apart from `labels` and `judge_cache`, no table holds a time:
    # the same seed gives the same bytes.
    # sequences, tokens   in the minibatch, all of which its loss averages over (tokens: of responses)
    # zero_sequences      those whose advantages are all 0: their gradient is 0 and is not computed
    # clip_fraction, ratio_max, entropy   over the tokens that were computed; null where there were none
    "updates": (
        2,
        pa.schema(
            [
                *_fields(policy_id=_s, step=_i32, epoch=_i32, loss=_f64, grad_norm=_f64, lr=_f64),
                *_fields(tokens=_i64, sequences=_i64, zero_sequences=_i64),
                *_optional(clip_fraction=_f64, ratio_max=_f64, entropy=_f64, kl=_f64),
            ]
        ),
        True,
    ),
    # One row per SFT step.
    "sft_log": (1, pa.schema(_fields(step=_i32, loss=_f64, lr=_f64, tokens=_i64)), True),
    # One row per number in the report: the SQL that gives it and the files, below the experiment's folder, it reads.
    "summary": (
        1,
        pa.schema(
            [
                *_fields(table=_s, row=_s, column=_s),
                *_optional(value=_f64, low=_f64, high=_f64, n=_i64),
                *_fields(unit=_s, note=_s, path=_s, sql=_s),
            ]
        ),
        False,
    ),
    # One row per branched turn: its true value before the action (v), after it (q) and their difference, for the policy
    # that acted, with standard errors; `*_reference` the same for the noisy expert, `distance_change` the planner's.
    "branches": (
        1,
        pa.schema(
            [
                *_key_fields,
                *_fields(policy_id=_s, temperature=_f64, stratum=_s, v_true=_f64, v_se=_f64, q_true=_f64, q_se=_f64),
                *_fields(advantage_true=_f64, advantage_true_se=_f64, continuations=_i32, turns_played=_i32),
                *_fields(replayed=_b),
                *_optional(distance_change=_f64, v_reference=_f64, q_reference=_f64),
                *_optional(advantage_reference=_f64, advantage_reference_se=_f64),
            ]
        ),
        True,
    ),
    # One row per method, measure and subset of the branched turns: how well a method's credit agrees with the ground
    # truth (analysis/fidelity.py), and the score of the truth itself, given its errors. Null: undefined.
    "fidelity": (
        1,
        pa.schema(
            [
                *_fields(method=_s, measure=_s, subset=_s),
                *_optional(value=_f64, low=_f64, high=_f64),
                *_fields(turns=_i64, groups=_i64),
                *_optional(ceiling=_f64),
            ]
        ),
        True,
    ),
    # One row per method and measure: the policy gradient that its advantages give, signal against noise.
    "gradients": (
        1,
        pa.schema([*_fields(method=_s, measure=_s), *_optional(value=_f64, low=_f64, high=_f64)]),
        True,
    ),
    # One row per measure of a learned credit model in one view of its inputs: does it know how a rollout ended from its
    # length or its last turn (analysis/leak_tests.py)? Null if nothing could be measured.
    "leaks": (
        1,
        pa.schema([*_fields(method=_s, view=_s, measure=_s), *_optional(value=_f64, low=_f64, high=_f64)]),
        True,
    ),
    # One row per invariant and round: whether it holds, the number of items checked, and the largest deviation.
    "invariants": (
        1,
        pa.schema(
            [
                *_fields(run=_s, seed=_i64, round=_i32, name=_s, holds=_b),
                *_optional(worst=_f64),
                *_fields(detail=_s, checked=_i64),
            ]
        ),
        False,
    ),
}


class TableError(UserError):
    """A table that is missing, damaged, of another kind, or does not match its schema."""


def schema(name: str) -> pa.Schema:
    """The Arrow schema of the artifact called `name`."""
    if name not in SCHEMAS:
        raise TableError(f"unknown table '{name}'{nearest(name, SCHEMAS)}")
    return SCHEMAS[name][1]


def conform(table: pa.Table, name: str, where: str) -> pa.Table:
    """`table` with its columns cast to the schema of `name` and in its order; further columns follow.

    Raises TableError, naming `where`, for a missing column, a value that cannot be cast, or a null in a required
    column.
    """
    wanted, extra = schema(name), SCHEMAS[name][2]
    columns, fields = [], []
    for field in wanted:
        if field.name not in table.column_names:
            hint = nearest(field.name, table.column_names)
            raise TableError(f"{where}: a '{name}' table needs the column '{field.name}', which is missing{hint}")
        column = table.column(field.name)
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise TableError(f"{where}: column '{field.name}' is not {field.type}: {error}") from None
        if not field.nullable and column.null_count:
            count = column.null_count
            raise TableError(f"{where}: column '{field.name}' has {count} null values; it must not contain nulls")
        columns.append(column)
        fields.append(field)
    rest = [column for column in table.column_names if column not in wanted.names]
    if rest and not extra:
        raise TableError(f"{where}: a '{name}' table has no column '{rest[0]}'{nearest(rest[0], wanted.names)}")
    for column in rest:
        columns.append(table.column(column))
        fields.append(table.schema.field(column))
    return pa.table(columns, schema=pa.schema(fields))


def stamp(name: str, made_by: Mapping[str, Any], rows: int | None = None) -> dict[bytes, bytes]:
    """The metadata of a `name` table; `made_by` is from `provenance.record`.

    `rows` is the number of its rows, where it is known before they are written: a damaged footer can hide some of them.
    """
    row_count = {} if rows is None else {"rows": rows}
    meta = {"schema": name, "schema_version": SCHEMAS[name][0], **made_by, **row_count}
    return {META: json.dumps(meta, sort_keys=True).encode()}


def write(table: pa.Table, path: str | Path, name: str, made_by: Mapping[str, Any]) -> pa.Table:
    """Write `table` as a `name` artifact: temporary name, validated, renamed. Returns the table as written.

    `made_by` is from `provenance.record`.
    """
    path = Path(path)
    table = conform(table, name, str(path))
    table = table.replace_schema_metadata(stamp(name, made_by, table.num_rows))
    with new_file(path) as part:
        pq.write_table(table, part, compression="zstd", write_page_checksum=True)
        written = pq.read_metadata(part)
        if written.num_rows != table.num_rows:
            raise TableError(f"{path}: {written.num_rows} of {table.num_rows} rows were written; is the disk full?")
    return table


def metadata(path: str | Path) -> dict[str, Any]:
    """The schema and provenance in a file's metadata; empty for a table made by another program."""
    return _metadata(_open(Path(path)), Path(path))


def read(
    path: str | Path,
    name: str | None = None,
    columns: Sequence[str] | None = None,
    optional: Sequence[str] = (),
) -> pa.Table:
    """Read a Parquet table; with `name`, one that must follow that schema (only `columns` of it, if given).

    Of `optional` columns, which not every such table has, those that are there are read beside `columns`.

    Raises TableError for a missing, truncated or foreign file and for an unknown schema version, each time with
    the file's name and what to do.
    """
    path = Path(path)
    file = _open(path)
    if name is not None:
        meta = _metadata(file, path)
        if meta and meta["schema"] != name:
            raise TableError(f"{path}: this is a '{meta['schema']}' table, not a '{name}' table")
        if meta and meta["schema_version"] != SCHEMAS[name][0]:
            raise TableError(
                f"{path}: schema version {meta['schema_version']} of '{name}', but this version of turncredit reads "
                f"{SCHEMAS[name][0]}; delete the file and run again to remake it"
            )
    have = file.schema_arrow.names
    for column in columns or ():
        if column not in have:
            raise TableError(f"{path}: the column '{column}' is missing{nearest(column, have)}")
    try:
        table = file.read(columns=None if columns is None else [*columns, *(one for one in optional if one in have)])
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(_damaged(path, error)) from None
    if name is not None and table.num_rows != meta.get("rows", table.num_rows):
        raise TableError(_damaged(path, ValueError(f"{table.num_rows} of its {meta['rows']} rows are found")))
    if name is not None and columns is None:
        table = conform(table, name, str(path))
    return table


def _open(path: Path) -> pq.ParquetFile:
    if not path.exists():
        raise TableError(f"{path}: no such file; check the path, or ask Snakemake to make it")
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
        raise TableError(_damaged(path, error)) from None


def _metadata(file: pq.ParquetFile, path: Path) -> dict[str, Any]:
    """The metadata that this program wrote into the file; empty for another program's table."""
    raw = (file.schema_arrow.metadata or {}).get(META)
    if raw is None:
        return {}
    try:
        meta = json.loads(raw)
    except ValueError as error:
        raise TableError(_damaged(path, error)) from None
    if not isinstance(meta, dict) or not {"schema", "schema_version"} <= meta.keys():
        raise TableError(_damaged(path, ValueError("its metadata names no schema")))
    return meta


def _damaged(path: Path, error: Exception) -> str:
    reason = " ".join(str(error).split()).split(". ")[0].rstrip(".")
    return (
        f"{path}: not a readable Parquet file ({reason}); give another file or, if a stage wrote it, delete it and run "
        "that again"
    )
