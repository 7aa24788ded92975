"""Signal and noise of the policy gradient that each method's advantages give on the same rollouts.

The gradient of the update's loss at the policy that sampled the rollouts (every ratio is 1) is linear in the
advantages: g_i = sum over the turns t of rollout i of c_t J_t, where J_t is the gradient of the log-probability of the
turn's response and c_t its advantage times its weight in the loss. One rollout therefore needs only as many backward
passes as the rank of its matrix of coefficients (turns x methods), however many methods there are.

    signal   |E g|^2, as the mean of <g_i, g_j> over pairs of rollouts from different groups. Over all splits of the
             groups into halves it is the mean inner product of the two halves' gradients: unbiased, since rollouts of
             one group share their baseline, but groups share nothing. It may be negative.
    noise    the variance of a minibatch's gradient, summed over parameters: (E |g_i|^2 - signal) / rollouts in it.
    snr      signal / noise of one minibatch.
    cosine   of the mean gradient with flat GRPO's, with the oracle's, and with the true one, from pairs of different
             groups likewise. The true gradient is the one of the true advantages A* of the branched rollouts.

Intervals are Student's t with the delete-one-group jackknife: closed form, and conservative at worst (Efron and Stein
1981), while a bootstrap of so weak a signal would be far too wide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from turncredit.config import LossConfig
from turncredit.credit.parts.baselines import BASELINE, ORACLE
from turncredit.data import tables
from turncredit.data.progress import progress
from turncredit.data.turns import SideTable, Turns
from turncredit.errors import UserError
from turncredit.policy import models
from turncredit.policy.open import OpenPolicy
from turncredit.policy.sampling import device
from turncredit.stats.levels import student_half
from turncredit.training import update as training
from turncredit.training.losses import token_weights
from turncredit.training.sequences import (
    TokenSequence,
    batches,
    by_rollout,
    rollout_numbers,
    sequences_of,
    stack,
    token_logprobs,
)
from turncredit.training.update import training_set

#: Gradients of more parameters than this are projected to this many dimensions.
DIMENSIONS = 16_384
#: The true advantages among the methods whose gradients are summed. No method can have this name.
TRUTH = "A*"
REFERENCES = {"cosine_flat": BASELINE, "cosine_oracle": ORACLE, "cosine_truth": TRUTH}


@dataclass(frozen=True)
class Coefficients:
    """The coefficients of the rollouts in a method's loss.

    turn_N      the factor of each turn's gradient, so that the minibatch's gradient is the mean of its rollouts'
    live_R      the rollouts that its update would learn from
    minibatch   how many of them one step takes
    """

    turn_N: np.ndarray
    live_R: np.ndarray
    minibatch: int


@dataclass(frozen=True)
class GroupSums:
    """One method's gradients, summed over the live rollouts of each of G groups.

    sum_GD (G, D)   sums of the rollouts' gradients; square_G of their squared lengths; count_G number of rollouts
    """

    sum_GD: np.ndarray
    square_G: np.ndarray
    count_G: np.ndarray
    minibatch: int


#: the columns of the turns that are read
COLUMNS = (*training.COLUMNS, "success")


def gradients(
    policy: OpenPolicy,
    turns: pa.Table,
    credits: Mapping[str, pa.Table],
    losses: Mapping[str, LossConfig],
    *,
    tokens_per_pass: int,
    branches: pa.Table | None = None,
    truth_loss: LossConfig | None = None,
) -> tuple[pa.Table, dict[str, float]]:
    """A `gradients` table: signal, noise and cosines of each method's gradient at `policy`, which sampled `turns`.

    `credits` holds each method's credits table, `losses` the settings of its own update (aggregation, scale of the
    advantages, dead groups, minibatch). There is no KL penalty: it is the same for all methods and independent of
    credit. With `branches`, the ground truth of some of the rollouts, and `truth_loss`, the settings of its update,
    each method also has the cosine with the true gradient.
    """
    rollout_N = np.array(rollout_numbers(turns))
    sequences = sequences_of(turns)
    methods = {name: coefficients(turns, table, rollout_N, losses[name], name) for name, table in credits.items()}
    if branches is not None and truth_loss is not None:
        truth = true_credit(turns, branches)
        methods[TRUTH] = coefficients(turns, truth, rollout_N, truth_loss, TRUTH)
    group_R = _groups(turns, rollout_N)
    model = policy.model(trainable=True).eval()
    temperature = turns.column("temperature")[0].as_py()
    sums = group_sums(model, sequences, rollout_N, group_R, methods, temperature, tokens_per_pass)
    rows: list[dict[str, Any]] = []
    for method in credits:
        for measure, numbers in measures(sums, method).items():
            value, low, high = (float(number) if np.isfinite(number) else None for number in numbers)
            rows.append({"method": method, "measure": measure, "value": value, "low": low, "high": high})
    metrics = {"rollouts": float(len(group_R)), "groups": float(group_R.max() + 1)}
    ratios = [row["value"] for row in rows if row["measure"] == "snr" and row["value"] is not None]
    table = pa.Table.from_pylist(rows, schema=tables.schema("gradients"))
    return table, {**metrics, "best_snr": max(ratios)} if ratios else metrics


def _groups(table: pa.Table, rollout_N: np.ndarray) -> np.ndarray:
    """The number of each rollout's group (R,). Raises UserError where there is only one group."""
    number_of: dict[str, int] = {}
    group_N = [number_of.setdefault(name, len(number_of)) for name in table.column("group_id").to_pylist()]
    if len(number_of) < 2:
        raise UserError("the gradient signal needs rollouts of at least two groups; set rollout.tasks to 2 or more")
    group_R = np.zeros(int(rollout_N.max()) + 1, dtype=np.int64)
    group_R[rollout_N] = group_N
    return group_R


def true_credit(turns: pa.Table, branches: pa.Table) -> pa.Table:
    """The true advantages of the branched rollouts' turns as credits of all `turns`; the other turns have zero.

    Successes and failures are branched equally often, whatever their shares (docs/audit.md), so each is weighted by
    how many turns its outcome has for one that was branched: the gradient's direction is then that of all rollouts.
    Raises UserError for branches of other turns.
    """
    view = Turns(turns.select([*tables.KEYS, "reward", "success"]))
    truth = SideTable(view, branches, "branches", partial=True)
    if truth.has_N.sum() < branches.num_rows:
        raise UserError(
            "branches: some turns of the ground truth are not among the turns; give tables of the same rollouts"
        )
    success_N = view.truths("success")
    advantage_N = np.where(truth.has_N, truth.numbers("advantage_true"), 0.0)
    for outcome_N in (success_N, ~success_N):
        advantage_N[outcome_N] *= outcome_N.sum() / max(1, (outcome_N & truth.has_N).sum())
    return pa.table({**{key: turns.column(key) for key in tables.KEYS}, "advantage": view.restore(advantage_N)})


def coefficients(
    turns: pa.Table,
    credit: pa.Table,
    rollout_N: np.ndarray,
    settings: LossConfig,
    method: str,
) -> Coefficients:
    """A method's factor for each turn: its advantage as the update scales it, times the weight of the turn's tokens.

    Turns of rollouts that the method's update leaves out have the factor 0, and the rollouts do not count; turns whose
    `trained` is 0, in credits that have that column, have the factor 0.
    """
    learned, advantage_N, _ = training_set(turns, credit, settings, f"credits of {method}")
    live_R = np.zeros(int(rollout_N.max()) + 1, dtype=bool)
    live_R[[sequence.rollout for sequence in learned]] = True
    weight_N = np.zeros(len(rollout_N))
    if not learned:
        return Coefficients(weight_N, live_R, settings.minibatch)
    rows = [sequence.turn[sequence.turn >= 0] for sequence in learned]
    numbers = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor([len(part) for part in rows]))
    # The weight is the same for all tokens of a turn: they are in one sequence.
    weight_N[np.concatenate(rows)] = token_weights(numbers, settings.loss_aggregation).double().numpy()
    whole = settings.minibatch if settings.loss_aggregation == "token-sum" else live_R.sum()
    return Coefficients(advantage_N * weight_N * whole, live_R, settings.minibatch)


def group_sums(
    model: torch.nn.Module,
    sequences: Sequence[TokenSequence],
    rollout_N: np.ndarray,
    group_R: np.ndarray,
    methods: Mapping[str, Coefficients],
    temperature: float,
    tokens_per_pass: int,
) -> dict[str, GroupSums]:
    """Each method's gradients summed over groups, with one pass over the rollouts."""
    groups = int(group_R.max()) + 1
    coefficient_NM = np.stack([method.turn_N for method in methods.values()], axis=1)
    squares = np.zeros((len(methods), groups))
    gradient_MGD: np.ndarray | None = None
    for rollout, gradient_MD in rollout_gradients(
        model, sequences, rollout_N, coefficient_NM, temperature, tokens_per_pass
    ):
        if gradient_MGD is None:
            gradient_MGD = np.zeros((len(methods), groups, gradient_MD.shape[1]), dtype=np.float32)
        gradient_MGD[:, group_R[rollout]] += gradient_MD
        squares[:, group_R[rollout]] += (gradient_MD.astype(np.float64) ** 2).sum(1)
        progress(rollout + 1, len(group_R))
    if gradient_MGD is None:
        gradient_MGD = np.zeros((len(methods), groups, 1), dtype=np.float32)
    return {
        name: GroupSums(
            gradient_MGD[number],
            squares[number],
            np.bincount(group_R, method.live_R, groups),
            method.minibatch,
        )
        for number, (name, method) in enumerate(methods.items())
    }


def rollout_gradients(
    model: torch.nn.Module,
    sequences: Sequence[TokenSequence],
    rollout_N: np.ndarray,
    coefficient_NM: np.ndarray,
    temperature: float,
    tokens_per_pass: int,
) -> Iterator[tuple[int, np.ndarray]]:
    """(rollout, gradients (M, D)) of each rollout with a coefficient that is not zero.

    Backward passes go through an orthonormal basis of the methods' coefficients over the rollout's turns (the left
    singular vectors), and each method's gradient is composed from them.
    """
    parameters = list(models.trained_parameters(model).values())
    project = Projection(sum(parameter.numel() for parameter in parameters), device())
    for rollout, own in by_rollout(sequences).items():
        row_T = np.flatnonzero(rollout_N == rollout)
        basis_TK, size_K, mix_KM = np.linalg.svd(coefficient_NM[row_T], full_matrices=False)
        rank = int((size_K > 1e-10 * size_K[0]).sum()) if size_K[0] > 0 else 0
        if rank == 0:
            continue
        direction_NK = np.zeros((len(rollout_N), rank), dtype=np.float32)
        direction_NK[row_T] = basis_TK[:, :rank]
        total_KD = torch.zeros((rank, project.dimensions), device=device())
        for part in batches(own, tokens_per_pass):
            ids, turn, _ = stack(part, device())
            logprobs = token_logprobs(model, ids, turn >= 0, temperature)
            turn_L = turn[:, 1:][(turn >= 0)[:, 1:]].cpu().numpy()
            for k in range(rank):
                outputs = torch.from_numpy(direction_NK[turn_L, k]).to(logprobs)
                gradients = torch.autograd.grad(logprobs, parameters, outputs, retain_graph=k < rank - 1)
                total_KD[k] += project(gradients)
        mix_MK = (size_K[:rank, None] * mix_KM[:rank]).T.astype(np.float32)
        yield rollout, mix_MK @ total_KD.cpu().numpy()


class Projection:
    """Gradients as vectors of at most `DIMENSIONS` numbers, so that all groups' and methods' fit into memory.

    A count sketch (Charikar, Chen and Farach-Colton 2002): each parameter is added, with a random sign, to a random one
    of the D numbers. Inner products keep their expectation; their error is about sqrt(2 / D) |a| |b|, 1% here. Up to D
    parameters nothing is projected. Sign and index depend only on the number of parameters.
    """

    def __init__(self, parameters: int, where: torch.device) -> None:
        self.dimensions = min(parameters, DIMENSIONS)
        self._exact = parameters <= DIMENSIONS
        if not self._exact:
            rng = torch.Generator().manual_seed(0)
            self._place = torch.randint(DIMENSIONS, (parameters,), generator=rng).to(where)
            self._sign = (torch.randint(2, (parameters,), generator=rng) * 2.0 - 1).to(where)

    def __call__(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """The vector (D,) of a gradient given parameter by parameter."""
        flat = torch.cat([part.reshape(-1).float() for part in parts])
        if self._exact:
            return flat
        return torch.zeros(DIMENSIONS, device=flat.device).index_add_(0, self._place, flat * self._sign)


def measures(sums: Mapping[str, GroupSums], method: str) -> dict[str, tuple[float, float, float]]:
    """`signal`, `noise`, `snr` and the cosines of a method, each (value, low, high); NaN where there is none.

    A cosine is NaN where one of the two signals is not above zero; its interval is NaN as soon as that happens when one
    of the groups is left out. Where noise is large an estimate lies beyond -1 or 1: clipped, methods would seem equal.
    """
    mine = sums[method]
    signal_J, noise_J = _signal(mine, mine), _noise(mine)
    with np.errstate(divide="ignore", invalid="ignore"):
        out = {"signal": signal_J, "noise": noise_J, "snr": np.where(noise_J > 0, signal_J / noise_J, np.nan)}
        for measure, reference in REFERENCES.items():
            if reference in sums:
                other = sums[reference]
                both_J, other_J = _signal(mine, other), _signal(other, other)
                useful_J = (signal_J > 0) & (other_J > 0)
                out[measure] = np.where(useful_J, both_J / np.sqrt(np.abs(signal_J * other_J)), np.nan)
    return {measure: _jackknife(x_J) for measure, x_J in out.items()}


def _signal(one: GroupSums, two: GroupSums) -> np.ndarray:
    """Mean inner product over pairs of rollouts from different groups: of all groups, then without each one (1 + G)."""
    product_GG = one.sum_GD.astype(np.float64) @ two.sum_GD.astype(np.float64).T
    pairs_GG = np.outer(one.count_G, two.count_G)
    top_J, bottom_J = _without_each(product_GG), _without_each(pairs_GG)
    return np.divide(top_J, bottom_J, out=np.full(len(top_J), np.nan), where=bottom_J > 0)


def _without_each(x_GG: np.ndarray) -> np.ndarray:
    """The sum off the diagonal, of the whole matrix and without each row and its column (1 + G)."""
    off_GG = x_GG - np.diag(np.diag(x_GG))
    total = off_GG.sum()
    return np.concatenate([[total], total - off_GG.sum(0) - off_GG.sum(1)])


def _noise(sums: GroupSums) -> np.ndarray:
    """The variance of a minibatch's gradient: of all groups, then without each one (1 + G)."""
    square_J = np.concatenate([[sums.square_G.sum()], sums.square_G.sum() - sums.square_G])
    count_J = np.concatenate([[sums.count_G.sum()], sums.count_G.sum() - sums.count_G])
    mean_J = np.divide(square_J, count_J, out=np.full(len(count_J), np.nan), where=count_J > 0)
    return (mean_J - _signal(sums, sums)) / sums.minibatch


def _jackknife(x_J: np.ndarray) -> tuple[float, float, float]:
    """(value, low, high) of a statistic of all groups (first) and without each one."""
    value, without_G = float(x_J[0]), x_J[1:]
    groups = len(without_G)
    error = np.sqrt((groups - 1) / groups * ((without_G - without_G.mean()) ** 2).sum())
    half = student_half(float(error), groups - 1)
    return value, float(value - half), float(value + half)
