"""The decisive step of a failed log: what people say, and how judges, methods and rules are compared with it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.importers.test_public_files import ARCHIVE, missing
from turncredit.bridges import importers
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.judges.decisive import BASELINES, agreements, by_credits, by_labels, found_RK, read_logs, rows
from turncredit.judges.label import label_turns
from turncredit.judges.rubric import answer_schema, instructions, read_answer
from turncredit.judges.window import read_rollouts, render_logs

from .chat_server import ChatServer
from .test_cli import judge

AGENTS = ["Planner", "Coder", "Coder", "Checker"]
REPLIES = ["Planner: plan it\nexitcode: 0", "Coder: code it\nexitcode: 1 (failed)", "Coder: again", "Checker: fine"]


def logs_table(rollouts: int = 1, guilty: str = "Coder", step: int = 2, **columns) -> pa.Table:
    """Logs of four turns at the steps 0, 2, 3 and 5; the messages between them are the terminal's."""
    actions = ["plan it", "code it", "again", "fine"]
    made = [
        {
            "group_id": f"g{rollout}", "rollout_id": f"r{rollout}", "turn": turn, "reward": 0.0, "goal": "Count.",
            "observation": "Count.", "action": actions[turn], "next_observation": REPLIES[turn],
            "agent": AGENTS[turn], "step": [0, 2, 3, 5][turn], "mistake_agent": guilty, "mistake_step": step, **columns,
        }
        for rollout in range(rollouts)
        for turn in range(4)
    ]  # fmt: skip
    return pa.Table.from_pylist(made)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("a random turn", [1 / 2, 1 / 4, 2 / 4, 1, 1]),
        ("the first turn", [0, 0, 0, 1, 1]),
        ("the last turn", [0, 0, 0, 1, 1]),
        ("the first turn answered by an error", [1, 1, 1, 1, 1]),
        ("the longest turn", [1 / 2, 1 / 2, 1 / 2, 1, 1]),
    ],
)
def test_a_rule_is_scored_by_hand(rule, expected):
    """The decisive step is 2, of Coder; of the two longest turns (7 characters) one is the Planner's."""
    logs = read_logs(logs_table())
    assert found_RK(logs, BASELINES[rule](logs))[0] == pytest.approx(expected)


def test_of_several_turns_that_are_answered_by_an_error_the_first_is_named():
    logs = read_logs(logs_table(step=0, next_observation="Error: no such file"))
    assert found_RK(logs, BASELINES["the first turn answered by an error"](logs))[0] == pytest.approx([0, 1, 1, 1, 1])


def test_a_step_that_is_no_turn_cannot_be_found_exactly():
    logs = read_logs(logs_table(step=1))
    found = found_RK(logs, BASELINES["a random turn"](logs))[0]
    assert found[1] == 0
    assert found[2] == 1 / 2


@given(st.lists(st.integers(-2, 2), min_size=4, max_size=4), st.integers(0, 5))
def test_shares_are_chances_and_a_wider_distance_never_finds_less(scores, step):
    logs = read_logs(logs_table(step=step))
    found = found_RK(logs, np.array(scores, dtype=float))[0]
    assert ((found >= 0) & (found <= 1)).all()
    assert (np.diff(found[1:]) >= 0).all()
    assert found_RK(logs, 3 * np.array(scores) + 1.0)[0] == pytest.approx(found)


def test_rows_in_any_order_and_other_columns_change_nothing():
    table = logs_table(3)
    shuffled = table.take(pa.array([7, 2, 9, 0, 4, 11, 1, 3, 10, 8, 5, 6])).append_column("score", [[1.0] * 12])
    one, other = (read_logs(each) for each in (table, shuffled))
    for rule in BASELINES.values():
        assert (found_RK(one, rule(one)) == found_RK(other, rule(other))).all()


def test_a_judge_is_read_by_its_question_and_an_unanswered_log_counts_as_wrong():
    logs, keys = read_logs(logs_table()), logs_table().select(tables.KEYS)
    named = keys.append_column("score", [[0.0, 1.0, 0.0, 0.0]])
    assert found_RK(logs, by_labels(logs, named, "decisive_step"))[0] == pytest.approx([1] * 5)
    worst = keys.append_column("score", [[0.5, -1.0, None, 1.0]])
    assert found_RK(logs, by_labels(logs, worst, "progress"))[0] == pytest.approx([1] * 5)
    roles = keys.append_column("role", [["N", "R", "D", None]])
    assert found_RK(logs, by_labels(logs, roles, "role"))[0] == pytest.approx([1] * 5)
    silent = keys.append_column("score", pa.array([None] * 4, pa.float64()))
    assert found_RK(logs, by_labels(logs, silent, "decisive_step"))[0] == pytest.approx([0] * 5)
    blamed = keys.append_column("advantage", [[0.0, -2.0, 0.0, 1.0]])
    assert found_RK(logs, by_credits(logs, blamed))[0] == pytest.approx([1] * 5)


def test_intervals_hold_their_value_and_narrow_with_rollouts():
    few, many = (agreements(read_logs(logs_table(n)), {"x": np.tile([0.0, 1, 0, 0], n)})[0] for n in (4, 40))
    assert few.agent[0] == many.agent[0] == 1
    random = [
        agreements(logs, {"x": np.array(np.random.default_rng(1).random(logs.turns.n))})[0].step[0]
        for logs in (read_logs(logs_table(n)) for n in (8, 200))
    ]
    for value, low, high in random:
        assert low <= value <= high
    assert random[1][2] - random[1][1] < random[0][2] - random[0][1]
    assert rows([few])[0].keys() >= {"name", "rollouts", "agent", "step", "step_within_5_high"}


@pytest.mark.parametrize("gone", ["mistake_agent", "mistake_step", "agent", "step"])
def test_a_table_without_decisive_steps_is_refused_by_name(gone):
    with pytest.raises(UserError, match=rf"logs.parquet: no column '{gone}'.*who-and-when"):
        read_logs(logs_table().drop_columns(gone), "logs.parquet")


# ------------------------------------------------------------------------------------------------------ the question


def test_a_model_is_shown_the_whole_log_once_with_steps_and_agents_and_no_outcome(
    server: ChatServer, llm, tmp_path: Path
):
    server.behave = lambda handler, _number, _body: handler.say('{"evidence": "it failed", "step": 2}')
    labels = label_turns(logs_table(2), llm(), ask="decisive_step", cache=tmp_path)
    # Both logs are the same text: one request.
    assert len(server.requests) == 1
    system, user = (message["content"] for message in server.requests[0]["messages"])
    assert system == instructions("decisive_step")
    assert user.splitlines()[:6] == [
        "TASK", "Count.", "", "STEPS", "[0] Planner: plan it", "[0] came back: exitcode: 0",
    ]  # fmt: skip
    assert "mistake" not in user
    assert labels.column("score").to_pylist() == [0.0, 1.0, 0.0, 0.0] * 2
    assert labels.column("evidence").to_pylist() == ["it failed"] * 8
    assert sum(labels.column("tokens_in").to_pylist()[:1]) == 500
    assert labels.column("cached").to_pylist() == [False] + [True] * 7


def test_a_step_that_no_agent_wrote_is_no_answer(server: ChatServer, llm, tmp_path: Path):
    server.behave = lambda handler, _number, _body: handler.say('{"evidence": "x", "step": 4}')
    labels = label_turns(logs_table(), llm(max_missing=1.0), ask="decisive_step", cache=tmp_path)
    assert set(labels.column("reason").to_pylist()) == {"the answer names step 4, which no agent wrote"}
    assert labels.column("score").null_count == 4


def test_a_table_without_agents_has_the_numbers_of_its_turns():
    table = logs_table().drop_columns(["agent", "step"])
    (_, shown), *_ = render_logs(read_rollouts(table))
    assert shown.splitlines()[4:6] == ["[0] plan it", "[0] came back: Planner: plan it"]
    assert "[3] fine" in shown


@pytest.mark.parametrize(
    ("answer", "step"),
    [
        ('{"evidence": "x", "step": 3}', 3),
        ('Reasoning.\n{"step": "3"}', 3),
        ('{"step_number": [3]}', 3),
        ("3", 3),
        ('{"step": -1}', None),
        ('{"step": 2.5}', None),
        ('{"step": true}', None),
        ('{"step": 1} {"step": 2}', None),
        ("step three", None),
    ],
)
def test_an_answer_is_a_whole_number_or_none(answer, step):
    assert read_answer(answer, "decisive_step").score == step


def test_the_schema_asks_for_evidence_and_then_a_step():
    assert list(answer_schema("decisive_step")["properties"]) == ["evidence", "step"]


def test_the_rules_refuse_the_question(tmp_path: Path):
    pq.write_table(logs_table(env="household"), tmp_path / "t.parquet")
    with pytest.raises(UserError, match="the rule judge has no answer to 'decisive_step'; use an LLM judge"):
        judge("label", "--turns", tmp_path / "t.parquet", "--ask", "decisive_step", "--out", tmp_path / "l.parquet")


def test_from_logs_to_the_table_of_agreement(server: ChatServer, tmp_path: Path):
    """The commands of docs/decisive_steps.md, with a judge that always names step 2."""
    server.behave = lambda handler, _number, _body: handler.say('{"evidence": "x", "step": 2}')
    history = [
        {"role": "assistant", "name": agent, "content": f"turn {at}"} for at, agent in enumerate(["A", "B", "A", "B"])
    ]
    log = {"history": history, "question": "Count.", "question_ID": "q1", "mistake_agent": "A", "mistake_step": "2"}
    (tmp_path / "1.json").write_text(json.dumps({**log, "is_correct": False}))
    importers.run([tmp_path / "1.json"], tmp_path / "logs.parquet")
    where = ["--turns", tmp_path / "logs.parquet"]
    judge(
        "label", *where, "--judge", "llm", "--ask", "decisive_step", "--model", "tiny", "--base-url", server.url,
        "--cache", tmp_path / "cache", "--thinking", "off", "--out", tmp_path / "named.parquet",
    )  # fmt: skip
    said = judge("decisive", *where, "--labels", tmp_path / "named.parquet", "--csv", tmp_path / "table.csv")
    assert "the first turn answered by an error" in said
    table = pd.read_csv(tmp_path / "table.csv").set_index("name")
    assert table.loc[str(tmp_path / "named.parquet"), ["agent", "step"]].tolist() == [1, 1]
    assert table.loc["a random turn", ["agent", "step", "step_within_1"]].tolist() == [0.5, 0.25, 0.75]
    assert len(table) == len(BASELINES) + 1


@missing
@pytest.mark.parametrize(
    ("folder", "rule", "agent", "step"),
    [
        ("Algorithm-Generated", "a random turn", 0.477, 0.164),
        ("Algorithm-Generated", "the first turn answered by an error", 0.587, 0.350),
        ("Hand-Crafted", "the longest turn", 0.556, 0.222),
    ],
)
def test_golden_baselines_on_the_logs_of_who_and_when(
    folder: str, rule: str, agent: float, step: float, tmp_path: Path
):
    """benchmarks/whowhen/RESULTS.md: 76 of its 126 algorithm-generated logs, 36 of its 58 hand-crafted ones."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, [one for one in archive if folder in one.name], filter="data")
    importers.run([next(tmp_path.rglob(folder))], tmp_path / "logs.parquet")
    logs = read_logs(tables.read(tmp_path / "logs.parquet"))
    (found,) = agreements(logs, {rule: BASELINES[rule](logs)})
    assert (found.agent[0], found.step[0][0]) == pytest.approx((agent, step), abs=5e-4)
