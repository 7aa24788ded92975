"""Bad files: every record that is not imported is counted under a reason, with where it was first; or an error.

Each case spoils the first of four rollouts (or adds to them); the others are imported as ever.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.importers import files
from turncredit import importers, tables
from turncredit.errors import UserError
from turncredit.importers import lines
from turncredit.importers.base import Report


def imported(path: Path, name: str, *, strict: bool = False) -> tuple[pa.Table, Report]:
    out = path.parent / "out.parquet"
    _, report = importers.run([path], out, name, files.JSONL if name == "jsonl" else {}, strict=strict)
    return tables.read(out), report


def changed(change: Callable[[dict[str, Any]], Any]) -> bytes:
    episode = files.episode(0)
    change(episode)
    return json.dumps(episode).encode() + b"\n"


def trace(episode: dict[str, Any]) -> dict[str, Any]:
    return episode["traces"][0]


GOOD = json.dumps(files.episode(0)).encode() + b"\n"
#: what is in place of the first line of traces.jsonl, and the reason given
SPOILED: dict[str, tuple[bytes, str]] = {
    "text": (b"hello\n", "not JSON"),
    "a list": (b"[1, 2]\n", "not a JSON object"),
    "not UTF-8": (GOOD.replace(b"hall", b"\xff\xfe"), "not UTF-8"),
    "half a surrogate pair": (GOOD.replace(b"hall", b"\\ud800"), "text with half of a surrogate pair"),
    "nested": (b'{"traces": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "JSON nested too deeply"),
    "another schema version": (
        changed(lambda it: trace(it).update(version=2)),
        "a trace of schema version 2; this version of turncredit reads 1",
    ),
    "an old format": (
        b'{"prompt": [], "completion": [], "reward": 1}\n',
        "not an episode of verifiers v1: no 'traces'",
    ),
    "no reward": (changed(lambda it: trace(it).pop("rewards")), "reward is missing or null"),
    "a null reward": (changed(lambda it: trace(it).update(rewards={"solved": None})), "reward is missing or null"),
    "a reward that is NaN": (
        changed(lambda it: trace(it)["rewards"]["solved"].update(score=float("nan"))),
        "reward is not a finite number",
    ),
    "a reward that is text": (
        changed(lambda it: trace(it)["rewards"]["solved"].update(score="high")),
        "reward is not a number",
    ),
    "no turn": (changed(lambda it: trace(it).update(nodes=[])), "no turn: the policy wrote no message"),
    "no nodes": (changed(lambda it: trace(it).pop("nodes")), "not as the format has it"),
    "a parent that is not there": (
        changed(lambda it: trace(it)["nodes"][1].update(parent=99)),
        "a node whose parent does not come before it",
    ),
    "tokens without masks": (
        changed(lambda it: trace(it)["nodes"][1].update(mask=[True])),
        "tokens and mask of different lengths",
    ),
    "a token that is no number": (
        changed(lambda it: trace(it)["nodes"][0].update(token_ids=["x", 1, 2])),
        "a value of another type than its column's",
    ),
    "a token beyond 32 bits": (
        changed(lambda it: trace(it)["nodes"][0].update(token_ids=[2**40, 1, 2])),
        "a value of another type than its column's",
    ),
    "nothing to group by": (
        changed(lambda it: it.update(group=None, task=None)),
        "neither a group nor a task's key, hash or index",
    ),
}


@pytest.mark.parametrize("case", sorted(SPOILED))
def test_a_spoiled_line_is_skipped_by_name_and_the_others_are_read(case: str, tmp_path: Path) -> None:
    line, reason = SPOILED[case]
    path = files.verifiers(tmp_path)
    path.write_bytes(line + b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    table, report = imported(path, "verifiers")
    assert {reason: number for reason, (number, _) in report.skipped.items()} == {reason: 1}
    assert report.skipped[reason][1].startswith(f"{path}:1")
    assert (report.records, report.rollouts, table.num_rows) == (4, 3, 6)
    assert any(reason in text for text in report.lines())
    with pytest.raises(UserError, match="without --strict it is skipped") as raised:
        imported(path, "verifiers", strict=True)
    assert "\n" not in str(raised.value)


def test_a_line_that_was_cut_off_is_named(tmp_path: Path) -> None:
    path = files.verifiers(tmp_path)
    path.write_bytes(path.read_bytes()[:-40])
    _, report = imported(path, "verifiers")
    assert list(report.skipped) == ["JSON that ends in the middle"]
    assert report.rollouts == 3


def test_a_line_of_any_length_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real bound is 32 MiB; benchmarks/integrations has a line of 100 MB."""
    monkeypatch.setattr(lines, "LONGEST", 10_000)
    path = files.verifiers(tmp_path)
    good = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*good[:2], b'{"traces": "' + b"x" * 55_000 + b'"}\n', *good[2:], b"y" * 30_000]))
    _, report = imported(path, "verifiers")
    assert report.rollouts == 4
    assert report.skipped == {"a line longer than 0 MiB": (2, f"{path}:3")}


def test_a_line_as_long_as_the_bound_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = files.verifiers(tmp_path)
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(sorted(rows, key=len)).rstrip(b"\n"))
    monkeypatch.setattr(lines, "LONGEST", len(max(rows, key=len)) - 1)
    _, report = imported(path, "verifiers")
    assert report.rollouts + sum(number for number, _ in report.skipped.values()) == 4
    assert report.rollouts >= 1


def test_a_rollout_without_an_end_is_read_as_not_done_and_noted(tmp_path: Path) -> None:
    episodes = [files.episode(number) for number in range(2)]
    trace(episodes[0])["is_completed"] = False
    table, report = imported(files.lines(tmp_path / "traces.jsonl", episodes), "verifiers")
    assert report.notes == {"the rollout has no end: its last turn is not done": 1}
    assert table["done"].to_pylist() == [False, False, False, True]


def test_an_id_that_comes_twice_is_read_once(tmp_path: Path) -> None:
    path = files.lines(tmp_path / "traces.jsonl", [files.episode(number) for number in (0, 1, 0)])
    table, report = imported(path, "verifiers")
    assert report.skipped == {"a rollout id that was read before": (1, f"{path}:3: group 'g0', rollout 'trace0'")}
    assert table.num_rows == 4


#: (change of the lines of turns, reason, rollouts left of three)
TURNS: dict[str, tuple[Callable[[list[dict[str, Any]]], Any], str, int]] = {
    "a turn twice": (lambda rows: rows.append(rows[0]), "a turn that was read before", 3),
    "a turn missing": (lambda rows: rows.pop(0), "a rollout without one of its turns", 2),
    "a null reward": (lambda rows: rows[0].update(reward=None), "reward is missing or null", 2),
    "a turn that is no number": (lambda rows: rows[0].update(turn="first"), "turn is not a number 0, 1, 2, ...", 2),
    "a turn beyond all": (lambda rows: rows[0].update(turn=10**9), "turn is not a number 0, 1, 2, ...", 2),
    "a rollout in two groups": (lambda rows: rows[0].update(group_id="other"), "a rollout in two groups", 2),
    "no id": (lambda rows: rows[0].pop("rollout_id"), "'rollout_id' is missing or null, or no id", 2),
    "neither turn nor messages": (lambda rows: rows[0].pop("turn"), "neither 'messages' nor 'turn' in a line", 2),
    "done that is text": (lambda rows: rows[0].update(done="yes"), "done is neither true nor false", 2),
}


@pytest.mark.parametrize("case", sorted(TURNS))
def test_a_rollout_of_which_a_turn_is_bad_is_left_out_as_a_whole(case: str, tmp_path: Path) -> None:
    """Otherwise its return would be another one than it was."""
    change, reason, left = TURNS[case]
    rows = [
        {"group_id": "g", "rollout_id": number, "turn": turn, "reward": 1.0, "observation": "o"}
        for turn in range(3)
        for number in range(3)
    ]
    change(rows)
    out = tmp_path / "out.parquet"
    _, report = importers.run([files.lines(tmp_path / "turns.jsonl", rows)], out, "jsonl", {})
    assert reason in report.skipped
    table = tables.read(out)
    assert table.num_rows == 3 * left
    assert (report.rollouts, report.turns) == (left, 3 * left)
    assert len(set(table["rollout_id"].to_pylist())) == left


@pytest.mark.parametrize(
    ("write", "name", "reason"),
    [
        (lambda path: path.write_bytes(b"PAR1 and no more"), "art", "not a readable Parquet file"),
        (lambda path: path.write_bytes(b""), "verifiers", "nothing to write: read 1 file, 0 records"),
        (lambda path: path.write_text("{}\n"), None, "the format cannot be detected from what is in it; give --from"),
        (lambda path: path.write_text("{\n"), None, "the format cannot be detected"),
        (lambda path: path.write_text("{}\n"), "vrl", r"unknown format \(did you mean 'verl'\?\)"),
        (lambda path: path.mkdir(), "verl", "no file that ends with .jsonl in this folder"),
        (Path.exists, "verl", "no such file or folder"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_and_leaves_no_table(
    write: Callable[[Path], Any], name: str | None, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "traces.jsonl"
    write(path)
    with pytest.raises(UserError, match=reason) as raised:
        importers.run([path], tmp_path / "out.parquet", name, {})
    assert "\n" not in str(raised.value)
    assert sorted(tmp_path.iterdir()) in ([path], [])


def test_a_mapping_that_a_format_does_not_take_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--map rewad: trl has no such key .did you mean 'reward'.*it takes reward"):
        importers.run([files.trl(tmp_path)], tmp_path / "out.parquet", "trl", {"rewad": "solved"})
    with pytest.raises(UserError, match="--map reward: art has no such key; it takes no --map"):
        importers.run([files.art(tmp_path)], tmp_path / "out.parquet", "art", {"reward": "x"})


def test_rows_of_parquet_without_a_reward_or_a_group_are_skipped_by_name(tmp_path: Path) -> None:
    rows = pq.read_table(files.art(tmp_path)).to_pylist()
    rows[0]["reward"], rows[1]["group_index"], rows[2]["messages"] = None, None, []
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "0003.parquet")
    table, report = imported(tmp_path / "0003.parquet", "art")
    assert list(report.skipped) == [
        "reward is missing or null",
        "group_index is missing or null",
        "no turn: the policy wrote no message",
    ]
    assert table.num_rows == 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = {
    "verifiers": ["traces", "group", "task"],
    "verl": ["input", "output", "score", "uid", "step"],
    "openenv": ["episode_id", "messages", "reward", "task"],
    "jsonl": ["id", "score", "chat"],
    "rllm": ["trajectories", "task_hash", "training_step", "episode_id"],
}


@settings(max_examples=10, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("name", sorted(FIELDS))
def test_no_value_of_any_field_is_a_traceback_or_goes_unmentioned(name: str, data: Any, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("any")
    path = files.WRITERS[name](folder)
    spoiled = sorted(path.glob("*.json"))[0] if path.is_dir() else path
    first, *others = [spoiled.read_text()] if path.is_dir() else spoiled.read_text().splitlines()
    row = json.loads(first)
    row[data.draw(st.sampled_from(FIELDS[name]))] = data.draw(JSON)
    spoiled.write_text("\n".join([json.dumps(row), *others]) + "\n")
    _, report = imported(path, name)
    read = report.rollouts + sum(number for number, _ in report.skipped.values())
    assert read >= 3
    assert report.rollouts == 4 or report.skipped


@settings(max_examples=100, deadline=None)
@given(value=st.dictionaries(st.text(max_size=5), JSON, max_size=4), ascii_only=st.booleans())
def test_a_line_is_read_as_the_standard_library_reads_it(value: dict[str, Any], ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert json.dumps(lines.parsed(text.encode(errors="replace"), cut=False)) == json.dumps(json.loads(text))


def test_a_line_that_is_nested_deeply_but_not_too_deeply_is_read() -> None:
    deep = b'{"a": ' + b"[" * 400 + b"]" * 400 + b"}"
    assert lines.parsed(deep, cut=False) == json.loads(deep)


def test_a_mapped_field_that_a_record_lacks_is_named_with_those_it_has(tmp_path):
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps({"group_id": "g", "rollout_id": "r", "score": 1.0, "messages": []}) + "\n")
    with pytest.raises(UserError, match=r"no 'scor', mapped to reward, in group_id, rollout_id, score, messages"):
        importers.run([path], tmp_path / "turns.parquet", "jsonl", {"reward": "scor"})
