"""The policy loss against TRL's, on multi-turn rollouts with an advantage for each turn.

TRL's trainer computes its own (`GRPOTrainer._compute_loss`): the same model, the same tokens, advantages per token, the
environment's tokens masked as a tool's. Ours is the update's own step, cut into passes and shards. Loss and every
gradient agree.

| TRL `loss_type` | ours `update.loss_aggregation`                                            |
|-----------------|---------------------------------------------------------------------------|
| `grpo`          | `seq-mean-token-mean`                                                      |
| `bnpo`          | `token-mean`                                                               |
| `dapo`          | `token-mean` (TRL divides by the tokens of the whole accumulation window)  |
| `dr_grpo`       | `seq-mean-token-sum`, `max_completion_length` times as large              |
"""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("trl", reason="the reference package trl is not installed (requirements-reference.lock)")

from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from turncredit.config import UpdateConfig
from turncredit.training import update
from turncredit.training.sequences import TokenSequence
from turncredit.training.team import Team

pytestmark = [pytest.mark.reference, pytest.mark.slow]

VOCAB, PROMPT, COMPLETION, ROLLOUTS = 40, 5, 24, 6
LOW, HIGH, TEMPERATURE, BETA = 0.2, 0.28, 0.7, 0.05
#: TRL's name -> ours, and how many times TRL's loss ours is
MAPPING = {
    "grpo": ("seq-mean-token-mean", 1),
    "bnpo": ("token-mean", 1),
    "dapo": ("token-mean", 1),
    "dr_grpo": ("seq-mean-token-sum", COMPLETION),
}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen2Config(vocab_size=VOCAB, num_hidden_layers=2, initializer_range=0.3, **size)
    return Qwen2ForCausalLM(config)


@pytest.fixture(scope="module")
def played(model):
    """Rollouts of one to four turns: `turn` (R, L) numbers the turn of each of its own tokens and is -1 elsewhere.

    Sampled log-probabilities lie around the model's, so that ratios go beyond the clip on both sides.
    """
    rng = torch.Generator().manual_seed(1)
    ids = torch.randint(2, VOCAB, (ROLLOUTS, PROMPT + COMPLETION), generator=rng)
    turn = torch.full(ids.shape, -1)
    present = torch.zeros(ids.shape, dtype=torch.bool)
    first = 0
    for rollout in range(ROLLOUTS):
        turns = 1 + rollout % 4
        at = PROMPT
        for number in range(turns):
            size = 1 + (rollout + number) % 4
            turn[rollout, at : at + size] = first + number
            at += size + (2 if number + 1 < turns else 0)  # the environment's answer
        present[rollout, :at] = True
        first += turns
    with torch.no_grad():
        logits = model(input_ids=ids).logits[:, :-1] / TEMPERATURE
        exact = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    exact = torch.nn.functional.pad(exact, (1, 0))
    sampled = exact + 0.4 * torch.randn(exact.shape, generator=rng)
    reference = exact + 0.2 * torch.randn(exact.shape, generator=rng)
    return {
        "ids": ids,
        "turn": turn,
        "present": present,
        "sampled": sampled,
        "reference": reference,
        "advantage": torch.randn(first, generator=rng),
    }


def theirs(model, played, folder, loss_type: str, beta: float) -> tuple[float, dict[str, torch.Tensor]]:
    """TRL's loss and gradients."""
    words = Tokenizer(WordLevel({str(number): number for number in range(VOCAB)}, unk_token="0"))
    settings = GRPOConfig(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        report_to=[],
        loss_type=loss_type,
        epsilon=LOW,
        epsilon_high=HIGH,
        beta=0.0,  # set below: with a penalty the trainer would load a reference model of its own
        use_bias_correction_kl=False,  # by default TRL multiplies the KL term by the ratio
        temperature=TEMPERATURE,
        max_completion_length=COMPLETION,
        per_device_train_batch_size=ROLLOUTS,
        num_generations=2,
        gradient_accumulation_steps=1,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": ["2 3"] * ROLLOUTS}),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", eos_token="1"),
    )
    trainer.current_gradient_accumulation_steps, trainer.beta = 1, beta
    own = played["turn"][:, PROMPT:] >= 0
    per_token = played["advantage"][played["turn"][:, PROMPT:].clamp(min=0)]
    model.zero_grad(set_to_none=True)
    model.train()
    loss = trainer._compute_loss(
        model,
        {
            "prompt_ids": played["ids"][:, :PROMPT],
            "prompt_mask": played["present"][:, :PROMPT].long(),
            "completion_ids": played["ids"][:, PROMPT:],
            "completion_mask": played["present"][:, PROMPT:].long(),
            "tool_mask": own.long(),
            "advantages": per_token,
            "old_per_token_logps": played["sampled"][:, PROMPT:],
            "ref_per_token_logps": played["reference"][:, PROMPT:],
            "num_items_in_batch": own.sum(),
        },
    )
    loss.backward()
    return float(loss.detach()), gradients(model)


def ours(
    model, played, aggregation: str, beta: float, tokens_per_pass: int, shards: int = 1
) -> tuple[float, dict[str, torch.Tensor]]:
    """The update's loss and gradients; the optimiser only looks at them."""
    sequences, reference = [], {}
    for number in range(ROLLOUTS):
        present = played["present"][number]
        turn, ids = played["turn"][number][present].numpy(), played["ids"][number][present].numpy()
        logprobs = torch.where(played["turn"][number] >= 0, played["sampled"][number], 0.0)[present].numpy()
        sequence = TokenSequence(number, ids, turn, logprobs)
        sequences.append(sequence)
        reference[id(sequence)] = played["reference"][number][played["turn"][number] >= 0]
    kl = {"kl": "k3", "kl_coefficient": beta} if beta else {}
    settings = UpdateConfig(
        loss_aggregation=aggregation, clip_low=LOW, clip_high=HIGH, tokens_per_pass=tokens_per_pass, shards=shards, **kl
    )
    found: dict[str, torch.Tensor] = {}

    class Looks:
        def step(self, max_grad_norm: float) -> float:
            del max_grad_norm
            found.update(gradients(model))
            return 0.0

    model.zero_grad(set_to_none=True)
    objective = update.Objective(settings, played["advantage"], beta, TEMPERATURE, reference if beta else None)
    team = Team()
    with team.sharing(list(model.parameters()), settings.shards):
        row = update.minibatch_step(model, Looks(), team, objective, sequences, 0)
    return row["loss"], found


def gradients(model) -> dict[str, torch.Tensor]:
    return {name: part.grad.clone() for name, part in model.named_parameters() if part.grad is not None}


@pytest.mark.parametrize("beta", [0.0, BETA], ids=["no KL", "KL"])
@pytest.mark.parametrize("loss_type", MAPPING)
@pytest.mark.parametrize(
    ("tokens_per_pass", "shards"), [(10_000, 1), (40, 1), (40, 3)], ids=["one pass", "several passes", "shards"]
)
def test_loss_and_gradients_are_trls(model, played, tmp_path, loss_type, beta, tokens_per_pass, shards):
    aggregation, times = MAPPING[loss_type]
    # The KL term is aggregated like the loss, so dr_grpo's factor is on both.
    expected, wanted = theirs(model, played, tmp_path, loss_type, beta)
    loss, found = ours(model, played, aggregation, beta, tokens_per_pass, shards)
    assert loss == pytest.approx(times * expected, rel=1e-4)
    assert found.keys() == wanted.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(
            gradient, times * wanted[name], rtol=1e-3, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_the_comparison_covers_clipping_on_both_sides(model, played):
    own = played["turn"] >= 0
    with torch.no_grad():
        logits = model(input_ids=played["ids"]).logits[:, :-1] / TEMPERATURE
        exact = logits.log_softmax(-1).gather(-1, played["ids"][:, 1:, None])[..., 0]
    ratio = (torch.nn.functional.pad(exact, (1, 0)) - played["sampled"]).exp()[own]
    advantage = played["advantage"][played["turn"][own]]
    assert ((ratio > 1 + HIGH) & (advantage > 0)).any()
    assert ((ratio < 1 - LOW) & (advantage < 0)).any()
    assert ((ratio > 1 - LOW) & (ratio < 1 + HIGH)).any()


@pytest.mark.parametrize(("one", "other"), [("grpo", "bnpo"), ("bnpo", "dr_grpo")])
def test_the_aggregations_differ_on_these_rollouts(model, played, one, other):
    losses = [ours(model, played, MAPPING[name][0], 0.0, 10_000)[0] for name in (one, other)]
    assert abs(losses[0] - losses[1]) > 0.01
