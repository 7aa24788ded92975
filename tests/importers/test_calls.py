"""Logs of single calls of a model: the last call of a rollout is the rollout, whatever form its response has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.importers import files
from turncredit.bridges import importers
from turncredit.bridges.importers import calls
from turncredit.bridges.importers.base import Options, Report
from turncredit.data import tables
from turncredit.errors import UserError

SAID = ("go to shelf", "take mug", "stop")
SEEN = ("You are in the hall.", "You see a mug.", "You hold a mug.")


def conversation(turns: int) -> list[dict[str, str]]:
    """The messages of the request before the response number `turns`."""
    messages = []
    for turn in range(turns + 1):
        messages.append({"role": "user", "content": SEEN[turn]})
        if turn < turns:
            messages.append({"role": "assistant", "content": SAID[turn]})
    return messages


def chat(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


RESPONSES = {
    "chat completions": chat,
    "responses": lambda text: {
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]
    },
    "anthropic": lambda text: {"role": "assistant", "content": [{"type": "text", "text": text}]},
    "ollama": lambda text: {"message": {"role": "assistant", "content": text}},
    "gemini": lambda text: {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}]},
    "text": lambda text: text,
}


def log(form: Any = chat, rollouts: tuple[str, ...] = ("a", "b")) -> list[dict[str, Any]]:
    """Three calls of each rollout, in turns."""
    return [
        {"trace": {"id": one}, "request": {"messages": conversation(turn)}, "response": form(SAID[turn]), "score": 1.0}
        for turn in range(3)
        for one in rollouts
    ]


def imported(records: list[dict[str, Any]], folder: Path, **options: Any) -> tuple[list[dict[str, Any]], Report]:
    source = files.lines(folder / "calls.jsonl", records)
    report = importers.run([source], folder / "turns.parquet", options=Options(**options))
    return tables.read(folder / "turns.parquet").to_pylist(), report


@pytest.mark.parametrize("form", RESPONSES.values(), ids=RESPONSES)
def test_calls_of_a_rollout_become_its_turns_in_order(form: Any, tmp_path: Path) -> None:
    rows, report = imported(log(form), tmp_path, join="trace.id")
    assert [(row["rollout_id"], row["turn"]) for row in rows] == [(one, turn) for one in "ab" for turn in range(3)]
    assert [row["action"] for row in rows[:3]] == list(SAID)
    assert [row["observation"] for row in rows[:3]] == list(SEEN)
    assert [row["reward"] for row in rows[:3]] == [0.0, 0.0, 1.0]
    assert (report.records, report.rollouts, report.flaws, report.skipped) == (6, 2, {}, {})


def test_calls_of_a_rollout_may_be_in_several_files_as_logs_are_rotated(tmp_path: Path) -> None:
    records = log()
    sources = [files.lines(tmp_path / f"calls.{n}.jsonl", part) for n, part in enumerate((records[:4], records[4:]))]
    options = Options(join="trace.id")
    report = importers.run(sources, tmp_path / "turns.parquet", options=options)
    rows = tables.read(tmp_path / "turns.parquet").to_pylist()
    assert [(row["rollout_id"], row["action"]) for row in rows] == [(one, said) for one in "ab" for said in SAID]
    assert (report.records, report.flaws, report.skipped) == (6, {}, {})


@pytest.mark.parametrize("own", [None, "the same for all"])
def test_a_rollout_is_named_by_the_field_of_join_whatever_rollout_id_its_calls_have(own: Any, tmp_path: Path) -> None:
    rows, report = imported([{**one, "rollout_id": own} for one in log()], tmp_path, join="trace.id")
    assert [row["rollout_id"] for row in rows] == [*"aaabbb"]
    assert report.skipped == {}


def test_map_names_the_request_and_the_response_where_they_have_other_names(tmp_path: Path) -> None:
    records = [{"trace": one["trace"], "in": one["request"], "out": {"raw": one["response"]}} for one in log()]
    rows, _ = imported(records, tmp_path, join="trace.id", mapping={"messages": "in.messages", "response": "out.raw"})
    assert [row["action"] for row in rows[:3]] == list(SAID)


def test_a_rollout_whose_last_request_lacks_calls_before_it_is_a_flaw(tmp_path: Path) -> None:
    records = log(rollouts=("a",))
    records[-1]["request"]["messages"] = records[-1]["request"]["messages"][-1:]  # a context that was rebuilt
    _, report = imported(records, tmp_path, join="trace.id")
    assert report.flaws == {calls.NOT_WHOLE: (1, f"{tmp_path / 'calls.jsonl'}:3: 3 calls")}


def test_a_call_without_an_id_or_without_a_response_is_skipped(tmp_path: Path) -> None:
    records = [*log(), {"request": {"messages": conversation(0)}}, {"trace": {"id": "c"}, "response": chat("look")}]
    rows, report = imported(records, tmp_path, join="trace.id")
    assert {row["rollout_id"] for row in rows} == {"a", "b"}
    assert set(report.skipped) == {calls.NO_ID, calls.NO_MESSAGES}
    assert report.records == len(records)


def test_records_that_look_like_calls_are_warned_of_without_join(tmp_path: Path) -> None:
    records = [
        {"id": number, "messages": conversation(2), "response": chat("stop"), "reward": 1.0} for number in range(2)
    ]
    _, report = imported(records, tmp_path)
    assert report.warnings[calls.A_CALL] == 2
    assert not imported([{**one, "response": "text"} for one in records], tmp_path)[1].warnings.get(calls.A_CALL)


def test_join_with_another_format_is_refused_in_one_line(tmp_path: Path) -> None:
    source = tmp_path / "calls.jsonl"
    source.write_text(json.dumps(log()[0]) + "\n")
    with pytest.raises(UserError, match=r"^--join reads calls of a model as jsonl; remove --from trl$"):
        importers.run([source], tmp_path / "turns.parquet", "trl", options=Options(join="trace.id"))
