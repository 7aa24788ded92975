"""CARL: trees worked out by hand, what sums to what, which turns train, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.credit import synthetic
from tests.credit.tables import numbers, table
from turncredit.credit import METHODS, Part, compute
from turncredit.errors import UserError

CARL = METHODS["carl"]
ROWS = st.builds(
    synthetic.rows, groups=st.integers(1, 2), size=st.integers(1, 6), turns=st.integers(1, 6), seed=st.integers(0, 9999)
)


def tree(rollouts: list[list[float]], parents: dict[int, tuple[int, int]]) -> dict:
    """One group; `parents` maps a fork to the rollout and the turn that it left."""
    left = [parents.get(number) for number, rewards in enumerate(rollouts) for _ in rewards]
    return table(
        {"g": rollouts},
        parent_rollout_id=[f"g{at[0]}" if at else "" for at in left],
        parent_turn=[at[1] if at else -1 for at in left],
    )


def test_a_tree_by_hand():
    """A lost rollout of three turns; its second state is forked twice: won at once, and lost after two turns."""
    got = compute(tree([[0, 0, 0], [1], [0, 0]], {1: (0, 1), 2: (0, 1)}), CARL)
    assert numbers(got, "edges").tolist() == [1, 3, 1, 3, 3, 1]
    assert numbers(got, "trained").tolist() == [0, 1, 0, 1, 1, 0]
    np.testing.assert_allclose(numbers(got, "value"), [1 / 3, 1 / 3, 0, 1 / 3, 1 / 3, 0])
    np.testing.assert_allclose(numbers(got), [0, -1 / 3, 0, 2 / 3, -1 / 3, 0])


def test_the_mean_is_over_children_and_not_over_leaves():
    """Two rollouts from the start; the first is forked twice after its first turn. Leaves: 1, 1, 1 and 0."""
    got = compute(tree([[0, 1], [0], [1], [1]], {2: (0, 1), 3: (0, 1)}), CARL)
    assert numbers(got, "value")[[0, 2]].tolist() == [0.5, 0.5]
    assert numbers(got).tolist() == [0.5, 0.0, -0.5, 0.0, 0.0]
    assert numbers(got, "trained").tolist() == [1, 1, 1, 1, 1]


def test_a_fork_of_a_forks_first_state_is_one_of_that_states_own():
    got = compute(tree([[0, 0], [0, 1], [0]], {1: (0, 1), 2: (1, 0)}), CARL)
    assert numbers(got, "edges").tolist() == [1, 3, 3, 1, 3]
    np.testing.assert_allclose(numbers(got), [0, -1 / 3, 2 / 3, 0, -1 / 3])


def test_a_turn_that_either_part_leaves_out_is_left_out():
    def own(turns, base_N):
        return {"trained": turns.turn_N == 0, "advantage": base_N}

    rows = tree([[0, 0, 0], [1], [0, 0]], {1: (0, 1), 2: (0, 1)})
    got = compute(rows, replace(CARL, turn_term=Part("own", own, "turn_term")))
    assert numbers(got, "trained").tolist() == [0, 0, 0, 1, 1, 0]  # CARL leaves out the first and the last ones


def test_a_single_rollout_has_nothing_to_train():
    got = compute(tree([[0, 0, 1]], {}), CARL)
    assert not numbers(got).any()
    assert not numbers(got, "trained").any()


@given(made=ROWS)
def test_advantages_of_the_turns_of_a_state_sum_to_zero_and_are_zero_where_it_has_one(made):
    rows, side = synthetic.tables(made)
    got = compute(rows, CARL, side)
    sums: dict[tuple, float] = {}
    at = {(row["rollout_id"], row["turn"]): row for row in made}
    for row, advantage, edges in zip(made, numbers(got), numbers(got, "edges"), strict=True):
        here = row
        while here["turn"] == 0 and here["parent_rollout_id"]:
            here = at[here["parent_rollout_id"], here["parent_turn"]]
        node = (here["rollout_id"], here["turn"]) if here["turn"] else (row["group_id"],)
        sums[node] = sums.get(node, 0.0) + advantage
        assert edges > 1 or advantage == 0
    np.testing.assert_allclose(list(sums.values()), 0.0, atol=1e-9)


@given(made=ROWS)
def test_along_a_path_from_the_start_to_a_leaf_advantages_telescope_to_its_return_minus_the_starts_value(made):
    rows, side = synthetic.tables(made)
    got = compute(rows, CARL, side)
    place = {(row["rollout_id"], row["turn"]): number for number, row in enumerate(made)}
    last = {row["rollout_id"]: max(other["turn"] for other in made if other["rollout_id"] == row["rollout_id"])
            for row in made}  # fmt: skip
    for rollout, turn in last.items():
        path, row = [], made[place[rollout, turn]]
        while True:
            path.append(place[row["rollout_id"], row["turn"]])
            if row["turn"]:
                row = made[place[row["rollout_id"], row["turn"] - 1]]
            elif row["parent_rollout_id"]:
                # The turn of the parent at this state is another edge of it: the path comes from the turn before.
                state = made[place[row["parent_rollout_id"], row["parent_turn"]]]
                while state["turn"] == 0 and state["parent_rollout_id"]:
                    state = made[place[state["parent_rollout_id"], state["parent_turn"]]]
                if state["turn"] == 0:
                    break
                row = made[place[state["rollout_id"], state["turn"] - 1]]
            else:
                break
        total = sum(made[number]["reward"] for number in path)
        start = numbers(got, "value")[path[-1]]
        assert numbers(got)[path].sum() == pytest.approx(total - start, abs=1e-9)


def test_a_fork_of_a_rollout_of_another_group_is_refused():
    rows = table({"g": [[1]], "h": [[0]]}, parent_rollout_id=["", "g0"], parent_turn=[-1, 0])
    with pytest.raises(UserError, match="rollout 'h0' is a fork of 'g0', which its group does not have"):
        compute(rows, CARL)


@pytest.mark.parametrize(
    ("parents", "said"),
    [
        ({1: (7, 0)}, r"rollout 'g1' is a fork of 'g7', which its group does not have"),
        ({1: (0, 2)}, r"rollout 'g1' forks from turn 2 of a rollout that has 2"),
        ({0: (1, 0), 1: (0, 0)}, r"is a fork of itself, by way of other forks"),
    ],
)
def test_what_is_no_tree_is_one_clear_line(parents, said):
    with pytest.raises(UserError, match=said):
        compute(tree([[0, 0], [1]], parents), CARL)
