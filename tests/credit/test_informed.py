"""The household's reference that knows no more than the player, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.methods.informed import Memory, informed_progress, searches
from turncredit.data.turns import Turns

ROOM = "Looking quickly around you, you see a cabinet 1, a countertop 1, a drawer 1, a sidetable 1, and a sinkbasin 1."


@pytest.mark.parametrize(
    ("goal", "search"),
    [
        # a fork is in a countertop, a drawer (two commands), a sidetable or a sinkbasin: 5 x 3/4 x 1/2
        ("put a clean fork in drawer.", 1.875),
        # two of the four places: 5 x 2/4 x 2/3
        ("put two fork in drawer.", 5 / 3),
        # a lamp stands on the sidetable, a pencil in all but the cabinet and the sinkbasin: 4 x 1/3 x 2/3
        ("look at pencil under the desklamp.", 8 / 9),
    ],
)
def test_the_search_of_places_that_can_hold_what_is_missing(goal, search):
    assert Memory(goal, ROOM).search() == pytest.approx(search)


def test_what_was_seen_is_not_searched_again():
    memory = Memory("put a clean fork in drawer.", ROOM)
    memory.see("You arrive at drawer 1. The drawer 1 is closed.")
    assert memory.search() == pytest.approx(5 * 3 / 4 / 2)  # a closed drawer shows nothing
    memory.see("You open the drawer 1. The drawer 1 is open. In it, you see nothing.")
    assert memory.search() == pytest.approx(3 * 2 / 3 / 2)
    memory.see("You arrive at sinkbasin 1. On the sinkbasin 1, you see a cup 1, and a fork 2.")
    assert memory.search() == 0


def test_a_look_into_an_empty_place_is_no_wasted_command():
    seen = [ROOM, "You arrive at sidetable 1. On the sidetable 1, you see nothing.", "Nothing happens."]
    turns = Turns(
        {
            "group_id": ["g"] * 2,
            "rollout_id": ["x"] * 2,
            "turn": [0, 1],
            "reward": [0.0, 0.0],
            "goal": ["put a clean fork in drawer."] * 2,
            "observation": seen[:2],
            "next_observation": seen[1:],
            "distance_before": [7, 7],
            "distance": [7, 7],
        }
    )
    before_N, after_N = searches(turns)
    np.testing.assert_allclose(before_N, [1.875, 4 * 2 / 3 / 2])
    np.testing.assert_allclose(after_N, [4 * 2 / 3 / 2] * 2)
    credited = informed_progress(turns)
    np.testing.assert_allclose(credited["credit"], [1.875 - 4 / 3, 0])
    assert credited["advantage"][0] > 0 > credited["advantage"][1]
