"""`CreditGRPOTrainer` against TRL's own trainer: a tiny model, on the CPU, with a rollout function of several turns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl", reason="trl has an environment of its own here: make test-integrations")

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from tests.helpers import nonempty
from turncredit import credit
from turncredit.bridges import trl as module
from turncredit.bridges.spans import method_of
from turncredit.bridges.trl import CreditGRPOTrainer, _own_tokens
from turncredit.errors import UserError

pytestmark = pytest.mark.integrations

VOCAB, ROLLOUTS, GENERATIONS = 40, 8, 4
#: own tokens and the environment's, by turns: rollouts of one to three turns
LAYOUT = [[3], [2, -2, 3], [1, -1, 2, -3, 1], [4, -1, 1]] * 2
REWARDS = [1.0, 0.0, 0.5, 0.0, 0.0, 2.0, 0.0, 1.0]


def model() -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=VOCAB, num_hidden_layers=1, initializer_range=0.3, **size))


def rollouts(turns: bool = False, extra: int = 0) -> Any:
    """A `rollout_func`; with `turns` it says where each turn is, which is the same place in all first turns."""

    def function(prompts: list[str], trainer: Any) -> dict[str, Any]:
        del trainer
        assert len(prompts) == ROLLOUTS
        masks = [[int(part > 0) for part in parts for _ in range(abs(part))] for parts in LAYOUT]
        ids = [[2 + (3 * row + place) % 30 for place in range(len(mask))] for row, mask in enumerate(masks)]
        output = {"prompt_ids": [[2, 3]] * ROLLOUTS, "completion_ids": ids, "env_mask": masks}
        output["logprobs"] = [[-1.0] * len(mask) for mask in masks]
        output["score"] = REWARDS
        if turns:
            counts = [sum(part > 0 for part in parts) + extra for parts in LAYOUT]
            output["turns"] = [
                [{"observation": f"room {turn}", "reward": 0.25 * (turn == 0)} for turn in range(count)]
                for count in counts
            ]
        return output

    return function


def scores(completions: list[Any], score: list[float], **_: Any) -> list[float]:
    assert len(completions) == len(score)
    return score


def trainer(kind: Any, folder: Any, function: Any = None, score: Any = scores, **options: Any) -> GRPOTrainer:
    words = Tokenizer(WordLevel({f"w{number}": number for number in range(VOCAB)}, unk_token="w0"))
    words.pre_tokenizer = Whitespace()
    names = ("loss_type", "scale_rewards", "multi_objective_aggregation", "mask_truncated_completions")
    config = {key: options.pop(key) for key in names if key in options}
    settings = GRPOConfig(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        report_to=[],
        max_completion_length=16,
        per_device_train_batch_size=ROLLOUTS,
        num_generations=GENERATIONS,
        max_steps=1,
        learning_rate=1e-3,
        **config,
    )
    return kind(
        model=model(),
        reward_funcs=score,
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": ["w2 w3"] * ROLLOUTS}),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w1"),
        rollout_func=function or rollouts(),
        **options,
    )


def batch(made: GRPOTrainer) -> dict[str, Any]:
    made.model.train()
    made.current_gradient_accumulation_steps = 1
    return made._generate_and_score_completions([{"prompt": "w2 w3"} for _ in range(ROLLOUTS)])


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")


@pytest.mark.parametrize(("loss_type", "scale", "params"), [("dapo", "group", {}), ("grpo", "none", {"norm": "mean"})])
def test_flat_grpo_has_the_loss_and_the_gradients_of_grpo_trainer(loss_type, scale, params, tmp_path) -> None:
    losses, gradients = [], []
    options = {"loss_type": loss_type, "scale_rewards": scale}
    for kind, more in ((GRPOTrainer, {}), (CreditGRPOTrainer, {"credit": "flat_grpo", "credit_params": params})):
        made = trainer(kind, tmp_path, **options, **more)
        loss = made.compute_loss(made.model, batch(made))
        loss.backward()
        losses.append(float(loss.detach()))
        gradients.append({name: part.grad for name, part in made.model.named_parameters()})
    assert losses[1] == pytest.approx(losses[0], rel=1e-5, abs=1e-7)
    assert max(float(gradient.abs().max()) for gradient in gradients[0].values()) > 1e-3
    for name, gradient in nonempty(gradients[0].items()):
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-4, atol=1e-7)


def test_advantages_are_the_methods_for_each_turn_and_zero_on_the_environments_tokens(tmp_path) -> None:
    made = trainer(CreditGRPOTrainer, tmp_path, rollouts(turns=True), credit="gigpo", credit_params={"gamma": 0.5})
    found = batch(made)["advantages"]
    rows = []
    for rollout, parts in enumerate(LAYOUT):
        count = sum(part > 0 for part in parts)
        for turn in range(count):
            reward = 0.25 * (turn == 0) + (REWARDS[rollout] - 0.25 if turn + 1 == count else 0.0)
            keys = {"group_id": rollout // GENERATIONS, "rollout_id": rollout, "turn": turn}
            rows.append({**keys, "reward": reward, "observation": f"room {turn}"})
    table = {name: [row[name] for row in rows] for name in rows[0]}
    expected = iter(credit(table, "gigpo", preset="trl", gamma=0.5)["advantage"].to_pylist())
    for rollout, parts in enumerate(LAYOUT):
        wanted = [value for part in parts for value in [next(expected) if part > 0 else 0.0] * abs(part)]
        assert found[rollout, : len(wanted)].tolist() == pytest.approx(wanted, abs=1e-6)
        assert not found[rollout, len(wanted) :].any()
    assert len({round(value, 5) for value in found[1].tolist()}) > 2


def test_texts_are_the_tokenizers_where_the_rollout_function_gives_none(tmp_path) -> None:
    made = trainer(CreditGRPOTrainer, tmp_path, credit="scpo")
    kept: list[dict[str, Any]] = []
    made._advantages = lambda rows: kept.extend(rows) or {}
    batch(made)
    second = [row for row in kept if row["rollout_id"] == 1]
    made.credit_method = method_of("gigpo_similar", {}, "trl", "test")
    kept.clear()
    batch(made)
    assert [row["observation"] for row in kept if row["rollout_id"] == 1] == ["w2 w3", "w7 w8"]
    assert "action" not in kept[0]
    assert [row["action"] for row in second] == ["w5 w6", "w9 w10 w11"]
    assert [row["next_observation"] for row in second] == ["w7 w8", ""]


def test_a_method_of_ones_own_which_does_not_say_what_it_reads_gets_all_texts_and_log_probabilities(tmp_path) -> None:
    file = tmp_path / "talkative.py"
    file.write_text(
        "def talkative(turns):\n"
        "    code_N, texts = turns.texts('action')\n"
        "    turns.texts('observation'), turns.texts('next_observation'), turns.column('response_logprobs')\n"
        "    return code_N + 1.0\n"
    )
    made = trainer(CreditGRPOTrainer, tmp_path / "run", credit=str(file))
    advantages = batch(made)["advantages"]
    row = advantages[1][:7].tolist()
    assert row == pytest.approx([row[0], row[0], 0, 0, row[4], row[4], row[4]])
    assert advantages[1][0] != advantages[1][4]


@pytest.mark.parametrize("method", ["gigpo", "hgpo"])
def test_where_observations_are_only_compared_none_is_decoded_and_the_advantages_are_the_same(
    method: str, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment says w5, w6 or both; w1 is special, and no part of a text."""

    def function(prompts: list[str], trainer: Any) -> dict[str, Any]:
        output = rollouts()(prompts, trainer)
        output["env_mask"] = [[1, 0, 0, 1, 0, 1][: 4 + 2 * (row % 2)] for row in range(ROLLOUTS)]
        said = [[5, 6], [6, 5], [5, 1], [1, 5]]
        output["completion_ids"] = [
            [7, *said[row % 4], 8, 1 + 4 * (row > 4), 9][: 4 + 2 * (row % 2)] for row in range(ROLLOUTS)
        ]
        output["logprobs"] = [[-1.0] * len(mask) for mask in output["env_mask"]]
        return output

    made = trainer(CreditGRPOTrainer, tmp_path, function, credit=method)
    output = batch(made)
    turns = _own_tokens(output, [6] * ROLLOUTS)
    with monkeypatch.context() as patch:
        patch.setattr(made._tokenizer, "batch_decode", lambda *_, **__: pytest.fail("texts were decoded"))
        hashes = made._texts(output, turns, [{}] * ROLLOUTS)["observation"]
    monkeypatch.setattr(module, "_only_compares", lambda _: False)
    texts = made._texts(output, turns, [{}] * ROLLOUTS)["observation"]
    assert torch.equal(batch(made)["advantages"], output["advantages"])
    assert output["advantages"].unique().numel() > 3
    assert [texts.index(text) for text in texts] == [hashes.index(value) for value in hashes]
    assert 3 < len(set(texts)) < len(texts)


def test_processes_compare_texts_where_one_of_them_has_turns_from_the_rollout_function(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(CreditGRPOTrainer, tmp_path, credit="gigpo")
    output = batch(made)
    turns = _own_tokens(output, [len(mask) for mask in output["completion_ids"]])
    here = made._texts(output, turns, [{}] * ROLLOUTS)["observation"]
    monkeypatch.setattr(module, "gather_object", lambda said: [*said, True])  # another process has some
    together = made._texts(output, turns, [{}] * ROLLOUTS)["observation"]
    assert together[0] == "w2 w3"
    assert here[0] != "w2 w3"


def test_a_completion_without_a_reward_is_left_out_of_its_group(tmp_path) -> None:
    def some(completions: list[Any], score: list[float], **_: Any) -> list[float | None]:
        del completions
        return [None, *score[1:]]

    stock, ours = (
        batch(trainer(kind, tmp_path, score=some, **more))["advantages"]
        for kind, more in ((GRPOTrainer, {}), (CreditGRPOTrainer, {"credit": "flat_grpo"}))
    )
    assert not ours[0].any()
    assert ours[:, 0].tolist() == pytest.approx(stock.tolist(), abs=1e-6)


def test_a_truncated_completion_that_is_taken_out_of_the_loss_keeps_its_turns_in_its_group(tmp_path) -> None:
    def function(prompts: list[str], trainer: Any) -> dict[str, Any]:
        output = rollouts(turns=True)(prompts, trainer)
        for ids in output["completion_ids"][:-1]:
            ids[-1] = 1  # the end of a text; the last completion has none
        return output

    whole, masked = (
        batch(trainer(CreditGRPOTrainer, tmp_path, function, credit="gigpo", mask_truncated_completions=mask))
        for mask in (False, True)
    )
    assert whole["completion_mask"][-1].any()
    assert not masked["completion_mask"][-1].any()
    assert torch.equal(masked["advantages"], whole["advantages"])


def test_training_takes_a_step_and_logs_one_advantage_for_each_completion(tmp_path) -> None:
    made = trainer(CreditGRPOTrainer, tmp_path, rollouts(turns=True), credit="gigpo")
    before = {name: part.detach().clone() for name, part in made.model.named_parameters()}
    made.train()
    assert any(not torch.equal(part, before[name]) for name, part in made.model.named_parameters())
    assert len(made._logs["advantages"]) == ROLLOUTS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"credit": "triage"}, "CreditGRPOTrainer: triage needs labels"),
        ({"credit": "gigpo", "credit_params": {"omgea": 1}}, "no parameter 'omgea'"),
        ({"scale_rewards": "batch"}, "scale_rewards='batch' would have no effect on gigpo"),
        ({"scale_rewards": "none"}, "for 'none' also give credit_params={'norm': 'mean'}"),
        ({"multi_objective_aggregation": "normalize_then_sum"}, "multi_objective_aggregation='normalize_then_sum'"),
    ],
)
def test_a_method_is_refused_before_the_model_is_prepared(options, message, tmp_path) -> None:
    with pytest.raises(UserError, match=message):
        trainer(CreditGRPOTrainer, tmp_path, **options)


@pytest.mark.parametrize("name", ["_generate", "_calculate_rewards", "_generate_and_score_completions"])
def test_a_version_of_trl_without_a_method_that_is_overridden_is_refused(name, tmp_path, monkeypatch) -> None:
    monkeypatch.delattr(GRPOTrainer, name)
    with pytest.raises(UserError, match=rf"GRPOTrainer has no {name}; install .*, trl==1\.16\.0 \(here is "):
        trainer(CreditGRPOTrainer, tmp_path, credit="gigpo")


@pytest.mark.parametrize(
    "change",
    [
        lambda made: (*made[:2], made[4], *made[3:]),  # log-probabilities
        lambda made: (*made[:2], made[2][1:], *made[3:]),
        lambda _: SimpleNamespace(),
    ],
)
def test_a_version_of_trl_that_generates_something_else_is_refused(change, tmp_path, monkeypatch) -> None:
    generate = GRPOTrainer._generate
    monkeypatch.setattr(GRPOTrainer, "_generate", lambda self, prompts: change(generate(self, prompts)))
    with pytest.raises(UserError, match="no 0 or 1 for each token of each completion"):
        batch(trainer(CreditGRPOTrainer, tmp_path, credit="gigpo"))


def test_a_mask_that_is_not_the_one_that_trl_trains_with_is_refused(tmp_path, monkeypatch) -> None:
    made = trainer(CreditGRPOTrainer, tmp_path, credit="gigpo")
    monkeypatch.setattr(module, "_masks_of", lambda generated: generated[6])  # no images
    with pytest.raises(UserError, match="is not the mask that it trains with"):
        batch(made)


def test_turns_that_do_not_match_the_mask_are_refused(tmp_path) -> None:
    made = trainer(CreditGRPOTrainer, tmp_path, rollouts(turns=True, extra=1), credit="gigpo")
    with pytest.raises(UserError, match="rollout 0 has 1 turns by its env_mask, and 2 in the field 'turns'"):
        batch(made)


@pytest.mark.parametrize("wrong", [{"reward": float("nan")}, {"reward": None}, "kitchen"])
def test_a_turn_without_a_finite_reward_is_refused_and_not_left_out(wrong: Any, tmp_path) -> None:
    def function(prompts: list[str], trainer: Any) -> dict[str, Any]:
        output = rollouts(turns=True)(prompts, trainer)
        output["turns"][2][-1] = wrong
        return output

    with pytest.raises(UserError, match=r"rollout 2, turn 2 of the field 'turns' is .*; give a dict, with a finite"):
        batch(trainer(CreditGRPOTrainer, tmp_path, function, credit="step_grpo"))
