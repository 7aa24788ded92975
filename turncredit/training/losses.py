"""The clipped policy-gradient loss, its aggregations and its KL estimators, as functions of tensors.

All take flat vectors over the learned tokens of one minibatch (N,) and the sequence each token belongs to.
"""

from __future__ import annotations

from typing import Literal

import torch

Aggregation = Literal["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean"]


def clipped(
    logprobs: torch.Tensor, sampled: torch.Tensor, advantages: torch.Tensor, *, low: float, high: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Per-token loss `-min(r A, clip(r, 1-low, 1+high) A)` and ratio `r = exp(logprob - sampled)` (PPO, 2017).

    `low` and `high` are separable, as in DAPO (Yu et al. 2025). All (N,).
    """
    ratio = (logprobs - sampled).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages), ratio


def kl_penalty(logprobs: torch.Tensor, reference: torch.Tensor, kind: Literal["k1", "k2", "k3"]) -> torch.Tensor:
    """Per-token estimate of KL(policy || reference) at sampled tokens (Schulman 2020, "Approximating KL divergence").

    k1 `log p/q` (unbiased, may be negative), k2 half its square, k3 `q/p - 1 - log q/p` (unbiased, never negative).

    An unbiased estimate need not have the divergence's gradient. Where the policy still is the one that sampled, the
    mean gradient of k2 is that of KL(policy || reference), k3's that of KL(reference || policy), and k1's is 0.
    """
    difference = reference - logprobs
    if kind == "k1":
        return -difference
    if kind == "k2":
        return difference.square() / 2
    return difference.exp() - difference - 1


def token_weights(sequence: torch.Tensor, aggregation: Aggregation) -> torch.Tensor:
    """The weight (N,) of each token's loss, so that the weighted sum is the named aggregate of the minibatch.

    `sequence` (N,) numbers the sequence of each token, 0 to S-1 (sequences without a learned token do not count).
    On losses `[[1,2,3],[4]]`: token-mean 2.5, token-sum 10, seq-mean-token-sum 5, seq-mean-token-mean 3 (the check
    of verl 0.9.1's `agg_loss`). Computed once for a minibatch, so that splitting it into passes changes nothing.
    """
    lengths = torch.bincount(sequence)
    count = int((lengths > 0).sum())
    ones = torch.ones(len(sequence), dtype=torch.float32, device=sequence.device)
    if aggregation == "token-mean":
        return ones / len(sequence)
    if aggregation == "token-sum":
        return ones
    if aggregation == "seq-mean-token-sum":
        return ones / count
    return ones / (lengths[sequence] * count)


def adapted_coefficient(coefficient: float, kl: float, target: float) -> float:
    """The KL coefficient after a round whose mean KL was `kl` (Ziegler et al. 2019, section 2.2).

    It grows or shrinks by at most 2% a round, in proportion to the relative error.
    """
    error = min(max(kl / target - 1, -0.2), 0.2)
    return coefficient * (1 + 0.1 * error)
