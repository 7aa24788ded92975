"""What MGR, HIPIF and SCPO take for a failed action: the columns of the turns, or what the replies say."""

from __future__ import annotations

import pytest

from tests.credit.tables import numbers, table
from turncredit.credit import compute, resolve
from turncredit.credit.parts.failed_turns import failed_N
from turncredit.data.turns import Turns

REPLIES = ["Nothing happens.", "You are not carrying anything.", "You open the drawer 1.", " "]
MADE = table({"g": [[0, 0, 0, 1]]}, action=list("abcd"), next_observation=REPLIES)


@pytest.mark.parametrize("env", [None, "household", "alfworld", "a_world_of_its_own"])
@pytest.mark.parametrize(
    ("column", "method", "expected"),
    [
        ("error_reply", "mgr", [True, True, False, True]),
        ("failed", "scpo", [True, False, False, True]),
    ],
)
def test_without_the_columns_the_replies_tell_by_the_rule_of_environment_or_paper(env, column, method, expected):
    turns = Turns(MADE if env is None else {**MADE, "env": [env] * 4})
    assert failed_N(turns, column, method).tolist() == expected


def test_an_unknown_environment_is_read_with_the_papers_own_patterns():
    other = {**MADE, "next_observation": ["Traceback: x", "No known action matches that input.", "fine", "fine"]}
    assert failed_N(Turns({**other, "env": ["mine"] * 4}), "error_reply", "mgr").tolist() == [True, False, False, False]
    assert failed_N(Turns({**other, "env": ["mine"] * 4}), "failed", "hipif").tolist() == [False, True, False, False]


def test_the_recorded_column_decides_whatever_the_reply_says_and_a_null_asks_the_reply():
    recorded = {**MADE, "env": ["household"] * 4, "error_reply": [False, None, True, None]}
    assert failed_N(Turns(recorded), "error_reply", "mgr").tolist() == [False, True, True, True]
    made = compute(recorded, resolve("mgr_no_critic"))
    assert numbers(made, "validity").tolist() == [1, -1, -1, -1]


def test_the_column_follows_its_rows_whatever_their_order():
    recorded = {**MADE, "failed": [True, None, False, None]}
    shuffled = {name: [values[row] for row in (3, 1, 0, 2)] for name, values in recorded.items()}
    assert failed_N(Turns(shuffled), "failed", "scpo").tolist() == [True, False, False, True]
