"""Ids, rewards, truths and turn numbers as files have them: no rollout is lost, and none is changed in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import turncredit
from tests.importers import files
from turncredit.bridges import importers
from turncredit.bridges.importers import messages, table, transcript
from turncredit.bridges.importers.base import NO_REWARD, Options, Report
from turncredit.data import tables
from turncredit.data.turns import Turns
from turncredit.errors import UserError


def imported(path: Path, *, rewards: Path | None = None, **options: Any) -> tuple[pa.Table, Report]:
    out = path.parent / "out.parquet"
    report = importers.run([path], out, options=Options(**options), rewards=rewards)
    return tables.read(out), report


def rollouts(path: Path, **change: Any) -> Path:
    """Four rollouts, a record each, of two tasks, with an `attempt` that is unique within a task only."""
    return files.lines(
        path / "mine.jsonl",
        [
            {"group_id": f"g{group}", "rollout_id": number % 2, "reward": reward, "messages": files.messages(number)}
            | change
            for group, number, reward in files.ROLLOUTS
        ],
    )


def turns(path: Path, rewards: list[Any], *, start: Any = 0, kind: Any = int, rollouts: int = 2) -> Path:
    """Records of turns: rollouts of one group, with these rewards of their turns."""
    return files.lines(
        path / "turns.jsonl",
        [
            {"group_id": "g", "rollout_id": f"r{number}", "turn": kind(place + start), "reward": reward}
            | {"observation": f"o{place}", "action": f"a{number}"}
            for number in range(rollouts)
            for place, reward in enumerate(rewards)
        ],
    )


def test_ids_that_are_unique_only_within_a_task_are_qualified_by_it(tmp_path: Path) -> None:
    found, report = imported(rollouts(tmp_path))
    assert (report.rollouts, report.skipped) == (4, {})
    assert sorted(set(found["rollout_id"].to_pylist())) == ["g0/0", "g0/1", "g1/0", "g1/1"]
    assert report.notes[table.QUALIFIED] == 4
    assert Turns(found).return_R.tolist() == list(files.REWARDS)


def test_an_id_that_is_unique_stays_as_it_is(tmp_path: Path) -> None:
    path = files.lines(tmp_path / "mine.jsonl", [{"group_id": "g", "rollout_id": "r", "messages": files.messages(0)}])
    found, report = imported(path)
    assert set(found["rollout_id"].to_pylist()) == {"r"}
    assert table.QUALIFIED not in report.notes


@pytest.mark.parametrize(
    ("groups", "note"),
    [
        ("aab", "note: 1 of 2 groups has one rollout, and methods compare the rollouts of a group"),
        ("abcc", "note: 2 of 3 groups have one rollout"),
        ("ab", "note: every group has one rollout"),
        ("aabb", ""),
    ],
)
@pytest.mark.parametrize("in_parts", [False, True])
def test_groups_of_one_rollout_are_noted(groups: str, note: str, in_parts: bool, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"group_id": group, "rollout_id": str(number), "reward": 1, "messages": files.messages(0)}
        for number, group in enumerate(groups)
    ]
    if in_parts:
        rows = [
            {"turn": turn, "reward": 0, "action": "a", "group_id": row["group_id"], "rollout_id": row["rollout_id"]}
            for row in rows
            for turn in range(2)
        ]
    done = turncredit("import", files.lines(tmp_path / "mine.jsonl", rows), "--out", tmp_path / "out.parquet")
    assert note in done.stdout
    assert ("one rollout" in done.stdout) == bool(note)


def test_an_id_twice_in_a_task_is_read_once(tmp_path: Path) -> None:
    path = rollouts(tmp_path)
    path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")
    found, report = imported(path)
    assert (report.rollouts, list(report.skipped)) == (4, ["a rollout id that was read before"])
    assert found.num_rows == 8


def test_turns_of_ids_that_are_unique_only_within_a_task_are_told_apart(tmp_path: Path) -> None:
    rows = [
        {"group_id": group, "rollout_id": 0, "turn": turn, "reward": 1.0 * group}
        for group in range(2)
        for turn in range(2)
    ]
    found, report = imported(files.lines(tmp_path / "turns.jsonl", rows))
    assert (report.rollouts, report.skipped) == (2, {})
    assert sorted(set(found["rollout_id"].to_pylist())) == ["0/0", "1/0"]


def test_an_id_may_be_composed_of_several_fields(tmp_path: Path) -> None:
    rows = [{"task": {"name": "t"}, "trial": number, "log": files.messages(number), "r": 1} for number in range(2)]
    mapping = {"group_id": "task.name", "rollout_id": "task.name,trial", "messages": "log", "reward": "r"}
    found, _ = imported(files.lines(tmp_path / "mine.jsonl", rows), mapping=mapping)
    assert sorted(set(found["rollout_id"].to_pylist())) == ["t/0", "t/1"]


def test_a_mapping_goes_before_what_a_format_says(tmp_path: Path) -> None:
    mapping = {"rollout_id": "task_id,trial", "group_id": "trial", "goal": "trial"}
    found, report = imported(files.tau_bench(tmp_path), mapping=mapping)
    assert sorted(set(found["group_id"].to_pylist())) == ["0", "1"]
    assert set(found["goal"].to_pylist()) == {"0", "1"}
    assert report.rollouts == 4


@pytest.mark.parametrize(
    ("mapping", "reason"),
    [
        ({"reward": "remark"}, "reward is not a number"),
        ({"success": "remark"}, "success is neither true nor false"),
    ],
)
def test_a_mapped_field_that_does_not_hold_its_key_skips_the_rollout(
    mapping: dict[str, str], reason: str, tmp_path: Path
) -> None:
    path = files.tau_bench(tmp_path)
    rows = json.loads(path.read_text())
    for number, row in enumerate(rows):
        row["remark"] = "none" if number == 0 else 1
    path.write_text(json.dumps(rows))
    _, report = imported(path, mapping=mapping)
    assert (report.rollouts, list(report.skipped)) == (3, [reason])
    assert report.skipped[reason][1].startswith(f"{path}:0")


def test_records_are_turns_where_their_number_is_mapped_whatever_else_they_hold(tmp_path: Path) -> None:
    rows = [
        {"group_id": "g", "rollout_id": "r", "step": step, "reward": step, "messages": files.messages(0), "said": "a"}
        for step in range(2)
    ]
    mapping = {"turn": "step", "response_text": "said"}
    found, report = imported(files.lines(tmp_path / "mine.jsonl", rows), mapping=mapping)
    assert (found["turn"].to_pylist(), found["reward"].to_pylist()) == ([0, 1], [0.0, 1.0])
    assert report.skipped == {}


@pytest.mark.parametrize(("written", "read"), [(0, False), (1, True), (1.0, True), ("true", True), (True, True)])
def test_truths_may_be_numbers(written: Any, read: bool, tmp_path: Path) -> None:
    found, _ = imported(rollouts(tmp_path, success=written, done=written))
    assert set(found["success"].to_pylist()) == {read}
    assert found["done"].to_pylist()[1::2] == [read] * 4


@pytest.mark.parametrize("written", ["maybe", 2, [1]])
def test_a_truth_that_is_none_is_a_skip(written: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="success is neither true nor false"):
        imported(rollouts(tmp_path, success=written))


@pytest.mark.parametrize("kind", [int, float, str])
@pytest.mark.parametrize("start", [0, 1])
def test_turns_may_be_counted_from_one_and_written_as_floats_or_text(kind: Any, start: int, tmp_path: Path) -> None:
    found, report = imported(turns(tmp_path, [0.0, 0.5, 1.0], start=start, kind=kind))
    assert sorted(found["turn"].to_pylist()) == [0, 0, 1, 1, 2, 2]
    assert (table.FROM_ONE in report.notes) == (start == 1)
    assert Turns(found).return_R.tolist() == [1.5, 1.5]


def test_a_rollout_that_lacks_its_first_turn_is_not_one_that_is_counted_from_one(tmp_path: Path) -> None:
    path = turns(tmp_path, [0.0, 1.0])
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    _, report = imported(path)
    assert (report.rollouts, list(report.skipped)) == (1, ["a rollout without one of its turns"])


@pytest.mark.parametrize("name", ["jsonl", "verl-agent"])
def test_a_copy_of_a_turn_counts_once(name: str, tmp_path: Path) -> None:
    """verl-agent's `adjust_batch` repeats lines, chosen at random, until their number suits the GPUs."""
    path = turns(tmp_path, [0.0, 1.0]) if name == "jsonl" else files.WRITERS[name](tmp_path)
    whole, _ = imported(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, lines[1], lines[0], lines[1]]))
    found, report = imported(path)
    assert found.drop_columns("source").equals(whole.drop_columns("source"))
    assert (report.skipped, report.notes[table.COPY]) == ({}, 3)


def test_a_reward_on_the_last_turn_alone_is_the_rollouts(tmp_path: Path) -> None:
    found, report = imported(turns(tmp_path, [None, None, 1.0]))
    assert sorted(found["reward"].to_pylist()) == [0.0] * 4 + [1.0] * 2
    assert report.notes == {table.ON_LAST: 2}


def test_a_reward_that_is_missing_in_the_middle_leaves_the_rollout_out(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="reward is missing or null"):
        imported(turns(tmp_path, [1.0, None, 1.0]))


def test_rollouts_without_rewards_are_imported_and_what_needs_rewards_refuses_them(tmp_path: Path) -> None:
    for path in (turns(tmp_path, [None, None]), files.atif(tmp_path)):
        found, report = imported(path)
        assert found["reward"].null_count == found.num_rows
        assert report.notes[NO_REWARD] == report.rollouts
        with pytest.raises(UserError, match="reward"):
            Turns(found)


def test_a_reward_that_is_repeated_on_every_turn_is_warned_of_and_may_count_once(tmp_path: Path) -> None:
    path = turns(tmp_path, [2.0, 2.0, 2.0])
    found, report = imported(path)
    assert report.warnings == {table.REPEATED: 2}
    assert Turns(found).return_R.tolist() == [6.0, 6.0]
    found, report = imported(path, reward_once=True)
    assert (Turns(found).return_R.tolist(), report.warnings) == ([2.0, 2.0], {})


def test_rewards_of_turns_that_differ_are_not_warned_of(tmp_path: Path) -> None:
    assert imported(turns(tmp_path, [1.0, 2.0]))[1].warnings == {}


def test_a_message_in_which_the_policy_wrote_nothing_is_no_turn_and_noted(tmp_path: Path) -> None:
    empty = {"role": "assistant", "content": ""}
    row = {"group_id": "g", "rollout_id": "r", "reward": 1, "messages": [*files.messages(0), empty]}
    found, report = imported(files.lines(tmp_path / "mine.jsonl", [row]))
    assert found["reward"].to_pylist() == [0.0, 1.0]
    assert report.notes == {messages.NOTHING: 1}


@pytest.mark.parametrize("empty", ["", [{"type": "thinking", "thinking": "hm"}], "<think>hm</think>"])
def test_a_response_without_an_action_is_a_turn_if_the_environment_answered_it(empty: Any, tmp_path: Path) -> None:
    said: list[dict[str, Any]] = []
    for number, content in enumerate(["Thought: a\nAction: go", empty, "Action: take"]):
        said += [{"role": "user", "content": f"o{number}"}, {"role": "assistant", "content": content}]
    row = {"group_id": "g", "rollout_id": "r", "reward": [0, 0, 1], "messages": said}
    found, report = imported(files.lines(tmp_path / "mine.jsonl", [row]))
    assert found.select(["turn", "observation", "action", "next_observation", "reward"]).to_pylist() == [
        {"turn": 0, "observation": "o0", "action": "go", "next_observation": "o1", "reward": 0.0},
        {"turn": 1, "observation": "o1", "action": "", "next_observation": "o2", "reward": 0.0},
        {"turn": 2, "observation": "o2", "action": "take", "next_observation": "", "reward": 1.0},
    ]
    assert report.notes[table.EMPTY] == 1


def test_an_empty_response_that_is_tried_again_is_no_turn(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "o"}, *({"role": "assistant", "content": text} for text in ("", "go"))]
    row = {"group_id": "g", "rollout_id": "r", "reward": 1, "messages": said}
    found, report = imported(files.lines(tmp_path / "mine.jsonl", [row]))
    assert found["action"].to_pylist() == ["go"]
    assert report.notes == {messages.NOTHING: 1}


def test_a_list_of_rewards_has_one_for_each_turn(tmp_path: Path) -> None:
    found, _ = imported(rollouts(tmp_path, reward=[0.25, None]))
    assert found["reward"].to_pylist()[:2] == [0.25, 0.0]
    with pytest.raises(UserError, match="more or fewer numbers than turns"):
        imported(rollouts(tmp_path, reward=[1.0]))


def test_a_reward_function_that_gave_none_does_not_count_in_trl(tmp_path: Path) -> None:
    path = files.trl(tmp_path)
    whole = pq.read_table(path).append_column("style", pa.array([None, 0.5, None, 0.5]))
    pq.write_table(whole, path)
    found, report = imported(path, mapping={"reward": "solved,style"})
    assert Turns(found).return_R.tolist() == [1.0, 0.5, 0.5, 0.5]
    assert report.notes["the reward 'style' is null: the reward is the sum of the others, as in TRL"] == 2


@pytest.mark.parametrize("reward", [1.5, {"score": 3.0, "weight": 0.5}, {"score": 1.5}])
def test_a_reward_of_verifiers_may_be_a_plain_number(reward: Any, tmp_path: Path) -> None:
    episode = files.episode(0)
    episode["traces"][0]["rewards"] = {"solved": reward, "other": None}
    found, _ = imported(files.lines(tmp_path / "traces.jsonl", [episode]))
    assert found["reward"].to_pylist() == [0.0, 1.5]


#: a second file, and the rewards that it gives to g0/0, g0/1, g1/0, g1/1
REWARDS: dict[str, tuple[str, list[float | None]]] = {
    "by group and rollout.jsonl": (
        "".join(
            json.dumps({"group_id": f"g{number // 2}", "rollout_id": number % 2, "reward": number}) + "\n"
            for number in range(4)
        ),
        [0.0, 1.0, 2.0, 3.0],
    ),
    "by group and rollout in one id.json": (json.dumps({"g0/0": 4, "g1/1": 5}), [4.0, None, None, 5.0]),
    "by task and trial.json": (json.dumps([{"task_id": "t1", "trial": 0, "reward": 6}]), [None, None, 6.0, None]),
    "by task.json": (json.dumps([{"task_id": "t0", "reward": 5}]), [5.0, 5.0, None, None]),
    "a benchmarks report.json": (json.dumps({"resolved_ids": ["t0"], "unresolved_ids": ["t1"]}), [1.0, 1.0, 0.0, 0.0]),
    "a table.csv": ("task_id,success\nt0,0\nt1,1\n", [0.0, 0.0, 1.0, 1.0]),
}


@pytest.mark.parametrize("name", sorted(REWARDS))
def test_rewards_come_from_a_second_file(name: str, tmp_path: Path) -> None:
    text, expected = REWARDS[name]
    second = tmp_path / "second" / name
    second.parent.mkdir()
    second.write_text(text)
    rows = [
        {"group_id": f"g{group}", "rollout_id": number % 2, "task_id": f"t{group}", "messages": files.messages(number)}
        for group, number, _ in files.ROLLOUTS
    ]
    found, _ = imported(files.lines(tmp_path / "mine.jsonl", rows), rewards=second)
    assert found["reward"].to_pylist()[1::2] == expected


def tasks_called_like_rollouts(path: Path) -> Path:
    """Rollouts 0 to 5 of the tasks 0 to 2."""
    rows = [
        {"task_id": str(number % 3), "rollout_id": str(number), "messages": files.messages(number)}
        for number in range(6)
    ]
    return files.lines(path / "mine.jsonl", rows)


@pytest.mark.parametrize("name", ["r.csv", "r.json"])
def test_a_rollout_never_gets_the_reward_of_another_that_has_the_id_of_its_task(name: str, tmp_path: Path) -> None:
    rewards = {"0": 0, "1": 1, "2": 1, "3": 1}
    table = "rollout_id,reward\n" + "".join(f"{one},{reward}\n" for one, reward in rewards.items())
    (tmp_path / name).write_text(table if name == "r.csv" else json.dumps(rewards))
    found, report = imported(tasks_called_like_rollouts(tmp_path), rewards=tmp_path / name)
    assert found["reward"].to_pylist()[1::2] == [0.0, 1.0, 1.0, 1.0, None, None]
    assert report.notes[f"no reward for the rollout in {tmp_path / name}"] == 2


def test_ids_of_an_object_are_those_of_tasks_if_none_is_a_rollouts(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps({"t0": 0.5, "t1": 1}))
    rows = [
        {"task_id": f"t{number % 2}", "rollout_id": str(number), "messages": files.messages(number)}
        for number in range(4)
    ]
    found, _ = imported(files.lines(tmp_path / "mine.jsonl", rows), rewards=tmp_path / "r.json")
    assert found["reward"].to_pylist()[1::2] == [0.5, 1.0, 0.5, 1.0]


def test_ids_in_a_csv_file_are_text(tmp_path: Path) -> None:
    (tmp_path / "rewards.csv").write_text("group_id,rollout_id,reward\n01,007,1\n,7,0.5\n")
    rows = [{"group_id": "01", "rollout_id": name, "messages": files.messages(0)} for name in ("007", "7")]
    found, _ = imported(files.lines(tmp_path / "mine.jsonl", rows), rewards=tmp_path / "rewards.csv")
    assert Turns(found).return_R.tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    "text",
    [
        "rollout_id, reward\n007, 1\n7, 0.5\n",
        " rollout_id ;reward\n007;1\n7 ;0.5\n",
        "rollout_id\treward\tnote\n007\t1\ta;b\n7\t0.5\t\n",
        '\ufeff"rollout_id";"reward"\r\n"007";1\r\n"7";0.5\r\n',
    ],
)
def test_a_csv_file_may_have_blanks_and_semicolons_or_tabs(text: str, tmp_path: Path) -> None:
    (tmp_path / "rewards.csv").write_text(text)
    rows = [{"group_id": "g", "rollout_id": name, "messages": files.messages(0)} for name in ("007", "7")]
    found, _ = imported(files.lines(tmp_path / "mine.jsonl", rows), rewards=tmp_path / "rewards.csv")
    assert Turns(found).return_R.tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"rollout_id": "z", "reward": 1}', "none of its 1 ids belongs to a rollout; the first is 'z'"),
        ('{"rollout_id": "z"}', "a record without 'reward'"),
        ('{"name": "z", "reward": 1}', "a record without 'rollout_id' or 'task_id'"),
        ('{"rollout_id": "z", "reward": "high"}', "reward is not a number"),
        ('{"0": 1, "1": 0}', "rollout '0' is in several groups \\('g0', 'g1'\\); give group_id beside rollout_id"),
        (
            '[{"task_id": "t", "reward": 1}, {"task_id": "t", "reward": 0}]',
            "the task 't' has another reward before; give one for each rollout",
        ),
        ("", "no rewards in it"),
    ],
)
def test_a_second_file_without_rewards_is_one_line(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "rewards.json").write_text(text)
    with pytest.raises(UserError, match=reason) as raised:
        imported(rollouts(tmp_path), rewards=tmp_path / "rewards.json")
    assert str(raised.value).startswith("--rewards ")
    assert "\n" not in str(raised.value)


def test_a_broken_line_of_a_second_file_is_named_without_an_option_that_would_not_help(tmp_path: Path) -> None:
    (tmp_path / "rewards.jsonl").write_text('{"rollout_id": "a", "reward": 1}\n{"rollout_id": "b", \n')
    with pytest.raises(UserError, match=r"rewards\.jsonl:2: ") as raised:
        imported(rollouts(tmp_path), rewards=tmp_path / "rewards.jsonl")
    assert "--strict" not in str(raised.value)


def test_names_that_other_projects_use_are_found_and_said(tmp_path: Path) -> None:
    rows = [
        {"instance_id": "t", "trial": number, "score": 1, "conversations": files.messages(number)}
        for number in range(2)
    ]
    found, report = imported(files.lines(tmp_path / "mine.jsonl", rows))
    assert set(found["group_id"].to_pylist()) == {"t"}
    assert report.notes == {"'score' is read as reward": 2}


@pytest.mark.parametrize("strict", [[], ["--strict"]])
def test_a_flaw_is_counted_and_with_strict_an_error(strict: list[str], tmp_path: Path) -> None:
    stray = {"role": "tool", "tool_call_id": "z", "content": "x"}
    row = {"group_id": "g", "rollout_id": "r", "reward": 1, "messages": [*files.messages(0), stray]}
    path = files.lines(tmp_path / "mine.jsonl", [row])
    done = turncredit("import", path, "--out", tmp_path / "out.parquet", *strict)
    assert done.returncode == (2 if strict else 0)
    assert "a tool's result without a call before it" in (done.stderr if strict else done.stdout)


REWARD = st.floats(-10, 10) | st.none()


@settings(max_examples=50, deadline=None)
@given(
    tasks=st.dictionaries(st.text("abc", min_size=1, max_size=2), st.lists(REWARD, min_size=1, max_size=4), min_size=1),
    once=st.booleans(),
)
def test_every_rollout_is_there_with_its_return_whatever_its_ids(
    tasks: dict[str, list[float | None]], once: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = [
        {"group_id": task, "rollout_id": trial, "reward": reward, "messages": files.messages(0)}
        for task, rewards in tasks.items()
        for trial, reward in enumerate(rewards)
    ]
    path = files.lines(tmp_path_factory.mktemp("any") / "mine.jsonl", rows)
    found, report = imported(path, reward_once=once)
    assert report.rollouts == len(rows)
    last = found.filter(pa.compute.equal(found["turn"], 1))
    assert last["reward"].to_pylist() == [row["reward"] for row in rows]
    assert len(set(zip(last["group_id"].to_pylist(), last["rollout_id"].to_pylist(), strict=True))) == len(rows)


def test_an_id_that_may_be_a_tasks_drops_no_rollout(tmp_path: Path) -> None:
    """`id` is read as the rollout's, for want of another; two rollouts of one task have it."""
    rows = [{"id": "t", "messages": files.messages(0), "reward": reward} for reward in (0, 1)]
    found, report = imported(files.lines(tmp_path / "mine.jsonl", rows))
    assert (report.rollouts, report.skipped) == (2, {})
    assert sorted(set(found["rollout_id"].to_pylist())) == ["t", "t/mine:2"]


def session(*lines: dict[str, Any]) -> list[dict[str, Any]]:
    """Records of Claude Code: two turns of a session, with these records between them."""
    said = [{"type": message["role"], "sessionId": "s", "message": message} for message in files.messages(0)]
    return [*said[:2], *lines, *said[2:]]


@pytest.mark.parametrize("first", [True, False])
def test_records_of_claude_code_that_name_no_session_do_not_cut_it_in_two(first: bool, tmp_path: Path) -> None:
    others = [
        {"type": "summary", "summary": "a title", "leafUuid": "u"},
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
    ]
    rows = [*others, *session()] if first else session(*others)
    found, report = imported(files.lines(tmp_path / "session.jsonl", rows))
    assert (found["rollout_id"].to_pylist(), found["turn"].to_pylist()) == (["s", "s"], [0, 1])
    assert report.skipped == {}
    assert report.records == len(rows)
    assert report.notes[transcript.NO_MESSAGE] == 2


def test_a_sub_agents_messages_are_no_turns_of_its_callers_session(tmp_path: Path) -> None:
    inner = [{**row, "isSidechain": True} for row in session()]
    found, report = imported(files.lines(tmp_path / "session.jsonl", session(*inner)))
    assert found["turn"].to_pylist() == [0, 1]
    assert report.notes[transcript.SIDECHAIN] == len(inner)
    alone, report = imported(files.lines(tmp_path / "agent.jsonl", inner))
    assert alone["turn"].to_pylist() == [0, 1]
    assert transcript.SIDECHAIN not in report.notes


def test_a_transcript_without_a_message_is_refused_for_that(tmp_path: Path) -> None:
    row = {"type": "summary", "summary": "a title", "leafUuid": "u"}
    with pytest.raises(UserError, match="no rollouts in it: no turn: the policy wrote no message"):
        imported(files.lines(tmp_path / "session.jsonl", [row]))


def test_records_that_are_the_parts_of_one_message_are_one_turn(tmp_path: Path) -> None:
    said = {"role": "assistant", "id": "m"}
    parts = [{"type": "text", "text": "ok"}, {"type": "tool_use", "id": "c", "name": "look", "input": {}}]
    rows = [{"type": "user", "message": {"role": "user", "content": "go"}}]
    rows += [{"type": "assistant", "message": {**said, "content": [part]}} for part in parts]
    found, _ = imported(files.lines(tmp_path / "session.jsonl", rows))
    assert found["response_text"].to_pylist() == ["ok\nlook {}"]
    assert found["rollout_id"].to_pylist() == ["session"]
