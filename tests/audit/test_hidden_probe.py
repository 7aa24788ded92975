"""The probe of hidden states: it finds what is there, finds nothing where nothing is, and asks no idle questions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from turncredit.audit import hidden_probe

VERBS = ("go", "take", "open")


@pytest.fixture(scope="module")
def turns() -> pa.Table:
    """Forty groups of four rollouts with five turns each; two actions in five are refused."""
    rng = np.random.default_rng(0)
    count = 40 * 4 * 5
    return pa.table(
        {
            "group_id": [f"g{row // 20:02d}" for row in range(count)],
            "rollout_id": [f"r{row // 5:03d}" for row in range(count)],
            "turn": pa.array([row % 5 for row in range(count)], pa.int32()),
            "action": [f"{VERBS[verb]} to shelf {rng.integers(9)}" for verb in rng.integers(3, size=count)],
            "valid": rng.random(count) < 0.6,
        }
    )


def states(turns: pa.Table, *, carry: tuple[str, ...]) -> np.ndarray:
    """States of 16 random numbers, with the answers to the questions about `carry` mixed into them."""
    rng = np.random.default_rng(1)
    hidden = rng.normal(size=(turns.num_rows, 16))
    for question in hidden_probe.questions(turns):
        if question.about in carry:
            hidden += 2.0 * question.yes_N[:, None] * rng.normal(size=16)
    return hidden.astype(np.float16)


def found(turns: pa.Table, *, carry: tuple[str, ...]) -> dict[str, float]:
    answers = hidden_probe.weakest(hidden_probe.probe(states(turns, carry=carry), turns))
    return {about: answer.auc for about, answer in answers.items()}


@pytest.mark.parametrize("about", ["action", "observation", "refused"])
def test_the_probe_finds_what_the_states_carry_and_nothing_else(turns, about):
    aucs = found(turns, carry=(about,))
    assert aucs.pop(about) > 0.95
    assert all(0.4 < auc < 0.6 for auc in aucs.values())


def test_the_weakest_answer_is_that_of_the_verb_which_the_states_lack(turns):
    hidden = states(turns, carry=())
    asked = {one.name: one.yes_N for one in hidden_probe.questions(turns)}
    hidden[:, 0] = asked["go"]
    answer = hidden_probe.weakest(hidden_probe.probe(hidden, turns))["action"]
    assert answer.name != "go"
    assert answer.auc < 0.8


def test_a_handful_of_rollouts_is_asked_nothing(turns):
    few = turns.slice(0, 100)
    assert hidden_probe.probe(states(few, carry=("action",)), few) == []


def test_the_first_turn_of_a_rollout_has_no_refusal_before_it(turns):
    [before] = [one.yes_N for one in hidden_probe.questions(turns) if one.about == "observation"]
    valid, turn = turns.column("valid").to_numpy(zero_copy_only=False), turns.column("turn").to_numpy()
    assert not before[turn == 0].any()
    assert (before[1:] == (~valid[:-1] & (turn[1:] > 0))).all()


def test_an_action_is_known_by_its_first_word_whatever_stands_around_it():
    actions = ["search[red shoes]", "Click[buy now]", "```python\nprint(1)", "", "..."]
    table = pa.table(
        {
            "group_id": ["g"] * 5,
            "rollout_id": ["r"] * 5,
            "turn": pa.array(range(5), pa.int32()),
            "action": actions,
            "valid": [True] * 5,
        }
    )
    words = {one.name: one.yes_N.tolist() for one in hidden_probe.questions(table) if one.about == "action"}
    assert words == {
        "search": [True, False, False, False, False],
        "click": [False, True, False, False, False],
        "python": [False, False, True, False, False],
    }
