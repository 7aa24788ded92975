"""One round of clipped policy gradient. Every method shares it; only `advantage` differs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import load_file, save_file

from turncredit.config import LossConfig, UpdateConfig
from turncredit.data import provenance, tables
from turncredit.data.columns import NOISE, only_value
from turncredit.data.progress import progress
from turncredit.data.seeding import derive_seed, generator
from turncredit.data.turns import Turns, check_logprobs
from turncredit.errors import UserError
from turncredit.policy import models
from turncredit.policy.masters import Masters
from turncredit.policy.open import OpenPolicy
from turncredit.policy.sampling import device
from turncredit.policy.spread import SpreadMasters
from turncredit.policy.weights import MOMENTS_FILE
from turncredit.training.finite import check_step
from turncredit.training.losses import adapted_coefficient, clipped, kl_penalty, token_weights
from turncredit.training.optimizers import Optimizers, make_optimizer
from turncredit.training.ranks import Ranks, pass_idly, passes
from turncredit.training.sequences import (
    TokenSequence,
    batches,
    by_rollout,
    cut,
    list_column,
    rollout_numbers,
    stack,
    token_distributions,
    token_logprobs,
)
from turncredit.training.shards import Team, cut_into_shards, together

#: What to do about an update whose numbers are not finite.
DIVERGED = "lower update.lr (or update.muon_lr), or warm it up for longer (update.warmup_steps)"
STATE_FILE = "trainer.json"
#: of the log row of a step: sums or means over its tokens, the loss first, and what is the largest of them
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
    processes: int = 1,
    train_dtype: str = "float32",
    moments_dtype: str = "float32",
    ranks: Ranks | None = None,
) -> Updated:
    """Improve `policy`, whose model is changed in place, on its own rollouts and their credit.

    reference     the policy that the KL penalty, if any, refers to (the SFT policy)
    rate          the share of the learning rate in this round (`round_rate`)
    processes     compute the shards of a minibatch side by side; how many does not change the result
    train_dtype   the type in which whole weights are stepped; `moments_dtype` that of the optimiser's moments
    ranks         the processes that the model is spread over, of which this is one: each computes one shard of a
                  minibatch. Rows and moments are the first one's; the masters are put together by all
    """
    state = TrainerState.load(policy.folder, settings)
    # First, and freed: the reference may be this very policy, and need not be in memory beside the one that trains.
    reference_logprobs = None
    if settings.kl != "none":
        reference_logprobs = _logprobs_of(reference.model(), data.sequences, settings, data.temperature, ranks)
    reference.release()
    masters: Masters | SpreadMasters
    if ranks is None:
        masters = policy.masters(train_dtype)
    else:
        masters = policy.spread(train_dtype, lambda whole: checkpoint_gradients(whole, settings))
    objective = _objective(masters.model, settings, data, reference_logprobs, state.kl_coefficient, ranks)
    if ranks is None:
        checkpoint_gradients(masters.model, settings)
    masters.model.train()
    rounding = derive_seed(seed, "update rounding", round)
    optimizer = _optimizer(masters, settings, policy.folder, moments_dtype, rounding)
    alone = together(shards=settings.shards, processes=processes, parameters=optimizer.parameters)
    with alone if ranks is None else nullcontext(ranks) as team:
        rows = _take_steps(masters.model, optimizer, team, objective, data, state, rate=rate, seed=seed, round=round)
    metrics = _summary(rows, state)
    if settings.kl_target and "kl" in metrics:
        state.kl_coefficient = adapted_coefficient(state.kl_coefficient, metrics["kl"], settings.kl_target)
    # The moments also of a round that had nothing to learn: the next one goes on with them.
    moments = optimizer.state(keep=ranks is None or ranks.leads) if settings.keep_optimizer else {}
    return Updated(masters, rows, state, moments, metrics)


def _objective(
    model: torch.nn.Module,
    settings: UpdateConfig,
    data: TrainingSet,
    reference_logprobs: dict[int, torch.Tensor] | None,
    kl_coefficient: float,
    ranks: Ranks | None,
) -> Objective:
    """The loss of the round; the old log-probabilities are the recorded ones or, if so set, those of `model` now."""
    advantages = torch.from_numpy(data.advantage_N).float().to(device())
    objective = Objective(settings, advantages, reference_logprobs, kl_coefficient, data.temperature)
    if settings.old_logprobs != "recomputed":
        return objective
    computed = [sequence for sequence in data.sequences if objective.has_gradient(sequence)]
    return replace(objective, old=_logprobs_of(model, computed, settings, data.temperature, ranks))


def _take_steps(
    model: torch.nn.Module,
    optimizer: Optimizers,
    team: Team | Ranks,
    objective: Objective,
    data: TrainingSet,
    state: TrainerState,
    *,
    rate: float,
    seed: int,
    round: int,
) -> list[dict[str, float | None]]:
    """Take the round's optimiser steps, counted in `state`; returns a log row for each (none in a follower rank)."""
    settings = objective.settings
    steps = list(_minibatches(data.sequences, settings, generator(seed, "update order", round)))
    rows = []
    for number, (epoch, batch) in enumerate(steps):
        share = rate * min(1.0, (state.steps + 1) / max(1, settings.warmup_steps))
        optimizer.set_rate(share)
        dropout = derive_seed(seed, "update dropout", round, number)
        row = minibatch_step(model, optimizer, team, objective, batch, dropout)
        state.steps += 1
        if team.leads:
            check_step(row, training="the update", step=number + 1, instead=DIVERGED)
            rows.append({"step": state.steps, "epoch": epoch, "lr": share * settings.lr, **row})
            progress(number + 1, len(steps))
    return rows


def round_rate(settings: UpdateConfig, round: int) -> float:
    """The share of the learning rate in `round`: 1 in the first, `final_lr` from `decay_rounds` on, linear between."""
    if settings.decay_rounds is None:
        return 1.0
    return 1 - (1 - settings.final_lr) * (min(round, settings.decay_rounds) - 1) / max(1, settings.decay_rounds - 1)


class TrainingSet(NamedTuple):
    """What a round's update learns from: sequences, the advantage of each turn (N), the sampling temperature."""

    sequences: list[TokenSequence]
    advantage_N: np.ndarray
    temperature: float


class Updated(NamedTuple):
    """The result of a round's update: the model, a log row for each step, the state for the next round, metrics."""

    masters: Masters | SpreadMasters
    rows: list[dict]
    state: TrainerState
    moments: dict[str, torch.Tensor]
    metrics: dict[str, float]

    def save(self, folder: Path, *, base: Path, final: Path) -> None:
        """Write the new policy to `folder`, which will be renamed to `final`; tokenizer files come from `base`."""
        with self.masters.in_model() as model:
            models.save_model(model, folder, base=base, final=final)
        self.masters.release()
        self.state.save(folder)
        if self.moments:
            save_file(self.moments, folder / MOMENTS_FILE)


#: the columns of the turns that `training_set` reads
COLUMNS = (
    "rollout_id", "turn", "group_id", "context_reset", "prompt_ids", "response_ids", "response_logprobs",
    "temperature", "reward",
)  # fmt: skip


def training_set(turns: pa.Table, credit: pa.Table, settings: LossConfig, where: str = "credits") -> TrainingSet:
    """Sequences to learn from, the advantage of each turn (N,), and the temperature they were sampled at.

    With `skip_dead_groups`, groups whose rollouts all had the same return are left out. Nothing else is, whatever the
    credit: sequences whose advantages are all zero stay in their minibatch, as in verl, so that all methods take the
    same optimiser steps on the same minibatches. `where` names the credits in errors.

    Turns whose `trained` is 0, in credits that have that column, are read and not learned from: their tokens are in no
    loss and no denominator (CARL). The mean square that scales advantages is that of the turns that are learned from:
    without these, and without skipped groups.
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
    kept = [one for one in sequences_of(turns, rollout_N, trained_N) if one.rollout not in skipped]
    return TrainingSet(kept, advantage_N, only_value(turns, "temperature", where, "an update"))


def sequences_of(
    table: pa.Table, rollout_N: Sequence[int], learn_N: Sequence[bool] | np.ndarray | None = None
) -> list[TokenSequence]:
    """All token sequences of a table of turns; each response token refers to its turn's row, where it is learned."""
    return cut(
        rollout_N,
        table.column("context_reset").to_pylist(),
        list_column(table, "prompt_ids"),
        list_column(table, "response_ids"),
        list_column(table, "response_logprobs"),
        learn_N,
    )


def _minibatches(
    sequences: Sequence[TokenSequence], settings: UpdateConfig, rng: np.random.Generator
) -> Iterator[tuple[int, list[TokenSequence]]]:
    """(epoch, sequences) of `minibatch` rollouts each, in a new random order every epoch."""
    sequences_of = by_rollout(sequences)
    for epoch in range(settings.epochs):
        order = rng.permutation(list(sequences_of))
        for start in range(0, len(order), settings.minibatch):
            yield epoch, [sequence for r in order[start : start + settings.minibatch] for sequence in sequences_of[r]]


@dataclass(frozen=True)
class Objective:
    """What a round's update minimises: `advantages` (N,) by turn; with KL, the `reference`'s log-probabilities.

    `old` has those that the policy had before the round in training; without it, those count that were sampled with.
    """

    settings: UpdateConfig
    advantages: torch.Tensor
    reference: dict[int, torch.Tensor] | None
    kl_coefficient: float
    temperature: float
    old: dict[int, torch.Tensor] | None = None

    @cached_property
    def _nonzero_N(self) -> np.ndarray:
        return (self.advantages != 0).cpu().numpy()

    def has_gradient(self, sequence: TokenSequence) -> bool:
        """Whether the sequence's loss has a gradient: some advantage is not zero, or there is a KL penalty."""
        learned = sequence.turn[sequence.turn >= 0]
        return bool(len(learned)) and (self.reference is not None or bool(self._nonzero_N[learned].any()))

    def add_gradient(
        self, model: torch.nn.Module, sequences: Sequence[TokenSequence], weight_of: dict[int, torch.Tensor], total: int
    ) -> dict[str, float]:
        """Add the gradient of these sequences' loss, in as many passes as `tokens_per_pass` needs.

        `weight_of` has the weights of each one's learned tokens in the minibatch's loss; the part of the minibatch that
        is computed has `total` of these tokens. Returns the sequences' share of the minibatch's log row.
        """
        where, settings = self.advantages.device, self.settings
        row = dict.fromkeys((*MEANS, *LARGEST, "kl"), 0.0)
        for part in batches(sequences, settings.tokens_per_pass):
            ids, turn, sampled = stack(part, where)
            learned = turn >= 0
            logprobs, entropy = token_distributions(model, ids, learned, self.temperature, entropy=True)
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
            loss.backward()
            with torch.no_grad():
                row["loss"] += float(loss)
                outside = (ratio < 1 - settings.clip_low) | (ratio > 1 + settings.clip_high)
                row["clip_fraction"] += float(outside.float().sum()) / total
                row["ratio_max"] = max(row["ratio_max"], float(ratio.max()))
                apart = (logprobs - by_engine).abs()
                row["log_ratio"] += float(apart.sum()) / total
                row["log_ratio_max"] = max(row["log_ratio_max"], float(apart.max()))
                assert entropy is not None
                row["entropy"] += float(entropy.sum()) / total
        return row


def minibatch_step(
    model: torch.nn.Module,
    optimizer: Optimizers,
    team: Team | Ranks,
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
    cut = cut_into_shards([len(sequence.ids) for sequence in computed], team.shards)
    shards = [[computed[i] for i in part] for part in cut]
    total = sum(int((sequence.turn >= 0).sum()) for sequence in computed)

    def compute(shard: int) -> dict[str, float]:
        torch.manual_seed(derive_seed(dropout_seed, shard))
        report = objective.add_gradient(model, shards[shard], weight_of, total)
        if isinstance(team, Ranks):
            pass_idly(model, team.idle([passes(part, objective.settings.tokens_per_pass) for part in shards]))
        return report

    reports = team.gradient(compute)
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
    model: torch.nn.Module,
    sequences: Sequence[TokenSequence],
    settings: UpdateConfig,
    temperature: float,
    ranks: Ranks | None = None,
) -> dict[int, torch.Tensor]:
    """A model's log-probabilities of each sequence's learned tokens, once for the round; `ranks` share the work."""
    model.eval()
    lengths = [len(sequence.ids) for sequence in sequences]
    shards = cut_into_shards(lengths, ranks.shards) if ranks else [list(range(len(sequences)))]
    place = {id(sequences[i]): i for i in shards[ranks.rank if ranks else 0]}
    logprobs_of: dict[int, torch.Tensor] = {}
    for part in batches([sequences[i] for i in place.values()], settings.tokens_per_pass):
        ids, turn, _ = stack(part, device())
        logprobs = token_logprobs(model, ids, turn >= 0, temperature)
        sizes = [int((sequence.turn >= 0).sum()) for sequence in part]
        logprobs_of |= {place[id(one)]: piece for one, piece in zip(part, logprobs.split(sizes), strict=True)}
    if ranks:
        needed = [passes([sequences[i] for i in shard], settings.tokens_per_pass) for shard in shards]
        pass_idly(model, ranks.idle(needed))
        logprobs_of = {
            i: piece
            for part in ranks.all_of({i: one.cpu() for i, one in logprobs_of.items()})
            for i, piece in part.items()
        }
    return {id(sequences[i]): piece for i, piece in logprobs_of.items()}


class TrainerState:
    """The trainer's state between rounds, besides the optimiser's moments."""

    def __init__(self, steps: int, kl_coefficient: float):
        self.steps, self.kl_coefficient = steps, kl_coefficient

    @classmethod
    def load(cls, policy: str | Path, settings: UpdateConfig) -> TrainerState:
        """The state kept in the policy's folder; that of the first round where there is none."""
        file = Path(policy) / STATE_FILE
        return cls(**json.loads(file.read_text())) if file.exists() else cls(0, settings.kl_coefficient)

    def save(self, folder: Path) -> None:
        """Write it to a policy's folder."""
        (folder / STATE_FILE).write_text(json.dumps({"steps": self.steps, "kl_coefficient": self.kl_coefficient}))


def checkpoint_gradients(model: torch.nn.Module, settings: UpdateConfig) -> None:
    """If the settings ask for it, let `model` compute its layers' activations again for the gradient."""
    if settings.gradient_checkpointing:
        # The transformers that vLLM goes with (below 5.20) has only the old name: jobs of several stages train there.
        name = "activation_checkpointing_enable"
        enable = getattr(model, name if hasattr(model, name) else "gradient_checkpointing_enable")
        enable({"use_reentrant": False})
        if hasattr(model, "enable_input_require_grads"):
            model.enable_input_require_grads()


def _optimizer(
    masters: Masters | SpreadMasters, settings: UpdateConfig, policy: str | Path, moments_dtype: str, rounding_seed: int
) -> Optimizers:
    """The optimiser, its moments taken over from the policy's folder where they were kept."""
    optimizer = make_optimizer(
        masters.parameters,
        settings.optimizer,
        lr=settings.lr,
        muon_lr=settings.muon_lr,
        betas=settings.betas,
        weight_decay=settings.weight_decay,
        masters=masters,
        moments_dtype=moments_dtype,
        rounding_seed=rounding_seed,
    )
    file = Path(policy) / MOMENTS_FILE
    if settings.keep_optimizer and file.exists():
        provenance.verify(policy, lambda name: name == MOMENTS_FILE)
        optimizer.load_state(load_file(file))
    return optimizer


def _summary(rows: Sequence[dict], state: TrainerState) -> dict[str, float]:
    """The round's metrics: sums and means over its steps, and of one step what compares it with the sampling.

    That is the first step that computed something. `first_ratio_max`, the largest ratio, should be 1; `first_log_ratio`
    and `first_log_ratio_max`, the mean and the largest |log p - log p when sampled|, should be 0.
    """
    metrics = {"steps": float(len(rows)), "kl_coefficient": state.kl_coefficient}
    metrics |= {name: float(sum(row[name] for row in rows)) for name in ("sequences", "zero_sequences", "tokens")}
    for name in ("loss", "grad_norm", "clip_fraction", "entropy", "kl"):
        values = [row[name] for row in rows if row.get(name) is not None]
        if values:
            metrics[name] = float(np.mean(values))
    first = next((row for row in rows if row["ratio_max"] is not None), None)
    if first is not None:
        metrics |= {f"first_{name}": first[name] for name in ("ratio_max", "log_ratio", "log_ratio_max")}
    return metrics
