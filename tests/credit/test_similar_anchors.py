"""GiGPO's similarity anchors: first fit on difflib's ratio."""

from __future__ import annotations

from difflib import SequenceMatcher

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.credit.tables import numbers, table
from turncredit.credit import METHODS, compute, resolve
from turncredit.credit.parts.same_state import common_subsequence, similar_anchors_N
from turncredit.data.turns import Turns

TEXT = st.text(alphabet="abc ", max_size=12)


def naive(texts: list[str], threshold: float) -> list[int]:
    """verl-agent's `build_step_group`, which calls `are_similar(observation, first of the cluster)`."""
    firsts: list[str] = []
    found = []
    for text in texts:
        for place, first in enumerate(firsts):
            if SequenceMatcher(None, text, first).ratio() >= threshold:
                found.append(place)
                break
        else:
            found.append(len(firsts))
            firsts.append(text)
    return found


@settings(deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=12), st.floats(0.3, 1.0))
def test_anchors_are_those_of_plain_first_fit_with_difflib(texts: list[str], threshold: float) -> None:
    turns = Turns(table({"g": [[0.0] * len(texts)]}, observation=texts))
    assert similar_anchors_N(turns, threshold).tolist() == naive(texts, threshold)


def test_the_new_text_is_compared_with_the_first_of_a_cluster_and_not_the_other_way_round() -> None:
    assert SequenceMatcher(None, "abc", "cac").ratio() == 2 / 3
    assert SequenceMatcher(None, "cac", "abc").ratio() == 1 / 3
    both = (Turns(table({"g": [[0.0] * 2]}, observation=texts)) for texts in (["cac", "abc"], ["abc", "cac"]))
    assert [similar_anchors_N(turns, 0.5).tolist() for turns in both] == [[0, 0], [0, 1]]


@given(TEXT, TEXT)
def test_the_common_subsequence_is_that_of_the_textbook(one: str, two: str) -> None:
    longest = [[0] * (len(two) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(two):
            longest[i + 1][j + 1] = longest[i][j] + 1 if a == b else max(longest[i][j + 1], longest[i + 1][j])
    assert common_subsequence(one, two) == longest[-1][-1]


def test_nearly_equal_states_share_an_anchor_only_within_their_group() -> None:
    texts = ["you see a mug 1, a pen 2 and a book", "you see a mug 1, a pen 3 and a book", "the fridge is closed"]
    made = table({"g": [[0], [0], [1]], "h": [[0], [0], [1]]}, observation=texts * 2)
    size = numbers(compute(made, METHODS["gigpo_similar"]), "anchor_size")
    assert size.tolist() == [2, 2, 1, 2, 2, 1]
    exact = numbers(compute(made, METHODS["gigpo"]), "anchor_size")
    assert exact.tolist() == [1] * 6
    all_alike = resolve({"base": "gigpo_similar", "params": {"similarity": 0.0}})
    assert numbers(compute(made, all_alike), "anchor_size").tolist() == [3] * 6
