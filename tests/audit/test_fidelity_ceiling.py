"""The noise ceiling: where the truth itself scores against its noisy estimate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.audit import known_truth
from turncredit.audit import fidelity_measures, noise_ceiling
from turncredit.audit.scored_turns import Scored
from turncredit.stats.bootstrap import Resamples


def table(truth_RT, se, seed, group=4):
    """`Scored` turns with estimates of a given truth, in groups of `group` rollouts, and the truth (N,)."""
    rng = np.random.default_rng(seed)
    rollouts, turns = truth_RT.shape
    rollout_N = np.repeat(np.arange(rollouts), turns)
    se_N = se * rng.uniform(0.7, 1.3, size=truth_RT.size)
    truth_N = truth_RT.ravel()
    scored = Scored(
        group_N=rollout_N // group,
        rollout_N=rollout_N,
        turn_N=np.tile(np.arange(turns), rollouts),
        length_N=np.full(truth_N.size, turns),
        success_N=rollout_N % 2 == 0,
        truth_N=truth_N + se_N * rng.normal(size=truth_N.size),
        se_N=se_N,
        scale=1.0,
        labels={},
        groups=-(-rollouts // group),
        rollouts=rollouts,
    )
    return scored, truth_N


def gaussian(rng, shape):
    return rng.normal(scale=0.15, size=shape)


def sparse(rng, shape):
    return rng.normal(scale=0.3, size=shape) * (rng.random(shape) < 0.3)


def skewed(rng, shape):
    """Small gains of many sizes and a few grave mistakes, zero on average."""
    return np.where(rng.random(shape) < 0.15, -rng.uniform(0.2, 0.6, shape), rng.exponential(0.07, shape))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "se"), [(gaussian, 0.05), (gaussian, 0.15), (sparse, 0.05), (sparse, 0.15), (skewed, 0.05)]
)
def test_the_truth_scores_at_the_ceiling_whatever_its_distribution(monkeypatch, shape, se):
    """Over many tables the mean score of the truth is the mean ceiling, and intervals hold it as often as they say."""
    monkeypatch.setattr(noise_ceiling, "MOST_DRAWS", 20)
    scores, found = [], []
    for seed in range(30):
        scored, truth_N = table(shape(np.random.default_rng(seed), (48, 8)), se, seed)
        scores.append(fidelity_measures.rank_correlation(truth_N, scored).value)
        found.append(noise_ceiling.ceilings(scored, Resamples(scored.groups, 200, 0), seed)["rank_correlation"])
    assert np.mean([c.value for c in found]) == pytest.approx(np.mean(scores), abs=0.035)
    held = np.mean([c.low <= score <= c.high for c, score in zip(found, scores, strict=True)])
    assert held >= 0.85


@pytest.mark.slow
def test_a_skewed_truth_under_much_noise_has_a_ceiling_that_is_too_high_never_too_low(monkeypatch):
    """Noise of twice the size of most advantages hides that a few turns carry the variance."""
    monkeypatch.setattr(noise_ceiling, "MOST_DRAWS", 20)
    over = []
    for seed in range(20):
        scored, truth_N = table(skewed(np.random.default_rng(seed), (48, 8)), 0.15, seed)
        found = noise_ceiling.ceilings(scored, Resamples(scored.groups, 200, 0), seed)["rank_correlation"]
        over.append(found.value - fidelity_measures.rank_correlation(truth_N, scored).value)
    assert 0 < np.mean(over) < 0.15


def test_an_exact_truth_has_a_ceiling_of_one():
    scored, _ = table(gaussian(np.random.default_rng(0), (16, 6)), 0.1, 0)
    exact = replace(scored, se_N=np.zeros(len(scored)))
    found = noise_ceiling.ceilings(exact, Resamples(exact.groups, 50, 0), 0)
    assert found["rank_correlation"].value == pytest.approx(1)
    assert found["regression_auc"].value == 1


def test_the_ceiling_does_not_depend_on_the_unit_of_returns(monkeypatch):
    monkeypatch.setattr(noise_ceiling, "MOST_DRAWS", 5)
    scored, _ = table(gaussian(np.random.default_rng(0), (16, 6)), 0.1, 0)
    tiny = replace(scored, truth_N=1e-9 * scored.truth_N, se_N=1e-9 * scored.se_N, scale=1e-9 * scored.scale)
    one, other = (noise_ceiling.ceilings(made, Resamples(made.groups, 10, 0), 0) for made in (scored, tiny))
    for name in one:
        assert other[name].value == pytest.approx(one[name].value, abs=0.02), name


def test_more_noise_lowers_the_ceiling_down_to_nothing():
    truth = gaussian(np.random.default_rng(0), (64, 8))
    values = []
    for se in (0.02, 0.1, 0.3, 3.0):
        scored, _ = table(truth, se, 1)
        values.append(noise_ceiling.ceilings(scored, Resamples(scored.groups, 100, 0), 0)["rank_correlation"].value)
    assert values == sorted(values, reverse=True)
    assert values[0] > 0.95
    assert values[-1] < 0.25


def test_the_prior_finds_the_share_of_turns_that_change_nothing_and_the_variance():
    rng = np.random.default_rng(0)
    truth_N = rng.normal(scale=0.4, size=8000) * (rng.random(8000) < 0.5)
    se_N = rng.uniform(0.05, 0.1, size=8000)
    prior = noise_ceiling.fit_prior(truth_N + se_N * rng.normal(size=8000), se_N, 0)
    assert prior.weight_K.sum() == pytest.approx(1)
    assert prior.weight_K[prior.spread_K <= 0.05].sum() == pytest.approx(0.5, abs=0.05)
    assert (prior.weight_K * prior.spread_K**2).sum() == pytest.approx(truth_N.var(), rel=0.05)


def test_draws_of_the_truth_have_its_distribution_not_the_estimates():
    rng = np.random.default_rng(0)
    truth_N = rng.normal(scale=0.2, size=4000)
    se_N = np.full(4000, 0.2)
    estimate_N = truth_N + se_N * rng.normal(size=4000)
    posterior = noise_ceiling.Posterior(noise_ceiling.fit_prior(estimate_N, se_N, 0), estimate_N, se_N)
    drawn_N = posterior.draw(np.random.default_rng(1))
    assert drawn_N.std() == pytest.approx(0.2, rel=0.05)
    assert np.corrcoef(drawn_N, truth_N)[0, 1] == pytest.approx(0.5, abs=0.04)


def test_a_truth_is_drawn_between_its_estimate_and_the_mode():
    """Spread and error are equal, so half of the distance from the mode is kept, and half of the error's variance."""
    prior = noise_ceiling.Prior(0.5, np.array([0.2]), np.array([1.0]))
    drawn_N = noise_ceiling.Posterior(prior, np.full(20_000, 0.9), np.full(20_000, 0.2)).draw(np.random.default_rng(0))
    assert drawn_N.mean() == pytest.approx(0.7, abs=0.005)
    assert drawn_N.std() == pytest.approx(0.2 / np.sqrt(2), rel=0.02)


@pytest.mark.parametrize(("second", "ceiling"), [([1, 0, 2], np.sqrt(2 / 3)), ([0, 1, 2], 1), ([2, 1, 0], 0)])
def test_the_ceiling_by_halves_is_spearman_and_browns_formula(second, ceiling):
    """Rank correlations of 1/2, 1 and -1 in every rollout: the root of 2r / (1 + r), and nothing below 0."""
    scored, _ = table(np.zeros((8, 3)), 0.1, 0)
    halves_N2 = np.stack([np.tile([0.0, 1, 2], 8), np.tile(np.array(second, dtype=float), 8)], axis=1)
    found = noise_ceiling.split_half(replace(scored, halves_N2=halves_N2), Resamples(scored.groups, 10, 0))
    assert (found.value, found.low, found.high) == pytest.approx((ceiling,) * 3)


def test_neighbouring_turns_that_share_a_state_share_its_error_with_opposite_signs():
    scored, _ = table(gaussian(np.random.default_rng(0), (500, 3)), 0.1, 0)
    value = np.random.default_rng(2).random((500, 4))
    state = {
        "v_N": np.stack([value[:, :3].ravel(), np.full(1500, 0.1)], axis=1),
        "q_N": np.stack([value[:, 1:].ravel(), np.full(1500, 0.1)], axis=1),
        "se_N": np.full(1500, np.sqrt(0.02)),
    }
    error_RT = noise_ceiling.noise(replace(scored, **state), np.random.default_rng(3)).reshape(500, 3)
    assert error_RT.std() == pytest.approx(np.sqrt(0.02), rel=0.05)
    assert np.corrcoef(error_RT[:, 0], error_RT[:, 1])[0, 1] == pytest.approx(-0.5, abs=0.1)
    assert np.corrcoef(error_RT[:, 0], error_RT[:, 2])[0, 1] == pytest.approx(0, abs=0.12)
    apart = {**state, "q_N": state["q_N"] + [1.0, 0.0]}
    paid = {**apart, "after_N": state["q_N"][:, 0]}  # a reward of 1 for each turn
    paid_RT = noise_ceiling.noise(replace(scored, **paid), np.random.default_rng(3)).reshape(500, 3)
    np.testing.assert_array_equal(paid_RT, error_RT)
    alone_RT = noise_ceiling.noise(replace(scored, **apart), np.random.default_rng(3)).reshape(500, 3)
    assert np.corrcoef(alone_RT[:, 0], alone_RT[:, 1])[0, 1] == pytest.approx(0, abs=0.12)


def test_a_column_that_copies_the_estimate_itself_is_above_the_ceiling():
    """It knows the noise: a reader who sees a score above the ceiling should suspect just that."""
    columns = known_truth.make(groups=1)
    scored, _ = table(columns["truth"].reshape(8, 10), 0.1, 0)
    found = noise_ceiling.ceilings(scored, Resamples(scored.groups, 100, 0), 0)["rank_correlation"]
    assert fidelity_measures.rank_correlation(scored.truth_N, scored).value == pytest.approx(1)
    assert found.high < 1


def copies_of(chance, copies, rng):
    """`Scored` turns from +1, 0 and -1 of `copies` continuations: a turn changes one with `chance`, and luck a few."""
    hit = rng.random((*chance.shape, copies)) < np.abs(chance)[..., None]
    luck = (rng.random(hit.shape) < 0.03) * rng.choice([-1, 1], hit.shape)
    changed = np.where(hit, np.sign(chance)[..., None], luck).reshape(-1, copies)
    first, second = changed[:, : copies // 2].mean(1), changed[:, copies // 2 :].mean(1)
    scored, _ = table(chance, 0.1, 0)
    return replace(scored, truth_N=changed.mean(1), halves_N2=np.stack([first, second], axis=1))


@pytest.mark.parametrize(("share", "spread"), [(0.1, 0.25), (0.02, 0.5)])
def test_where_few_turns_matter_the_truth_scores_between_the_agreement_of_the_halves_and_the_ceiling(share, spread):
    """Rollouts in which nothing mattered agree by chance alone, so the formula applied to the mean is too high."""
    found = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        chance = np.clip(rng.normal(0, spread, (100, 8)), -0.9, 0.9) * (rng.random((100, 8)) < share)
        scored = copies_of(chance, 16, rng)
        first_N, second_N = scored.halves_N2.T
        ceiling = noise_ceiling.split_half(scored, Resamples(scored.groups, 10, 0)).value
        truth = fidelity_measures.rank_correlation(chance.ravel(), scored).value
        found.append(
            (fidelity_measures.rank_correlation(first_N, replace(scored, truth_N=second_N)).value, truth, ceiling)
        )
    halves, truth, ceiling = np.mean(found, axis=0)
    assert halves < truth < ceiling - 0.1


def test_with_halves_the_truth_scores_at_the_ceiling_also_where_most_turns_change_nothing():
    """Wins and losses: in half of the turns no copy can see a change; 16 copies, the errors smoothed as branching's."""
    scores, found = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        shape = (48, 10)
        alive = rng.random(shape) < 0.5
        chance = np.clip(rng.normal(0.0, 0.25, shape), -0.9, 0.9) * alive  # of the turn's changing a copy's outcome
        truth_N = chance.ravel()
        hit = rng.random((*shape, 16)) < np.abs(chance)[..., None]
        copies = (np.sign(chance)[..., None] * hit).reshape(-1, 16)
        halves_N2 = np.stack([copies[:, :8].mean(1), copies[:, 8:].mean(1)], axis=1)
        scored, _ = table(chance, 0.1, seed)
        scored = replace(scored, truth_N=copies.mean(1), halves_N2=halves_N2)
        scores.append(fidelity_measures.rank_correlation(truth_N, scored).value)
        found.append(noise_ceiling.split_half(scored, Resamples(scored.groups, 200, 0)))
    # Many ties make it a little too high, by .02 here.
    over = [c.value - score for c, score in zip(found, scores, strict=True)]
    assert -0.06 < np.mean(over) < 0.03
    assert np.std(over) < 0.05


def test_a_score_at_the_ceiling_does_not_exceed_it():
    assert not noise_ceiling.exceeded(1.0, [1.0, 0.5, np.nan])
    assert noise_ceiling.exceeded(0.9, [1.0, 0.5, np.nan])


def test_what_is_left_out_of_the_turns_is_left_out_of_their_halves():
    scored, _ = table(gaussian(np.random.default_rng(0), (16, 6)), 0.1, 0)
    scored = replace(scored, halves_N2=np.stack([scored.truth_N, scored.truth_N], axis=1))
    some = scored.take(np.arange(len(scored)) % 3 > 0)
    assert (some.halves_N2[:, 0] == some.truth_N).all()
    assert noise_ceiling.split_half(some, Resamples(some.groups, 50, 0)).value == pytest.approx(1)


def telescoping(spread, error, rollouts=4000, turns=8):
    """Turns whose estimates share the error of the state between them; that of the end is known. (scored, truth)."""
    rng = np.random.default_rng(0)
    true_RT = rng.normal(0, spread, (rollouts, turns))
    value_RT = rng.normal(0, 0.3, (rollouts, turns + 1))
    se_RT = np.full((rollouts, turns + 1), error / np.sqrt(2))
    se_RT[:, -1] = 0
    off_RT = se_RT * rng.standard_normal(se_RT.shape)
    ends = [np.stack([value_RT[:, place].ravel(), se_RT[:, place].ravel()], 1) for place in (slice(-1), slice(1, None))]
    scored, true_N = table(true_RT, error, 0)
    estimate_N, se_N = (true_RT + np.diff(off_RT, axis=1)).ravel(), np.hypot(ends[0][:, 1], ends[1][:, 1])
    return replace(scored, truth_N=estimate_N, se_N=se_N, v_N=ends[0], q_N=ends[1]), true_N


@pytest.mark.parametrize("spread", [0.0, 0.05, 0.15])
def test_the_true_spread_is_free_of_errors_that_neighbouring_turns_share(spread):
    scored, true_N = telescoping(spread, 0.15)
    found = fidelity_measures.true_spread(scored)
    assert found == pytest.approx(np.std(true_N) * np.sqrt(7 / 8), abs=0.004 if spread else 0.02)


@pytest.mark.parametrize(("spread", "expected"), [(0.0, np.nan), (0.15, 0.0)])
def test_an_error_has_a_scale_only_where_the_truth_is_more_than_noise(spread, expected):
    scored, true_N = telescoping(spread, 0.15)
    flat_N = np.where(scored.success_N, 1.0, -1.0)
    assert fidelity_measures.error(true_N, scored).value == pytest.approx(expected, abs=0.02, nan_ok=True)
    against = fidelity_measures.error_against(true_N, flat_N, scored).value
    assert against == pytest.approx(expected - 1, abs=0.02, nan_ok=True)


@pytest.mark.parametrize("at", [-0.9, 0.0, 0.3, 0.99])
def test_the_search_for_a_mode_ends_beside_the_lowest_point(at):
    found, value = noise_ceiling.lowest(lambda x: (x - at) ** 2, -1.0, 1.0, noise_ceiling.MODE_SEARCH)
    assert found == pytest.approx(at, abs=2 * 0.619**noise_ceiling.MODE_SEARCH)
    assert value == (found - at) ** 2
