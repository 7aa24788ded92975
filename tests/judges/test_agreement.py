"""Labels against gold labels."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turncredit.config.judge import JudgeConfig
from turncredit.errors import UserError
from turncredit.judges.agreement import calibration, cohen_kappa, compare
from turncredit.judges.label import label_turns
from turncredit.judges.rubric import ROLES


def labelled(roles: str, **columns: list) -> pa.Table:
    """One turn for each letter (`-` for a missing label); turns 0-3 are of rollout r0, the rest of r1."""
    return pa.table(
        {
            "group_id": ["g"] * len(roles),
            "rollout_id": ["r0" if at < 4 else "r1" for at in range(len(roles))],
            "turn": [at if at < 4 else at - 4 for at in range(len(roles))],
            "role": [None if role == "-" else role for role in roles],
            **columns,
        }
    )


GOLD = labelled("DERR" + "EENR", success=[True] * 4 + [False] * 4, evidence=[f"because {n}" for n in range(8)])


def test_a_case_worked_by_hand() -> None:
    found = compare(labelled("DRRR" + "EER-"), GOLD)
    assert (found.turns, found.missing, found.agreement) == (8, 1, 5 / 8)
    # Chance: judged D1 E2 N0 R4 -1, gold D1 E3 N1 R3 of 8 -> (1 + 6 + 0 + 12) / 64.
    expected = (1 + 6 + 0 + 12) / 64
    assert found.kappa == pytest.approx((5 / 8 - expected) / (1 - expected))
    assert found.confusion["E"] == {"D": 0, "E": 2, "N": 0, "R": 1, "-": 0}
    assert found.confusion["R"] == {"D": 0, "E": 0, "N": 0, "R": 2, "-": 1}
    cells = {(cell.role, cell.outcome): cell for cell in found.cells}
    assert cells["R", "success"][2:5] == (2, 3, 2)
    assert cells["R", "success"].f1 == pytest.approx(2 * 2 / 5)
    assert cells["E", "failure"].f1 == 1.0
    assert cells["D", "failure"].f1 is None  # nobody has it there
    assert cells["D", "success"].f1 == 1.0
    rows = found.disagreements.to_pylist()
    assert [(row["rollout_id"], row["turn"], row["gold"], row["judged"]) for row in rows] == [
        ("r0", 1, "E", "R"),
        ("r1", 2, "N", "R"),
        ("r1", 3, "R", None),
    ]
    assert rows[0]["gold_evidence"] == "because 1"
    assert rows[0]["outcome"] == "success"


def test_a_missing_label_shows_its_reason_among_the_disagreements() -> None:
    found = compare(labelled("-ERREENR", reason=["HTTP 500", *[None] * 7]), GOLD)
    assert found.disagreements.to_pylist()[0]["judged_evidence"] == "HTTP 500"


def test_the_outcome_can_come_from_the_turns() -> None:
    gold = GOLD.drop_columns("success")
    assert {cell.outcome for cell in compare(GOLD, gold).cells} == {"any"}
    turns = GOLD.select(["group_id", "rollout_id", "success"])
    assert compare(GOLD, gold, turns).cells == compare(GOLD, GOLD).cells


def test_a_rollout_that_tells_its_success_at_the_end_is_a_success() -> None:
    gold = GOLD.set_column(4, "success", pa.array([False, False, False, True] + [False] * 4))
    for rows in (range(8), range(7, -1, -1)):
        assert compare(GOLD, gold.take(pa.array(rows))).cells == compare(GOLD, GOLD).cells


def test_only_turns_that_both_have_are_compared() -> None:
    found = compare(labelled("DERR" + "EENR").slice(2, 3), GOLD)
    assert (found.turns, found.agreement) == (3, 1.0)


@pytest.mark.parametrize(
    ("labels", "gold", "message"),
    [
        (labelled("D"), labelled("D").set_column(0, "group_id", pa.array(["other"])), "no turn in common"),
        (labelled("D").drop_columns("role"), GOLD, "labels: the column 'role' is missing"),
        (labelled("Q"), GOLD, "'Q' is not a role; choose one of D, E, N, R"),
        (labelled("D"), labelled("-"), "gold labels: 1 turn without a role"),
        (pa.concat_tables([labelled("D"), labelled("E")]), GOLD, "turn 0 occurs more than once"),
        (labelled("D"), GOLD.set_column(4, "success", pa.array(["yes"] * 8)), "must be true or false, not string"),
        (labelled("D"), labelled("D").set_column(2, "turn", pa.nulls(1, pa.int64())), "'turn' has nulls"),
        (labelled("D"), labelled("D").set_column(2, "turn", pa.array([0.5])), "'turn' must hold whole numbers"),
        (labelled("D"), labelled("D").set_column(2, "turn", pa.array(["first"])), "'turn' must hold whole numbers"),
    ],
)
def test_what_cannot_be_compared_is_one_clear_line(labels: pa.Table, gold: pa.Table, message: str) -> None:
    with pytest.raises(UserError, match=message):
        compare(labels, gold)


def test_kappa_of_a_textbook_case() -> None:
    # Cohen's kappa, 50 cases: both yes 20, both no 15, 5 and 10 apart: p_o .7, p_e .5.
    first = ["y"] * 25 + ["n"] * 25
    second = ["y"] * 20 + ["n"] * 5 + ["y"] * 10 + ["n"] * 15
    assert cohen_kappa(first, second) == pytest.approx(0.4)


@given(st.lists(st.sampled_from(ROLES), min_size=2, max_size=40), st.randoms())
def test_kappa_is_one_for_equal_labels_and_the_same_from_both_sides(roles: list[str], random) -> None:
    other = roles[:]
    random.shuffle(other)
    assert cohen_kappa(roles, other) == cohen_kappa(other, roles)
    assert cohen_kappa(roles, roles) in (None, pytest.approx(1.0))
    assert (cohen_kappa(roles, roles) is None) is (len(set(roles)) == 1)


def test_the_calibration_set_is_whole_rollouts_of_both_outcomes_with_a_reason_for_each_label() -> None:
    gold = calibration()
    rows = gold.to_pylist()
    assert len(rows) >= 60
    assert all(row["role"] in ROLES and row["evidence"] for row in rows)
    for outcome in (True, False):
        assert {row["role"] for row in rows if row["success"] is outcome} == set(ROLES)
    lengths: dict[str, int] = {}
    for row in rows:
        assert row["turn"] == lengths.get(row["rollout_id"], 0)
        lengths[row["rollout_id"]] = row["turn"] + 1
    parts = {row["rollout_id"]: row["part"] for row in rows}
    assert set(parts.values()) == {"development", "held-out"}


def test_the_rule_judge_agrees_with_the_hand_labels_as_reported() -> None:
    """The numbers of docs/judges.md; a change of the rules must change them there."""
    gold = calibration()
    found = compare(label_turns(gold, JudgeConfig()), gold)
    assert (found.turns, found.disagreements.num_rows) == (357, 4)
    assert found.kappa == pytest.approx(0.9845, abs=5e-4)


def test_a_table_that_says_who_succeeded_needs_the_keys_of_rollouts() -> None:
    with pytest.raises(UserError, match="the table with 'success': the column 'group_id' is missing"):
        compare(GOLD, GOLD, pa.table({"success": [True]}))
