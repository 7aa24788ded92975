"""iStar's implicit reward model: a copy of the policy, trained by DPO to prefer a task's successes to its failures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from turncredit.config import UpdateConfig
from turncredit.data import tables
from turncredit.data.columns import only_value
from turncredit.data.progress import progress
from turncredit.data.turns import Turns, check_logprobs
from turncredit.policy.masters import Masters
from turncredit.policy.sampling import device
from turncredit.training.optimizers import check_step, make_optimizer
from turncredit.training.second_pass import logprobs_N
from turncredit.training.sequences import batches, contexts, list_column, stack, token_logprobs

#: the columns of the turns that are read
COLUMNS = (
    *tables.KEYS, "reward", "success", "context_reset", "prompt_ids", "response_ids", "response_logprobs",
    "temperature",
)  # fmt: skip
#: AdamW and clipping as in the source's code
OPTIMIZER = UpdateConfig(optimizer="adamw", betas=(0.9, 0.999), weight_decay=0.01, max_grad_norm=10.0)


class Preference(NamedTuple):
    """DPO's loss over pairs, the share of them in the right order, and the loss's slope at each rollout's score (R)."""

    loss: float
    accuracy: float
    slope_R: np.ndarray


def pairs(group_R: np.ndarray, won_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(successes, failures): the rollouts of every pair of a success and a failure of the same group (P each)."""
    better, worse = np.nonzero((group_R[:, None] == group_R[None]) & won_R[:, None] & ~won_R[None])
    return better, worse


def preference(score_R: np.ndarray, better_P: np.ndarray, worse_P: np.ndarray) -> Preference:
    """The mean over pairs of -log sigmoid(score of the success - score of the failure) (Rafailov et al. 2023)."""
    margin_P = score_R[better_P] - score_R[worse_P]
    slope_P = -np.exp(-np.logaddexp(0.0, margin_P)) / len(margin_P)
    count = len(score_R)
    slope_R = np.bincount(better_P, slope_P, count) - np.bincount(worse_P, slope_P, count)
    return Preference(float(np.logaddexp(0.0, -margin_P).mean()), float(np.mean(margin_P > 0)), slope_R)


def train(
    masters: Masters,
    turns: pa.Table,
    *,
    beta: float,
    lr: float,
    steps: int,
    score: Literal["sum", "mean"] = "sum",
    tokens_per_pass: int,
    moments: Mapping[str, torch.Tensor],
    moments_dtype: str = "float32",
    rounding_seed: int = 0,
    where: str = "turns",
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Train a model in place on a round's rollouts; returns the optimiser's moments and metrics (before the last step).

    A rollout's score is the sum (or the mean) over its turns of beta (log pi_phi - log pi_old). Each of the `steps` is
    on all pairs of a success and a failure of one task. The loss's slope at each score is found first, from a pass
    without gradient, so that the passes with gradient can be of any size. Without a pair the model stays as it is.
    """
    view = Turns(turns, where=where)
    rollout_N = view.restore(view.rollout_N)
    better, worse = pairs(view.group_R, view.any_R(view.truths("success", "the implicit reward model")))
    taken_R = np.isin(np.arange(view.rollouts), np.concatenate([better, worse]))
    sequences = [
        sequence for sequence in contexts(turns, where) if taken_R[rollout_N[int(sequence.turn[sequence.turn >= 0][0])]]
    ]
    metrics = {"pairs": float(len(better)), "tokens": float(sum(len(sequence.ids) for sequence in sequences))}
    if not sequences:
        return dict(moments), metrics
    settings = OPTIMIZER.model_copy(update={"lr": lr})
    optimizer = make_optimizer(masters, settings, moments_dtype=moments_dtype, rounding_seed=rounding_seed)
    optimizer.load_state(moments)
    model = masters.model.eval()  # no dropout: both passes must be of the same model
    check_logprobs(turns, where)
    temperature = only_value(turns, "temperature", where, "the implicit reward model")
    sampled_N = np.array([response.astype(np.float64).sum() for response in list_column(turns, "response_logprobs")])
    share_N = beta / (view.length_R[rollout_N] if score == "mean" else np.ones(turns.num_rows))
    for step in range(steps):
        read_N = logprobs_N(model, sequences, turns.num_rows, temperature=temperature, tokens_per_pass=tokens_per_pass)
        score_R = np.bincount(rollout_N, share_N * (read_N - sampled_N), view.rollouts)
        dpo = preference(score_R, better, worse)
        weight_N = torch.from_numpy(dpo.slope_R[rollout_N] * share_N).float().to(device())
        for part in batches(sequences, tokens_per_pass):
            ids, turn, _ = stack(part, device())
            learned = turn >= 0
            (token_logprobs(model, ids, learned, temperature) * weight_N[turn[:, 1:][learned[:, 1:]]]).sum().backward()
        norm = optimizer.step(settings.max_grad_norm)
        numbers = {"loss": dpo.loss, "grad_norm": norm}
        check_step(
            numbers,
            training="the implicit reward model",
            step=step + 1,
            instead="lower its lr (define.<method>.model.lr)",
        )
        metrics |= {"loss": dpo.loss, "accuracy": dpo.accuracy, "grad_norm": norm}
        progress(step + 1, steps)
    return optimizer.state(), metrics
