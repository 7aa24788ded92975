"""Exact values, gradients and groups against independent ones: simulation, finite differences, probabilities."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from turncredit.audit.score.groups import draw, enumerate_groups
from turncredit.audit.score.process import Process, World
from turncredit.audit.score.worlds import DEAD_TURNS, WORLDS, dead, process
from turncredit.credit import METHODS, compute
from turncredit.data.turns import Turns
from turncredit.errors import UserError

EACH = pytest.mark.parametrize("name", WORLDS)


def expected_return(exact: Process) -> float:
    starts = [exact.states.index(state) for _, state in exact.world.starts]
    return float(exact.start_probability @ exact.v_S[starts])


def simulate(world: World, rng: np.random.Generator) -> float:
    """A rollout's return, from the world's functions alone."""
    state, total = world.starts[rng.choice(len(world.starts), p=[chance for chance, _ in world.starts])][1], 0.0
    while state is not None:
        actions = world.actions(state)
        weights = np.exp([world.logit(state, action) for action in actions])
        outcomes = world.step(state, actions[rng.choice(len(actions), p=weights / weights.sum())])
        outcome = outcomes[rng.choice(len(outcomes), p=[one.probability for one in outcomes])]
        state, total = outcome.next, total + outcome.reward
    return total


@EACH
def test_the_value_is_the_mean_return_of_simulated_rollouts(name):
    exact, rng = process(name), np.random.default_rng(0)
    returns = np.array([simulate(exact.world, rng) for _ in range(2000)])
    assert abs(returns.mean() - expected_return(exact)) < 4 * returns.std() / np.sqrt(len(returns)) + 1e-9


@EACH
def test_the_gradient_is_that_of_finite_differences(name):
    exact, step = process(name), 1e-5
    for number in range(0, len(exact.actions), max(len(exact.actions) // 5, 1)):
        state, action = exact.states[exact.state_D[number]], exact.actions[number]

        def shifted(by, state=state, action=action):
            old = exact.world.logit
            logit = lambda s, a: old(s, a) + by * ((s, a) == (state, action))  # noqa: E731
            return expected_return(Process(replace(exact.world, logit=logit)))

        slope = (shifted(step) - shifted(-step)) / (2 * step)
        assert slope == pytest.approx(exact.gradient_D[number], abs=1e-9)


@EACH
def test_advantages_of_a_state_average_to_zero_and_probabilities_to_one(name):
    exact = process(name)
    assert np.bincount(exact.state_D, exact.policy_D * exact.truth_D) == pytest.approx(0, abs=1e-11)
    assert np.bincount(exact.start_M, exact.probability_M) == pytest.approx(1)
    assert exact.visits_S.sum() == pytest.approx(
        (exact.start_probability[exact.start_M] * exact.probability_M * exact.length_M).sum()
    )


@EACH
def test_returns_from_a_state_have_its_value_as_their_mean(name):
    exact = process(name)
    for state in range(0, len(exact.states), 3):
        values, chances = exact.returns(state)
        assert values @ chances == pytest.approx(exact.v_S[state], abs=1e-8)


@pytest.mark.parametrize("name", ["stop", "stop_paid"])
def test_going_on_changes_nothing_in_the_neutral_worlds(name):
    assert not process(name).truth_D.any()


def test_no_two_worlds_have_the_same_difficulty_and_there_are_enough():
    difficulties = {process(name).world.difficulty for name in WORLDS}
    assert len(difficulties) == len(WORLDS) >= 6


@pytest.mark.parametrize(("density", "decisive"), [(0.01, 1), (0.25, 3), (1.0, DEAD_TURNS)])
def test_the_density_sets_how_many_turns_decide(density, decisive):
    exact = process("dead", density)
    turns = {exact.states[state][-1] for state in exact.state_D[exact.truth_D != 0]}
    assert len(turns) == decisive


@pytest.mark.parametrize("density", [0.0, -0.1, 1.01, float("nan")])
def test_a_density_that_is_no_share_is_refused(density):
    with pytest.raises(UserError, match="density of decisive turns"):
        dead(density)


@pytest.mark.parametrize("name", ["stop_helps", "stop_paid", "tasks"])
def test_enumerated_groups_are_all_groups_with_their_probabilities(name):
    groups = enumerate_groups(process(name), 4)
    assert groups is not None
    assert groups.weight_G.sum() == pytest.approx(1)
    assert len({tuple(sorted(row)) for row in groups.path_GK.tolist()}) == groups.count
    start_GK = groups.process.start_M[groups.path_GK]
    assert (start_GK == start_GK[:, :1]).all()  # a group has one task
    drawn = draw(process(name), 4, 200_000, 0)
    seen = Counter(tuple(sorted(row)) for row in drawn.path_GK.tolist())
    likely = int(groups.weight_G.argmax())
    share = seen[tuple(sorted(groups.path_GK[likely].tolist()))] / drawn.count
    assert share == pytest.approx(groups.weight_G[likely], abs=4 * np.sqrt(groups.weight_G[likely] / drawn.count))


def test_worlds_with_many_rollouts_are_not_enumerated():
    assert enumerate_groups(process("dead"), 4) is None
    assert enumerate_groups(process("stop"), 8) is None


@EACH
def test_the_table_of_turns_is_one_that_methods_read_and_does_not_tell_the_advantage(name):
    groups = draw(process(name), 4, 64, 0)
    table = groups.table()
    turns = Turns(table)
    assert turns.return_R == pytest.approx(groups.return_R[np.argsort(np.argsort(_ids(turns)))])
    assert not any("true" in column or "advantage" in column for column in table.column_names)
    credits = compute(turns, METHODS["rloo"]).column("advantage").to_numpy()
    assert credits == pytest.approx(groups.rloo_N)


def test_a_success_ends_with_the_whole_goal_and_no_distance():
    rows = draw(process("refused"), 4, 64, 0).table().to_pylist()
    ends = {(row["progress"], row["distance"]) for row in rows if row["done"] and row["success"]}
    assert ends == {(1.0, 0)}


def _ids(turns: Turns) -> list[tuple[int, int]]:
    """Group and rollout numbers of the sorted rollouts, as one rank key."""
    numbers = [tuple(int(part) for part in rollout[1:].split("r")) for _, rollout in turns.ids_R()]
    return [group * 1000 + rollout for group, rollout in numbers]


def test_continuations_are_returns_from_the_state_on():
    groups = draw(process("refused"), 4, 400, 0)
    side = groups.continuations(200, 0)
    value_N = side.column("return_sum").to_numpy() / 200
    exact_N = groups.process.v_S[groups.process.state_D[groups.decision_N]]
    assert np.abs(value_N - exact_N).mean() < 0.04
    assert side.column("return_square_sum").to_numpy() == pytest.approx(side.column("return_sum").to_numpy())  # 0 or 1
