from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from scipy.stats import t as student

from turncredit.errors import UserError
from turncredit.stats import intervals, levels


def evals(rows: list[tuple], columns: str = "seed round task_id success", **same) -> pd.DataFrame:
    """Evaluations from short rows; what is not named is filled with something harmless."""
    frame = pd.DataFrame(rows, columns=columns.split())
    rest = {"method": "m", "seed": 0, "round": 1, "mode": "sampled", "repeat": 0, "family": "pick", "turns": 10}
    rest |= {"invalid": 0, "tokens": 0, "score": 0.0, "success": False, **same}
    frame = frame.assign(**{name: value for name, value in rest.items() if name not in frame.columns})
    if "policy_id" in frame:
        return frame
    names = frame[["method", "seed", "round"]].astype(str)
    return frame.assign(policy_id=names["method"] + "/" + names["seed"] + "/" + names["round"])


def grid(x_SG, round_=1) -> pd.DataFrame:
    """Cells of one round from a seeds x games table."""
    rows = [(s, round_, f"r{round_}g{g}", float(v), 1) for s, row in enumerate(x_SG) for g, v in enumerate(row)]
    return pd.DataFrame(rows, columns=["seed", "round", "task_id", "value", "rollouts"])


@given(
    st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.sampled_from([0.8, 0.95, 0.99])
)
def test_wilson_agrees_with_scipy(counts, level):
    successes, trials = counts
    low, high = intervals.wilson(successes, trials, level)
    expected = binomtest(successes, trials).proportion_ci(level, method="wilson")
    assert low == pytest.approx(expected.low, abs=1e-12)
    assert high == pytest.approx(expected.high, abs=1e-12)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_proportion_and_mirrors(counts):
    successes, trials = counts
    low, high = intervals.wilson(successes, trials)
    assert 0 <= low <= successes / trials <= high <= 1
    mirrored = intervals.wilson(trials - successes, trials)
    assert (1 - high, 1 - low) == (pytest.approx(mirrored[0]), pytest.approx(mirrored[1]))


def test_wilson_without_trials_is_not_a_number_and_impossible_counts_are_refused():
    assert all(np.isnan(bound) for bound in intervals.wilson(0, 0))
    with pytest.raises(ValueError, match="between 0 and"):
        intervals.wilson(3, 2)


def test_rates_count_a_rollout_once_whatever_its_length():
    # One success in 2 turns, one failure in 20: the success rate is a half, not 2 of 22.
    frame = evals([("a", True, 2, 1, 20), ("b", False, 20, 10, 200)], "task_id success turns invalid tokens")
    row = intervals.rates(frame, ["method"]).iloc[0]
    assert (row["rollouts"], row["successes"], row["success"]) == (2, 1, 0.5)
    assert (row["low"], row["high"]) == pytest.approx(tuple(float(x) for x in intervals.wilson(1, 2)))


def test_rows_of_a_policy_that_did_not_play_again_are_no_further_rollouts():
    """A warm start on the same games in every round (`eval.fresh: false`)."""
    rows = [(round_, f"g{game}", game % 3 == 0) for round_ in (8, 9, 10) for game in range(100)]
    frame = evals(rows, "round task_id success", method="sft", policy_id="sft")
    mean = intervals.crossed_mean(intervals.cells(frame))
    once = intervals.crossed_mean(intervals.cells(frame[frame["round"] == 8]))
    assert (mean.rollouts, mean.games) == (once.rollouts, once.games) == (100, 100)
    assert (mean.low, mean.high) == pytest.approx((once.low, once.high), abs=1e-4)
    trained = evals(rows, "round task_id success")
    assert intervals.crossed_mean(intervals.cells(trained)).rollouts == 300


def test_repeats_of_a_game_are_rollouts_of_their_own_and_paired_one_by_one():
    ours = evals([("a", 0, True), ("a", 1, False)], "task_id repeat success")
    theirs = evals([("a", 1, True), ("a", 0, False)], "task_id repeat success", method="other")
    assert intervals.cells(ours)[["value", "rollouts"]].to_numpy().tolist() == [[0.5, 2]]
    for shared in (False, True):
        paired = intervals.paired_cells(ours, theirs, shared=shared)
        assert paired[["value", "rollouts"]].to_numpy().tolist() == [[0, 2]]
    both_modes = evals([("a", "sampled", True), ("a", "greedy", True)], "task_id mode success")
    assert intervals.played(both_modes).tolist() == [True, True]


def test_a_table_with_a_row_per_turn_is_refused():
    frame = evals([("a", True), ("a", True)], "task_id success")
    with pytest.raises(UserError, match="once per rollout"):
        intervals.rates(frame, ["method"])


def test_final_is_the_last_three_rounds():
    assert intervals.last_rounds([1, 2, 12, 10, 11, 11]) == [10, 11, 12]
    assert intervals.last_rounds([2, 1]) == [1, 2]


def test_one_seed_gives_the_t_interval_over_games():
    found = intervals.crossed_mean(grid([[1, 0, 1, 0, 1, 1]]))
    x = np.array([1, 0, 1, 0, 1, 1])
    half = student.ppf(0.975, 5) * x.std(ddof=1) / math.sqrt(6)
    assert found.value == pytest.approx(4 / 6)
    assert (found.low, found.high) == (pytest.approx(4 / 6 - half), pytest.approx(4 / 6 + half))
    assert (found.seeds, found.games, found.rollouts) == (1, 6, 6)
    assert found.covers == "games only (one seed)"
    assert np.isnan(found.p)


def test_seeds_that_differ_by_a_constant_give_the_t_interval_over_seeds():
    # Games are all alike, so the seeds' means .2, .4, .9 are everything there is.
    found = intervals.crossed_mean(grid([[0.2] * 5, [0.4] * 5, [0.9] * 5]))
    half = student.ppf(0.975, 2) * np.std([0.2, 0.4, 0.9], ddof=1) / math.sqrt(3)
    assert (found.low, found.high) == (pytest.approx(0.5 - half), pytest.approx(0.5 + half))
    assert found.covers == "seeds and games"


def test_games_that_differ_the_same_way_for_all_seeds_give_the_t_interval_over_games():
    x = [0.0, 1.0, 0.5, 0.25]
    found = intervals.crossed_mean(grid([x, x, x]))
    half = student.ppf(0.975, 3) * np.std(x, ddof=1) / 2
    assert (found.low, found.high) == (pytest.approx(np.mean(x) - half), pytest.approx(np.mean(x) + half))


def test_each_round_costs_a_degree_of_freedom_of_its_games():
    one, two = [0.0, 1.0, 0.5], [0.2, 0.9, 0.4]
    found = intervals.crossed_mean(pd.concat([grid([one], round_=1), grid([two], round_=2)]))
    half = student.ppf(0.975, 6 - 2) * math.sqrt((np.var(one, ddof=1) + np.var(two, ddof=1)) / 3) / 2
    assert found.high - found.value == pytest.approx(half)


def test_many_seeds_add_no_degrees_of_freedom_where_three_games_decide():
    x = [0.0, 1.0, 0.5]
    found = intervals.crossed_mean(grid([x] * 9))
    half = student.ppf(0.975, 2) * np.std(x, ddof=1) / math.sqrt(3)
    assert (found.low, found.high) == (pytest.approx(np.mean(x) - half), pytest.approx(np.mean(x) + half))


def test_the_variance_of_a_crossed_table_is_the_textbook_one():
    x_SG = np.array([[0.1, 0.6, 0.5], [0.3, 0.9, 0.2]])
    seeds, games = x_SG.shape
    rows, columns, mean = x_SG.mean(1), x_SG.mean(0), x_SG.mean()
    ms_seed = games * ((rows - mean) ** 2).sum() / (seeds - 1)
    ms_game = seeds * ((columns - mean) ** 2).sum() / (games - 1)
    ms_rest = ((x_SG - rows[:, None] - columns + mean) ** 2).sum() / ((seeds - 1) * (games - 1))
    v_seed, v_game, v_both = (ms / (seeds * games) for ms in (ms_seed, ms_game, ms_rest))
    variance = max(v_seed + v_game - v_both, v_seed, v_game)
    df = variance**2 / (v_seed**2 / (seeds - 1) + v_game**2 / (games - 1) + v_both**2 / ((seeds - 1) * (games - 1)))
    found = intervals.crossed_mean(grid(x_SG))
    assert found.high - found.value == pytest.approx(student.ppf(0.975, max(df, seeds - 1)) * math.sqrt(variance))


def test_rounds_weigh_the_same_whatever_their_number_of_games():
    frame = pd.concat([grid([[1, 1, 1, 1]], round_=1), grid([[0, 0]], round_=2)])
    assert intervals.crossed_mean(frame).value == pytest.approx(0.5)


def test_rounds_are_fixed_so_their_difference_adds_no_variance():
    # Each round is constant: nothing varies between games of one round.
    frame = pd.concat([grid([[1.0] * 50], round_=1), grid([[0.0] * 50], round_=2)])
    found = intervals.crossed_mean(frame)
    assert found.high - found.low < 0.1


def test_a_game_played_in_every_round_counts_as_one_game():
    x = [1.0, 0.0, 1.0, 1.0, 0.0]
    once = intervals.crossed_mean(grid([x]))
    cells = [grid([x], round_=r).assign(task_id=[f"g{g}" for g in range(5)]) for r in (1, 2, 3)]
    thrice = intervals.crossed_mean(pd.concat(cells))
    assert thrice.games == 5
    # Three copies of the same outcomes hold no more knowledge of the games than one.
    assert thrice.high - thrice.low > 0.9 * (once.high - once.low)


def test_where_nothing_varies_the_bound_is_wilsons_for_an_event_never_seen():
    found = intervals.crossed_mean(grid([[1.0] * 30]))
    assert found.low == pytest.approx(float(intervals.wilson(30, 30)[0]))
    same = intervals.crossed_mean(grid([[0.0] * 30, [0.0] * 30]))
    assert same.low < 0 < same.high
    assert same.p == 1


@pytest.mark.parametrize("seeds", [1, 2, 3, 8])
@pytest.mark.parametrize("difference", [1.0, -1.0, 0.1, 0.7, 1 / 3, -1e-6])
def test_a_difference_that_is_the_same_on_every_game_has_the_p_of_the_sign_test_over_games(seeds, difference):
    """Sums of most of these numbers are rounded: what is left of the variance is no error to divide by."""
    found = intervals.crossed_mean(grid([[difference] * 30] * seeds))
    assert found.p == pytest.approx(np.nan if seeds == 1 else 2 / 2**30, nan_ok=True)
    assert found.high - found.low == pytest.approx(2 * (1 - float(intervals.wilson(30, 30)[0])))
    assert found.low < difference < found.high


@pytest.mark.parametrize("x_R", [[1, 0, 0], [0.1, 0.2, 0.4]])
def test_where_there_is_no_interval_there_is_no_p(x_R):
    """One game in a round, on which eight seeds agree."""
    found = intervals.crossed_mean(pd.concat(grid([[x]] * 8, round_=r) for r, x in enumerate(x_R)))
    assert np.isnan([found.low, found.high, found.p]).all()


@pytest.mark.parametrize(
    ("x_SR", "covers", "half"),
    [
        ([[1, 0, 1]], "nothing (one seed, one game in a round)", np.nan),
        ([[1, 0, 1], [1, 0, 1]], "seeds only (one game in a round)", np.nan),
        ([[1, 0, 1], [1, 1, 1], [0, 1, 1]], "seeds only (one game in a round)", student.ppf(0.975, 2) / 9),
        ([[1, 1, 1]], "games only (one seed)", 1 - float(intervals.wilson(3, 3)[0])),
    ],
)
def test_with_one_game_in_a_round_nothing_is_claimed_of_games(x_SR, covers, half):
    rounds = [grid(np.array(x_SR)[:, [r]], round_=r) for r in range(3)]
    found = intervals.crossed_mean(pd.concat(rounds))
    assert found.covers == covers
    assert found.high - found.value == pytest.approx(half, nan_ok=True)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(2, 8))
def test_intervals_follow_shifts_and_signs_and_ignore_the_order_of_rows(seed, seeds, games):
    rng = np.random.default_rng(seed)
    frame = pd.concat([grid(rng.normal(size=(seeds, games)), round_=r) for r in (1, 2)], ignore_index=True)
    found = intervals.crossed_mean(frame)
    shuffled = intervals.crossed_mean(frame.sample(frac=1, random_state=1))
    moved = intervals.crossed_mean(frame.assign(value=frame["value"] + 3))
    turned = intervals.crossed_mean(frame.assign(value=-frame["value"]))
    assert shuffled.low == pytest.approx(found.low)
    assert moved.low == pytest.approx(found.low + 3)
    assert (turned.low, turned.high) == (pytest.approx(-found.high), pytest.approx(-found.low))


@pytest.mark.slow
def test_the_interval_covers_the_truth_where_seeds_rounds_games_and_chance_all_vary():
    # Pooling the rollouts as if independent would cover far less here: it is counted beside it.
    rng = np.random.default_rng(0)
    seeds, games, rounds, tries = 4, 40, 3, 300
    covered = pooled = 0
    for _ in range(tries):
        seed_S = rng.normal(0, 0.05, seeds)
        parts = []
        for round_ in range(rounds):
            swing_S, game_G = rng.normal(0, 0.05, seeds), rng.normal(0, 0.3, games)
            parts.append(grid((seed_S + swing_S)[:, None] + game_G + rng.normal(0, 0.4, (seeds, games)), round_))
        frame = pd.concat(parts, ignore_index=True)
        found = intervals.crossed_mean(frame)
        covered += found.low <= 0 <= found.high
        pooled += abs(frame["value"].mean()) <= 1.96 * frame["value"].std() / math.sqrt(len(frame))
    assert 0.92 <= covered / tries <= 0.99
    assert pooled / tries < 0.85


def test_a_seed_without_a_game_is_named():
    with pytest.raises(UserError, match="seed 1 has no game 'r1g1' of round 1"):
        intervals.crossed_mean(grid([[1, 0], [1, 0]]).iloc[:3])


def test_paired_differences_are_taken_game_by_game():
    ours = evals([(0, 1, "a", True), (0, 1, "b", True), (0, 1, "c", False)])
    theirs = evals([(0, 1, "c", False), (0, 1, "b", False), (0, 1, "a", True)], method="other")
    cells = intervals.paired_cells(ours, theirs).set_index("task_id")
    assert cells["value"].to_dict() == {"a": 0.0, "b": 1.0, "c": 0.0}


def test_pairing_narrows_the_interval_when_games_decide():
    rng = np.random.default_rng(1)
    easy = rng.random(200) < 0.5
    ours = evals([(0, 1, f"g{g}", bool(won)) for g, won in enumerate(easy)])
    theirs = ours.assign(success=ours["success"] & (np.arange(200) % 20 != 0))
    paired = intervals.crossed_mean(intervals.paired_cells(ours, theirs))
    alone = intervals.crossed_mean(intervals.cells(ours))
    assert paired.high - paired.low < 0.5 * (alone.high - alone.low)


def test_a_shared_policy_is_compared_with_every_seed():
    ours = evals([(0, 1, "a", True), (1, 1, "a", False)])
    shared = evals([(0, 1, "a", False)], method="sft")
    cells = intervals.paired_cells(ours, shared, shared=True)
    assert cells.set_index("seed")["value"].to_dict() == {0: 1.0, 1: 0.0}


def test_rounds_that_only_one_method_has_are_left_out_but_a_missing_game_is_an_error():
    ours = evals([(0, 1, "a", True), (0, 2, "b", True)])
    theirs = evals([(0, 1, "a", False)], method="other")
    assert intervals.paired_cells(ours, theirs)["round"].tolist() == [1]
    more = evals([(0, 1, "a", True), (0, 1, "z", True)])
    with pytest.raises(UserError, match="game 'z' of round 1"):
        intervals.paired_cells(more, theirs)


def test_methods_without_a_common_game_have_no_paired_difference():
    with pytest.raises(UserError, match="no evaluated game in common"):
        intervals.paired_cells(evals([(0, 1, "a", True)]), evals([(1, 1, "a", True)], method="other"))


def test_a_mean_of_seeds_has_the_t_interval_and_none_with_one_seed():
    found = intervals.mean_of_seeds(np.array([0.5, 0.6, 0.7]), 30, 10)
    expected = student.interval(0.95, 2, loc=0.6, scale=0.1 / np.sqrt(3))
    assert (found.value, found.low, found.high) == pytest.approx((0.6, *expected))
    alone = intervals.mean_of_seeds(np.array([0.5]), 10, 10)
    assert alone.value == 0.5
    assert np.isnan(alone.low)
    assert not alone.clear


def test_seeds_that_agree_give_no_interval_since_others_may_not():
    found = intervals.mean_of_seeds(np.array([0.3, 0.1 + 0.2, 0.3]), 30, 10)
    assert found.value == pytest.approx(0.3)
    assert np.isnan([found.low, found.high, found.error]).all()
    assert found.covers == "nothing (the seeds agree)"


@pytest.mark.parametrize(
    ("bounds", "clear", "said"),
    [
        ((0.103, 0.199), True, "+15.1 points [+10.3, +19.9]"),
        ((-0.02, 0.322), False, "+15.1 points [-2.0, +32.2]"),
        ((np.nan, np.nan), False, "+15.1 points (no interval)"),
    ],
)
def test_a_difference_is_told_in_points_and_clear_where_its_interval_excludes_zero(bounds, clear, said):
    found = intervals.Estimate(0.151, *bounds, p=np.nan, rollouts=9, seeds=3, games=3, covers="")
    turned = intervals.Estimate(-0.151, -bounds[1], -bounds[0], p=np.nan, rollouts=9, seeds=3, games=3, covers="")
    assert (found.clear, turned.clear, intervals.points(found)) == (clear, clear, said)


def test_holm_steps_down_and_never_falls():
    assert levels.holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert levels.holm({"a": 0.9, "b": 0.8}) == pytest.approx({"a": 1.0, "b": 1.0})
    assert np.isnan(levels.holm({"a": float("nan"), "b": 0.02})["a"])
    assert levels.holm({"a": float("nan"), "b": 0.02})["b"] == 0.04


def test_a_pooled_interval_is_the_t_interval_over_seeds_and_never_below_what_their_own_errors_give():
    alike = pd.DataFrame({"value": [0.3, 0.3], "low": [0.2, 0.2], "high": [0.4, 0.4]})
    assert intervals.pooled(alike) == pytest.approx((0.3, 0.3 - 0.1 / np.sqrt(2), 0.3 + 0.1 / np.sqrt(2)))
    apart = alike.assign(value=[0.0, 0.6])
    assert intervals.pooled(apart)[1:] == pytest.approx(student.interval(0.95, 1, loc=0.3, scale=0.3))
    assert intervals.pooled(alike.iloc[:1]) == (0.3, 0.2, 0.4)
    assert np.isnan(intervals.pooled(alike.assign(value=np.nan))[0])
    assert intervals.pooled(alike.assign(low=np.nan))[1:] == (None, None)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8), st.floats(0.01, 1), st.floats(0, 0.01))
def test_a_pooled_interval_does_not_jump_when_a_seed_moves_a_little(values, error, moved):
    def half(value_S):
        rows = pd.DataFrame({"value": value_S, "low": np.subtract(value_S, error), "high": np.add(value_S, error)})
        value, low, _ = intervals.pooled(rows)
        return value - low

    # The standard error of the mean grows by no more than the seed moves, over sqrt(S (S - 1)) or less.
    bound = student.ppf(0.975, len(values) - 1) * moved + 1e-9
    assert abs(half([values[0] + moved, *values[1:]]) - half(values)) <= bound


@pytest.mark.parametrize("errors", [(1.0, 1.0), (0.5, 2.0)], ids=["equal errors", "unequal errors"])
@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("seeds", [2, 3, 4, 8])
def test_a_pooled_interval_covers_the_truth_whatever_the_seeds_differ_by(seeds, spread, errors):
    """Spreads are in errors of a seed. The former rule, one sample unless a test rejects, covered .79 at worst."""
    tries = 20_000
    error_S = np.resize(errors, seeds)
    mean_TS = np.random.default_rng(seeds).normal(0, np.sqrt(spread**2 + error_S**2), (tries, seeds))
    half_T = intervals.pooled_half(mean_TS, student.ppf(0.975, 1e9) * error_S)
    assert (np.abs(mean_TS.mean(1)) <= half_T).mean() >= 0.93
