from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from turncredit.training.losses import adapted_coefficient, clipped, kl_penalty, token_weights

LOSSES = torch.tensor([1.0, 2.0, 3.0, 4.0])
SEQUENCE = torch.tensor([0, 0, 0, 1])


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [("token-mean", 2.5), ("token-sum", 10.0), ("seq-mean-token-sum", 5.0), ("seq-mean-token-mean", 3.0)],
)
def test_aggregation_matches_verl_agg_loss(aggregation, expected):
    assert float((LOSSES * token_weights(SEQUENCE, aggregation)).sum()) == pytest.approx(expected)


def test_a_sequence_without_learned_tokens_does_not_count():
    weights = token_weights(torch.tensor([0, 0, 2]), "seq-mean-token-mean")
    assert weights.tolist() == pytest.approx([0.25, 0.25, 0.5])


def test_the_clipped_loss_is_the_unclipped_one_at_ratio_one():
    logprobs = torch.tensor([-1.0, -2.0])
    loss, ratio = clipped(logprobs, logprobs, torch.tensor([2.0, -3.0]), low=0.2, high=0.28)
    assert ratio.tolist() == [1.0, 1.0]
    assert loss.tolist() == [-2.0, 3.0]


@pytest.mark.parametrize(
    ("ratio", "advantage", "has_gradient"),
    [(1.3, 1.0, False), (1.27, 1.0, True), (0.7, 1.0, True), (0.7, -1.0, False), (1.3, -1.0, True), (0.81, -1.0, True)],
)
def test_a_gain_beyond_the_clip_gives_no_gradient_a_loss_always_does(ratio, advantage, has_gradient):
    logprobs = torch.log(torch.tensor([ratio])).requires_grad_()
    loss, _ = clipped(logprobs, torch.zeros(1), torch.tensor([advantage]), low=0.2, high=0.28)
    loss.sum().backward()
    assert bool(logprobs.grad.abs() > 0) is has_gradient


@given(st.lists(st.floats(-5, 0), min_size=1, max_size=20), st.data())
def test_kl_estimators_vanish_at_equality_and_k2_k3_are_never_negative(values, data):
    logprobs = torch.tensor(values)
    other = torch.tensor(data.draw(st.lists(st.floats(-5, 0), min_size=len(values), max_size=len(values))))
    for kind in ("k1", "k2", "k3"):
        assert kl_penalty(logprobs, logprobs, kind).abs().max() == 0
    for kind in ("k2", "k3"):
        assert kl_penalty(logprobs, other, kind).min() >= -1e-6


def test_k1_and_k3_estimate_the_kl_divergence_without_bias():
    policy, reference = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.5, 0.3])
    exact = float((policy * (policy / reference).log()).sum())
    for kind in ("k1", "k3"):
        assert float((policy * kl_penalty(policy.log(), reference.log(), kind)).sum()) == pytest.approx(exact, rel=1e-5)


def test_the_gradients_of_k2_and_k3_are_those_of_the_two_divergences_and_k1_has_none():
    logits, reference = torch.tensor([0.4, -0.1, 0.0], requires_grad=True), torch.tensor([0.2, 0.5, 0.3])

    def gradient(loss_of):
        policy = logits.softmax(0)
        return torch.autograd.grad(loss_of(policy, policy.detach()), logits)[0]

    def mean(kind):
        return gradient(lambda policy, sampled: (sampled * kl_penalty(policy.log(), reference.log(), kind)).sum())

    reverse = gradient(lambda policy, _: (policy * (policy / reference).log()).sum())
    forward = gradient(lambda policy, _: (reference * (reference / policy).log()).sum())
    assert (reverse - forward).abs().max() > 0.01
    torch.testing.assert_close(mean("k2"), reverse)
    torch.testing.assert_close(mean("k3"), forward)
    torch.testing.assert_close(mean("k1"), torch.zeros(3), atol=1e-6, rtol=0)


def test_the_kl_coefficient_moves_towards_its_target_by_at_most_two_percent():
    assert adapted_coefficient(0.1, 10.0, 0.04) == pytest.approx(0.102)
    assert adapted_coefficient(0.1, 0.0, 0.04) == pytest.approx(0.098)
    assert adapted_coefficient(0.1, 0.04, 0.04) == pytest.approx(0.1)
    assert adapted_coefficient(0.1, 0.044, 0.04) == pytest.approx(0.101), "in between in proportion to the error"
