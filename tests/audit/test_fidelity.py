"""Measures of fidelity: known values, and what each must not reward."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, spearmanr

from tests.audit import known_truth
from tests.credit.tables import side, table
from turncredit.audit import fidelity, fidelity_measures
from turncredit.audit import scored_turns as reading
from turncredit.data import tables
from turncredit.data.turns import SideTable, Turns
from turncredit.stats.bootstrap import BLOCKS, Resamples, Statistic, ratio


def loaded(tmp_path, columns, methods, rows=slice(None)):
    paths = known_truth.write(tmp_path, columns, methods, rows=rows)
    return reading.load(paths["turns"], [paths["credits"]], paths["branches"])


def scored_of(turns, *, excerpt=False, **branches):
    """Turns with these columns of ground truth."""
    view = Turns(turns, excerpt=excerpt)
    return reading.join(view, SideTable(view, side(turns, **branches), "branches", partial=True))


def shuffled(columns, seed=1):
    return np.random.default_rng(seed).permutation(columns["estimate"])


def test_rank_correlation_is_spearmans_within_rollouts_weighted_by_their_turns(tmp_path):
    columns = known_truth.make(groups=3, rollouts=2, turns=7)
    credit = np.round(columns["truth"], 1)
    keep = np.sort(np.random.default_rng(0).choice(len(credit), 30, replace=False))
    scored, credits = loaded(tmp_path, columns, {"m": credit}, rows=keep)
    top = bottom = 0.0
    for rollout in range(scored.rollouts):
        mine = scored.rollout_N == rollout
        if mine.sum() < 3:
            continue
        rho = spearmanr(credits["m"][mine], scored.truth_N[mine]).statistic
        top += (mine.sum() - 1) * (0.0 if np.isnan(rho) else rho)
        bottom += mine.sum() - 1
    assert fidelity_measures.rank_correlation(credits["m"], scored).value == pytest.approx(top / bottom)


def test_flat_grpo_scores_zero_within_rollouts_and_half_in_detection_but_not_in_pooled_correlation(tmp_path):
    columns = known_truth.make(groups=16, se=0.02)
    scored, credits = loaded(tmp_path, columns, {"flat_grpo": columns["flat"]})
    found = fidelity.score(scored, credits, resamples=200)
    for measure, known in (("rank_correlation", 0.0), ("regression_auc", 0.5), ("useful_auc", 0.5), ("calibration", 0)):
        row = found.row("flat_grpo", measure)
        assert (row.value, row.low, row.high) == (known, known, known), measure
    assert found.row("flat_grpo", "pooled_correlation").low > 0.1


def test_a_copy_of_the_truth_is_at_the_ceiling_and_a_shuffled_one_at_zero(tmp_path):
    columns = known_truth.make(groups=24)
    methods = {"truth": columns["truth"], "shuffled": shuffled(columns)}
    found = fidelity.score(*loaded(tmp_path, columns, methods), resamples=400)
    for measure in ("rank_correlation", "regression_auc", "useful_auc"):
        copy, other = found.row("truth", measure), found.row("shuffled", measure)
        assert copy.ceiling.low < copy.value < copy.ceiling.high, measure
        known = 0 if measure == "rank_correlation" else 0.5
        assert other.low < known < other.high < copy.low, measure
    assert found.row("shuffled", "sign_agreement").high < 0.56


def test_what_differs_by_rounding_alone_is_a_tie(tmp_path):
    columns = known_truth.make(groups=4, se=0.02)
    rounding = 1e-16 * np.random.default_rng(0).normal(size=len(columns["flat"]))
    methods = {"exact": columns["flat"], "rounded": columns["flat"] * (1 + rounding) + rounding}
    found = fidelity.score(*loaded(tmp_path, columns, methods), resamples=50)
    for measure in ("rank_correlation", "sign_agreement", "regression_auc", "calibration"):
        assert found.row("rounded", measure).value == found.row("exact", measure).value, measure


def test_a_constant_credit_has_no_bias_also_where_it_is_constant_up_to_rounding(tmp_path):
    columns = known_truth.make(groups=4)
    constant = np.full(len(columns["truth"]), 0.3)
    rounded = constant * (1 + 2e-16 * np.random.default_rng(0).integers(-1, 2, len(constant)))
    scored, credits = loaded(tmp_path, columns, {"zero": 0 * constant, "rounded": rounded})
    assert credits["rounded"].std() > 0
    early_N = fidelity_measures.subsets(scored)["position:early"]
    zero, found = (fidelity_measures.bias(credits[name], scored, early_N).value for name in ("zero", "rounded"))
    assert found == zero


def test_a_sign_flip_turns_every_measure_round(tmp_path):
    columns = known_truth.make(groups=6)
    scored, credits = loaded(tmp_path, columns, {"m": columns["truth"] + 0.1 * columns["noise"]})
    x_N = credits["m"]
    assert fidelity_measures.rank_correlation(-x_N, scored).value == pytest.approx(
        -fidelity_measures.rank_correlation(x_N, scored).value
    )
    for measure in (fidelity_measures.sign_agreement, fidelity_measures.regression_auc, fidelity_measures.useful_auc):
        assert measure(-x_N, scored).value == pytest.approx(1 - measure(x_N, scored).value)
    assert fidelity_measures.error(-x_N, scored).value == 1.0


def test_no_measure_but_the_pooled_one_depends_on_the_credits_scale(tmp_path):
    columns = known_truth.make(groups=6)
    scored, credits = loaded(tmp_path, columns, {"m": columns["truth"] + 0.1 * columns["noise"]})
    early_N = fidelity_measures.subsets(scored)["position:early"]
    for measure in (*fidelity_measures.HEADLINE.values(), fidelity_measures.calibration, fidelity_measures.error):
        assert measure(1000 * credits["m"], scored).value == pytest.approx(measure(credits["m"], scored).value)
    shifted = fidelity_measures.bias(1000 * credits["m"] + 7, scored, early_N).value
    assert shifted == pytest.approx(fidelity_measures.bias(credits["m"], scored, early_N).value)


def test_no_measure_depends_on_the_unit_of_returns(tmp_path):
    columns = known_truth.make(groups=6, se=0.02)  # an effect is clear at 5% of the range of returns, above its error
    tenfold = {**columns, **{name: 10 * columns[name] for name in ("reward", "estimate", "se")}}
    (scored, credits), (other, _) = (loaded(tmp_path, made, {"m": columns["noise"]}) for made in (columns, tenfold))
    x_N = credits["m"]
    for measure in (*fidelity_measures.HEADLINE.values(), fidelity_measures.error):
        assert measure(x_N, other).value == pytest.approx(measure(x_N, scored).value)
    assert fidelity_measures.calibration(x_N, other).value == pytest.approx(
        10 * fidelity_measures.calibration(x_N, scored).value
    )
    assert fidelity_measures.true_spread(other) == pytest.approx(10 * fidelity_measures.true_spread(scored))


def test_detection_counts_the_turns_of_the_rollouts_that_have_a_pair():
    turns = table({"g": [[0, 0, 0], [0, 0, 0, 0], [0, 1]]})
    scored = scored_of(turns, advantage_true=[0.5, 0, 0, *[0.0] * 4, 0.5, 0], advantage_true_se=[0.1] * 9)
    found = fidelity_measures.useful_auc(np.arange(9.0), scored)
    assert (found.value, found.turns) == (0, 3)  # the third rollout succeeded


def test_detection_is_mann_and_whitneys_statistic_inside_each_rollout(tmp_path):
    columns = known_truth.make(groups=8, rollouts=2, turns=9, se=0.05)
    scored, credits = loaded(tmp_path, columns, {"m": np.round(columns["truth"] + 0.2 * columns["noise"], 1)})
    for measure, inside, sign in (
        (fidelity_measures.regression_auc, scored.success_N, -1),
        (fidelity_measures.useful_auc, ~scored.success_N, 1),
    ):
        won = pairs = 0.0
        for rollout in range(scored.rollouts):
            mine = (scored.rollout_N == rollout) & inside
            positive = mine & (sign * scored.truth_N > np.maximum(scored.se_N, 0.05))
            rest = mine & ~positive
            if positive.any() and rest.any():
                won += mannwhitneyu(sign * credits["m"][positive], sign * credits["m"][rest]).statistic
                pairs += positive.sum() * rest.sum()
        assert measure(credits["m"], scored).value == pytest.approx(won / pairs)


def test_sign_agreement_counts_clear_turns_only_and_a_zero_credit_half(tmp_path):
    columns = known_truth.make(groups=1, rollouts=2, turns=4)
    columns["estimate"] = np.array([0.5, -0.5, 0.3, 0.05, 0.5, -0.5, 0.01, -0.02])
    columns["se"] = np.full(8, 0.1)
    credit = np.array([1.0, 1.0, 0.0, -1.0, 2.0, -2.0, -1.0, -1.0])
    scored, credits = loaded(tmp_path, columns, {"m": credit})
    statistic = fidelity_measures.sign_agreement(credits["m"], scored)
    assert statistic.turns == 5
    assert statistic.value == pytest.approx((1 + 0 + 0.5 + 1 + 1) / 5)


def test_a_true_advantage_that_is_rounding_alone_has_no_sign():
    scored = scored_of(table({"g": [[0, 0, 1]]}), advantage_true=[1e-17, 0.5, -0.5], advantage_true_se=[0, 0.1, 0.1])
    found = fidelity_measures.sign_agreement(np.ones(3), scored)
    assert (found.value, found.turns) == (0.5, 2)


def test_the_pooled_correlation_of_a_constant_credit_is_zero_and_with_a_constant_truth_there_is_none():
    turns = table({"g": [[0, 0, 1]]})
    varied, same = (scored_of(turns, advantage_true=a, advantage_true_se=[0.1] * 3) for a in ([0, 1, 2], [1] * 3))
    assert fidelity_measures.pooled_correlation(np.arange(3.0), varied).value == pytest.approx(1)
    assert fidelity_measures.pooled_correlation(np.ones(3), varied).value == 0
    assert np.isnan(fidelity_measures.pooled_correlation(np.arange(3.0), same).value)


def test_calibration_is_not_weakened_by_noise_in_the_truth(tmp_path):
    columns = known_truth.make(groups=150, se=0.3)
    scored, credits = loaded(tmp_path, columns, {"truth": columns["truth"]})
    spread = fidelity_measures.true_spread(scored)
    assert spread == pytest.approx(fidelity_measures.within(credits["truth"], scored).std(), rel=0.05)
    assert fidelity_measures.calibration(credits["truth"], scored).value == pytest.approx(spread, rel=0.05)


def test_error_is_zero_for_the_truth_and_one_for_what_tells_nothing(tmp_path):
    columns = known_truth.make(groups=150, se=0.2)
    methods = {"truth": columns["truth"], "half": columns["truth"] + 0.2 * columns["noise"], "noise": columns["noise"]}
    scored, credits = loaded(tmp_path, columns, methods)
    assert fidelity_measures.error(credits["truth"], scored).value == pytest.approx(0, abs=0.05)
    assert fidelity_measures.error(credits["noise"], scored).value == pytest.approx(1, abs=0.02)
    true, extra = columns["truth"].var(), 0.04
    assert fidelity_measures.error(credits["half"], scored).value == pytest.approx(extra / (true + extra), abs=0.05)


@pytest.mark.parametrize(("square", "shared", "known"), [(1.25, 0, 0), (1.3, 0, 1), (1.3, 1, 0), (1.36, 1, 1)])
def test_an_error_needs_a_truth_of_1_96_of_its_own_standard_errors(square, shared, known):
    """A hundred estimates with the error 1: the sum of their squares less 100 has the variance 200.

    Where neighbours share a state, each of the 99 pairs has the covariance -1/2, and 4 / 4 is added for it. So 25 and
    30 stand against 1.96 sqrt(200) = 27.7, and 30 and 36 against 1.96 sqrt(299) = 33.9.
    """
    a, place = np.sqrt(square), np.arange(100)
    state = {"v_true": a * place, "q_true": a * (place + 1), "v_se": np.ones(100), "q_se": np.ones(100)}
    truth = {"advantage_true": np.full(100, a), "advantage_true_se": np.ones(100)}
    scored = scored_of(table({"g": [[0.0] * 100]}), **truth, **(state if shared else {}))
    assert len(scored.follows()) == 99 * shared
    assert np.isfinite(fidelity_measures.error(np.ones(100), scored).value) == known


def test_a_bias_compares_with_a_spread_of_the_truth_that_is_free_of_noise(tmp_path):
    columns = known_truth.make(groups=150, se=0.3)
    scored, credits = loaded(tmp_path, columns, {"truth": columns["truth"]})
    assert fidelity_measures.bias(credits["truth"], scored, credits["truth"] > 0.1).value == pytest.approx(0, abs=0.1)


def test_an_error_by_hand_has_both_corrections_for_noise():
    scored = scored_of(table({"g": [[0, 1]]}), advantage_true=[2, 1], advantage_true_se=[0.5, 0.5])
    # sum a x is 2.5 and sum x^2 1.25; .25 x 1.25 is noise of the first one's square, and .5 of sum a^2, which is 5.
    found = fidelity_measures.error(np.array([1, 0.5]), scored).value
    assert found == pytest.approx(1 - (2.5**2 - 0.3125) / (1.25 * (5 - 0.5)))


def test_bias_finds_the_part_that_is_given_too_much(tmp_path):
    columns = known_truth.make(groups=40)
    late = columns["turn"] >= 7
    scored, credits = loaded(tmp_path, columns, {"fair": columns["truth"], "late": columns["truth"] + 0.2 * late})
    found = fidelity.score(scored, credits, resamples=300)
    assert found.row("late", "bias", "position:late").low > 0.3
    assert found.row("late", "bias", "position:early").high < -0.1
    fair = found.row("fair", "bias", "position:late")
    assert fair.low < 0 < fair.high
    assert {row.ceiling for row in found.rows if row.subset != "all"} == {None}
    correlated = {row.subset for row in found.rows if row.measure == "rank_correlation"}
    assert correlated == {"all", "outcome:success", "outcome:failure", "family:even", "family:odd"}
    assert {row.subset for row in found.rows if row.measure == "bias"} >= {
        "action:valid",
        "action:invalid",
        "family:even",
        "outcome:success",
        "length:short",
    }


def test_a_bias_rests_on_the_groups_that_have_turns_of_the_part(tmp_path):
    """Its interval is none with one of them, however many groups set the spread of the credit."""
    columns = known_truth.make(groups=20)
    scored, credits = loaded(tmp_path, columns, {"m": columns["truth"] + 0.2 * columns["noise"]})
    for groups in (1, 3):
        part_N = scored.group_N < groups
        statistic = fidelity_measures.bias(credits["m"], scored, part_N)
        assert (statistic.groups, statistic.turns) == (groups, part_N.sum())
    assert fidelity_measures.bias(credits["m"], scored, scored.group_N >= 0).groups == 20


def test_error_against_flat_is_below_zero_for_a_better_credit_and_paired(tmp_path):
    columns = known_truth.make(groups=24)
    methods = {"flat_grpo": columns["flat"], "good": columns["truth"] + 0.1 * columns["noise"], "twin": columns["flat"]}
    found = fidelity.score(*loaded(tmp_path, columns, methods), resamples=300)
    assert found.row("good", "error_minus_flat").high < 0
    twin = found.row("twin", "error_minus_flat")
    assert (twin.value, twin.low, twin.high) == (0, 0, 0)
    with pytest.raises(KeyError, match="error_minus_flat"):
        found.row("flat_grpo", "error_minus_flat")


def test_an_error_is_not_held_against_flats_where_flat_has_no_credit_for_some_of_the_turns(tmp_path):
    columns = known_truth.make(groups=2)
    scored, credits = loaded(tmp_path, columns, {"flat_grpo": columns["flat"], "m": columns["truth"]})
    credits["flat_grpo"][0] = np.nan
    found = fidelity.score(scored, credits, resamples=10)
    assert np.isfinite(found.row("m", "error").value)
    with pytest.raises(KeyError, match="error_minus_flat"):
        found.row("m", "error_minus_flat")


def test_reliability_rises_with_credit_and_a_constant_credit_has_one_part(tmp_path):
    columns = known_truth.make(groups=24)
    scored, credits = loaded(tmp_path, columns, {"good": columns["truth"], "same": np.ones(len(columns["truth"]))})
    true = [statistic.value for _, _, statistic in fidelity_measures.reliability(credits["good"], scored)]
    assert len(true) > 2
    assert true == sorted(true)
    assert [name for name, _, _ in fidelity_measures.reliability(credits["same"], scored)] == ["credit:1of1"]


def test_reliability_has_the_mean_standardised_credit_and_the_mean_truth_of_each_fifth():
    scored = scored_of(table({"g": [[0.0] * 10]}), advantage_true=np.arange(10) ** 2, advantage_true_se=[0.1] * 10)
    x_N = np.arange(10.0) + 5
    parts = fidelity_measures.reliability(x_N, scored)
    assert [name for name, _, _ in parts] == [f"credit:{number}of5" for number in range(1, 6)]
    z_N = (x_N - x_N.mean()) / x_N.std()
    assert [credit.value for _, credit, _ in parts] == pytest.approx(z_N.reshape(5, 2).mean(1))
    assert [truth.value for _, _, truth in parts] == [0.5, 6.5, 20.5, 42.5, 72.5]


def test_subsets_by_hand():
    turns = table({"a": [[0, 0], [0, 0, 0]], "b": [[0, 0, 0, 0, 0, 1]]}, family=["x"] * 5 + ["y"] * 6)
    scored = scored_of({**turns, "valid": [False] + [True] * 10}, advantage_true=[0] * 11, advantage_true_se=[1] * 11)
    assert {name: int(part_N.sum()) for name, part_N in fidelity_measures.subsets(scored).items()} == {
        "position:early": 4,
        "position:middle": 3,
        "position:late": 4,
        "length:short": 5,  # a third of the turns are of rollouts of 3 turns or fewer, two thirds of 6 or fewer
        "length:medium": 6,
        "outcome:success": 6,
        "outcome:failure": 5,
        "family:x": 5,
        "family:y": 6,
        "action:invalid": 1,
        "action:valid": 10,
    }


def test_turns_share_an_error_only_where_one_follows_the_other_in_its_rollout_with_the_same_estimate():
    turns = {
        "group_id": ["g"] * 6,
        "rollout_id": ["a", "a", "a", "b", "b", "b"],
        "turn": [0, 1, 3, 4, 5, 6],  # turn 2 is not there, nor are the first of b
        "reward": [0.5, 0, 0, 0, 0, 0],
    }
    state = {
        "v_true": [0.5] * 6,
        "q_true": [1.0, 0.5, 0.5, 0.5, 0.6, 0.5],  # .5 and the reward; .6 is not the next state's value
        "v_se": [0.1, 0.1, 0.1, 0.1, 0.2, 0.1],
        "q_se": [0.1] * 6,
    }
    scored = scored_of(turns, excerpt=True, advantage_true=[0.5, 0, 0, 0, 0.1, 0], advantage_true_se=[0.1] * 6, **state)
    assert scored.follows().tolist() == [0]
    rows, covariance = scored.shared_covariance()
    assert (rows.tolist(), covariance) == ([0], pytest.approx([-(0.1**2) / 2]))
    assert scored.length_N.tolist() == [4, 4, 4, 7, 7, 7]


def test_a_turn_whose_role_is_null_has_none():
    turns = table({"g": [[0, 0, 1]]})
    view = Turns(turns)
    truth, roles = side(turns, advantage_true=[0] * 3, advantage_true_se=[1] * 3), side(turns, role=["R", None, "D"])
    tables_of = (SideTable(view, made, name, partial=True) for made, name in ((truth, "branches"), (roles, "labels")))
    code_N, names = reading.join(view, *tables_of).labels["role"]
    assert [names[code] if code >= 0 else None for code in code_N] == ["R", None, "D"]


def test_an_error_counts_as_none_where_both_halves_saw_nothing():
    halves = {"advantage_first_half": [0, 0, 0.1], "advantage_second_half": [0, 0.2, -0.1]}
    turns = table({"g": [[0, 0, 1]]})
    scored = scored_of(turns, advantage_true=[0, 0.1, 0], advantage_true_se=[0.1] * 3, **halves)
    assert scored.se_N.tolist() == [0, 0.1, 0.1]


def test_rollouts_that_cannot_tell_an_order_are_left_out_and_counted(tmp_path):
    columns = known_truth.make(groups=2, rollouts=2, turns=5)
    first, second = columns["rollout_id"] == "g0#0", columns["rollout_id"] == "g0#1"
    columns["estimate"] = np.where(first, 0.25, columns["estimate"])
    rows = np.flatnonzero(~second | (columns["turn"] < 2))
    found = fidelity.score(*loaded(tmp_path, columns, {"m": columns["truth"]}, rows=rows), resamples=50)
    counts = found.counts["m"]
    assert (counts["rollouts"], counts["turns"]) == (4, 17)
    assert counts["rollouts_with_constant_truth"] == 1
    assert counts["rollouts_with_too_few_turns"] == 1
    assert found.row("m", "rank_correlation").turns == 10


def test_intervals_over_groups_cover_as_often_as_they_say():
    """Group sums with a known ratio: 95% intervals cover it in about 95 of 100 tables, with few groups too."""
    rng = np.random.default_rng(0)
    for groups in (8, 40):
        covered = 0
        for trial in range(300):
            size = rng.integers(1, 9, size=groups)
            value = size * (0.3 + rng.normal(size=groups))
            draws = Resamples(groups, 500, trial)
            statistic = Statistic(np.stack([value, size], axis=1), ratio, 1)
            low, high = draws.interval(draws.values(statistic), groups)
            covered += low <= 0.3 <= high
        assert 0.91 <= covered / 300 <= 0.98, groups


def test_many_groups_are_resampled_in_blocks_with_the_same_interval_width():
    rng = np.random.default_rng(0)
    groups = 4 * BLOCKS
    sums = np.stack([rng.normal(size=groups), np.ones(groups)], axis=1)
    draws = Resamples(groups, 2000, 0)
    low, high = draws.interval(draws.values(Statistic(sums, ratio, 1)), groups)
    assert high - low == pytest.approx(2 * 1.96 / np.sqrt(groups), rel=0.1)


def test_one_group_has_values_but_no_intervals(tmp_path):
    columns = known_truth.make(groups=1)
    found = fidelity.score(*loaded(tmp_path, columns, {"m": columns["truth"]}), resamples=50)
    row = found.row("m", "rank_correlation")
    assert row.value > 0.4
    assert np.isnan([row.low, row.high]).all()
    assert fidelity.as_json(found)["m"]["rank_correlation"]["low"] is None


def test_methods_scored_on_other_turns_have_their_own_ceiling(tmp_path):
    columns = known_truth.make(groups=12)
    scored, credits = loaded(tmp_path, columns, {"all": columns["truth"], "some": columns["truth"]})
    credits["some"] = np.where(scored.turn_N < 5, credits["some"], np.nan)
    found = fidelity.score(scored, credits, resamples=100)
    assert found.counts["some"]["turns_without_credit"] == len(scored) / 2
    every, some = (found.row(name, "rank_correlation") for name in ("all", "some"))
    assert some.turns == every.turns / 2
    assert some.ceiling != every.ceiling


def test_the_table_follows_its_schema_and_the_same_seed_gives_the_same_numbers(tmp_path):
    columns = known_truth.make(groups=4)
    scored, credits = loaded(tmp_path, columns, {"flat_grpo": columns["flat"], "m": columns["truth"]})
    one, two, other = (fidelity.table(fidelity.score(scored, credits, resamples=100, seed=seed)) for seed in (0, 0, 1))
    assert one.equals(two)
    assert not one.equals(other)
    assert tables.conform(one, "fidelity", "here").num_rows == one.num_rows
    headline = one.filter(np.array(one.column("measure").to_pylist()) == "rank_correlation").to_pylist()
    whole = [row for row in headline if row["subset"] == "all"]
    assert [row["method"] for row in whole] == ["flat_grpo", "m"]
    assert None not in [row["ceiling"] for row in whole]


def test_the_order_of_rows_changes_nothing(tmp_path):
    columns = known_truth.make(groups=4)
    order = np.random.default_rng(3).permutation(len(columns["turn"]))
    mixed = {name: column[order] for name, column in columns.items()}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = fidelity.score(*loaded(tmp_path / "a", columns, {"m": columns["truth"]}), resamples=50)
    two = fidelity.score(*loaded(tmp_path / "b", mixed, {"m": mixed["truth"]}), resamples=50)
    assert fidelity.table(one).equals(fidelity.table(two))


def test_success_is_the_rollouts_and_may_come_from_its_return(tmp_path):
    columns = known_truth.make(groups=3)
    scored, _ = loaded(tmp_path, columns, {"m": columns["truth"]})
    only_at_the_end = {**columns, "success": columns["success"] & (columns["turn"] == 9)}
    again, _ = loaded(tmp_path, only_at_the_end, {"m": columns["truth"]})
    assert (again.success_N == scored.success_N).all()
    assert (scored.success_N == columns["success"]).all()
    assert scored.scale == 1.0


def test_a_rollout_that_lost_all_it_earned_is_no_success_by_its_return():
    turns = table({"g": [[0.1, 0.2, -0.3], [0, 0, 1]]})
    scored = scored_of(turns, advantage_true=[0.0] * 6, advantage_true_se=[1.0] * 6)
    assert scored.success_N.tolist() == [False] * 3 + [True] * 3


@pytest.mark.slow
def test_a_quarter_of_a_million_turns_take_seconds(tmp_path):
    columns = known_truth.make(groups=3125)
    paths = known_truth.write(tmp_path, columns, {"m": columns["truth"]})
    started = time.process_time()
    fidelity.score(*reading.load(paths["turns"], [paths["credits"]], paths["branches"]))
    assert time.process_time() - started < 8


def test_noise_in_the_truth_never_changes_who_is_compared(tmp_path):
    """The scored turns depend on keys alone, so no method gains by what the estimates happen to be."""
    columns = known_truth.make(groups=3)
    scored, _ = loaded(tmp_path, columns, {"m": columns["truth"]})
    louder = replace(scored, se_N=scored.se_N * 10)
    assert (
        fidelity_measures.spearman_R(columns["noise"], scored).scored_R
        == fidelity_measures.spearman_R(columns["noise"], louder).scored_R
    ).all()
