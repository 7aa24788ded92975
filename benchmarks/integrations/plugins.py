"""What the plug-ins add to a step of TRL and verl, 128 rollouts of 50 turns: python -m benchmarks.integrations.plugins

In the environment of `make test-integrations`. Medians of five, CPU time of the process.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from turncredit.bridges.spans import method_of

ROLLOUTS, TURNS, OWN, ENVIRONMENT = 128, 50, 20, 20
LENGTH = TURNS * (OWN + ENVIRONMENT)


def milliseconds(run: Callable[[], Any]) -> float:
    taken = []
    for _ in range(5):
        start = time.process_time()
        run()
        taken.append(1e3 * (time.process_time() - start))
    return statistics.median(taken)


def mask() -> torch.Tensor:
    return torch.tensor(([1] * OWN + [0] * ENVIRONMENT) * TURNS).repeat(ROLLOUTS, 1)


def verl() -> None:
    from omegaconf import OmegaConf
    from verl import DataProto
    from verl.trainer.ppo.core_algos import AdvantageEstimator
    from verl.trainer.ppo.ray_trainer import compute_advantage

    import turncredit.bridges.verl  # noqa: F401  registers the estimator

    rewards = torch.zeros(ROLLOUTS, LENGTH)
    rewards[:, -1] = torch.randint(0, 2, (ROLLOUTS,)).float()
    tensors = {"response_mask": mask(), "token_level_rewards": rewards}
    uid = np.array([f"u{row // 8}" for row in range(ROLLOUTS)], dtype=object)

    def run(estimator: Any, method: str) -> None:
        config = OmegaConf.create({"turncredit": {"method": method}})
        compute_advantage(DataProto.from_dict(tensors, non_tensors={"uid": uid}), estimator, config=config)

    print(f"| verl | its GRPO | {milliseconds(lambda: run(AdvantageEstimator.GRPO, '')):.1f} |")
    for method in ("flat_grpo", "step_grpo"):
        print(f"| verl | turncredit, {method} | {milliseconds(partial(run, 'turncredit', method)):.1f} |")


def _copied(output: dict, *_: Any) -> dict:
    return dict(output)


def trl() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from trl import GRPOTrainer

    from turncredit.bridges.trl import CreditGRPOTrainer

    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokens = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(letters, [])), pad_token="!")
    ids = torch.randint(35, 125, (ROLLOUTS, LENGTH))
    reward_B = np.random.default_rng(0).integers(0, 2, ROLLOUTS).astype(float)
    for method in ("flat_grpo", "gigpo"):
        output = {"completion_ids": ids, "completion_mask": torch.ones_like(ids), "tool_mask": mask()}
        output |= {"prompt_ids": ids[:, :100], "prompt_mask": torch.ones_like(ids[:, :100])}
        trainer = CreditGRPOTrainer.__new__(CreditGRPOTrainer)
        trainer.credit_method = method_of(method, {}, "trl", "bench")
        trainer.__dict__.update(_tokenizer=tokens, num_generations=8, num_generations_eval=8)
        trainer.__dict__.update(model=SimpleNamespace(training=True), accelerator=SimpleNamespace(process_index=0))
        trainer.__dict__.update(state=SimpleNamespace(global_step=0), _logs={"advantages": [0.0] * ROLLOUTS})
        trainer._scored = ([{}] * ROLLOUTS, [LENGTH] * ROLLOUTS, reward_B)
        GRPOTrainer._generate_and_score_completions = partial(_copied, output)  # type: ignore[method-assign]
        taken = milliseconds(partial(trainer._generate_and_score_completions, []))
        print(f"| TRL | added by CreditGRPOTrainer, {method} | {taken:.1f} |")


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("| trainer | | ms |\n|---|---|---:|", file=sys.stdout)
    verl()
    trl()
