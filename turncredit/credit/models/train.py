"""A learned credit model is trained on earlier rounds and applied to this one.

The model of round r is trained on rounds before r, starting from the model of round r-1, and is frozen while it shapes
round r; the model of round 1 is untrained. So its training needs nothing from round r and runs in parallel with the
policy's update. A model is a folder: `model.safetensors`, `optimizer.safetensors` (the moments, by parameter) and
`model.json`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from turncredit.credit.models import replay
from turncredit.credit.models.protocol import ModelSettings, load_kind
from turncredit.credit.models.replay import Rollouts
from turncredit.credit.models.settings import replay_rounds
from turncredit.data import plugins, provenance, tables
from turncredit.data.progress import progress
from turncredit.data.seeding import derive_seed, generator
from turncredit.data.turns import Turns
from turncredit.errors import UserError
from turncredit.policy.sampling import device
from turncredit.stats.rank_correlation import auc
from turncredit.training.optimizers import check_step

WEIGHTS, MOMENTS, RECORD = "model.safetensors", "optimizer.safetensors", "model.json"
WEIGHT_DECAY, MAX_GRAD_NORM = 0.01, 1.0
#: rollouts that are evaluated in one pass
PASS = 256


@dataclass
class CreditModel:
    """A network, its settings, and the state of its training.

    kind, settings   the kind's name, and its settings; width   the hidden states' size (D)
    steps            optimiser steps so far; moments   the optimiser's state, by parameter name
    """

    kind: str
    settings: Any  # the ModelSettings of its kind
    width: int
    network: Any  # the module of its kind
    steps: int
    moments: dict[str, torch.Tensor]

    @property
    def ready(self) -> bool:
        """Whether its values may be used."""
        return load_kind(self.kind).ready(self.steps, self.settings)


def next_model(
    kind: str,
    settings: ModelSettings,
    *,
    previous: CreditModel | None,
    rounds: Sequence[Rollouts],
    width: int,
    seed: int,
    round: int,
) -> tuple[CreditModel, dict[str, float]]:
    """The credit model of `round`, and metrics of its training.

    previous   the model of the round before; None in round 1, whose model is untrained
    rounds     the rollouts that it learns from (`replay_rounds`), oldest first; none in round 1
    width      the size of the hidden states (D)

    Weights and the order of minibatches depend on the seed and the round only, so that two settings of a model start
    alike. The metrics are the parts of the loss over the last fifth of the steps, and the size of the replay.
    """
    replay = replay_rounds(kind, round)
    if len(rounds) != len(replay) or (previous is None) != (round == 1):
        raise UserError(f"the {kind} model of round {round} learns from rounds {replay}, but {len(rounds)} were given")
    with plugins.errors_of(kind):
        if previous is None:
            return fresh(kind, settings, width, seed), {}
        return previous, train(previous, rounds, seed=seed, round=round)


def values_table(
    model: CreditModel, view: Turns, rollouts: Rollouts, *, seed: int, round: int
) -> tuple[pa.Table, dict[str, float]]:
    """A `values` table in the order of the turns of `view`, and `measures` of the model on them.

    model    the name of the model
    value    V_t (null where the model has nothing to say yet)
    weight   the attention's weight w_t, for TurnRD; null for models without one
    """
    metrics: dict[str, float] = {}
    value_N = weight_N = np.full(view.n, np.nan)
    if model.ready:
        with plugins.errors_of(model.kind):
            value_N, weight_N = apply(model, rollouts)
        if bad := int((~np.isfinite(value_N)).sum()):
            raise UserError(
                f"{view.where}: {bad} of {len(value_N)} values of the {model.kind} model are not finite; delete the "
                "models of this run, lower their lr (define.<method>.model.lr) and run again"
            )
        with plugins.errors_of(model.kind):
            metrics = measures(model, view, rollouts, value_N, weight_N, seed=seed, round=round)
    table = pa.table(
        {
            **{key: view.table.column(key) for key in tables.KEYS},
            "model": pa.repeat(model.kind, view.n),
            "value": pa.array(view.restore(value_N), from_pandas=True),
            "weight": pa.array(view.restore(weight_N), from_pandas=True),
        }
    )
    return table, {"trained": float(model.ready), **metrics}


def fresh(kind: str, settings: ModelSettings, width: int, seed: int) -> CreditModel:
    """An untrained model for hidden states of `width` numbers."""
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(seed, "credit model weights"))
        network = load_kind(kind).network(width, settings)
    return CreditModel(kind, settings, width, network, 0, {})


def train(model: CreditModel, rounds: Sequence[Rollouts], *, seed: int, round: int) -> dict[str, float]:
    """Train `model` in place on the rollouts of consecutive rounds, oldest first. Returns its metrics.

    AdamW with weight decay .01, gradients clipped at norm 1, the moments carried on from the last training.
    """
    kind, settings = load_kind(model.kind), model.settings
    everything = replay.join(rounds)
    if everything.hidden.shape[-1] != model.width:
        raise UserError(
            f"the hiddens have {everything.hidden.shape[-1]} numbers per turn, but this model reads {model.width}; "
            "delete the models of this run and run again"
        )
    everything = kind.before_training(model.network, everything, settings)
    where = device()
    network = model.network.to(where).train()
    optimizer = _optimizer(model)
    rng = generator(seed, "credit model order", round)
    plan = list(kind.minibatches([len(part) for part in rounds], settings, model.steps, rng))
    rows: list[dict[str, float]] = []
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(seed, "credit model dropout", round))
        for number, index in enumerate(plan):
            batch = kind.transform(everything.take(index, where), settings, rng)
            parts = kind.losses(network, batch, settings)
            loss = torch.stack(list(parts.values())).sum()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            norm = float(torch.nn.utils.clip_grad_norm_(network.parameters(), MAX_GRAD_NORM))
            optimizer.step()
            kind.after_step(network, settings)
            row = {name: float(part.detach()) for name, part in parts.items()} | {"loss": float(loss.detach())}
            check_step(
                {**row, "grad_norm": norm},
                training=f"the {model.kind} model",
                step=number + 1,
                instead="lower its lr (define.<method>.model.lr)",
            )
            rows.append(row)
            progress(number + 1, len(plan))
    model.steps += len(rows)
    model.moments = _kept_moments(network, optimizer)
    late = rows[-max(1, len(rows) // 5) :]
    means = {f"loss_{name}".replace("loss_loss", "loss"): np.mean([row[name] for row in late]) for name in late[0]}
    return {
        "replay_rollouts": float(len(everything)),
        "replay_turns": float(everything.present.sum()),
        "steps": float(len(rows)),
        **{name: float(mean) for name, mean in means.items()},
    }


@torch.no_grad()
def apply(model: CreditModel, rollouts: Rollouts) -> tuple[np.ndarray, np.ndarray]:
    """V_t and w_t (N) of the turns, by rollout and turn; w_t is NaN for a model without attention.

    A rollout's numbers do not depend on the other rollouts.
    """
    where = device()
    network = model.network.to(where).eval()
    passes = []
    for start in range(0, len(rollouts), PASS):
        batch = rollouts.take(np.arange(start, min(start + PASS, len(rollouts))), where)
        value_BT, weight_BT = load_kind(model.kind).outputs(network, batch)
        if weight_BT is None:
            weight_BT = torch.full_like(value_BT, torch.nan)
        passes.append(torch.stack([value_BT[batch.present], weight_BT[batch.present]]).double().cpu().numpy())
    value_N, weight_N = np.concatenate(passes, axis=1)
    return value_N, weight_N


@torch.no_grad()
def measures(
    model: CreditModel,
    view: Turns,
    rollouts: Rollouts,
    value_N: np.ndarray,
    weight_N: np.ndarray,
    *,
    seed: int,
    round: int,
) -> dict[str, float]:
    """How well the model predicts rollouts that it was not trained on.

    value_mean, value_std   of V_t over turns
    value_auc               the chance that V of a turn of a rollout with a positive return is above V of a turn of
                            one without (.5: V says nothing; absent where all rollouts ended alike)

    and the kind's own measures (`ModelKind.measures`).
    """
    metrics = {"value_mean": float(value_N.mean()), "value_std": float(value_N.std())}
    won_N = view.above_R(0.0)[view.rollout_N]
    if won_N.any() and not won_N.all():
        metrics["value_auc"] = auc(value_N, won_N)
    rng = generator(seed, "credit model probes", round)
    return metrics | load_kind(model.kind).measures(model.network, view, rollouts, value_N, weight_N, rng)


def save(model: CreditModel, folder: Path) -> None:
    """Write the model's three files to `folder`, which exists."""
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.network.state_dict().items()}
    save_file(weights, folder / WEIGHTS)
    if model.moments:
        save_file(model.moments, folder / MOMENTS)
    record = {
        "kind": model.kind,
        "settings": model.settings.recorded(),
        "width": model.width,
        "steps": model.steps,
    }
    (folder / RECORD).write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def load(folder: str | Path) -> CreditModel:
    """The model in `folder`. Raises UserError where it is missing or damaged."""
    folder = Path(folder)
    provenance.verify(folder)
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        settings = load_kind(record["kind"]).recorded_settings(record["settings"])
        model = fresh(record["kind"], settings, record["width"], seed=0)
        model.network.load_state_dict(load_file(folder / WEIGHTS))
        model.moments = load_file(folder / MOMENTS) if (folder / MOMENTS).exists() else {}
        model.steps = record["steps"]
    except FileNotFoundError as error:
        raise UserError(f"{folder}: not a credit model ({Path(error.filename or WEIGHTS).name} is missing)") from None
    except (UserError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        line = str(error).splitlines()[0]
        raise UserError(f"{folder}: not a readable credit model ({line}); delete it and run again") from None
    return model


def _optimizer(model: CreditModel) -> torch.optim.AdamW:
    """AdamW on the trained parameters, with the moments that the model carries."""
    named = _trained(model.network)
    lr = model.settings.lr
    optimizer = torch.optim.AdamW(list(named.values()), lr=lr, weight_decay=WEIGHT_DECAY)
    for name, parameter in named.items():
        if f"{name}.step" in model.moments:
            optimizer.state[parameter] = {
                key: model.moments[f"{name}.{key}"].to(parameter.device if key != "step" else "cpu")
                for key in ("step", "exp_avg", "exp_avg_sq")
            }
    return optimizer


def _kept_moments(network: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    return {
        f"{name}.{key}": tensor.detach().cpu().contiguous()
        for name, parameter in _trained(network).items()
        for key, tensor in optimizer.state.get(parameter, {}).items()
    }


def _trained(network: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}


def check_settings(model: CreditModel, settings: ModelSettings, folder: str | Path) -> None:
    """Raise UserError where the model in `folder` was made with other settings."""
    if model.settings != settings:
        mine, wanted = model.settings.model_dump(), settings.model_dump()
        names = sorted(name for name in wanted if mine.get(name) != wanted[name])
        raise UserError(f"{folder}: written with other settings ({', '.join(names)}); delete it and run again")


def check_width(model: CreditModel, rollouts: Rollouts, hiddens: str | Path) -> None:
    """Raise UserError, naming `hiddens`, where these are not of the size that the model reads."""
    if rollouts.hidden.shape[-1] != model.width:
        raise UserError(
            f"{hiddens}: {rollouts.hidden.shape[-1]} numbers per turn, but the credit model reads {model.width}; "
            "create the table and the model with the same policy"
        )
