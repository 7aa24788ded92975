"""One round of clipped policy gradient. Every method shares it; only `advantage` differs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch

from turncredit.config import LossConfig, UpdateConfig
from turncredit.data import tables
from turncredit.data.columns import NOISE, only_value
from turncredit.data.progress import progress
from turncredit.data.seeding import derive_seed, generator
from turncredit.data.turns import Turns, check_logprobs
from turncredit.errors import UserError
from turncredit.policy import models
from turncredit.policy.masters import Masters
from turncredit.policy.open import OpenPolicy
from turncredit.policy.sampling import device
from turncredit.training.losses import adapted_coefficient, clipped, kl_penalty, token_weights
from turncredit.training.optimizers import Optimizers, check_step, make_optimizer
from turncredit.training.sequences import (
    Entropy,
    TokenSequence,
    batches,
    by_rollout,
    rollout_numbers,
    sequences_of,
    stack,
    token_distributions,
    token_logprobs,
)
from turncredit.training.team import Report, Team
from turncredit.training.unfinished import Unfinished

#: What to do about an update whose numbers are not finite.
DIVERGED = "lower update.lr (or update.muon_lr), or warm it up for longer (update.warmup_steps)"
STATE_FILE = "trainer.json"
#: Columns of a step's log row: token means (the loss is a sum), and maxima.
MEANS, LARGEST = ("loss", "clip_fraction", "entropy", "log_ratio"), ("ratio_max", "log_ratio_max")


def update(
    policy: OpenPolicy,
    settings: UpdateConfig,
    data: TrainingSet,
    *,
    reference: OpenPolicy,
    rate: float,
    seed: int,
    round: int,
    team: Team,
    train_dtype: str = "float32",
    moments_dtype: str = "float32",
    unfinished: Unfinished | None = None,
) -> Updated:
    """Improve `policy`, whose model is changed in place, on its own rollouts and their credit.

    reference     the policy that the KL penalty, if any, refers to (the SFT policy)
    rate          the share of the learning rate in this round (`UpdateConfig.rate_in`)
    team          the processes that compute a minibatch together; rows and moments are the first one's
    train_dtype   the type in which whole weights are stepped; `moments_dtype` that of the optimiser's moments
    unfinished    where the state is kept if the job's time limit comes near, which raises OutOfTime; None: nowhere
    """
    state = TrainerState.load(policy.folder, settings)
    advantages = torch.from_numpy(data.advantage_N).float().to(device())
    objective = Objective(settings, advantages, state.kl_coefficient, data.temperature)
    # First, and freed: the reference may be this very policy, and need not be in memory beside the one that trains.
    if settings.kl != "none":
        objective.reference = _logprobs_of(reference.model(), data.sequences, settings, data.temperature, team)
    reference.release()
    masters = policy.masters(train_dtype, checkpointing=settings.gradient_checkpointing, fsdp=team.fsdp)
    model = masters.model
    if settings.old_logprobs == "recomputed":
        computed = [sequence for sequence in data.sequences if objective.has_gradient(sequence)]
        objective.old = _logprobs_of(model, computed, settings, data.temperature, team)
    model.train()
    rounding = derive_seed(seed, "update rounding", round)
    optimizer = make_optimizer(masters, settings, moments_dtype=moments_dtype, rounding_seed=rounding)
    earlier = policy.moments() if settings.keep_optimizer else {}
    optimizer.load_state(earlier)
    steps = list(_minibatches(data.sequences, settings, generator(seed, "update order", round)))
    rows = unfinished.restore(team, masters, optimizer) if unfinished else []
    done = len(rows)
    state.steps += done
    with team.sharing(optimizer.parameters, settings.shards):
        for number, (epoch, batch) in enumerate(steps[done:], start=done):
            if unfinished:
                unfinished.stop_if_due(team, masters, optimizer, rows, len(steps))
            share = rate * min(1.0, (state.steps + 1) / max(1, settings.warmup_steps))
            optimizer.set_rate(share)
            dropout = derive_seed(seed, "update dropout", round, number)
            row = minibatch_step(model, optimizer, team, objective, batch, dropout)
            state.steps += 1
            if team.leads:
                check_step(row, training="the update", step=number + 1, instead=DIVERGED)
                rows.append({"step": state.steps, "epoch": epoch, "lr": share * settings.lr, **row})
                progress(number + 1, len(steps))
    moves = bool(earlier) or settings.weight_decay > 0
    metrics = _summary(rows, state, same_model=not _drops(model), idle_steps_move=moves)
    if settings.kl_target and "kl" in metrics:
        state.kl_coefficient = adapted_coefficient(state.kl_coefficient, metrics["kl"], settings.kl_target)
    # The moments also of a round that had nothing to learn: the next one goes on with them.
    moments = optimizer.state(keep=team.leads) if settings.keep_optimizer else {}
    return Updated(masters, rows, state, moments, metrics)


class TrainingSet(NamedTuple):
    """The data of a round's update: sequences, the advantage of each turn (N), the sampling temperature."""

    sequences: list[TokenSequence]
    advantage_N: np.ndarray
    temperature: float


class Updated(NamedTuple):
    """The result of a round's update: the model, a log row for each step, the state for the next round, metrics."""

    masters: Masters
    rows: list[dict]
    state: TrainerState
    moments: dict[str, torch.Tensor]
    metrics: dict[str, float]

    def save(self, model: torch.nn.Module, folder: Path, *, base: Path, final: Path) -> None:
        """Write the new policy to `folder`, which will be renamed to `final`; tokenizer files come from `base`.

        model   what `masters.in_model()` gives
        """
        models.save_model(model, folder, base=base, final=final, moments=self.moments)
        self.state.save(folder)


#: the columns of the turns that `training_set` reads
COLUMNS = (
    "rollout_id", "turn", "group_id", "context_reset", "prompt_ids", "response_ids", "response_logprobs",
    "temperature", "reward",
)  # fmt: skip


def training_set(turns: pa.Table, credit: pa.Table, settings: LossConfig, where: str = "credits") -> TrainingSet:
    """Sequences to learn from, the advantage of each turn (N,), and the temperature they were sampled at.

    With `skip_dead_groups`, groups whose rollouts all had the same return are left out. Sequences whose advantages are
    all zero stay in their minibatch, as in verl, so that all methods take the same optimiser steps on the same
    minibatches. `where` names the credits in errors.

    Turns whose `trained` is 0, in credits with that column, are context only: their tokens are in no loss and no
    denominator (CARL). Advantages are scaled by the mean square over turns that are learned from.
    """
    for key in tables.KEYS:
        if not turns.column(key).combine_chunks().equals(credit.column(key).combine_chunks()):
            raise UserError(
                f"{where}: its rows are not those of the turns (column '{key}' differs); delete it and run again"
            )
    advantage_N = credit.column("advantage").to_numpy().astype(np.float64)
    if not np.isfinite(advantage_N).all():
        raise UserError(f"{where}: {int((~np.isfinite(advantage_N)).sum())} advantages are not finite")
    check_logprobs(turns, "turns")
    trained_N = np.ones(len(advantage_N), dtype=bool)
    if tables.TRAINED in credit.column_names:
        trained_N = credit.column(tables.TRAINED).to_numpy() != 0
    skipped_N = np.zeros(len(advantage_N), dtype=bool)
    if settings.skip_dead_groups:
        view = Turns(turns.select([*tables.KEYS, "reward"]), where=where)
        skipped_N = view.restore(view.dead_G[view.group_N])
    learned_N = trained_N & ~skipped_N
    if settings.advantage_scale == "rms" and learned_N.any():
        rms = float(np.sqrt(np.mean(advantage_N[learned_N] ** 2)))
        # What is left where all returns are the same but for rounding is noise: it must not become a whole update.
        advantage_N = advantage_N / rms if rms > NOISE else np.zeros_like(advantage_N)
    rollout_N = rollout_numbers(turns)
    skipped = set(np.array(rollout_N)[skipped_N].tolist())
    kept = [one for one in sequences_of(turns, trained_N) if one.rollout not in skipped]
    return TrainingSet(kept, advantage_N, only_value(turns, "temperature", where, "an update"))


def _minibatches(
    sequences: Sequence[TokenSequence], settings: UpdateConfig, rng: np.random.Generator
) -> Iterator[tuple[int, list[TokenSequence]]]:
    """(epoch, sequences) of `minibatch` rollouts each, in a new random order every epoch."""
    of_rollout = by_rollout(sequences)
    for epoch in range(settings.epochs):
        order = rng.permutation(list(of_rollout))
        for start in range(0, len(order), settings.minibatch):
            yield epoch, [sequence for r in order[start : start + settings.minibatch] for sequence in of_rollout[r]]


@dataclass
class Objective:
    """What a round's update minimises, given `advantages` (N,) by turn.

    reference  with KL, the reference's log-probabilities of each sequence, by its id
    old        those that the policy had in training before the round; None: those that were sampled with
    """

    settings: UpdateConfig
    advantages: torch.Tensor
    kl_coefficient: float
    temperature: float
    reference: dict[int, torch.Tensor] | None = None
    old: dict[int, torch.Tensor] | None = None

    @cached_property
    def _nonzero_N(self) -> np.ndarray:
        return (self.advantages != 0).cpu().numpy()

    def has_gradient(self, sequence: TokenSequence) -> bool:
        """Whether the sequence's loss has a gradient: an advantage is not zero, or there is a KL penalty or a bonus."""
        learned = sequence.turn[sequence.turn >= 0]
        always = self.reference is not None or self.settings.entropy_coefficient > 0
        return bool(len(learned)) and (always or bool(self._nonzero_N[learned].any()))

    def add_gradient(
        self, model: torch.nn.Module, sequences: Sequence[TokenSequence], weight_of: dict[int, torch.Tensor], total: int
    ) -> dict[str, float]:
        """Add the gradient of these sequences' loss, in as many passes as `tokens_per_pass` needs.

        `weight_of` has the weights of each one's learned tokens in the minibatch's loss; the part of the minibatch that
        is computed has `total` of these tokens. Returns the sequences' share of the minibatch's log row.
        """
        where, settings = self.advantages.device, self.settings
        row = dict.fromkeys((*MEANS, *LARGEST, "kl"), 0.0)
        wanted: Entropy = "gradient" if settings.entropy_coefficient else "value"
        for part in batches(sequences, settings.tokens_per_pass):
            ids, turn, sampled = stack(part, where)
            learned = turn >= 0
            logprobs, entropy = token_distributions(model, ids, learned, self.temperature, entropy=wanted)
            at = learned[:, 1:]
            weight = torch.cat([weight_of[id(sequence)] for sequence in part]).to(where)
            advantage = self.advantages[turn[:, 1:][at]]
            by_engine = sampled[:, 1:][at]
            old = by_engine if self.old is None else _of(self.old, part, where)
            loss_N, ratio = clipped(logprobs, old, advantage, low=settings.clip_low, high=settings.clip_high)
            if settings.importance_cap is not None:
                loss_N = loss_N * (old - by_engine).exp().clamp(max=settings.importance_cap)
            loss = (loss_N * weight).sum()
            if self.reference is not None:
                penalty = kl_penalty(logprobs, _of(self.reference, part, where), settings.kl)  # type: ignore[arg-type]
                loss = loss + self.kl_coefficient * (penalty * weight).sum()
                row["kl"] += float(penalty.detach().sum()) / total
            assert entropy is not None
            if settings.entropy_coefficient:
                loss = loss - settings.entropy_coefficient * (entropy * weight).sum()
            loss.backward()
            with torch.no_grad():
                row["loss"] += float(loss)
                outside = (ratio < 1 - settings.clip_low) | (ratio > 1 + settings.clip_high)
                row["clip_fraction"] += float(outside.float().sum()) / total
                row["ratio_max"] = max(row["ratio_max"], float(ratio.max()))
                apart = (logprobs - by_engine).abs()
                row["log_ratio"] += float(apart.sum()) / total
                row["log_ratio_max"] = max(row["log_ratio_max"], float(apart.max()))
                row["entropy"] += float(entropy.sum()) / total
        return row


def minibatch_step(
    model: torch.nn.Module,
    optimizer: Optimizers,
    team: Team,
    objective: Objective,
    batch: Sequence[TokenSequence],
    dropout_seed: int,
) -> dict[str, float | None]:
    """One optimiser step on a minibatch. Returns its log row.

    Sequences without a gradient (`Objective.has_gradient`) count in the weights of all tokens, but no pass is spent on
    them; means over tokens in the log row are over the tokens that were computed. A minibatch of such sequences alone
    is a step with gradient 0, in which the optimiser's momentum and weight decay act as in any other.
    """
    sizes = torch.tensor([int((sequence.turn >= 0).sum()) for sequence in batch])
    numbers = torch.repeat_interleave(torch.arange(len(batch)), sizes)
    weights = token_weights(numbers, objective.settings.loss_aggregation).split(sizes.tolist())
    weight_of = {id(sequence): part for sequence, part in zip(batch, weights, strict=True)}
    computed = [sequence for sequence in batch if objective.has_gradient(sequence)]
    total = sum(int((sequence.turn >= 0).sum()) for sequence in computed)

    def compute(shard: int, part: list[TokenSequence]) -> Report:
        torch.manual_seed(derive_seed(dropout_seed, shard))
        return objective.add_gradient(model, part, weight_of, total)

    reports = team.minibatch(model, computed, objective.settings.tokens_per_pass, compute)
    row: dict[str, float | None] = {name: sum(one[name] for one in reports) for name in reports[0]}
    row |= {name: max(one[name] for one in reports) for name in LARGEST}
    if not computed:
        row |= dict.fromkeys((*MEANS[1:], *LARGEST, "kl"))
    if objective.reference is None:
        row.pop("kl")
    norm = optimizer.step(objective.settings.max_grad_norm)
    counts = {"tokens": int(sizes.sum()), "sequences": len(batch), "zero_sequences": len(batch) - len(computed)}
    return {**row, "grad_norm": norm, **counts}


def _of(logprobs: dict[int, torch.Tensor], part: Sequence[TokenSequence], where: torch.device) -> torch.Tensor:
    """The log-probabilities of these sequences' learned tokens, flattened."""
    return torch.cat([logprobs[id(sequence)] for sequence in part]).to(where)


@torch.no_grad()
def _logprobs_of(
    model: torch.nn.Module, sequences: Sequence[TokenSequence], settings: UpdateConfig, temperature: float, team: Team
) -> dict[int, torch.Tensor]:
    """A model's log-probabilities of each sequence's learned tokens, once for the round."""
    model.eval()

    def read(sequences: list[TokenSequence]) -> list[torch.Tensor]:
        logprobs_of: dict[int, torch.Tensor] = {}
        for part in batches(sequences, settings.tokens_per_pass):
            ids, turn, _ = stack(part, device())
            logprobs = token_logprobs(model, ids, turn >= 0, temperature)
            sizes = [int((sequence.turn >= 0).sum()) for sequence in part]
            logprobs_of |= zip(map(id, part), logprobs.cpu().split(sizes), strict=True)
        return [logprobs_of[id(one)] for one in sequences]

    return team.read(model, sequences, settings.tokens_per_pass, read)


@dataclass
class TrainerState:
    """The trainer's state between rounds, besides the optimiser's moments."""

    steps: int
    kl_coefficient: float

    @classmethod
    def load(cls, policy: str | Path, settings: UpdateConfig) -> TrainerState:
        """The state kept in the policy's folder; that of the first round where there is none."""
        file = Path(policy) / STATE_FILE
        return cls(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else cls(0, settings.kl_coefficient)

    def save(self, folder: Path) -> None:
        """Write it to a policy's folder."""
        (folder / STATE_FILE).write_text(json.dumps(asdict(self)), encoding="utf-8")


def _drops(model: torch.nn.Module) -> bool:
    """Whether the model in training has dropout, as an adapter may."""
    return any(isinstance(module, torch.nn.Dropout) and module.p > 0 for module in model.modules())


def _summary(rows: Sequence[dict], state: TrainerState, *, same_model: bool, idle_steps_move: bool) -> dict[str, float]:
    """The round's metrics: sums and means over its steps, and of one step what compares it with the sampling.

    That is the first step that computed something. `first_ratio_max`, the largest ratio, should be 1; `first_log_ratio`
    and `first_log_ratio_max`, the mean and the largest |log p - log p when sampled|, should be 0. The three are
    omitted if the training model differs from the sampler: with dropout (`same_model` is false), or after a step
    without a gradient that moved it (`idle_steps_move`: momentum of earlier rounds, or weight decay).
    `largest_log_ratio` is the largest such mean over all steps: how far the round moved the policy.
    """
    metrics = {"steps": float(len(rows)), "kl_coefficient": state.kl_coefficient}
    metrics |= {name: float(sum(row[name] for row in rows)) for name in ("sequences", "zero_sequences", "tokens")}
    for name in ("loss", "grad_norm", "clip_fraction", "entropy", "kl"):
        values = [row[name] for row in rows if row.get(name) is not None]
        if values:
            metrics[name] = float(np.mean(values))
    first = next((row for row in rows if row["ratio_max"] is not None), None)
    if first is not None:
        if same_model and (first is rows[0] or not idle_steps_move):
            metrics |= {f"first_{name}": first[name] for name in ("ratio_max", "log_ratio", "log_ratio_max")}
        metrics["largest_log_ratio"] = max(row["log_ratio"] for row in rows if row["log_ratio"] is not None)
    return metrics
