"""The noise ceiling: what the true advantage itself would score against its own noisy estimate.

The estimate a of a turn's true advantage A comes from finitely many continuations, a = A + e with e ~ N(0, s^2). Even A
does not agree fully with a, so a method's score is hard to interpret without the score that A would get. That score is
simulated:

1. The distribution of A over turns is estimated from (a, s) by maximum likelihood as a mixture of normals around one
   mode with different spreads, one of them 0 (empirical Bayes; Stephens 2017, "False discovery rates: a new deal",
   eq. 2-8, with the mode estimated and no penalty on the weight at spread 0). There is a point mass at the mode because
   many turns change nothing, and ties among them matter to a rank correlation.
2. A truth A' is drawn for every turn from the posterior given its own a, so that turns of a rollout differ as much as
   they seem to; then a new estimate a' = A' + e'.
3. A' is scored as a method would be, against a'. The mean over many draws is the ceiling. Its interval shows where the
   score of a perfect method would lie on as many groups: each resample of the groups takes one draw, not their mean.

If the branches record both halves of a turn's continuations, the ceiling of the rank correlation is computed from their
agreement instead (`split_half`), without a model; it is then an upper bound.

A column that copies a itself, including its noise, scores 1: it is above the ceiling because it knows the noise. The
ceiling is too high where noise hides that the truth is very skewed or nearly always the same (docs/audit.md has
numbers): differences that small cannot be told from zero, so some are drawn where the truth has hardly any.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from turncredit.audit.fidelity_measures import HEADLINE
from turncredit.audit.scored_turns import Scored
from turncredit.stats.bootstrap import Resamples, Statistic

#: the most turns that the prior is fitted to, the most steps of the fit, and the gain at which it stops (mean log-lik.)
FIT_TURNS, FIT_STEPS, FIT_GAIN = 20_000, 2000, 1e-8
#: the same while its mode is searched, and the steps of that search
MODE_TURNS, MODE_STEPS, MODE_SEARCH = 2000, 200, 12
#: draws of the truth, fewer for large tables: about this many turns are drawn in all
MOST_DRAWS, DRAWN_TURNS = 200, 1_000_000
#: What is printed in place of a ceiling that a method's score exceeds.
TOO_FEW = "too few turns"
#: A function of a credit and the scored turns.
Measure = Callable[[np.ndarray, Scored], Statistic]


@dataclass(frozen=True)
class Prior:
    """A ~ mixture of N(mode, spread_K^2) with weights weight_K (K,)."""

    mode: float
    spread_K: np.ndarray
    weight_K: np.ndarray


@dataclass(frozen=True)
class Ceiling:
    """The mean score of the truth, the interval of a perfect method's score, and the number of draws."""

    value: float
    low: float
    high: float
    draws: int


def exceeded(ceiling: float, scores: Iterable[float]) -> bool:
    """Whether a method scores above the ceiling, which shows that there are too few turns to estimate it.

    `scores`: of all methods that share it, NaN where one has none.
    """
    return any(score > ceiling for score in scores)


def fit_prior(truth_N: np.ndarray, se_N: np.ndarray, seed: int) -> Prior:
    """The distribution of the true advantage, by maximum likelihood. `se_N` must be above zero.

    Spreads: 0, and from half the smallest error (its 5% quantile) to twice the largest estimate in steps of sqrt(2).
    Stephens starts at a tenth of it: such spreads cannot be told from 0, and the fit would distribute the weight of 0
    over them. The mode is searched between the quartiles of the estimates. For large tables a random subset is used.
    """
    rng = np.random.default_rng(seed)
    low, high = np.quantile(truth_N, [0.25, 0.75])
    some = rng.permutation(len(truth_N))
    few, many = some[:MODE_TURNS], some[:FIT_TURNS]

    def loss(mode: float) -> float:
        return -_fit(truth_N[few], se_N[few], mode, MODE_STEPS)[1]

    tried = {float(mode): loss(float(mode)) for mode in (0.0, *np.linspace(low, high, 9))}
    mode = min(tried, key=tried.__getitem__)
    step = (high - low) / 8
    if step > 0:
        nearby, loss_there = lowest(loss, mode - step, mode + step, MODE_SEARCH)
        mode = nearby if loss_there < tried[mode] - FIT_GAIN else mode
    return _fit(truth_N[many], se_N[many], mode, FIT_STEPS)[0]


def lowest(function: Callable[[float], float], low: float, high: float, steps: int) -> tuple[float, float]:
    """(x, value) of the lowest value found between two points, by golden-section search (Kiefer 1953).

    Each step shortens the interval to 0.618 of its length.
    """
    ratio = (5**0.5 - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    value_left, value_right = function(left), function(right)
    for _ in range(steps):
        if value_left < value_right:
            high, right, value_right = right, left, value_left
            left = high - ratio * (high - low)
            value_left = function(left)
        else:
            low, left, value_left = left, right, value_right
            right = low + ratio * (high - low)
            value_right = function(right)
    return min((left, value_left), (right, value_right), key=lambda found: found[1])


def _fit(truth_N: np.ndarray, se_N: np.ndarray, mode: float, steps: int) -> tuple[Prior, float]:
    """The mixture around `mode` by expectation-maximisation, and its mean log-likelihood (up to a constant)."""
    off_N = truth_N - mode
    largest = 2 * max(float(np.abs(off_N).max()), float(se_N.max()))
    smallest = max(float(np.quantile(se_N, 0.05)) / 2, largest * 1e-4)
    spread_K = np.concatenate([[0.0], smallest * np.sqrt(2) ** np.arange(1 + np.ceil(2 * np.log2(largest / smallest)))])
    variance_NK = spread_K**2 + se_N[:, None] ** 2
    log_NK = -0.5 * (off_N[:, None] ** 2 / variance_NK + np.log(variance_NK))
    top_N = log_NK.max(1)
    likely_NK = np.exp(log_NK - top_N[:, None])
    weight_K = np.full(len(spread_K), 1 / len(spread_K))
    before = now = -np.inf
    for _ in range(steps):
        total_N = likely_NK @ weight_K
        weight_K = weight_K * ((1 / total_N) @ likely_NK) / len(truth_N)
        now = float(np.log(total_N).mean())
        if now - before < FIT_GAIN:
            break
        before = now
    return Prior(mode, spread_K, weight_K), now + float(top_N.mean())


class Posterior:
    """The posterior of A given a: a mixture of normals for each turn."""

    def __init__(self, prior: Prior, truth_N: np.ndarray, se_N: np.ndarray) -> None:
        variance_NK = prior.spread_K**2 + se_N[:, None] ** 2
        with np.errstate(divide="ignore"):
            log_NK = np.log(prior.weight_K) - 0.5 * (
                (truth_N[:, None] - prior.mode) ** 2 / variance_NK + np.log(variance_NK)
            )
        log_NK -= log_NK.max(1, keepdims=True)
        share_NK = np.exp(log_NK)
        self._upto_NK = np.cumsum(share_NK / share_NK.sum(1, keepdims=True), axis=1, dtype=np.float32)
        self._prior, self._truth_N, self._se_N = prior, truth_N, se_N

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """One truth (N,)."""
        part_N = (rng.random(len(self._truth_N))[:, None] > self._upto_NK[:, :-1]).sum(1)
        variance_N = self._prior.spread_K[part_N] ** 2
        kept_N = variance_N / (variance_N + self._se_N**2)
        mean_N = self._prior.mode + kept_N * (self._truth_N - self._prior.mode)
        return mean_N + np.sqrt(kept_N) * self._se_N * rng.standard_normal(len(part_N))


def noise(scored: Scored, rng: np.random.Generator) -> np.ndarray:
    """New errors (N,) of the estimates.

    If the value of the state after a turn's action is the same estimate as the value before the next turn (both are in
    the branches, and equal), the two turns share its error with opposite signs, as they do in the table.
    """
    if scored.v_N is None or scored.q_N is None:
        return scored.se_N * rng.standard_normal(len(scored))
    before_N, after_N = rng.standard_normal((2, len(scored)))
    follows = scored.follows()
    before_N[follows + 1] = after_N[follows]
    error_N = scored.q_N[:, 1] * after_N - scored.v_N[:, 1] * before_N
    return scored.in_proportion(error_N)


def ceilings(
    scored: Scored,
    resamples: Resamples,
    seed: int,
    measures: Mapping[str, Measure] = HEADLINE,
    by_halves: Collection[str] = ("rank_correlation",),
) -> dict[str, Ceiling]:
    """The ceiling of each measure: of those in `by_halves` from the two halves, where there are any; else simulated."""
    halved = [name for name in measures if name in by_halves and scored.halves_N2 is not None]
    simulated = _simulated(scored, resamples, seed, {name: measures[name] for name in measures if name not in halved})
    return simulated | {name: split_half(scored, resamples, measures[name]) for name in halved}


def _simulated(scored: Scored, resamples: Resamples, seed: int, measures: Mapping[str, Measure]) -> dict[str, Ceiling]:
    """The mean score of truths that are drawn, against an estimate of each."""
    rng = np.random.default_rng(seed)
    exact_N = scored.se_N <= 1e-9 * scored.scale
    draws = int(np.clip(DRAWN_TURNS // len(scored), 2, MOST_DRAWS))
    posterior = None
    if not exact_N.all():
        prior = fit_prior(scored.truth_N[~exact_N], scored.se_N[~exact_N], seed)
        posterior = Posterior(prior, scored.truth_N[~exact_N], scored.se_N[~exact_N])
    else:
        draws = 1
    value_KB: dict[str, list[np.ndarray]] = {name: [] for name in measures}
    mean_K: dict[str, list[float]] = {name: [] for name in measures}
    groups = dict.fromkeys(measures, 0)
    for draw in range(draws):
        truth_N = scored.truth_N.copy()
        if posterior is not None:
            truth_N[~exact_N] = posterior.draw(rng)
        observed = replace(scored, truth_N=truth_N + noise(scored, rng))
        for name, measure in measures.items():
            statistic = measure(truth_N, observed)
            mean_K[name].append(statistic.value)
            groups[name] = max(groups[name], statistic.groups)
            rows = resamples.weight_BJ[draw::draws]
            value_KB[name].append(statistic.of(rows @ resamples.blocks(statistic.sums_GK)))
    out = {}
    for name in measures:
        values = np.array(mean_K[name])
        value = float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")
        low, high = resamples.interval(np.concatenate(value_KB[name]), groups[name])
        out[name] = Ceiling(value, low, high, draws)
    return out


def split_half(scored: Scored, resamples: Resamples, measure: Measure = HEADLINE["rank_correlation"]) -> Ceiling:
    """The ceiling of a correlation or cosine from how well one half of the continuations agrees with the other.

    If the halves correlate by r, the whole has the reliability 2r / (1 + r) (Spearman 1910, Brown 1910), and the truth
    correlates with the whole by its square root. Only the halves' errors have to be independent for that, if r is the
    same in every rollout. Where rollouts differ in it, the formula of their mean r is above the mean of their formulas
    (it is concave), so the ceiling is an upper bound of what the truth scores; r is about a lower one.
    """
    first_N, second_N = scored.halves_N2.T  # type: ignore[union-attr]
    statistic = measure(first_N, replace(scored, truth_N=second_N))
    drawn_B = statistic.of(resamples.weight_BJ @ resamples.blocks(statistic.sums_GK))
    low, high = resamples.interval(_of_halves(drawn_B), statistic.groups)
    return Ceiling(float(_of_halves(statistic.value)), low, high, 1)


def _of_halves(correlation: np.ndarray | float) -> np.ndarray:
    """What the truth scores against the whole, if one half scores this against the other; 0 below 0."""
    kept = np.maximum(correlation, 0.0)
    return np.sqrt(2 * kept / (1 + kept))
