"""Success rates, paired differences and their intervals: the statistics of the report, as pure functions of tables.

An *evals* frame has one row per evaluated rollout (schema "evals" in `turncredit.data.tables`). Success is counted once
per rollout, never per turn. Suffixes: `_S` seeds, `_C` cells (round, game).

The interval of a mean over seeds and games
-------------------------------------------
Every seed of every method plays the same games, so an outcome (or a difference of two outcomes) `d[s, r, g]` of seed
s on game g of round r carries four independent parts: the seed's training, the seed's policy in that round, the game,
and chance. Resampling seeds alone forgets that the games are a sample; resampling rollouts alone forgets that they
share a seed. `crossed_mean` accounts for both factors, by the analysis of variance of a crossed design without
replication (Searle, Casella & McCulloch 1992, ch. 4; two-way clustering: Cameron, Gelbach & Miller 2011, eq. 2.11):

    Var(mean) = V_seed + V_game - V_both,    at least max(V_seed, V_game)

`V_seed` is the variance of the seeds' means over S; `V_game` the variance, within a round, of the games' means over
seeds; `V_both` the variance of the residual, which the first two both contain. The rounds are fixed, not
sampled: "the mean of the last three rounds" is the quantity itself. The interval is Student's t with Satterthwaite's
degrees of freedom, at least those of the factor that has fewer, so four seeds that disagree widen it as they should.
With one seed only `V_game` can be estimated and the interval covers the choice of games alone; where a round has one
game only `V_seed` can, and it covers the choice of seeds alone; `Estimate.covers` says so. It is a closed form: no
random numbers, and the same tables give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from turncredit.errors import UserError
from turncredit.stats.distributions import student_cdf
from turncredit.stats.levels import LEVEL, normal_half, student_half

#: The key of an evaluated rollout.
ROLLOUT_KEY = ["method", "seed", "round", "mode", "task_id", "repeat"]
_GAMES = "games only (one seed)"
#: Seeds below which no difference counts as shown. Two may agree by chance: then p is below .05 in 6 to 11% of
#: experiments without a difference, by simulation (docs/report.md); with three it is in 5 to 6%.
FEWEST_SEEDS = 3
#: Differences of this share of the largest value are rounding of sums.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval. `covers` names what the interval accounts for.

    `p` is two-sided, against zero; NaN with one seed, since it would not account for the choice of the seed. `error` is
    the standard error; where nothing varies it is that of a normal interval as wide as the bound.
    """

    value: float
    low: float
    high: float
    p: float
    rollouts: int
    seeds: int
    games: int
    covers: str
    error: float = float("nan")

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def wilson(
    successes: np.ndarray | int, trials: np.ndarray | int, level: float = LEVEL
) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's score interval of a proportion (Wilson 1927), elementwise. NaN without any trials.

    Raises ValueError if successes are below zero or above trials.
    """
    successes, trials = np.asarray(successes, dtype=float), np.asarray(trials, dtype=float)
    if np.any(successes < 0) or np.any(successes > trials):
        raise ValueError("successes must be between 0 and the number of trials")
    z = normal_half(1.0, level)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = successes / trials
        centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
        half = z / (1 + z * z / trials) * np.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    # At 0 and 1 the exact bound is the proportion itself; rounding must not move it to the wrong side.
    low = np.where(successes == 0, np.where(trials > 0, 0.0, np.nan), np.clip(centre - half, 0, 1))
    high = np.where(successes == trials, np.where(trials > 0, 1.0, np.nan), np.clip(centre + half, 0, 1))
    return low, high


def check_once_per_rollout(evals: pd.DataFrame, where: str = "evals") -> None:
    """Raise UserError if a rollout occurs twice, for instance in a table with one row per turn."""
    twice = evals.duplicated(ROLLOUT_KEY)
    if twice.any():
        first = evals.loc[twice.idxmax(), ROLLOUT_KEY].to_dict()
        text = ", ".join(f"{name}={value}" for name, value in first.items())
        raise UserError(f"{where}: the rollout ({text}) occurs more than once; success is counted once per rollout")


def rates(evals: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Success with Wilson bounds for each combination of `by`; one row each, in sorted order.

    Columns beside `by`: `rollouts`, `successes`, `success`, `low`, `high`.
    """
    check_once_per_rollout(evals)
    won = evals.assign(won=evals["success"].astype(int)).groupby(list(by), sort=True, observed=True)["won"]
    sums = won.agg(rollouts="size", successes="sum")
    low, high = wilson(sums["successes"].to_numpy(), sums["rollouts"].to_numpy())
    return sums.assign(success=sums["successes"] / sums["rollouts"], low=low, high=high).reset_index()


def last_rounds(rounds: Iterable[int]) -> list[int]:
    """The last three rounds: the final figure of a run is their mean, never the best of them."""
    return sorted(set(rounds))[-3:]


def played(evals: pd.DataFrame) -> pd.Series:
    """Whether a row is a rollout of its own: a policy that stays the same plays the same games once (`eval.fresh:
    false`), and its rows are repeated in later rounds."""
    return ~evals.duplicated(["policy_id", "mode", "task_id", "repeat"])


def cells(evals: pd.DataFrame) -> pd.DataFrame:
    """One row per (seed, round, task_id): `value`, the mean success over repeats; `rollouts`, the number `played`."""
    check_once_per_rollout(evals)
    frame = evals.assign(won=evals["success"].astype(float), played=played(evals))
    grouped = frame.groupby(["seed", "round", "task_id"], sort=True)
    return grouped.agg(value=("won", "mean"), rollouts=("played", "sum")).reset_index()


def paired_cells(left: pd.DataFrame, right: pd.DataFrame, *, shared: bool = False) -> pd.DataFrame:
    """Differences left - right of the same seed, round, game and repeat; columns as `cells`.

    `shared`: `right` has one policy for all seeds (the SFT policy), with which each seed of `left` is compared.
    Raises UserError if the two have no game in common, or if one lacks a game that the other has in a common round: a
    difference over different games would not be paired.
    """
    for frame in (left, right):
        check_once_per_rollout(frame)
    keys = ["round", "task_id", "repeat"] if shared else ["seed", "round", "task_id", "repeat"]
    right = right[[*keys, "success"]]
    both = left[["seed", "round", "task_id", "repeat", "success"]].merge(
        right, on=keys, how="outer", suffixes=("_left", "_right"), indicator=True
    )
    block = ["round"] if shared else ["seed", "round"]
    common = both.groupby(block)["_merge"].transform(lambda side: (side == "both").any())
    if not common.any():
        raise UserError(
            "no paired difference: the two methods have no evaluated game in common (seed, round, game, repeat)"
        )
    both = both[common]
    alone = both[both["_merge"] != "both"]
    if len(alone):
        row = alone.iloc[0]
        raise UserError(
            f"no paired difference: only one of the two methods has game '{row['task_id']}' of round {row['round']}; "
            "delete the round's evals.parquet of both and run again"
        )
    value = both["success_left"].astype(float) - both["success_right"].astype(float)
    grouped = both.assign(value=value).groupby(["seed", "round", "task_id"], sort=True)
    out = grouped["value"].agg(value="mean", rollouts="size").reset_index()
    return out.astype({"seed": int})


def crossed_mean(frame: pd.DataFrame, level: float = LEVEL) -> Estimate:
    """The mean over seeds, rounds and games of `frame` (from `cells` or `paired_cells`), with its interval.

    Every round weighs the same, every game the same within its round. All seeds must have the same games (UserError
    otherwise). The module's docstring has the formula. If nothing varies within the rounds, the variance cannot be
    estimated; the bound is then Wilson's for an event that never occurred in that many games, and p that of the sign
    test over G games, 2 / 2^G. Where a round has one game, outcomes differ between rounds, and there is one seed or the
    seeds' means are equal, there is no interval and no p (NaN).
    """
    x_SC, round_C, task_C = _matrix(frame, "value")
    mean, half, error, p, covers = interval(x_SC, round_C, task_C, level)
    rollouts, games = int(frame["rollouts"].sum()), len(np.unique(task_C))
    return Estimate(mean, mean - half, mean + half, p, rollouts, len(x_SC), games, covers, error)


def mean_of_seeds(value_S: np.ndarray, rollouts: int, games: int, level: float = LEVEL) -> Estimate:
    """The mean of one number for each seed, with Student's t over the seeds.

    For numbers that are no mean over the same games, such as each seed's best round: the interval covers the choice of
    seeds alone. There is none with one seed, and none where all seeds agree: that says nothing of how others differ.
    """
    seeds, mean = len(value_S), float(np.mean(value_S))
    if seeds < 2 or np.ptp(value_S) <= ROUNDING * np.abs(value_S).max():
        nan, why = float("nan"), "one seed" if seeds < 2 else "the seeds agree"
        return Estimate(mean, nan, nan, nan, rollouts, seeds, games, f"nothing ({why})")
    error = float(np.std(value_S, ddof=1) / np.sqrt(seeds))
    half = student_half(error, seeds - 1, level)
    return Estimate(mean, mean - half, mean + half, float("nan"), rollouts, seeds, games, "seeds only", error)


def pooled(rows: pd.DataFrame) -> tuple[float, float | None, float | None]:
    """(mean over seeds, low, high) of a measure from the columns `value`, `low`, `high` of its rows, one for each seed.

    The interval is `pooled_half`'s; with one seed its own, which does not cover the choice of the seed. NaN values are
    left out, as SQL's avg does.
    """
    rows = rows[rows["value"].notna()]
    count = len(rows)
    if count == 0:
        return float("nan"), None, None
    value_S = rows["value"].to_numpy()
    value = float(value_S.mean())
    if rows[["low", "high"]].isna().any(axis=None):
        return value, None, None
    if count == 1:
        return value, float(rows["low"].iloc[0]), float(rows["high"].iloc[0])
    half = float(pooled_half(value_S, (rows["high"] - rows["low"]).to_numpy() / 2))
    return value, value - half, value + half


def pooled_half(value_S: np.ndarray, half_S: np.ndarray) -> np.ndarray:
    """Half the width of the interval of a mean over S seeds, from their values and half their own intervals' widths.

    Student's t over the seeds: it covers whatever seeds differ by, also where their errors are unequal (Ibragimov &
    Mueller 2010, theorem 1). A few seeds may agree by chance, so it is at least the interval that holds if nothing but
    their own errors sets them apart. Further axes before the seeds' are carried along.
    """
    count = value_S.shape[-1]
    within = np.sqrt((half_S**2).sum(-1)) / count
    between = student_half(1.0, count - 1) * value_S.std(-1, ddof=1) / np.sqrt(count)
    return np.maximum(within, between)


def _matrix(frame: pd.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`column` as seeds x cells, with each cell's round and game. UserError if a seed lacks a game."""
    values_SC = frame.pivot(index="seed", columns=["round", "task_id"], values=column)
    if values_SC.isna().to_numpy().any():
        seed, (round_, task) = next((s, c) for s, row in values_SC.isna().iterrows() for c, gap in row.items() if gap)
        raise UserError(
            f"seed {seed} has no game '{task}' of round {round_}, which other seeds have; evaluate it again"
        )
    names = values_SC.columns
    return (
        values_SC.to_numpy(),
        names.get_level_values("round").to_numpy(),
        names.get_level_values("task_id").to_numpy(),
    )


class Interval(NamedTuple):
    """A mean, half its interval's width, its standard error, p as in `Estimate`, and what the interval covers."""

    mean: float
    half: float
    error: float
    p: float
    covers: str


def interval(x_SC: np.ndarray, round_C: np.ndarray, task_C: np.ndarray, level: float = LEVEL) -> Interval:
    """`crossed_mean` of a matrix: the value of each seed in each cell, with the cell's round and game."""
    variance, df, covers = _variance(x_SC, round_C, task_C)
    mean = float((x_SC @ _round_weights(round_C)).mean())
    if variance > 0:
        error = float(np.sqrt(variance))
        half, p = student_half(error, df, level), 2 * student_cdf(df, -abs(mean) / error)
    else:
        games = len(np.unique(task_C))
        half = float(1 - wilson(games, games, level)[0]) if variance == 0 else float("nan")
        error = half / normal_half(1.0, level)
        # The t has no error to divide by; all games are on one side of zero, or on it.
        sign_test = 1.0 if mean == 0 else 2.0 ** (1 - games)
        p = sign_test if variance == 0 else float("nan")
    return Interval(mean, half, error, p if len(x_SC) > 1 else float("nan"), covers)


def _round_weights(round_C: np.ndarray) -> np.ndarray:
    """Each cell's weight in the mean of the rounds' means."""
    _, place_C, counts = np.unique(round_C, return_inverse=True, return_counts=True)
    return 1 / (len(counts) * counts[place_C])


def _variance(x_SC: np.ndarray, round_C: np.ndarray, task_C: np.ndarray) -> tuple[float, float, str]:
    """(variance of the mean, degrees of freedom, what it covers) of a crossed seeds x games table.

    The variance is NaN where a round's only game leaves nothing to estimate it from, and 0 where it is rounding.
    """
    seeds = len(x_SC)
    largest = float(np.abs(x_SC).max())
    rounding = (ROUNDING * largest) ** 2
    _, place_C, counts = np.unique(round_C, return_inverse=True, return_counts=True)
    weight_C = _round_weights(round_C)
    # Deviations from the seed's mean in the round: the part that varies between games of one round.
    sums = np.zeros((seeds, len(counts)))
    np.add.at(sums.T, place_C, x_SC.T)
    within_SC = x_SC - (sums / counts)[:, place_C]
    # n / (n - 1) per round, since the round's mean was estimated from the same games.
    spread_C = np.sqrt(counts / np.maximum(counts - 1, 1))[place_C]
    # A game that occurs in several rounds (eval.fresh: false) is one game: its weighted deviations are summed first.
    games, game_C = np.unique(task_C, return_inverse=True)
    psi_SG = np.zeros((seeds, len(games)))
    np.add.at(psi_SG.T, game_C, (within_SC * weight_C * spread_C).T)
    df_game = max(len(games) - len(counts), 1)
    v_game = float((psi_SG.mean(0) ** 2).sum())
    # The variance between games cannot be seen where a round has one, unless all values are equal.
    alone = counts.min() == 1 and float(np.ptp(x_SC)) > ROUNDING * largest
    if seeds == 1:
        if alone:
            return float("nan"), 1, "nothing (one seed, one game in a round)"
        return v_game if v_game > rounding else 0.0, df_game, _GAMES
    v_seed = float((x_SC @ weight_C).var(ddof=1) / seeds)
    if alone:
        return v_seed if v_seed > rounding else float("nan"), seeds - 1, "seeds only (one game in a round)"
    residual_SG = psi_SG - psi_SG.mean(0)
    v_both = float((residual_SG**2).sum() / (seeds * (seeds - 1)))
    variance = max(v_seed + v_game - v_both, v_seed, v_game)
    if variance <= rounding:
        return 0.0, df_game, "seeds and games"
    parts = v_seed**2 / (seeds - 1) + v_game**2 / df_game + v_both**2 / ((seeds - 1) * df_game)
    # Satterthwaite's are too few where V_both is subtracted; the factor with fewer levels alone would have these.
    return variance, float(max(variance**2 / parts, min(seeds - 1, df_game))), "seeds and games"


def points(estimate: Estimate) -> str:
    """A difference of success rates in points with its interval, if any: `+15.1 points [+10.3, +19.9]`."""
    value, low, high = (100 * x for x in (estimate.value, estimate.low, estimate.high))
    if np.isnan(low):
        return f"{value:+z.1f} points (no interval)"
    return f"{value:+z.1f} points [{low:+z.1f}, {high:+z.1f}]"
