"""Does an advantage tell actions of one state apart? On a table by hand (benchmarks/learned/within_states.py)."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.learned.within_states import histories, measures, several, true_shares
from turncredit.data.turns import Turns


@pytest.fixture
def turns():
    """Three rollouts of two turns in the same room: two have done the same before their second turns."""
    return Turns(
        {
            "group_id": ["g"] * 6,
            "rollout_id": ["x", "x", "y", "y", "z", "z"],
            "turn": [0, 1] * 3,
            "reward": [0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
            "observation": ["room", "door", "room", "door", "room", "door"],
            "action": ["go", "open", "go", "wait", "stay", "open"],
            "valid": [True, True, True, False, True, True],
        }
    )


def test_a_history_is_all_that_was_seen_and_done_before(turns):
    history_N = histories(turns)
    assert history_N[0] == history_N[2] == history_N[4]
    assert history_N[1] == history_N[3]  # after `go`
    assert history_N[5] not in history_N[:5]  # the same door, after `stay`
    assert several(turns, history_N).tolist() == [True, True, True, True, True, False]


def test_an_advantage_of_states_tells_no_actions_apart(turns):
    of_states = measures(turns, np.array([1.0, -1, 1, -1, 1, 0]))
    assert of_states["between actions"] == 0
    assert of_states["refused, same history"] == 0
    assert of_states["refused, all turns"] < 0
    assert of_states["turn"] < -0.8


def test_an_advantage_of_actions_does(turns):
    of_actions = measures(turns, np.array([0.0, 1, 0, -1, 0, 0]))
    assert of_actions["between actions"] == pytest.approx(2 / 5 / (2 / 6))  # of five turns with a choice, of all six
    assert of_actions["refused, same history"] == pytest.approx(-2 / np.sqrt(2 / 6))
    assert of_actions["outcome"] > 0


def test_the_true_q_lies_mostly_between_states_but_in_search_qa():
    shares = true_shares()
    searched = [shares.pop(f"searchqa_{when}") for when in ("early", "late")]
    assert {"household_1_early", "sokoban_late"} <= shares.keys()
    assert 0 < min(shares.values()) < max(shares.values()) < 0.5 < min(searched)
