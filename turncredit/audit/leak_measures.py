"""The measures of the table `leaks`, and a one-sentence summary for each learned credit model. Does not import torch.

A credit model may know how a rollout ended without knowing which turn mattered: in an environment that stops at
success, a rollout's length reveals it, and so may its last turn. The credit of the other turns may then be arbitrary
although it fits the return perfectly. `turncredit.audit.leak_tests` shows each model the same rollouts in several
views, each with one of these shortcuts removed; this module scores a view.

Suffixes: `_R` rollouts, `_M` those that a view shows, `_G` groups, `_B` bootstrap samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from turncredit.stats.bootstrap import FEWEST_GROUPS, Resamples
from turncredit.stats.rank_correlation import Ranked, auc, mean_correlation, weighted_auc

#: view -> what the model is shown
VIEWS = {
    "full": "the rollouts as they are",
    "padded": "all padded to the longest: after a rollout's end its last turn is repeated",
    "masked_last": "the last turn's state is replaced by that of another rollout that went on, at the same position",
    "blind": "both: the last turn and everything after it are turns of other rollouts that went on",
    "without_last": "the last turn is left out",
    "half": "the first half of each rollout",
    "equal_length": "the first m turns of the rollouts that continue after them: no end visible, all of one length",
    "length_only": "no model: the success rate of the other groups' rollouts of the same length",
}
#: measure -> what it says
MEASURES = {
    "outcome_auc": "the probability that the model's prediction for a success is above its prediction for a failure",
    "outcome_auc_full": "the same rollouts, shown in full",
    "outcome_drop": "the loss from the view: the difference of these two",
    "kept_auc": "the same probability for the mean of V over the rollout's own turns that the view shows",
    "kept_auc_full": "these turns' V where the model sees the whole rollout",
    "hindsight": "how much these turns' V depend on the rest of the rollout: the difference of these two",
    "rank_with_full": "the credit in this view against the credit in full: Spearman within rollouts",
    "rank_with_truth": "the credit in this view against the true advantage: Spearman within rollouts",
}
#: A smaller difference of two AUCs is not reported, however certain it is.
MARGIN = 0.1
RESAMPLES = 1000


class Measured(NamedTuple):
    """A value with its bootstrap interval over task groups; NaN if it could not be measured.

    There is no interval below `FEWEST_GROUPS` groups, and so no difference that counts.
    """

    value: float
    low: float
    high: float


NOTHING = Measured(np.nan, np.nan, np.nan)


class Samples(NamedTuple):
    """A measure on M rollouts: its value, that in each of B resamples of the task groups, and its number of groups."""

    value: float
    value_B: np.ndarray
    groups: int

    def __sub__(self, other: Samples) -> Samples:
        """The paired difference of two measures on the same rollouts."""
        return Samples(self.value - other.value, self.value_B - other.value_B, self.groups)


def outcome_auc(score_M: np.ndarray, won_M: np.ndarray, group_M: np.ndarray, draws: Resamples) -> Samples:
    """The probability that a success's score is above a failure's, over all rollouts together."""
    groups = len(np.unique(group_M))
    return Samples(auc(score_M, won_M), weighted_auc(score_M, won_M, draws.weights(group_M)), groups)


def measured(samples: Samples, draws: Resamples) -> Measured:
    """The value with its bootstrap interval over task groups."""
    if np.isnan(samples.value):
        return NOTHING
    if samples.groups < FEWEST_GROUPS:
        return Measured(samples.value, np.nan, np.nan)
    return Measured(samples.value, *draws.interval(samples.value_B, samples.groups))


def correlation(ranked: Ranked, group_R: np.ndarray, draws: Resamples) -> Measured:
    """The mean of rank correlations within rollouts (`turncredit.stats.rank_correlation`), as fidelity's."""
    statistic = mean_correlation(ranked, group_R, draws.groups)
    return measured(Samples(statistic.value, draws.values(statistic), statistic.groups), draws)


def length_scores(length_R: np.ndarray, won_R: np.ndarray, group_R: np.ndarray) -> np.ndarray:
    """For each rollout (R) the success rate of the other groups' rollouts of its length.

    One success in two is added to each rate, so that a length that occurs in no other group gets .5 (and not the
    overall rate without the rollout's own group, which is lower for successful rollouts).
    """
    lengths, length_code_R = np.unique(length_R, return_inverse=True)
    groups = int(group_R.max()) + 1
    cell_R = group_R * len(lengths) + length_code_R
    count_GL = np.bincount(cell_R, minlength=groups * len(lengths)).reshape(groups, -1)
    won_GL = np.bincount(cell_R, won_R, groups * len(lengths)).reshape(groups, -1)
    count_GL, won_GL = count_GL.sum(0) - count_GL, won_GL.sum(0) - won_GL
    return ((won_GL + 1) / (count_GL + 2))[group_R, length_code_R]


# ------------------------------------------------------------------ in words


def leak_summaries(rows: Iterable[Mapping]) -> dict[str, str]:
    """One sentence for each method of a `leaks` table (its rows as dicts, `Table.to_pylist()`), in their order."""
    by_method: dict[str, dict[tuple[str, str], Measured]] = {}
    for row in rows:
        of_method = by_method.setdefault(row["method"], {})
        of_method[row["view"], row["measure"]] = Measured(*(_number(row[key]) for key in Measured._fields))
    return {method: leak_summary(measures) for method, measures in by_method.items()}


def leak_summary(measures: Mapping[tuple[str, str], Measured]) -> str:
    """The sentence on one method from its measures, by (view, measure). Differences below `MARGIN` do not count."""
    full = measures.get(("full", "outcome_auc"), NOTHING)
    length = measures.get(("length_only", "outcome_auc"), NOTHING)
    if ("full", "outcome_auc") not in measures:
        return "not trained yet: no values in this round"
    if np.isnan(full.value):
        return "all rollouts have the same outcome: nothing to predict"
    if np.isnan(full.low):
        return f"AUC {_two(full.value)} in full, in fewer than {FEWEST_GROUPS} task groups: too few for more"
    return "; ".join([_reading(measures, full), *_hindsight(measures), *_against_truth(measures), *_length(length)])


def _reading(measures: Mapping[tuple[str, str], Measured], full: Measured) -> str:
    """The source of the prediction's knowledge of the outcome."""
    predicts = abs(full.value - 0.5) >= MARGIN and (full.low > 0.5 or full.high < 0.5)
    if not predicts:
        return f"hardly predicts the outcome (AUC {_two(full.value)} [{_two(full.low)}, {_two(full.high)}])"
    if full.value < 0.5:
        return f"predicts the outcome with the wrong sign (AUC {_two(full.value)})"
    shortcuts = {
        "padded": ("infers the outcome from the length", "padded to equal length"),
        "masked_last": ("infers the outcome from the last turn", "with the last turn hidden"),
        "blind": ("infers the outcome from the end (length or last turn)", "with both hidden"),
    }
    closed = [view for view in shortcuts if clear(measures.get((view, "outcome_drop"), NOTHING))]
    shown = [view for view in closed if view != "blind"] or closed
    if not shown:
        blind = measures.get(("blind", "outcome_auc"), NOTHING)
        return (
            f"infers the outcome from the events: AUC {_two(full.value)} in full, "
            f"{_two(blind.value)} with length and last turn hidden"
        )
    sources = " and ".join([shortcuts[shown[0]][0], *(_source(shortcuts[view][0]) for view in shown[1:])])
    left = ", ".join(f"{_two(measures[view, 'outcome_auc'].value)} {shortcuts[view][1]}" for view in shown)
    return f"{sources}: AUC {_two(full.value)} in full, {left}"


def _hindsight(measures: Mapping[tuple[str, str], Measured]) -> list[str]:
    difference = measures.get(("half", "hindsight"), NOTHING)
    if not clear(difference):
        return []
    knowing, blind = (measures["half", name].value for name in ("kept_auc_full", "kept_auc"))
    return [f"values of early turns depend on the end: AUC {_two(knowing)}, {_two(blind)} without it"]


def _against_truth(measures: Mapping[tuple[str, str], Measured]) -> list[str]:
    rank = measures.get(("full", "rank_with_truth"), NOTHING)
    if np.isnan(rank.value):
        return []
    between = "" if np.isnan(rank.low) else f" [{rank.low:+.2f}, {rank.high:+.2f}]"
    reversed_ = " (reversed)" if rank.high < 0 else ""
    return [f"rank correlation of credit with the truth {rank.value:+.2f}{between}{reversed_}"]


def _length(length: Measured) -> list[str]:
    return [] if np.isnan(length.value) else [f"length alone: AUC {_two(length.value)}"]


def clear(difference: Measured) -> bool:
    """Whether a difference of two AUCs is reported: at least `MARGIN`, and its interval above zero."""
    return difference.value >= MARGIN and difference.low > 0


def _source(words: str) -> str:
    return words.removeprefix("infers the outcome ")


def _two(value: float) -> str:
    """`.93`, `1.00`: two decimals, without a leading zero."""
    return f"{value:.2f}".removeprefix("0")


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def text(rows: Sequence[Mapping]) -> str:
    """The sentences of a `leaks` table, one line per method."""
    return "\n".join(f"{method}: {line}" for method, line in leak_summaries(rows).items())
