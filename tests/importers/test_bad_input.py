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
from turncredit.bridges import importers
from turncredit.bridges.importers import table
from turncredit.bridges.importers.base import Options, Report
from turncredit.data import json_lines, tables
from turncredit.errors import UserError

#: What `files.JSONL` needs, whose fields have names of their own.
MAPPED = Options(mapping=files.JSONL)


def imported(path: Path, name: str, *, strict: bool = False) -> tuple[pa.Table, Report]:
    out = path.parent / "out.parquet"
    report = importers.run([path], out, name, MAPPED if name == "jsonl" else Options(), strict=strict)
    return tables.read(out), report


def trace(episode: dict[str, Any]) -> dict[str, Any]:
    return episode["traces"][0]


def changed(where: str, *value: Any) -> bytes:
    """The first line with another value at a place in it; without one, the place is gone."""
    episode = files.episode(0)
    *path, last = (int(part) if part.isdigit() else part for part in where.split("."))
    inside: Any = episode if where in episode else trace(episode)
    for part in path:
        inside = inside[part]
    if value:
        inside[last] = value[0]
    else:
        del inside[last]
    return json.dumps(episode).encode() + b"\n"


GOOD = json.dumps(files.episode(0)).encode() + b"\n"
TYPE = "a value of another type than its column's"
#: what is in place of the first line of traces.jsonl, and the reason given
SPOILED: dict[str, tuple[bytes, str]] = {
    "text": (b"hello\n", "not JSON"),
    "a list": (b"[1, 2]\n", "not a JSON object"),
    "not UTF-8": (GOOD.replace(b"hall", b"\xff\xfe"), "not UTF-8"),
    "half a surrogate pair": (GOOD.replace(b"hall", b"\\ud800"), "text with half of a surrogate pair"),
    "nested": (b'{"traces": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "JSON nested too deeply"),
    "another version": (changed("version", 2), "a trace of schema version 2; this version of turncredit reads 1"),
    "an old format": (b'{"prompt": [], "reward": 1}\n', "not an episode of verifiers v1: no 'traces'"),
    "a reward that is NaN": (changed("rewards.solved.score", float("nan")), "reward is not a finite number"),
    "a reward that is text": (changed("rewards.solved.score", "high"), "reward is not a number"),
    "no turn": (changed("nodes", []), "no turn: the policy wrote no message"),
    "no nodes": (changed("nodes"), "a field is missing: 'nodes'"),
    "a parent that is not there": (changed("nodes.1.parent", 99), "a node whose parent does not come before it"),
    "tokens without masks": (changed("nodes.1.mask", [True]), "tokens and mask of different lengths"),
    "a token that is no number": (changed("nodes.0.token_ids", ["x", 1, 2]), TYPE),
    "a token beyond 32 bits": (changed("nodes.0.token_ids", [2**40, 1, 2]), TYPE),
    "nothing to group by": (
        GOOD.replace(b'"group": {', b'"x": {').replace(b'"task": {', b'"y": {'),
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
    monkeypatch.setattr(json_lines, "LONGEST", 10_000)
    path = files.verifiers(tmp_path)
    good = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*good[:2], b'{"traces": "' + b"x" * 55_000 + b'"}\n', *good[2:], b"y" * 30_000]))
    _, report = imported(path, "verifiers")
    assert report.rollouts == 4
    assert report.skipped == {json_lines.too_long(): (2, f"{path}:3")}


@pytest.mark.parametrize(("beyond", "read"), [(0, 4), (1, 2)])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_line_as_long_as_the_bound_is_read_and_a_longer_one_is_not(
    end: bytes, beyond: int, read: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines are `a` bytes long twice and one byte more twice; the last one ends with or without a newline."""
    path = files.verifiers(tmp_path)
    rows = path.read_bytes().splitlines()
    bound = max(len(row) for row in rows)
    path.write_bytes(b"\n".join(row.ljust(bound + beyond * (place % 2)) for place, row in enumerate(rows)) + end)
    monkeypatch.setattr(json_lines, "LONGEST", bound)
    _, report = imported(path, "verifiers")
    assert report.rollouts == read
    assert sum(number for number, _ in report.skipped.values()) == 4 - read


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


#: what is changed in the line of a turn, or the lines in its place; and the reason given
TURNS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a turn twice": (lambda row: [row, {**row, "observation": "p"}], "a turn that was read before"),
    "a null reward": (lambda row: [{**row, "reward": None}], "reward is missing or null"),
    "a reward that is NaN": (lambda row: [{**row, "reward": float("nan")}], "reward is not a finite number"),
    "a turn that is no number": (lambda row: [{**row, "turn": "first"}], "turn is not a number 0, 1, 2, ..."),
    "a turn beyond all": (lambda row: [{**row, "turn": 10**9}], "turn is not a number 0, 1, 2, ..."),
    "a rollout in two groups": (lambda row: [{**row, "group_id": "other"}], "a rollout in two groups"),
    "no group": (lambda row: [{**row, "group_id": None}], "'group_id' is missing or null, or no id"),
    "neither turn nor messages": (lambda row: [{**row, "turn": None}], "neither 'messages' nor 'turn' in a line"),
    "done that is text": (lambda row: [{**row, "done": "yes"}], "done is neither true nor false"),
    "a line of its own": (
        lambda row: [row, {**row, "turn": None, "messages": files.messages(0)}],
        table.WHOLE_AND_PARTS,
    ),
}


def turn_lines(place: int, change: Callable[[dict[str, Any]], Any]) -> list[dict[str, Any]]:
    """Lines of three rollouts of three turns, those of a turn after those of the one before; `change` of one line."""
    rows = [
        {"group_id": "g", "rollout_id": f"r{number}", "turn": turn, "reward": 1.0, "observation": "o"}
        for turn in range(3)
        for number in range(3)
    ]
    return [*rows[:place], *change(rows[place]), *rows[place + 1 :]]


@pytest.mark.parametrize("place", [0, 4, 8], ids=["first", "middle", "last"])
@pytest.mark.parametrize("case", sorted(TURNS))
def test_a_rollout_of_which_a_turn_is_bad_is_left_out_as_a_whole(case: str, place: int, tmp_path: Path) -> None:
    """Otherwise its return would be another one than it was."""
    change, reason = TURNS[case]
    out = tmp_path / "out.parquet"
    rows = turn_lines(place, change)
    report = importers.run([files.lines(tmp_path / "turns.jsonl", rows)], out, "jsonl")
    assert reason in report.skipped
    assert (report.rollouts, report.turns) == (2, 6)
    left = {f"r{number}" for number in range(3)} - {f"r{place % 3}"}
    assert set(tables.read(out)["rollout_id"].to_pylist()) == left
    assert report.notes == {}


@pytest.mark.parametrize(("place", "left"), [(0, 2), (4, 2), (8, 3)], ids=["first", "middle", "last"])
@pytest.mark.parametrize("gone", [{"rollout_id": None}, ["no object"]], ids=["no id", "not read"])
def test_a_skipped_line_that_does_not_tell_its_rollout_is_noted(
    gone: Any, place: int, left: int, tmp_path: Path
) -> None:
    """It may be the last turn of one, which nobody can see then."""
    rows = turn_lines(place, lambda _: [gone])
    out = tmp_path / "out.parquet"
    report = importers.run([files.lines(tmp_path / "turns.jsonl", rows)], out, "jsonl")
    assert (report.rollouts, report.notes[importers.MAYBE_SHORTENED]) == (left, 1)


def test_a_skipped_line_that_is_a_whole_rollout_shortens_no_other(tmp_path: Path) -> None:
    own = {"group_id": "g", "rollout_id": "own", "reward": "bad", "messages": files.messages(0)}
    rows = [*turn_lines(0, lambda row: [row]), own, {**own, "rollout_id": None}]
    report = importers.run([files.lines(tmp_path / "turns.jsonl", rows)], tmp_path / "out.parquet", "jsonl")
    assert sum(count for count, _ in report.skipped.values()) == 2
    assert (report.rollouts, report.notes) == (3, {})


def test_lines_of_turns_after_a_rollouts_own_line_are_not_a_second_one(tmp_path: Path) -> None:
    own = {"group_id": "g", "rollout_id": "r2", "reward": 1.0, "messages": files.messages(0)}
    rows = [own, *turn_lines(0, lambda row: [row])]
    report = importers.run([files.lines(tmp_path / "turns.jsonl", rows)], tmp_path / "out.parquet", "jsonl")
    assert (report.rollouts, report.turns) == (2, 6)
    assert report.skipped[table.WHOLE_AND_PARTS][0] == 3


@pytest.mark.parametrize("turn", [0, 1])
def test_a_rollout_of_verl_agent_of_which_a_turn_is_bad_is_left_out_as_a_whole(turn: int, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in files.verl_agent(tmp_path).read_text().splitlines()]
    next(row for row in rows if (row["traj_uid"], row["turn"]) == ("t2", turn))["rewards"] = None
    found, report = imported(files.lines(tmp_path / "3.jsonl", rows), "verl-agent")
    assert (report.rollouts, found.num_rows) == (3, 6)
    assert "3/t2" not in found["rollout_id"].to_pylist()


@pytest.mark.parametrize("name", ["uid", "traj_uid"])
@pytest.mark.parametrize("value", [None, ["t2"]])
def test_a_turn_of_verl_agent_without_one_of_its_ids_is_skipped_with_its_rollout(
    name: str, value: object, tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in files.verl_agent(tmp_path).read_text().splitlines()]
    next(row for row in rows if (row["traj_uid"], row["turn"]) == ("t2", 0))[name] = value
    found, report = imported(files.lines(tmp_path / "3.jsonl", rows), "verl-agent")
    assert report.skipped[f"{name} is null, or no id"][0] == 1
    assert (report.rollouts, found.num_rows) == (3, 6)
    assert "3/t2" not in found["rollout_id"].to_pylist()


def test_ids_of_verl_agent_may_be_whole_numbers(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in files.verl_agent(tmp_path).read_text().splitlines()]
    numbered = [{**row, "uid": 7, "traj_uid": int(row["traj_uid"][1:])} for row in rows]
    found, report = imported(files.lines(tmp_path / "3.jsonl", numbered), "verl-agent")
    assert (report.rollouts, report.skipped) == (4, {})
    assert set(found["group_id"].to_pylist()) == {"3/7"}
    assert "3/2" in found["rollout_id"].to_pylist()


@pytest.mark.parametrize(
    ("order", "left"),
    [
        ([0, 2, 1, 3, 4, 5, 6, 7], {"3/u_1_2", "3/u_1_3"}),
        ([0, 2, 3, 1, 4, 5, 6, 7], {"3/u_0_1", "3/u_1_2", "3/u_1_3"}),
        ([1, 2, 3, 4, 5, 6, 7], {"3/u_0_1", "3/u_1_2", "3/u_1_3"}),
    ],
    ids=["two in turn", "one within the other", "no first output"],
)
def test_a_session_whose_outputs_are_apart_is_left_out_as_a_whole(
    order: list[int], left: set[str], tmp_path: Path
) -> None:
    rows = files.verl_rows(session=True)
    found, _ = imported(files.lines(tmp_path / "3.jsonl", [rows[place] for place in order]), "verl")
    assert set(found["rollout_id"].to_pylist()) == left


@pytest.mark.parametrize("name", ["transcript", "agent-lightning"])
def test_a_rollout_whose_lines_do_not_stand_together_is_left_out_as_a_whole(name: str, tmp_path: Path) -> None:
    path = files.WRITERS[name](tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    second = lines.pop(1)
    path.write_text("".join([*lines, second]))
    found, report = imported(path, name)
    assert report.rollouts == 3
    assert len(set(found["rollout_id"].to_pylist())) == 3
    (reason,) = report.skipped
    assert "do not stand" in reason
    assert report.skipped[reason][1].startswith(f"{path}:{len(lines) + 1}")


def test_a_line_of_verl_that_is_not_read_may_be_a_sessions_last_output(tmp_path: Path) -> None:
    rows = files.verl_rows(session=True)
    _, report = imported(files.lines(tmp_path / "3.jsonl", [rows[0], "cut", *rows[2:]]), "verl")
    assert (report.rollouts, report.notes[importers.MAYBE_SHORTENED]) == (4, 1)


@pytest.mark.parametrize(
    ("write", "name", "reason"),
    [
        (lambda path: path.write_bytes(b"PAR1 and no more"), "art", "not a readable Parquet file"),
        (lambda path: path.write_bytes(b""), "verifiers", "no rollouts in it: it is empty"),
        (lambda path: path.write_text("{}\n"), None, "no rollouts in it: a record of unknown format"),
        (lambda path: path.write_text("{\n"), None, "no rollouts in it: JSON that ends in the middle"),
        (lambda path: path.write_text("{}\n"), "vrl", r"unknown format \(did you mean 'verl'\?\)"),
        (lambda path: path.mkdir(), "verl", "no file that ends with .* in this folder"),
        (Path.exists, "verl", "no such file or folder"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_and_leaves_no_table(
    write: Callable[[Path], Any], name: str | None, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "traces.jsonl"
    write(path)
    with pytest.raises(UserError, match=reason) as raised:
        importers.run([path], tmp_path / "out.parquet", name)
    assert "\n" not in str(raised.value)
    assert sorted(tmp_path.iterdir()) in ([path], [])


def test_a_mapping_that_a_format_does_not_take_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"--map rewad: trl has no such key .did you mean 'reward'.*choose one of reward, group_id"
    ):
        importers.run([files.trl(tmp_path)], tmp_path / "out.parquet", "trl", Options(mapping={"rewad": "solved"}))
    with pytest.raises(UserError, match="--map reward=x: no record has 'x'; choose one of group_index, reward"):
        importers.run([files.art(tmp_path)], tmp_path / "out.parquet", "art", Options(mapping={"reward": "x"}))
    with pytest.raises(UserError, match="--map turn: art has no such key"):
        importers.run([files.art(tmp_path)], tmp_path / "out.parquet", "art", Options(mapping={"turn": "x"}))


def test_rows_of_parquet_without_a_group_or_a_turn_are_skipped_by_name(tmp_path: Path) -> None:
    rows = pq.read_table(files.art(tmp_path)).to_pylist()
    rows[0]["reward"], rows[1]["group_index"], rows[2]["messages"] = None, None, []
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "0003.parquet")
    table, report = imported(tmp_path / "0003.parquet", "art")
    assert list(report.skipped) == ["group_index is missing or null", "no turn: the policy wrote no message"]
    assert table["reward"].to_pylist() == [None, None, 0.0, 0.0]


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
    assert json.dumps(json_lines.parsed(text.encode(errors="replace"), cut=False)) == json.dumps(json.loads(text))


def test_a_line_that_is_nested_deeply_but_not_too_deeply_is_read() -> None:
    deep = b'{"a": ' + b"[" * 400 + b"]" * 400 + b"}"
    assert json_lines.parsed(deep, cut=False) == json.loads(deep)


def test_a_table_of_lines_ends_at_the_first_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = files.lines(tmp_path / "gold.jsonl", [{"a": 1}, ["none"], *[{"a": 2}] * 50]), []
    parsed = json_lines.parsed
    monkeypatch.setattr(json_lines, "parsed", lambda line, *, cut: (read.append(line), parsed(line, cut=cut))[1])
    with pytest.raises(UserError, match=r"one JSON object per line: not a JSON object \(.*gold.jsonl:2: list\)"):
        json_lines.json_table(path)
    assert len(read) == 2


def test_a_mapped_field_that_a_record_lacks_is_named_with_those_it_has(tmp_path):
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps({"group_id": "g", "rollout_id": "r", "score": 1.0, "messages": []}) + "\n")
    with pytest.raises(UserError, match=r"no record has 'scor' \(did you mean 'score'\?\); choose one of group_id, "):
        importers.run([path], tmp_path / "turns.parquet", "jsonl", Options(mapping={"reward": "scor"}))


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"success": "okk"}, r"--map success=okk: no record has 'okk' \(did you mean 'ok'\?\)"),
        ({"goal": "info.gaol"}, r"--map goal=info.gaol: no record has 'info.gaol' \(did you mean 'info.goal'\?\)"),
    ],
)
def test_a_mapped_field_that_no_record_has_is_refused(mapping: dict[str, str], message: str, tmp_path: Path) -> None:
    rows = turn_lines(0, lambda row: [{**row, "ok": True, "info": {"goal": "a"}}])
    with pytest.raises(UserError, match=message):
        importers.run(
            [files.lines(tmp_path / "turns.jsonl", rows)], tmp_path / "out.parquet", "jsonl", Options(mapping=mapping)
        )
    assert not (tmp_path / "out.parquet").exists()


def test_a_mapped_field_that_some_records_lack_is_noted(tmp_path: Path) -> None:
    with_it, without = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    row = {"group_id": "g", "reward": 1.0, "turn": 0}
    files.lines(with_it, [{**row, "rollout_id": 0, "ok": True}])
    files.lines(without, [{**row, "rollout_id": 1}, {**row, "rollout_id": 2, "ok": None}])
    report = importers.run([without, with_it], tmp_path / "out.parquet", "jsonl", Options(mapping={"success": "ok"}))
    assert report.notes == {"--map success=ok: a record has no 'ok'": 1}


@pytest.mark.parametrize("field", [{"goal_text": None}, {"info.goal": None}, {"info": {"goal": None}}])
@pytest.mark.parametrize("key", ["goal", "success"])
def test_a_mapped_field_may_be_null_in_every_record(key: str, field: dict[str, Any], tmp_path: Path) -> None:
    name = "goal_text" if "goal_text" in field else "info.goal"
    rows = turn_lines(0, lambda row: [row])
    path = files.lines(tmp_path / "turns.jsonl", [{**row, **field} for row in rows])
    out = tmp_path / "out.parquet"
    report = importers.run([path], out, "jsonl", Options(mapping={key: name}))
    assert (report.rollouts, report.notes) == (3, {})
    assert key not in tables.read(out).column_names


@pytest.mark.parametrize("row", [{"info.score": 1.0, "info": {"score": 0.0}}, {"info": {"score": 1.0}}])
def test_a_field_whose_name_has_a_dot_goes_before_one_within_a_field(row: dict[str, Any], tmp_path: Path) -> None:
    rows = [{"group_id": "g", "rollout_id": "r", "messages": files.messages(0), **row}]
    out = tmp_path / "out.parquet"
    importers.run([files.lines(tmp_path / "mine.jsonl", rows)], out, "jsonl", Options(mapping={"reward": "info.score"}))
    assert tables.read(out)["reward"].to_pylist() == [0.0, 1.0]
