"""The Arrow schemas of all artifacts, and the functions that write and read them.

A table is written under a temporary name, validated against its schema, then renamed: a reader sees a complete table or
none. The file's metadata state its schema version and what it was made from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from turncredit.data.columns import plain
from turncredit.data.files import new_file
from turncredit.errors import UserError, nearest

KEYS = ("group_id", "rollout_id", "turn")
#: the column of credits that is 0 at turns which are not learned from
TRAINED = "trained"
#: what is measured of an environment's state, with its columns before and after a turn in the table `measures`
MEASURES = {"progress": ("progress_before", "progress"), "distance": ("distance_before", "distance")}
MEASURED = tuple(column for columns in MEASURES.values() for column in columns)
META = b"turncredit"

#: What identifies a turn, and the columns of a turn that a policy sampled, in the notation of `_fields`.
_KEYED = "group_id rollout_id turn:int32"
_TURN = (
    f"{_KEYED} "
    "env split task_id family goal observation context_reset:bool prompt_ids:[int32] response_ids:[int32] "
    "response_logprobs:[float32] response_text action valid:bool well_formed:bool admissible:[string]? "
    "next_observation reward:float64 failed:bool? error_reply:bool? done:bool success:bool score:float64 "
    "policy_id agent seed:int64 temperature:float64 created_by"
)


def _fields(text: str) -> pa.Schema:
    """A schema in words: `name:type` for each column, text where no type is given, `?` where it may be null."""
    fields = []
    for word in text.split():
        name, _, kind = word.rstrip("?").partition(":")
        item = pa.type_for_alias(kind.strip("[]") or "string")
        fields.append(pa.field(name, pa.list_(item) if "[" in kind else item, nullable=word.endswith("?")))
    return pa.schema(fields)


#: name -> (version, columns); `...`: further columns may follow
_TABLES = {
    # One row per game.
    "tasks": (1, "task_id env split family goal source seed:int64? optimal_length:int32? game ..."),
    # One row per turn. `prompt_ids` are the tokens that entered the context since the last response (all of it
    # where `context_reset`), so a context is the concatenation of prompts and responses since the last reset and
    # no token is stored twice.
    # `failed` and `error_reply`: what the environment counts as a failed action (envs/failures.py).
    # `well_formed`: the response kept the agent's format; `valid`: it did, and the environment allowed the action.
    # The agent's own columns (`AgentSpec.turn_columns`) follow.
    "turns": (3, f"{_TURN} ..."),
    # One row per turn of a rollout that forked from a state of another one: as `turns`, but numbered from its own first
    # turn, which leaves the state before turn `parent_turn` of `parent_rollout_id` (a rollout of the turns, or a fork).
    # Its first prompt is the whole context there; rewards, score and returns are those from there on.
    "forks": (1, f"{_TURN} parent_rollout_id parent_turn:int32 ..."),
    # One row per turn of another framework's rollouts (turncredit.bridges.importers): what its files say, and no more.
    # `source`: file and line. Columns that none of the turns has a value for are left out, but `reward`, which is null
    # where the file has none. `agent`, `step`: who wrote the turn, and its place among the messages, in logs of several
    # agents; `mistake_agent`, `mistake_step`: whom and what people hold decisive for the failure of such a rollout;
    # `progress`: a score of the state after the turn, where the environment gave one.
    "imported": (
        1,
        f"{_KEYED} reward:float64? done:bool? source task_id? goal? observation? response_text? action? "
        "next_observation? success:bool? context_reset:bool? prompt_ids:[int32]? response_ids:[int32]? "
        "response_logprobs:[float32]? agent? step:int32? mistake_agent? mistake_step:int32? "
        "progress_before:float64? progress:float64? ...",
    ),
    # One row per turn: a method's advantage for it. Components are further float columns.
    "credits": (1, f"{_KEYED} method advantage:float64 ..."),
    # One row per turn: sums over several continuations that were sampled from the state before it. Returns are of the
    # turns from there on, undiscounted.
    "continuations": (
        1,
        f"{_KEYED} policy_id temperature:float64 continuations:int32 return_sum:float64 "
        "return_square_sum:float64 turns_played:int32 tokens:int64 ...",
    ),
    # One row per turn: the environment's state before and after the action. Null if the environment lacks the measure.
    "measures": (1, f"{_KEYED} progress_before:float64? progress:float64? distance_before:int32? distance:int32?"),
    # One row per turn: a judge's label. `role` is null if no label could be obtained; `reason` then explains why.
    "labels": (
        1,
        f"{_KEYED} judge role? score:float64? evidence? reason? prompt_hash cached:bool tokens_in:int32? "
        "tokens_out:int32? seconds:float64? ...",
    ),
    # One row per question to an LLM judge, from any job: `key` is the hash of model, ask, prompt version, prompt and
    # decoding parameters.
    "judge_cache": (
        1,
        "key model ask prompt_version prompt decoding answer finish_reason? tokens_in:int32? "
        "tokens_out:int32? seconds:float64",
    ),
    # One row per turn: a hidden state of the policy, after the observation or over the action (see its stage).
    "hiddens": (2, f"{_KEYED} policy_id hidden:[float16] ..."),
    # One row per turn: the log-probability of its response (`tokens` long, summed over them) in a second pass over the
    # turns, at the temperature that they were sampled at, by the policy `policy_id`; and by the one that sampled. If
    # the reader is `gold` or `gold_sft`: of the gold answer instead, had the turn given it. If it is `gold_deleted`: of
    # the gold answer at the end of the rollout, from which the turn is deleted.
    "logprobs": (1, f"{_KEYED} tokens:int32 logprob:float64 sampled:float64 policy_id"),
    # One row per turn: the outputs of a learned credit model. Further outputs are further columns.
    "values": (1, f"{_KEYED} model ..."),
    # One row per turn of a demonstration, as text; `imitate` is false where the action was noise.
    "demos": (
        1,
        f"{_KEYED} task_id family goal observation admissible:[string] action valid:bool imitate:bool "
        "next_observation success:bool ...",
    ),
    # One row per evaluated rollout: success is counted once per rollout, never per turn.
    "evals": (
        1,
        "policy_id method seed:int64 round:int32 mode split task_id family repeat:int32 success:bool "
        "score:float64 turns:int32 invalid:int32 tokens:int64 ...",
    ),
    # One row per optimiser step. Apart from `labels` and `judge_cache`, no table holds a time:
    # the same seed gives the same bytes.
    # sequences, tokens   in the minibatch, all of which its loss averages over (tokens: of responses)
    # zero_sequences      those whose advantages are all 0: their gradient is 0 and is not computed
    # clip_fraction, ratio_max, entropy   over the tokens that were computed; null where there were none
    "updates": (
        2,
        "policy_id step:int32 epoch:int32 loss:float64 grad_norm:float64 lr:float64 tokens:int64 "
        "sequences:int64 zero_sequences:int64 clip_fraction:float64? ratio_max:float64? entropy:float64? "
        "kl:float64? ...",
    ),
    # One row per SFT step.
    "sft_log": (1, "step:int32 loss:float64 lr:float64 tokens:int64 ..."),
    # One row per number in the report: the SQL that gives it and the files, below the experiment's folder, it reads.
    # `title` and `heading`: what the page calls `table` and `column`.
    "summary": (
        2,
        "table row column title heading value:float64? low:float64? high:float64? n:int64? unit note path sql",
    ),
    # One row per branched turn: its true value before the action (v), after it (q) and their difference, for the policy
    # that acted, with standard errors; `*_reference` the same for the noisy expert, `distance_change` the planner's.
    "branches": (
        1,
        f"{_KEYED} policy_id temperature:float64 stratum v_true:float64 v_se:float64 q_true:float64 "
        "q_se:float64 advantage_true:float64 advantage_true_se:float64 continuations:int32 turns_played:int32 "
        "replayed:bool distance_change:float64? v_reference:float64? q_reference:float64? "
        "advantage_reference:float64? advantage_reference_se:float64? ...",
    ),
    # One row per method, measure and subset of the branched turns: how well a method's credit agrees with the ground
    # truth (analysis/fidelity.py), and the score of the truth itself, given its errors. Null: undefined.
    "fidelity": (
        1,
        "method measure subset value:float64? low:float64? high:float64? turns:int64 groups:int64 ceiling:float64? ...",
    ),
    # One row per method and measure: the policy gradient that its advantages give, signal against noise.
    "gradients": (1, "method measure value:float64? low:float64? high:float64? ..."),
    # One row per measure of a learned credit model in one view of its inputs: does it know how a rollout ended from its
    # length or its last turn (analysis/leak_tests.py)? Null if nothing could be measured.
    "leaks": (1, "method view measure value:float64? low:float64? high:float64? ..."),
    # One row per invariant and round: whether it holds, the number of items checked, and the largest deviation.
    "invariants": (1, "run seed:int64 round:int32 name holds:bool worst:float64? detail checked:int64"),
}

#: name -> (version, fields, whether further columns may follow)
SCHEMAS: dict[str, tuple[int, pa.Schema, bool]] = {
    name: (version, _fields(columns.removesuffix(" ...")), columns.endswith("..."))
    for name, (version, columns) in _TABLES.items()
}


class TableError(UserError):
    """A table that is missing, damaged, of another kind, or does not match its schema."""


def schema(name: str) -> pa.Schema:
    """The Arrow schema of the artifact called `name`."""
    if name not in SCHEMAS:
        raise TableError(f"unknown table '{name}'{nearest(name, SCHEMAS)}")
    return SCHEMAS[name][1]


def conform(table: pa.Table, name: str, where: str) -> pa.Table:
    """`table` with its columns cast to the schema of `name`, in its order; more columns follow. Raises TableError."""
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
    """The metadata of a `name` table. The number of `rows`, if known, shows where a damaged footer hides some."""
    row_count = {} if rows is None else {"rows": rows}
    meta = {"schema": name, "schema_version": SCHEMAS[name][0], **made_by, **row_count}
    return {META: json.dumps(meta, sort_keys=True).encode()}


def write(table: pa.Table, path: str | Path, name: str, made_by: Mapping[str, Any]) -> pa.Table:
    """Write `table` as a `name` artifact: temporary name, validated, renamed. Returns the table as written."""
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
    path: str | Path, name: str | None = None, columns: Sequence[str] | None = None, optional: Sequence[str] = ()
) -> pa.Table:
    """Read a Parquet table; with `name`, one that must follow that schema (only `columns` of it, if given).

    Of the `optional` columns, those that are there are read too. Raises TableError for a missing, truncated or foreign
    file and for an unknown schema version.
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
                f"{SCHEMAS[name][0]}; delete the file and run again"
            )
    have = file.schema_arrow.names
    for column in columns or ():
        if column not in have:
            raise TableError(f"{path}: the column '{column}' is missing{nearest(column, have)}")
    try:
        table = file.read(columns=None if columns is None else [*columns, *(one for one in optional if one in have)])
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(_damaged(path, error)) from None
    table = plain(table, str(path))
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
    except PermissionError:
        raise TableError(f"{path}: no permission to read it; give another file, or change its permissions") from None
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


def _is_json(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as handle:
        return handle.read(1) in (b"{", b"[")
    return False


def _damaged(path: Path, error: Exception) -> str:
    if _is_json(path):
        return f"{path}: JSON, not Parquet; `turncredit import {path} --out turns.parquet` makes a table of turns of it"
    reason = " ".join(str(error).split()).split(". ")[0].rstrip(".")
    return (
        f"{path}: not a readable Parquet file ({reason}); give another file or, if a stage wrote it, delete it and run "
        "that again"
    )
