"""Readers meet anything: random tables near the schema, random text near a configuration, random bytes near Parquet.

So does the desk, whose actions are calls in words and in JSON. Each is accepted and then right, or refused with one
line. `make fuzz` runs thousands of examples of each property, `make test` a hundred.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.credit import synthetic
from tests import tiny
from tests.agents.test_agents import Chat
from tests.importers.any_records import near_records
from turncredit import agents, config, envs
from turncredit.agents.tool_calls import FORMATS
from turncredit.bridges import importers
from turncredit.bridges.importers.base import Options
from turncredit.credit import METHODS, compute, resolve
from turncredit.data import provenance, tables
from turncredit.data.tools import Call
from turncredit.data.turns import Turns
from turncredit.data.yaml_files import read_mapping
from turncredit.errors import UserError
from turncredit.pipeline import checks

slowly = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
#: values that people, spreadsheets and other programs write into a cell
CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.text(max_size=12),
    st.binary(max_size=4),
    st.lists(st.integers(-3, 3), max_size=3),
    st.sampled_from(["", "0", "nan", "NaN", "1e400", " a", "a\x00b", "null", "None"]),
)


def outcome(attempt: Callable[[], Any]) -> tuple[str, Any]:
    """What `attempt` says when it refuses, one line of a length that a terminal shows; or "" and what it returns."""
    try:
        return "", attempt()
    except UserError as error:
        said = str(error)
    assert "\n" not in said
    assert "\r" not in said
    assert 10 < len(said) < 1500, said
    return said, None


# ---------------------------------------------------------------------------------------------------------- tables


@st.composite
def near_turns(draw) -> dict[str, list]:
    """Turns with every column that any method reads, and one to three changes."""
    made = synthetic.rows(
        draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(0, 99))
    )
    columns = {name: [row[name] for row in made] for name in made[0]}
    for _ in range(draw(st.integers(1, 3))):
        names = sorted(columns)
        name = draw(st.sampled_from(names))
        row = draw(st.integers(0, len(made) - 1))
        match draw(
            st.sampled_from(["cell", "cell", "column", "drop", "rename", "repeat", "shuffle", "retype", "empty"])
        ):
            case "cell":
                columns[name][row] = draw(CELLS)
            case "column":
                columns[name] = [draw(CELLS)] * len(columns[name])
            case "drop":
                del columns[name]
            case "rename":
                columns[draw(st.text(max_size=8))] = columns.pop(name)
            case "repeat":
                columns = {key: [*values, values[min(row, len(values) - 1)]] for key, values in columns.items()}
            case "shuffle":
                columns = {key: values[::-1] for key, values in columns.items()}
            case "retype":
                columns[name] = [str(value) for value in columns[name]]
            case "empty":
                columns = {key: [] for key in columns}
        if not columns or not next(iter(columns.values())):
            break
    return columns


def arrow(columns: dict[str, list]) -> pa.Table | None:
    """The columns as a table; None where Arrow has no type for one of them."""
    try:
        return pa.table(columns)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError):
        return None


SIDES = {
    "labels": ["role", "score"],
    "values": ["value"],
    "logprobs": ["tokens", "logprob", "sampled"],
    "continuations": ["continuations", "return_sum", "return_square_sum"],
}


def credited(table: pa.Table, name: str) -> pa.Table:
    """The table's credits, with the side tables that it has the columns of."""
    method, have = resolve(name), set(table.column_names)
    wanted = {side: [*tables.KEYS, *its] for side, its in SIDES.items() if side in method.needs}
    side = {name: table.select(its) for name, its in wanted.items() if set(its) <= have}
    return compute(Turns(table, side), method)


@slowly
@given(near_turns(), st.sampled_from(sorted(METHODS)))
def test_a_table_near_the_schema_is_credited_or_refused_in_one_line(columns, name):
    table = arrow(columns)
    assume(table is not None)
    said, made = outcome(lambda: credited(table, name))
    if said:
        assert made is None
    else:
        assert np.isfinite(made.column("advantage").to_numpy()).all()
        assert made.select(["rollout_id", "turn"]).equals(table.select(["rollout_id", "turn"]))


# ---------------------------------------------------------------------------------------------------- configurations

TEXT = Path(tiny.ROOT / tiny.CONFIG).read_text(encoding="utf-8")
#: words that YAML reads as something, or trips over
WORDS = [
    "null", "~", "yes", "-1", "1e999", ".nan", ".inf", "0x1F", "1_000", "''", "[]", "{}", "&a", "*a", "<<", "0o7",
    "1:30", "2001-12-14", "|", ">", "%", "@", "`", "99999999999999999999", "- ", ": ", "# ", "\t", "\x00", "\u2028",
    "!!python/object:os.system x", "{a: {b: {c: 1}}}",
]  # fmt: skip


@st.composite
def near_configuration(draw) -> str:
    """The text of the tiny experiment's file with one to four changes."""
    lines = TEXT.splitlines()
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        piece = draw(st.one_of(st.sampled_from(WORDS), st.text(max_size=6)))
        match draw(st.sampled_from(["value", "value", "insert", "delete", "repeat", "indent", "cut", "any"])):
            case "value":
                key, colon, value = lines[at].rpartition(": ")
                lines[at] = f"{key}{colon}{piece}" + ("}" * value.count("}") if draw(st.booleans()) else "")
            case "insert":
                place = draw(st.integers(0, len(lines[at])))
                lines[at] = lines[at][:place] + piece + lines[at][place:]
            case "delete":
                lines[at] = ""
            case "repeat":
                lines.append(lines[at])
            case "indent":
                lines[at] = "  " + lines[at]
            case "cut":
                lines[at] = lines[at][: draw(st.integers(0, len(lines[at])))]
            case "any":
                lines.append(f"{draw(st.sampled_from(sorted(config.Experiment.model_fields)))}: {piece}")
    return "\n".join(lines)


def experiment_of(text: str) -> config.Experiment:
    """The default experiment with a file of this text laid over it, as Snakemake reads it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "near.yaml")
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        made = config.from_mapping(config.merge(read_mapping(tiny.ROOT / "config.yaml"), read_mapping(file)))
    checks.check(made)
    return made


@slowly
@given(near_configuration())
def test_a_text_near_a_configuration_is_an_experiment_or_refused_in_one_line(text):
    said, made = outcome(lambda: experiment_of(text))
    if said:
        assert made is None
    else:
        assert made.methods
        assert math.isfinite(made.update.lr)


# ------------------------------------------------------------------------------------------------------------ bytes


def _whole() -> bytes:
    """A table as a stage writes it, in several pages."""
    made = synthetic.rows(4, 4, 6)
    credits = {
        **{name: [row[name] for row in made] for name in tables.KEYS},
        "method": ["flat_grpo"] * len(made),
        "advantage": [row["reward"] for row in made],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "credits.parquet")
        tables.write(pa.table(credits), path, "credits", provenance.record("credit", config={}))
        return path.read_bytes()


WHOLE = _whole()


@st.composite
def near_parquet(draw) -> bytes:
    """The table's bytes with some of them flipped, cut, repeated or put in."""
    data = bytearray(WHOLE)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(["flip", "flip", "cut", "insert", "remove", "zero", "repeat"])):
            case "flip" if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[at:]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=8))
            case "remove":
                del data[at : at + draw(st.integers(1, 16))]
            case "zero":
                data[at : at + 16] = bytes(len(data[at : at + 16]))
            case "repeat":
                data[at:at] = data[at : at + 32]
    return bytes(data)


def read_back(data: bytes) -> tuple[pa.Table, bool]:
    """The table in these bytes, read as a stage's, and whether the file says that one made it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "near.parquet")
        path.write_bytes(data)
        return tables.read(path, "credits"), bool(tables.metadata(path))


@slowly
@given(near_parquet())
def test_bytes_near_parquet_are_the_table_or_refused_in_one_line(data):
    said, found = outcome(lambda: read_back(data))
    if said:
        assert "near.parquet" in said
    else:
        table, is_ours = found
        # Damage to both counts and metadata leaves what looks like another program's empty table: turncredit check
        # finds that no stage made it, and no method credits a table without rows.
        assert table.equals(read_back(WHOLE)[0]) or (table.num_rows == 0 and not is_ours)


# --------------------------------------------------------------------------------------------- other projects' records


@slowly
@given(data=st.data(), forced=st.booleans())
def test_any_record_is_imported_or_skipped_by_name(data: st.DataObject, forced: bool) -> None:
    """Ten records near one format at a time: each is a rollout or a skip, and no message names an exception."""
    name, first = data.draw(near_records())
    rows = [first, *(row for _, row in data.draw(st.lists(near_records(), max_size=9)))]
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "rows.jsonl", Path(folder) / "out.parquet"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        options = Options(allow_skips=True)
        said, report = outcome(lambda: importers.run([path], out, name if forced else None, options))
        if report is None:
            assert not out.exists()
        else:
            assert report.rollouts + report.skips > 0
            table = tables.read(out)
            assert table.num_rows == report.turns
            said = " ".join(report.lines())
        assert not any(word in said for word in ("Error", "Exception", "Traceback", "object has no attribute"))


# ------------------------------------------------------------------------------------------------------- tool calls

DESK = envs.load("desk")
CASES = DESK.make_tasks("train", 24, 0, DESK.Settings())
JSON = st.recursive(CELLS.filter(lambda value: not isinstance(value, bytes)), st.lists, max_leaves=3)


@st.composite
def near_calls(draw) -> tuple[int, list[str]]:
    """A case, and its plan with changes in every action: words cut, repeated and swapped, JSON of other types."""
    row = draw(st.integers(0, len(CASES) - 1))
    env = DESK.open_task(CASES[row], DESK.Settings())
    env.reset()
    return row, [draw(near_call(action)) for action in env.oracle()]


@st.composite
def near_call(draw, action: str) -> str:
    """A text near an action in either spelling; one in three is as it was."""
    call = DESK.words.tools.read(action)
    kind = draw(st.sampled_from(["whole", "words", "json", "any"]))
    if kind == "whole":
        return draw(st.sampled_from([action, DESK.words.tools.json(call)]))
    if kind == "any":
        return draw(st.text(max_size=40))
    if kind == "words":
        words = action.split()
        words[draw(st.integers(0, len(words) - 1))] = draw(
            st.sampled_from(["", "order", "of", "to", "O1", "{}", "\ud800"])
        )
        return " ".join(words)
    given = json.loads(DESK.words.tools.json(call))
    part = draw(st.sampled_from([given, given["arguments"]]))
    part[draw(st.sampled_from([*part, "name", "order", "change"]))] = draw(JSON | st.just({}) | st.just([[]]))
    text = json.dumps(given)
    return text[: draw(st.integers(1, len(text)))] if draw(st.booleans()) else text


@slowly
@given(near_calls())
def test_a_text_near_a_tool_call_is_done_or_refused_with_one_line_that_can_be_stored(near):
    row, actions = near
    env = DESK.open_task(CASES[row], DESK.Settings())
    env.reset()
    for action in actions:
        before, read = env.snapshot(), DESK.words.tools.read(action)
        step = env.step(action)
        assert step.valid <= isinstance(read, Call)
        assert step.valid or env.snapshot() == before._replace(turns=before.turns + 1)
        assert step.observation.isascii()
        assert "\n" not in step.observation
        assert 0 <= env.progress() <= 1
        assert (env.distance() == 0) == step.success
        if step.done:
            break


CALLS = DESK.words.tools
CALL = st.sampled_from([tool.name for tool in CALLS]).flatmap(
    lambda name: st.fixed_dictionaries(
        {key: st.sampled_from(["name", "O17", "lamp of order O1", "é", '"', "\\"]) for key in CALLS[name].parameters}
    ).map(lambda arguments: (name, arguments))
)
PIECES = (
    *("", "I look.", "<think>no</think>", "<think>", "<tool_call>", "</tool_call>", "{}", "[", "]", "}", ", "),
    *("\x00", "\ud800", "\\ud800", "null", '"name": "ask"'),
)
AGENTS = {
    form: agents.agent_factory(agents.load("tools"), Chat(), {"format": form}, DESK.words) for form in sorted(FORMATS)
}


@st.composite
def near_response(draw) -> tuple[str, str]:
    """A format, and a response near a call in one of them: changed values, cut and repeated text, text around."""
    form = draw(st.sampled_from(sorted(FORMATS)))
    name, arguments = draw(CALL)
    written = FORMATS[draw(st.sampled_from([form, form, form, *sorted(FORMATS)]))].write(name, arguments)
    for _ in range(draw(st.integers(0, 2))):
        at, to = sorted((draw(st.integers(0, len(written))), draw(st.integers(0, len(written)))))
        put = draw(st.sampled_from([*PIECES, written]) | st.text(max_size=5))
        match draw(st.sampled_from(["insert", "around", "cut", "replace", "any"])):
            case "insert":
                written = written[:at] + put + written[at:]
            case "around":
                written = draw(st.sampled_from([put + written, written + put]))
            case "cut":
                written = written[:at] + written[to:]
            case "replace":
                written = written[:at] + put + written[to:]
            case "any":
                written = draw(st.text(max_size=60))
    return form, written


@slowly
@given(st.lists(near_response(), min_size=3, max_size=3))
def test_a_response_near_a_tool_call_is_one_call_or_one_sentence_that_can_be_stored(near):
    """21,000 of them in `make fuzz`."""
    for form, text in near:
        parsed = AGENTS[form]().parse(text)
        error = parsed.columns["tool_error"]
        assert parsed.well_formed == bool(parsed.action) == (error is None)
        if error is None:
            call = CALLS.read(parsed.action)
            assert isinstance(call, Call)
            assert call.tool == parsed.columns["tool_name"]
            assert CALLS.arguments(call) == json.loads(parsed.columns["tool_arguments"])
            parsed.action.encode()
        else:
            assert error.isascii()
            assert error.isprintable()
            assert 10 < len(error) < 300
            assert parsed.columns["tool_name"] is parsed.columns["tool_arguments"] is None
