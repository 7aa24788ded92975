"""How well a method's credit agrees with the true advantage: each measure as sums over task groups.

Notation: credit x_t, estimated true advantage a_t with standard error s_t, on the scored turns t = 1..N. All measures
that a constant within the rollout could inflate (who won, which task it was) are taken within rollouts: a *pooled* rank
correlation rewards a method for knowing the outcome, which is not credit assignment.
"""

from __future__ import annotations

import numpy as np

from turncredit.audit.scored_turns import Scored
from turncredit.data.turns import THIRDS, thirds
from turncredit.stats.bootstrap import Statistic, ratio, sums_by
from turncredit.stats.levels import normal_half
from turncredit.stats.rank_correlation import Ranked, mean_correlation, of_ranks, ranks, rounded

#: An effect is clear when it exceeds its standard error and this share of the range of returns.
SMALL = 0.05


def group_of_rollout(scored: Scored) -> np.ndarray:
    """Group number of each rollout number (R)."""
    group_R = np.zeros(scored.rollouts, dtype=np.int64)
    group_R[scored.rollout_N] = scored.group_N
    return group_R


def spearman_R(x_N: np.ndarray, scored: Scored) -> Ranked:
    """Spearman's correlation of credit and truth in each rollout.

    A credit that is constant in a rollout has correlation 0: it orders nothing, which is what flat GRPO should score.
    """
    return of_ranks(scored.ranks(x_N), scored.ranks(scored.truth_N), scored.rollout_N, scored.rollouts)


def rank_correlation(x_N: np.ndarray, scored: Scored) -> Statistic:
    """Mean of the rollouts' rank correlations with the weight n - 1, n the rollout's scored turns."""
    return mean_correlation(spearman_R(x_N, scored), group_of_rollout(scored), scored.groups)


def pooled_correlation(x_N: np.ndarray, scored: Scored) -> Statistic:
    """Spearman's correlation over all turns of all rollouts together: misleading, for comparison only.

    Every resample uses the ranks of the whole table.
    """
    one_N = np.zeros(len(scored), dtype=np.int64)
    middle = (len(scored) - 1) / 2  # so that the ranks of a constant are exactly 0
    u_N, v_N = ((ranks(y_N, one_N) - middle) / len(scored) for y_N in (x_N, scored.truth_N))
    sums = sums_by(scored.group_N, scored.groups, np.ones(len(scored)), u_N, v_N, u_N * v_N, u_N**2, v_N**2)

    def pearson(sums: np.ndarray) -> np.ndarray:
        n, u, v, uv, uu, vv = np.moveaxis(sums, -1, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = np.maximum(uu - u * u / n, 0) * np.maximum(vv - v * v / n, 0)
            return np.where(spread > 1e-20, (uv - u * v / n) / np.sqrt(spread), np.where(vv - v * v / n > 0, 0, np.nan))

    return Statistic(sums, pearson, len(scored))


def sign_agreement(x_N: np.ndarray, scored: Scored) -> Statistic:
    """Share of turns with |a| > s whose credit has the sign of a; a credit of zero is half right."""
    signed_N = (np.abs(scored.truth_N) > scored.se_N) & (rounded(scored.truth_N) != 0)
    right_N = np.where((credited_N := rounded(x_N)) == 0, 0.5, np.sign(credited_N) == np.sign(scored.truth_N))
    return Statistic(sums_by(scored.group_N, scored.groups, signed_N * right_N, signed_N), ratio, int(signed_N.sum()))


def clear_N(scored: Scored) -> np.ndarray:
    """How large an advantage must be to be a clear effect: its standard error, and 5% of the range of returns."""
    return np.maximum(scored.se_N, SMALL * scored.scale)


def regression_auc(x_N: np.ndarray, scored: Scored) -> Statistic:
    """Inside successful rollouts: how often a regression has less credit than another turn of the same rollout.

    A regression is a turn with a < -max(s, 5% of the range of returns). Pairs of a regression and another turn within
    one rollout; ties count half. Credit that is constant in a rollout scores 0.5.
    """
    return _auc(x_N, scored, scored.truth_N < -clear_N(scored), scored.success_N, sign=-1)


def useful_auc(x_N: np.ndarray, scored: Scored) -> Statistic:
    """Inside failed rollouts: how often a useful turn, a > max(s, 5% of the range), has more credit than another."""
    return _auc(x_N, scored, scored.truth_N > clear_N(scored), ~scored.success_N, sign=1)


def _auc(x_N: np.ndarray, scored: Scored, positive_N: np.ndarray, inside_N: np.ndarray, *, sign: int) -> Statistic:
    """The Mann-Whitney U within rollouts over the number of pairs, both summed over rollouts.

    `sign` 1: a positive should have more credit than the others; -1: less.
    """
    positive_N = positive_N & inside_N
    columns = np.ones(len(scored)), positive_N, positive_N * scored.ranks(x_N)
    n_R, p_R, rank_R = sums_by(scored.rollout_N, scored.rollouts, *columns).T
    pairs_R = p_R * (n_R - p_R)
    above_R = rank_R - p_R * (p_R - 1) / 2
    won_R = np.where(pairs_R > 0, above_R if sign > 0 else pairs_R - above_R, 0)
    sums = sums_by(group_of_rollout(scored), scored.groups, won_R, pairs_R)
    return Statistic(sums, ratio, int(n_R[pairs_R > 0].sum()))


#: The measures that have a ceiling, by name.
HEADLINE = {
    "rank_correlation": rank_correlation,
    "sign_agreement": sign_agreement,
    "regression_auc": regression_auc,
    "useful_auc": useful_auc,
}


def within(x_N: np.ndarray, scored: Scored) -> np.ndarray:
    """Deviations from the rollout's mean over its scored turns."""
    sum_R, count_R = sums_by(scored.rollout_N, scored.rollouts, x_N, np.ones(len(scored))).T
    off_N = x_N - (sum_R / np.maximum(count_R, 1))[scored.rollout_N]
    # Values that are constant up to rounding count as constant: dividing by their spread would amplify rounding noise.
    flat_R = np.bincount(scored.rollout_N, np.abs(off_N), scored.rollouts) <= 1e-9 * np.bincount(
        scored.rollout_N, np.abs(x_N), scored.rollouts
    )
    return np.where(flat_R[scored.rollout_N], 0.0, off_N)


def calibration(x_N: np.ndarray, scored: Scored) -> Statistic:
    """The increase of the true advantage per standard deviation of credit, both within rollouts.

    The slope of a on x times the standard deviation of x, all as deviations from the rollout's mean. Noise in a makes
    the slope less certain, not smaller: it is noise of the dependent variable. Constant credit has slope 0.
    """
    x_N, a_N = within(x_N, scored), within(scored.truth_N, scored)
    sums = sums_by(scored.group_N, scored.groups, x_N * a_N, x_N**2, np.ones(len(scored)))

    def slope(sums: np.ndarray) -> np.ndarray:
        xa, xx, n = np.moveaxis(sums, -1, 0)
        return np.divide(xa, np.sqrt(xx * n), out=np.zeros_like(xa), where=xx > 0)

    return Statistic(sums, slope, len(scored))


def true_spread(scored: Scored) -> float:
    """Standard deviation of the true advantage within rollouts: the variance of a minus that of its noise, at least 0.

    Within a rollout of n scored turns the errors' squared deviations from their mean add up to sum(s^2) minus 1 / n of
    the variance of their sum. Neighbouring turns that share a state's error with opposite signs make that variance
    smaller (`Scored.shared_covariance`). A credit proportional to the truth has this calibration.
    """
    count_N = np.bincount(scored.rollout_N, minlength=scored.rollouts)[scored.rollout_N]
    follows, covariance = scored.shared_covariance()
    shared = 2 * (covariance / count_N[follows]).sum() / len(scored)
    noise = np.mean(scored.se_N**2 * (count_N - 1) / count_N) - shared
    return float(np.sqrt(max(np.mean(within(scored.truth_N, scored) ** 2) - noise, 0)))


def error(x_N: np.ndarray, scored: Scored) -> Statistic:
    """Mean squared error of the credit over that of no credit at all, at the credit's best scale b >= 0.

    min over b of sum (A - b x)^2 / sum A^2, with A the true advantage: 0 for the truth, 1 for a credit without
    information (and for one with the wrong sign). Both sums over A are corrected for the noise of a, by sum s^2 and sum
    s^2 x^2. A method may have any scale: the update divides by the batch's RMS.

    NaN where sum A^2, so corrected, is not clearly above zero: below 1.96 of its own standard errors if every A were 0
    (twice the sum of s^4 is then its variance, plus four times that of the squared covariances of neighbours). A share
    of next to nothing has no scale.
    """
    s2_N = scored.se_N**2
    _, covariance = scored.shared_covariance()
    chance = 2 * (s2_N**2).sum() + 4 * (covariance**2).sum()
    if (scored.truth_N**2 - s2_N).sum() <= normal_half(float(np.sqrt(chance))):
        return Statistic(np.zeros((scored.groups, 5)), lambda sums: np.full(sums.shape[:-1], np.nan), len(scored))
    parts = (scored.truth_N * x_N, x_N**2, scored.truth_N**2, s2_N, s2_N * x_N**2)
    return Statistic(sums_by(scored.group_N, scored.groups, *parts), _error_of, len(scored))


def _error_of(sums: np.ndarray) -> np.ndarray:
    ax, xx, aa, ss, ssxx = np.moveaxis(sums, -1, 0)
    true = aa - ss
    fitted = np.where(ax > 0, np.maximum(ax**2 - ssxx, 0), 0)
    share = np.divide(fitted, xx * true, out=np.zeros_like(fitted), where=(xx > 0) & (true > 0))
    return np.where(true > 0, 1 - share, np.nan)


def error_against(x_N: np.ndarray, flat_N: np.ndarray, scored: Scored) -> Statistic:
    """`error` of a credit minus flat GRPO's on the same turns: below zero is better than flat. NaN where `error` is."""
    mine, flat = error(x_N, scored), error(flat_N, scored)
    both = np.concatenate([mine.sums_GK, flat.sums_GK], axis=1)
    half = mine.sums_GK.shape[1]
    return Statistic(both, lambda sums: mine.of(sums[..., :half]) - flat.of(sums[..., half:]), len(scored))


def bias(x_N: np.ndarray, scored: Scored, part_N: np.ndarray) -> Statistic:
    """Mean standardised credit minus mean standardised truth over the turns in `part_N` (bool, N).

    Credit is standardised over all scored turns, truth by the spread of a after removing its noise. Above zero, the
    method gives these turns more than they deserve. A constant credit is 0 everywhere.
    """
    largest = np.abs(x_N).max()
    x_N = x_N - x_N.mean()
    if np.abs(x_N).max() <= 1e-9 * largest:  # constant up to rounding, whose spread says nothing
        x_N = np.zeros_like(x_N)
    a_N = scored.truth_N - scored.truth_N.mean()
    columns = (np.ones(len(scored)), x_N, x_N**2, a_N, a_N**2 - scored.se_N**2, part_N, part_N * x_N, part_N * a_N)

    def difference(sums: np.ndarray) -> np.ndarray:
        n, x, xx, a, aa, m, x_part, a_part = np.moveaxis(sums, -1, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            spread_x = np.sqrt(np.maximum(xx / n - (x / n) ** 2, 0))
            spread_a = np.sqrt(aa / n - (a / n) ** 2)
            credited = np.where(spread_x > 0, (x_part / m - x / n) / spread_x, 0)
            return credited - (a_part / m - a / n) / spread_a

    sums = sums_by(scored.group_N, scored.groups, *columns)
    # All turns set the spreads; a group without a turn of the part says nothing about it.
    return Statistic(sums, difference, int(part_N.sum()), np.array([column is part_N for column in columns]))


def reliability(x_N: np.ndarray, scored: Scored, bins: int = 5) -> list[tuple[str, Statistic, Statistic]]:
    """For turns with similar credit: the mean standardised credit, and the mean true advantage.

    `bins` parts of similar size by credit, fewer if many turns have the same credit. Returns (name, credit, truth),
    lowest credit first.
    """
    spread = x_N.std()
    z_N = (x_N - x_N.mean()) / spread if spread > 1e-9 * max(np.abs(x_N).max(), 1e-300) else np.zeros_like(x_N)
    edges = np.unique(np.quantile(z_N, np.linspace(0, 1, bins + 1)[1:-1]))
    part_N = np.searchsorted(edges, z_N, side="left")
    out = []
    used = [part for part in range(len(edges) + 1) if (part_N == part).any()]
    for number, part in enumerate(used, start=1):
        inside_N = part_N == part
        credit, truth = (
            Statistic(sums_by(scored.group_N, scored.groups, inside_N * y_N, inside_N), ratio, int(inside_N.sum()))
            for y_N in (z_N, scored.truth_N)
        )
        out.append((f"credit:{number}of{len(used)}", credit, truth))
    return out


def subsets(scored: Scored) -> dict[str, np.ndarray]:
    """Turns (bool, N) by position in the rollout, by its length (both in thirds), by its outcome and further labels."""
    third_N = thirds(scored.turn_N, scored.length_N)
    short, long = np.quantile(scored.length_N, [1 / 3, 2 / 3])
    parts = {
        **{f"position:{name}": third_N == number for number, name in enumerate(THIRDS)},
        "length:short": scored.length_N <= short,
        "length:medium": (scored.length_N > short) & (scored.length_N <= long),
        "length:long": scored.length_N > long,
        "outcome:success": scored.success_N,
        "outcome:failure": ~scored.success_N,
    }
    for name, (code_N, values) in scored.labels.items():
        parts |= {f"{name}:{value}": code_N == code for code, value in enumerate(values)}
    return {name: part_N for name, part_N in parts.items() if part_N.any()}
