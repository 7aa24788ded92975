"""What a tool call is to credit: the action, the observation, and states that must not become one anchor."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import turncredit
from tests.importers import files
from turncredit import credit
from turncredit.bridges import importers
from turncredit.bridges.importers import table
from turncredit.bridges.importers.actions import CONVENTIONS, expression
from turncredit.bridges.importers.base import Options, Report
from turncredit.bridges.importers.templates import TEMPLATES, template_of
from turncredit.data import tables
from turncredit.errors import UserError


def imported(path: Path, **options: Any) -> tuple[list[dict[str, Any]], Report]:
    out = path.parent / "out.parquet"
    report = importers.run([path], out, options=Options(**options))
    return tables.read(out).to_pylist(), report


def calling(path: Path, *, text: str = "") -> Path:
    """Two rollouts that write different things, in two calls each, to which the answer is always `{"ok": true}`."""
    rows = []
    for number in range(2):
        said: list[dict[str, Any]] = [{"role": "user", "content": "tidy up"}]
        for turn in range(2):
            call = {"id": f"c{turn}", "function": {"name": "write", "arguments": {"row": f"{number}.{turn}"}}}
            said.append({"role": "assistant", "content": text, "tool_calls": [call]})
            said.append({"role": "tool", "tool_call_id": f"c{turn}", "content": '{"ok": true}'})
        said.append({"role": "assistant", "content": "done"})
        rows.append({"group_id": "g", "rollout_id": number, "reward": 1 - number, "messages": said})
    return files.lines(path / "mine.jsonl", rows)


def anchors(path: Path) -> list[int]:
    out = credit(tables.read(path.parent / "out.parquet"), "gigpo")
    return out["anchor_size"].to_pylist()


def test_equal_results_after_different_calls_are_different_states(tmp_path: Path) -> None:
    path = calling(tmp_path)
    rows, report = imported(path)
    assert [row["action"] for row in rows[:3]] == ['write {"row": "0.0"}', 'write {"row": "0.1"}', "done"]
    assert rows[1]["observation"].startswith("[history ")
    assert rows[1]["observation"].endswith('{"ok": true}')
    assert rows[0]["observation"] == "tidy up"
    assert anchors(path) == [2, 1, 1, 2, 1, 1]
    assert report.warnings == {}


def as_verifiers(row: dict[str, Any], number: int) -> dict[str, Any]:
    """A conversation as an episode of verifiers, which has a node for each message."""
    nodes = [
        {"parent": place - 1 if place else None, "message": message, "sampled": message["role"] == "assistant"}
        for place, message in enumerate(row["messages"])
    ]
    trace = {"version": 1, "id": f"t{number}", "nodes": nodes, "rewards": {"solved": row["reward"]}}
    return {"id": f"e{number}", "task": {"key": "t"}, "group": {"id": "g"}, "traces": [trace]}


def as_rllm(row: dict[str, Any], number: int) -> dict[str, Any]:
    """A conversation as an episode of rLLM, whose steps hold what was asked and answered until then."""
    steps = [
        {"observation": None, "action": None, "model_response": message["content"], "reward": 0.0}
        | {"chat_completions": row["messages"][: place + 1]}
        for place, message in enumerate(row["messages"])
        if message["role"] == "assistant"
    ]
    trajectory = {"name": "agent", "uid": f"t{number}", "reward": row["reward"], "steps": steps}
    ids = {"training_step": 1, "task_hash": "t", "episode_id": f"t:{number}", "termination_reason": "env_done"}
    return {**ids, "trajectories": [trajectory]}


@pytest.mark.parametrize("write", [as_verifiers, as_rllm])
@pytest.mark.parametrize("shows", ["auto", "messages", "calls", "history"])
def test_calls_of_every_format_are_told_apart_as_in_a_chat(write: Any, shows: str, tmp_path: Path) -> None:
    path = calling(tmp_path)
    chats, _ = imported(path, observation=shows)
    written = [write(json.loads(line), number) for number, line in enumerate(path.read_text().splitlines())]
    rows, report = imported(files.lines(tmp_path / "other.jsonl", written), observation=shows)
    names = ("turn", "reward", "observation", "action", "response_text", "next_observation")
    assert [[row[name] for name in names] for row in rows] == [[chat[name] for name in names] for chat in chats]
    assert report.skipped == {}
    assert list(report.warnings) == ([table.ANCHORS] if shows == "messages" else [])


def test_equal_histories_are_one_state_whatever_was_thought(tmp_path: Path) -> None:
    path = calling(tmp_path)
    path.write_text(path.read_text().replace('"1.0"', '"0.0"').replace('"content": "", ', '"content": "x", ', 1))
    imported(path)
    assert anchors(path) == [2, 2, 1, 2, 2, 1]


def test_messages_alone_merge_them_and_a_warning_says_so(tmp_path: Path) -> None:
    path = calling(tmp_path)
    rows, report = imported(path, observation="messages")
    assert rows[1]["observation"] == '{"ok": true}'
    assert report.warnings == {table.ANCHORS: 1}
    assert anchors(path) == [2, 4, 4, 2, 4, 4]


def test_calls_tell_apart_what_was_answered(tmp_path: Path) -> None:
    rows, _ = imported(calling(tmp_path), observation="calls")
    assert rows[1]["observation"] == 'write {"row": "0.0"}\n{"ok": true}'


def test_a_reply_has_no_digest_of_the_history_so_that_rules_recognise_what_was_refused(tmp_path: Path) -> None:
    replies = ["Nothing happens.", "You open the drawer 1.", "Nothing happens."]
    said: list[dict[str, Any]] = [{"role": "user", "content": "tidy up"}]
    for number, reply in enumerate(replies):
        call = {"id": f"c{number}", "function": {"name": "act", "arguments": {"row": number}}}
        said.append({"role": "assistant", "content": "", "tool_calls": [call]})
        said.append({"role": "tool", "tool_call_id": f"c{number}", "content": reply})
    path = files.lines(tmp_path / "mine.jsonl", [{"group_id": "g", "rollout_id": 0, "reward": 1, "messages": said}])
    rows, _ = imported(path)
    assert [row["next_observation"] for row in rows] == replies
    assert [row["observation"].partition("\n")[2] for row in rows[1:]] == replies[:-1]
    made = credit(tables.read(tmp_path / "out.parquet"), "mgr_no_critic")
    assert np.sign(made["validity"].to_numpy()).tolist() == [-1, 1, -1]


def test_a_history_is_shown_for_text_too_if_it_is_asked_for(tmp_path: Path) -> None:
    row = {"group_id": "g", "rollout_id": "r", "reward": 1, "messages": files.messages(0)}
    path = files.lines(tmp_path / "mine.jsonl", [row])
    assert imported(path)[0][1]["observation"] == "you see a key"
    assert imported(path, observation="history")[0][1]["observation"].startswith("[history ")


RESPONSES = {
    "between <action> and </action>": "<think>hm</think>\n<action> go to A </action>",
    "after `Action:`": "Thought: hm\nAction: go to A",
    "after `> `": "I should move.\n> go to A",
    "in the block of a shell": "I move.\n```bash\ngo to A\n```",
}


def test_there_is_a_response_for_each_convention() -> None:
    assert set(RESPONSES) == set(CONVENTIONS)


def talks(path: Path, *responses: str) -> Path:
    said = [
        message
        for number, text in enumerate(responses)
        for message in ({"role": "user", "content": f"o{number}"}, {"role": "assistant", "content": text})
    ]
    return files.lines(path / "mine.jsonl", [{"group_id": "g", "rollout_id": "r", "reward": 1, "messages": said}])


@pytest.mark.parametrize("convention", sorted(RESPONSES))
def test_an_action_within_a_response_is_found_where_all_responses_have_it(convention: str, tmp_path: Path) -> None:
    rows, report = imported(talks(tmp_path, *[RESPONSES[convention]] * 3))
    assert [row["action"] for row in rows] == ["go to A"] * 3
    assert f"every response has its action {convention}: that is the action" in report.notes
    rows, report = imported(talks(tmp_path, RESPONSES[convention], "I give up.", RESPONSES[convention]))
    whole = RESPONSES[convention].removeprefix("<think>hm</think>\n")
    assert [row["action"] for row in rows] == [whole, "I give up.", whole]
    assert not any("every response" in note for note in report.notes)


@pytest.mark.parametrize(
    ("response", "action"),
    [
        ("<think>\nhm\n</think>\n\ngo", "go"),
        (" <thinking>hm</thinking>go\nto A ", "go\nto A "),
        ("<reasoning>hm</reasoning> <think></think> go", "go"),
        ("hm, or <b>\n</think>\ngo", "go"),
        ("go <think>hm</think> on", "go <think>hm</think> on"),
        ("```python\nx = '</think>'\n```", "```python\nx = '</think>'\n```"),
    ],
)
def test_a_thought_before_the_action_is_no_part_of_it(response: str, action: str, tmp_path: Path) -> None:
    turn = {"group_id": "g", "rollout_id": "r", "turn": 0, "reward": 1, "response_text": response}
    for path in (talks(tmp_path, response), files.lines(tmp_path / "turns.jsonl", [turn])):
        rows, report = imported(path)
        assert (rows[0]["action"], rows[0]["response_text"]) == (action, response)
        assert report.notes.get(table.THOUGHTS, 0) == (action != response)


def test_a_call_within_a_thought_is_none(tmp_path: Path) -> None:
    stay, go = (f'<tool_call>{{"name": "{name}"}}</tool_call>' for name in ("stay", "go"))
    rows, report = imported(talks(tmp_path, f"<think>{stay}</think>{go}"))
    assert rows[0]["action"] == "go {}"
    assert report.notes == {}


def test_a_thought_that_does_not_end_is_the_action_and_noted(tmp_path: Path) -> None:
    rows, report = imported(talks(tmp_path, "<think>hm go"))
    assert rows[0]["action"] == "<think>hm go"
    assert report.notes == {table.ENDLESS: 1}


#: what is written around an action, with a thought of the rollout's own; and what the user says of it
AROUND = {
    "nothing": ("{action}", None),
    "a thought": ("<think>{thought}</think>\n{action}", None),
    "a convention": ("Thought: {thought}\nAction: {action}", None),
    "a place that the user names": ("{thought} DO {action}", expression("DO (.*)", None)),
}


def rollouts_around(path: Path, text: str, *actions: tuple[str, str]) -> Path:
    """Two rollouts with these actions, with `text` around each."""
    path.mkdir()
    rows = []
    for number, chosen in enumerate(zip(*actions, strict=True)):
        said = talks(path, *[text.format(thought=f"i{number}", action=action) for action in chosen])
        rows.append(json.loads(said.read_text()) | {"rollout_id": number})
    return files.lines(path / "mine.jsonl", rows)


@pytest.mark.parametrize("around", sorted(AROUND))
def test_a_history_that_is_shown_is_of_results_and_actions_alone(around: str, tmp_path: Path) -> None:
    actions = (("a", "a"), ("b", "b"), ("c0", "c1"), ("d", "d"))
    text, pattern = AROUND[around]
    found, _ = imported(rollouts_around(tmp_path / "1", text, *actions), observation="history", action=pattern)
    plain_path = rollouts_around(tmp_path / "2", "{action}", *actions)
    plain, _ = imported(plain_path, observation="history")
    assert [row["observation"] for row in found] == [row["observation"] for row in plain]
    assert anchors(plain_path) == [2, 2, 2, 1, 2, 2, 2, 1]


@pytest.mark.parametrize("around", sorted(AROUND))
def test_the_warning_of_different_histories_is_of_different_actions_alone(around: str, tmp_path: Path) -> None:
    text, pattern = AROUND[around]
    for folder, first, warnings in (("1", ("a", "a"), {}), ("2", ("a", "b"), {table.ANCHORS: 1})):
        _, report = imported(rollouts_around(tmp_path / folder, text, first, ("c", "c")), action=pattern)
        assert report.warnings == warnings


def test_an_action_of_react_has_its_input(tmp_path: Path) -> None:
    rows, _ = imported(talks(tmp_path, "Thought: hm\nAction 1: search\nAction Input 1: Oslo"))
    assert rows[0]["action"] == "search Oslo"


@pytest.mark.parametrize(
    ("pattern", "tag", "action"),
    [(r"^DO (.*)$", None, "go"), (r"DO \w+", None, "DO go"), (None, "act", "look"), (None, "<act>", "look")],
)
def test_the_user_may_say_where_the_action_is(
    pattern: str | None, tag: str | None, action: str, tmp_path: Path
) -> None:
    rows, _ = imported(talks(tmp_path, "hm\nDO wait\nDO go\n<act>look</act>"), action=expression(pattern, tag))
    assert rows[0]["action"] == action


def test_a_response_without_the_action_that_was_named_is_noted_and_stays(tmp_path: Path) -> None:
    rows, report = imported(talks(tmp_path, "<act>look</act>", "hm"), action=expression(None, "act"))
    assert [row["action"] for row in rows] == ["look", "hm"]
    assert report.notes["no action was found in a response, all of which is the action"] == 1


def test_an_expression_that_is_none_is_one_line() -> None:
    with pytest.raises(UserError, match=r"--action \(: not a regular expression"):
        expression("(", None)
    with pytest.raises(UserError, match="give one"):
        expression("x", "y")


#: what a template makes of: `go to A`, then the environment's `you see a key`, then `take key`
MARKED = {
    "chatml": "go to A<|im_end|>\n<|im_start|>user\nyou see a key<|im_end|>\n<|im_start|>assistant\ntake key<|im_end|>",
    "llama3": "go to A<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nyou see a key<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\ntake key<|eot_id|>",
    "gemma": "go to A<end_of_turn>\n<start_of_turn>user\nyou see a key<end_of_turn>\n"
    "<start_of_turn>model\ntake key<end_of_turn>",
    "glm": "go to A<|observation|>\nyou see a key<|assistant|>\ntake key<|user|>",
    "deepseek": "go to A<｜end▁of▁sentence｜><｜User｜>you see a key<｜Assistant｜>take key<｜end▁of▁sentence｜>",
    "mistral": "go to A</s>[INST] you see a key[/INST] take key</s>",
    "harmony": "<|channel|>final<|message|>go to A<|return|><|start|>user<|message|>you see a key<|end|>"
    "<|start|>assistant<|channel|>final<|message|>take key<|return|>",
    "search-r1": "<search>go to A</search>\n<information>you see a key</information>\n<answer>take key</answer>",
    "roles": "go to A\nuser\nyou see a key\nassistant\ntake key",
}


def test_there_is_a_text_for_each_template() -> None:
    assert set(MARKED) == set(TEMPLATES)


@pytest.mark.parametrize("name", sorted(MARKED))
def test_a_dump_of_verl_is_cut_into_turns_at_the_markers_of_its_template(name: str, tmp_path: Path) -> None:
    text = MARKED[name]
    assert template_of(text).name == name
    path = files.lines(tmp_path / "3.jsonl", [{"input": "task", "output": text, "score": 1.0, "step": 3}])
    report = importers.run([path], tmp_path / "out.parquet", "verl", strict=True)
    first, second = tables.read(tmp_path / "out.parquet").to_pylist()
    assert "go to A" in first["response_text"]
    assert "you see a key" in second["observation"]
    assert "take key" in second["response_text"]
    assert "take key" not in second["observation"]
    assert not any(marker in first["response_text"] for marker in ("<|", "<｜", "of_turn", "INST", "</s>"))
    assert sum(report.notes.values()) >= 1


def test_a_template_may_be_named(tmp_path: Path) -> None:
    path = files.lines(tmp_path / "3.jsonl", [{"input": "task", "output": MARKED["roles"], "score": 1.0}])
    rows, _ = [], importers.run([path], tmp_path / "out.parquet", "verl", options=Options(template="chatml"))
    rows = tables.read(tmp_path / "out.parquet").to_pylist()
    assert len(rows) == 1
    with pytest.raises(UserError, match=r"--template chatm: unknown template \(did you mean 'chatml'\?\)"):
        importers.run([path], tmp_path / "out.parquet", "verl", options=Options(template="chatm"))


def test_a_look_shows_the_structure_three_turns_and_a_mapping_and_writes_nothing(tmp_path: Path) -> None:
    rows = [
        {"meta": {"trial": 1}, "score": 2, "log": files.messages(0)},
        {"meta": {"trial": 2}, "log": files.messages(1)},
    ]
    path = files.lines(tmp_path / "mine.jsonl", rows)
    done = turncredit("import", path, "--look")
    assert done.returncode == 0
    assert "log: list of 5, of which the first is object of 2" in done.stdout
    command = f"start from: turncredit import {path} --map messages=log --map rollout_id=meta.trial --map reward=score"
    assert command in done.stdout
    shown = turncredit("import", path, "--look", "--map", "messages=log").stdout
    assert shown.count("observation") == 3 + shown.count("next_observation")
    assert "go to A" in shown
    assert list(tmp_path.iterdir()) == [path]


def test_a_look_at_an_unknown_format_guesses_a_mapping_shows_its_turns_and_the_command_makes_them(
    tmp_path: Path,
) -> None:
    """Attempts begin anew with each task, so a rollout's id has both."""
    rows = [
        {"task": task, "attempt": attempt, "score": attempt, "log": files.messages(attempt)}
        for task in ("a", "b")
        for attempt in (0, 1)
    ]
    path = files.lines(tmp_path / "mine.jsonl", rows)
    shown = turncredit("import", path, "--look").stdout.splitlines()
    assert "format: unknown; with the command below the first turns as they would come out:" in shown
    assert any("go to A" in line for line in shown)
    command = shown[-1].removeprefix("start from: turncredit ")
    assert command.endswith(
        "--map messages=log --map group_id=task --map rollout_id=task,attempt --map reward=score --out turns.parquet"
    )
    done = turncredit(*shlex.split(command), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    made = tables.read(tmp_path / "turns.parquet")
    assert sorted(set(made["rollout_id"].to_pylist())) == ["a/0", "a/1", "b/0", "b/1"]


@pytest.mark.parametrize("name", sorted(files.WRITERS))
def test_every_format_can_be_looked_at(name: str, tmp_path: Path) -> None:
    path = files.WRITERS[name](tmp_path)
    done = turncredit("import", path, "--look", "--from", name)
    assert done.returncode == 0, done.stderr
    assert f"format: {name}; the first turns as they would come out" in done.stdout


def test_the_command_to_start_from_has_all_that_was_given_and_works_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "my runs"
    folder.mkdir()
    for number in range(2):
        row = {"who": number, "messages": files.messages(number), "reward": 1.0, "group_id": "g"}
        files.lines(folder / f"{number}.jsonl", [row])
    words = ["--from", "jsonl", "--map", "rollout_id=who", "--observation", "history", "--action-tag", "act"]
    shown = turncredit("import", folder, "--look", *words).stdout
    command = next(line for line in shown.splitlines() if line.startswith("start from: ")).removeprefix("start from: ")
    program, *again = shlex.split(command)
    assert program == "turncredit"
    done = turncredit(*again, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    made_by = tables.metadata(tmp_path / "turns.parquet")
    assert made_by["config"] == {
        "from": "jsonl",
        "map": {"rollout_id": "who"},
        "observation": "history",
        "action": r"(?s)<act>\s*(.*?)\s*</act>",
    }
    assert tables.read(tmp_path / "turns.parquet")["rollout_id"].to_pylist() == ["0", "0", "1", "1"]


def test_a_look_at_the_standard_input_names_it_as_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"group_id": "g", "rollout_id": "r", "messages": files.messages(0)}
    text = io.TextIOWrapper(io.BytesIO(json.dumps(row).encode()), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", text)
    shown = turncredit("import", "-", "--look").stdout.splitlines()
    assert shown[0] == "stdin"
    assert "start from: turncredit import - --map reward=FIELD --out turns.parquet" in shown
    assert any(line.startswith("note: no reward, so no method can credit the rollout") for line in shown)


def test_a_look_finds_a_final_score_and_the_number_of_a_sample(tmp_path: Path) -> None:
    rows = [
        {"task": "a", "sample": sample, "final_score": sample, "messages": files.messages(sample)} for sample in (0, 1)
    ]
    path = files.lines(tmp_path / "mine.jsonl", rows)
    shown = turncredit("import", path, "--look").stdout
    assert "--map group_id=task --map rollout_id=task,sample --map reward=final_score --out" in shown
    assert "no reward" not in shown
    texts = files.lines(tmp_path / "texts.jsonl", [{**row, "sample": {"text": "x"}} for row in rows])
    assert "--map rollout_id" not in turncredit("import", texts, "--look").stdout


def test_the_turns_of_a_look_are_those_of_the_suggested_command_also_where_the_format_is_known(tmp_path: Path) -> None:
    rows = [{"meta": {"trial": 7}, "outcome": {"score": 2.0}, "history": files.messages(0)}]
    shown = turncredit("import", files.lines(tmp_path / "mine.jsonl", rows), "--look").stdout
    assert "format: jsonl; the first turns as they would come out:" in shown
    assert "--map messages=history --map rollout_id=meta.trial --map reward=outcome.score --out" in shown
    assert ", rollout 7 (2 turns)" in shown
    assert "    reward            2.0" in shown
    assert "no reward" not in shown
    assert "no rollout id" not in shown


def test_a_look_does_not_suggest_to_read_a_turn_as_messages_nor_messages_as_a_turn(tmp_path: Path) -> None:
    ids = {"group_id": "g", "rollout_id": "r", "reward": 1.0}
    turn = files.lines(tmp_path / "turn.jsonl", [{**ids, "turn": 0, "prompt": files.messages(0), "action": "go"}])
    whole = files.lines(tmp_path / "whole.jsonl", [{**ids, "meta": {"turn": 3}, "messages": files.messages(0)}])
    for path in (turn, whole):
        shown = turncredit("import", path, "--look").stdout
        assert "--map" not in shown
        assert "skipped" not in shown
        assert "go" in shown


def test_a_look_knows_of_a_file_of_rewards_and_of_a_reward_on_the_last_turn_alone(tmp_path: Path) -> None:
    talk = files.lines(tmp_path / "talk.jsonl", [{"group_id": "g", "rollout_id": "r", "messages": files.messages(0)}])
    rewards = files.lines(tmp_path / "rewards.jsonl", [{"rollout_id": "r", "reward": 1}])
    shown = turncredit("import", talk, "--look", "--rewards", rewards).stdout
    assert f"--rewards {rewards} --out" in shown
    assert "reward=FIELD" not in shown
    rows = [{"group_id": "g", "rollout_id": "r", "turn": turn, "action": "go"} for turn in range(5)]
    late = files.lines(tmp_path / "late.jsonl", [*rows[:4], {**rows[4], "reward": 1.0}])
    assert "reward=FIELD" not in turncredit("import", late, "--look").stdout
    never = files.lines(tmp_path / "never.jsonl", rows)
    assert "reward=FIELD" in turncredit("import", never, "--look").stdout


def test_a_look_at_what_holds_no_rollouts_says_what_it_is(tmp_path: Path) -> None:
    path = files.lines(tmp_path / "tasks.jsonl", [{"question": "1+1", "answer": "2"}])
    done = turncredit("import", path, "--look")
    assert "tasks, not rollouts" in done.stdout
    assert "start from" not in done.stdout


def test_a_look_at_records_that_are_turns_names_each_rollout_once(tmp_path: Path) -> None:
    rows = [{"group_id": "g", "rollout_id": "r", "turn": turn, "action": "go", "reward": 0.0} for turn in range(3)]
    shown = turncredit("import", files.lines(tmp_path / "mine.jsonl", rows), "--look").stdout
    assert [line for line in shown.splitlines() if "rollout r" in line] == ["  group g, rollout r"]
    assert shown.count("    action ") == 3


def test_counts_have_a_unit_that_agrees_with_the_number() -> None:
    report = Report(files=1, records=1, rollouts=1, turns=2, warnings={"equal": 6})
    report.note("no group")
    assert report.lines() == [
        "read 1 file, 1 record: 1 rollout, 2 turns",
        "note: no group (1 rollout)",
        "warning: equal (6 times)",
    ]


def test_one_turn_of_one_rollout_is_written_in_the_singular_by_each_command(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "go"}]
    row = {"group_id": "g", "rollout_id": "r", "reward": 1.0, "messages": talk}
    made = turncredit("import", files.lines(tmp_path / "one.jsonl", [row]), "--out", "t.parquet", cwd=tmp_path)
    assert made.stdout.splitlines()[-1] == "t.parquet: 1 turn of 1 rollout from jsonl"
    assert "(1 turn)" in turncredit("import", tmp_path / "one.jsonl", "--look").stdout
    out = turncredit("export", "t.parquet", "--to", "openai", "--out", "out.jsonl", cwd=tmp_path)
    assert out.stdout == "out.jsonl: 1 turn of 1 rollout as openai\n"
    credit = ["credit", "--method", "flat_grpo", "--turns", "t.parquet", "--out", "c.parquet"]
    assert turncredit(*credit, cwd=tmp_path).stdout.startswith("c.parquet: 1 turn credited with flat_grpo")
    assert "\n1 turn\n" in turncredit("show", "t.parquet", "r", cwd=tmp_path).stdout


def test_a_table_is_written_only_where_a_path_is_given(tmp_path: Path) -> None:
    done = turncredit("import", calling(tmp_path))
    assert (done.returncode, "--out is missing" in done.stderr) == (2, True)
