"""Does a learned credit model know how a rollout ended from its length or its last turn?

Each model of the round is shown the round's rollouts in the views of `turncredit.audit.leak_measures.VIEWS`, in
which their length, their last turn or both are hidden. We measure how well its prediction then tells successes from
failures, how its values of the remaining turns depend on the rest of the rollout, and how the method's credit changes.

The prediction is R^ = sum_t w_t V_t for a model with attention and the mean of V over the turns shown for the others.
The views are ours. Filler repeats the last turn (`padded`: it can still be read, the length can't) or is
turns of other rollouts (`blind`): filler that a model can tell from a turn marks the end, as zeros and masks do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch

from turncredit.audit import leak_measures as measures
from turncredit.audit.leak_measures import Measured, correlation, measured, outcome_auc
from turncredit.credit import Method, compute
from turncredit.credit.models import replay
from turncredit.credit.models.replay import Rollouts
from turncredit.credit.models.train import CreditModel, apply, check_width
from turncredit.data import tables
from turncredit.data.progress import progress
from turncredit.data.seeding import derive_seed, generator
from turncredit.data.turns import SideTable, Turns
from turncredit.stats.bootstrap import Resamples
from turncredit.stats.rank_correlation import within

#: the share of successful rollouts that go on after the turns of the view `equal_length`
LONG_ENOUGH = 0.75


@dataclass(frozen=True)
class View:
    """Rollouts as a view shows them.

    shown   what the model reads; of M of the R rollouts, W turns wide
    index   their numbers (M)
    own     the turns (M, W) that are the rollout's own and as they were
    cut     whether turns were left out; otherwise every turn is still there, if not as it was
    """

    shown: Rollouts
    index: np.ndarray
    own: np.ndarray
    cut: bool


class Audited(NamedTuple):
    """A round's turns: their table (sorted by rollout and turn), the outcome of each rollout, the true advantage."""

    view: Turns
    table: pa.Table
    won_R: np.ndarray
    true_N: np.ndarray
    side: Mapping[str, pa.Table]


class Learned(NamedTuple):
    """A learned method on one round's turns: its credit model, the hidden states that it reads, other side tables."""

    method: Method
    model: CreditModel
    hiddens: pa.Table
    side: Mapping[str, pa.Table]


def leaks(
    turns: pa.Table,
    learned: Sequence[Learned],
    branches: pa.Table | None,
    *,
    seed: int,
    round: int,
    where: str = "turns",
) -> list[dict]:
    """The rows of a `leaks` table: the learned methods' models on one round's turns.

    `branches` are the turns' true advantages, if known. Raises UserError if the hidden states are not those that a
    model reads.
    """
    rows: list[dict] = []
    for number, (method, model, hiddens, side) in enumerate(learned):
        view, rollouts = replay.load(turns, hiddens, where=where)
        check_width(model, rollouts, f"hidden states of {method.name}")
        rows += measure(model, method, rollouts, audited(turns, view, side, branches), seed=seed, round=round)
        progress(number + 1, len(learned))
    return rows


def audited(turns: pa.Table, view: Turns, side: Mapping[str, pa.Table], branches: pa.Table | None) -> Audited:
    """The round's turns with their outcomes, sorted as `view` is."""
    table = turns.take(pa.array(view.order_N))
    won_N = table.column("success").to_numpy(zero_copy_only=False).astype(bool)
    true_N = np.full(view.n, np.nan)
    if branches is not None:
        true_N = SideTable(view, branches, "branches", partial=True).numbers("advantage_true", "the audit of leaks")
    return Audited(view, table, won_N[view.first_R], true_N, side)


def measure(
    model: CreditModel, method: Method, rollouts: Rollouts, audited: Audited, *, seed: int, round: int
) -> list[dict]:
    """The rows of one method. An untrained model gets only the one about length."""
    view, won_R = audited.view, audited.won_R
    draws = Resamples(view.groups, measures.RESAMPLES, derive_seed("leaks bootstrap", seed, round))
    lengths = measures.length_scores(view.length_R, won_R, view.group_R)
    results = {("length_only", "outcome_auc"): measured(outcome_auc(lengths, won_R, view.group_R, draws), draws)}
    if model.ready:
        rng = generator(seed, "leaks views", round)
        scored: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        for name, shown in views(rollouts, won_R, rng):
            prediction_M, value_MW = outputs(model, shown.shown)
            value_RT = np.full((view.rollouts, int(view.length_R.max())), np.nan)
            width = min(value_MW.shape[1], value_RT.shape[1])
            value_RT[shown.index, :width] = value_MW[:, :width]
            credit_N = rescored(shown, method, audited, value_RT, seed=derive_seed(seed, "credit", round))
            prediction_R = np.full(view.rollouts, np.nan)
            prediction_R[shown.index] = prediction_M
            scored[name] = prediction_R, value_RT, credit_N
            results |= _in_view(name, shown, scored, audited, draws)
    return [
        {"method": method.name, "view": name, "measure": what, **_nullable(value)}
        for (name, what), value in results.items()
    ]


def views(rollouts: Rollouts, won_R: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[str, View]]:
    """Every view of the rollouts by name, the full one first. Views without any rollout are left out."""
    everyone = np.arange(len(rollouts))
    present = rollouts.present.numpy()
    length_R = present.sum(1)
    position_T = np.arange(present.shape[1])
    last = position_T == length_R[:, None] - 1
    yield "full", View(rollouts, everyone, present, cut=False)

    others = rollouts.hidden[_donors(length_R, present.shape[1], rng)]
    repeated = rollouts.hidden[torch.arange(len(rollouts)), torch.from_numpy(length_R - 1)][:, None]
    always = torch.ones_like(rollouts.present)
    after = ~rollouts.present[..., None]
    hidden = torch.where(after, repeated, rollouts.hidden)
    yield "padded", View(replace(rollouts, hidden=hidden, present=always), everyone, present, cut=False)
    at_last = torch.from_numpy(last)[..., None]
    hidden = torch.where(at_last, others, rollouts.hidden)
    yield "masked_last", View(replace(rollouts, hidden=hidden), everyone, present & ~last, cut=False)
    hidden = torch.where(at_last | after, others, rollouts.hidden)
    yield "blind", View(replace(rollouts, hidden=hidden, present=always), everyone, present & ~last, cut=False)

    even = _even_length(length_R, won_R)
    for name, kept_R in (
        ("without_last", length_R - 1),
        ("half", (length_R + 1) // 2),
        ("equal_length", np.where(length_R > even, even, 0)),
    ):
        index = np.flatnonzero(kept_R > 0)
        if len(index):
            own = position_T < kept_R[index, None]
            shown = {
                field: getattr(rollouts, field)[torch.from_numpy(index)]
                for field in ("hidden", "reward", "goal")
                if getattr(rollouts, field) is not None
            }
            yield name, View(Rollouts(present=torch.from_numpy(own), **shown), index, own, cut=True)


@torch.no_grad()
def outputs(model: CreditModel, shown: Rollouts) -> tuple[np.ndarray, np.ndarray]:
    """The model's prediction for each rollout (M), and V (M, W), NaN where no turn is shown."""
    value_N, weight_N = apply(model, shown)
    value_MW, weight_MW = (np.full(shown.present.shape, np.nan) for _ in range(2))
    value_MW[shown.present.numpy()] = value_N
    weight_MW[shown.present.numpy()] = np.nan_to_num(weight_N, nan=1.0)  # without attention: the mean
    return np.nansum(value_MW * weight_MW, 1) / np.nansum(weight_MW, 1), value_MW


def rescored(shown: View, method: Method, audited: Audited, value_RT: np.ndarray, *, seed: int) -> np.ndarray:
    """The method's advantage (N) on the values of a view; NaN for turns that the view leaves out.

    If a view cuts rollouts, the whole return goes to the last remaining turn, as in training.
    """
    view, table = audited.view, audited.table
    value_N = value_RT[view.rollout_N, view.turn_N]
    keep_N = np.ones(view.n, dtype=bool)
    if shown.cut:
        kept_R = np.zeros(view.rollouts, dtype=np.int64)
        kept_R[shown.index] = shown.own.sum(1)
        keep_N = view.turn_N < kept_R[view.rollout_N]
        reward_N = np.where(view.turn_N == kept_R[view.rollout_N] - 1, view.return_R[view.rollout_N], 0.0)
        table = table.set_column(table.column_names.index("reward"), "reward", pa.array(reward_N))
        table = table.filter(pa.array(keep_N))
    values = table.select(tables.KEYS).append_column("value", pa.array(value_N[keep_N]))
    credits = compute(table, method, {**audited.side, "values": values}, seed=seed)
    credit_N = np.full(view.n, np.nan)
    credit_N[keep_N] = credits.column("advantage").to_numpy()
    return credit_N


def _in_view(
    name: str,
    shown: View,
    scored: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]],
    audited: Audited,
    draws: Resamples,
) -> dict[tuple[str, str], Measured]:
    """The measures of one view, and of the full view on the same rollouts and turns."""
    view, at = audited.view, shown.index
    won_M, group_M = audited.won_R[at], view.group_R[at]
    (prediction_R, value_RT, credit_N), (full_R, full_RT, full_N) = scored[name], scored["full"]
    own_RT = np.zeros(value_RT.shape, dtype=bool)
    own_RT[at] = shown.own[:, : value_RT.shape[1]]
    own_N = own_RT[view.rollout_N, view.turn_N]
    both_N = own_N & ~np.isnan(audited.true_N)
    results = {"rank_with_truth": _rank(credit_N, audited.true_N, both_N, audited, draws)} if both_N.any() else {}
    here = outcome_auc(prediction_R[at], won_M, group_M, draws)
    results["outcome_auc"] = measured(here, draws)
    if name != "full":
        full = outcome_auc(full_R[at], won_M, group_M, draws)
        results["outcome_auc_full"] = measured(full, draws)
        results["outcome_drop"] = measured(full - here, draws)
        # A rollout of one turn has none left if its last is hidden.
        some = at[own_RT[at].any(1)]
        kept, knowing = (
            outcome_auc(_mean(part[some], own_RT[some]), audited.won_R[some], view.group_R[some], draws)
            for part in (value_RT, full_RT)
        )
        results["kept_auc"] = measured(kept, draws)
        results["kept_auc_full"] = measured(knowing, draws)
        results["hindsight"] = measured(knowing - kept, draws)
        results["rank_with_full"] = _rank(credit_N, full_N, own_N, audited, draws)
    return {(name, what): value for what, value in results.items()}


def _rank(x_N: np.ndarray, y_N: np.ndarray, keep_N: np.ndarray, audited: Audited, draws: Resamples) -> Measured:
    view = audited.view
    ranked = within(x_N[keep_N], y_N[keep_N], view.rollout_N[keep_N], view.rollouts)
    return correlation(ranked, view.group_R, draws)


def _mean(value_MT: np.ndarray, own_MT: np.ndarray) -> np.ndarray:
    return np.where(own_MT, value_MT, 0.0).sum(1) / own_MT.sum(1)


def _donors(length_R: np.ndarray, turns: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """For each rollout and position (R, T): the (rollout, position) of the turn that replaces it.

    A turn at the same position that was not its rollout's last. If all rollouts ended there (at the horizon), at the
    nearest earlier position with such a turn: rollouts that reach the horizon must not be recognisable by it.
    """
    donor, place = (np.zeros((len(length_R), turns), dtype=np.int64) for _ in range(2))
    went_on = length_R > np.arange(1, turns + 1)[:, None]
    for position in range(turns):
        at = next((earlier for earlier in range(position, -1, -1) if went_on[earlier].any()), position)
        pool = np.flatnonzero(went_on[at]) if went_on[at].any() else np.flatnonzero(length_R > position)
        donor[:, position], place[:, position] = rng.choice(pool, size=len(length_R)), at
    return torch.from_numpy(donor), torch.from_numpy(place)


def _even_length(length_R: np.ndarray, won_R: np.ndarray) -> int:
    """How many turns the view `equal_length` shows: as many as `LONG_ENOUGH` of the successes go on after."""
    ends = length_R[won_R] if won_R.any() else length_R
    return int(np.quantile(ends, 1 - LONG_ENOUGH, method="lower")) - 1


def _nullable(value: Measured) -> dict[str, float | None]:
    return {name: None if np.isnan(part) else part for name, part in value._asdict().items()}
