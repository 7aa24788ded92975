"""Time the update's loss and gradient against TRL's GRPO trainer on one row per turn: same rollouts, same model.

    python -m benchmarks.update.run

Both compute the gradient of the clipped loss, its mean over the response tokens of all rollouts (TRL: `dapo`), in
passes. TRL gets each turn as its users would pass it: the context so far is the prompt, the response the completion.
Its rows are sorted by length, which it does not do itself, and the fastest of several sizes of pass counts. Ours is the
update's own minibatch step without the optimiser; "whole last layer" also computes states that are not needed. Medians
of interleaved repetitions; OMP_NUM_THREADS is 1 if it is not set. Needs requirements-reference.lock.
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import typer

from benchmarks import small_world
from turncredit.config import UpdateConfig
from turncredit.data import tables
from turncredit.pipeline.job import JobKeys
from turncredit.policy import models
from turncredit.training import sequences as token_sequences
from turncredit.training.optimizers import Optimizers
from turncredit.training.sequences import TokenSequence, batches, sequences_of
from turncredit.training.team import Team
from turncredit.training.update import Objective, minibatch_step

REPETITIONS = 3
PASSES = (4096, 8192, 16384)  # padded tokens of a pass of TRL's
PAD = 0


class Looks(Optimizers):
    """An optimiser that changes nothing."""

    def __init__(self) -> None: ...

    def step(self, max_grad_norm: float) -> float:
        """Nothing."""
        del max_grad_norm
        return 0.0


def gradients(model: torch.nn.Module) -> torch.Tensor:
    """All gradients as one vector."""
    return torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])


def ours(model: torch.nn.Module, sequences: Sequence[TokenSequence], advantages: torch.Tensor, tokens_per_pass: int):
    """Our loss; gradients are left on the parameters."""
    objective = Objective(UpdateConfig(tokens_per_pass=tokens_per_pass), advantages, 0.0, 1.0)
    team = Team()
    with team.sharing(list(model.parameters()), shards=1):
        return minibatch_step(model, Looks(), team, objective, sequences, 0)["loss"]


def read_whole(model: torch.nn.Module, ids: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """States after the whole last layer."""
    return model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state[wanted]


def rows_of(sequences: Sequence[TokenSequence]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
    """One row per turn: (prompt, completion, its log-probabilities when sampled, the turn), the shortest first."""
    rows = []
    for sequence in sequences:
        for turn in np.unique(sequence.turn[sequence.turn >= 0]):
            at = np.flatnonzero(sequence.turn == turn)
            rows.append((sequence.ids[: at[0]], sequence.ids[at], sequence.logprobs[at], int(turn)))
    return sorted(rows, key=lambda row: len(row[0]) + len(row[1]))


def padded(arrays: Sequence[np.ndarray], left: bool, dtype: torch.dtype) -> torch.Tensor:
    """Arrays as rows of a tensor."""
    longest = max(map(len, arrays))
    out = torch.full((len(arrays), longest), PAD, dtype=dtype)
    for row, array in enumerate(arrays):
        where = slice(longest - len(array), None) if left else slice(len(array))
        out[row, where] = torch.from_numpy(np.asarray(array)).to(dtype)
    return out


def trl_batches(sequences: Sequence[TokenSequence], advantages: torch.Tensor, tokens_per_pass: int) -> list[dict]:
    """The input of TRL's trainer for each pass."""
    rows, inputs, start = rows_of(sequences), [], 0
    total = sum(len(row[1]) for row in rows)
    for end in range(1, len(rows) + 1):
        longest = len(rows[min(end, len(rows) - 1)][0]) + 10
        if end < len(rows) and longest * (end + 1 - start) <= tokens_per_pass:
            continue
        prompts, completions, logprobs, turns = zip(*rows[start:end], strict=True)
        inputs.append(
            {
                "prompt_ids": padded(prompts, True, torch.long),
                "prompt_mask": padded([np.ones(len(p)) for p in prompts], True, torch.long),
                "completion_ids": padded(completions, False, torch.long),
                "completion_mask": padded([np.ones(len(c)) for c in completions], False, torch.long),
                "old_per_token_logps": padded(logprobs, False, torch.float32),
                "advantages": advantages[list(turns)],
                "num_items_in_batch": torch.tensor(total),
            }
        )
        start = end
    return inputs


def trainer_for(model: torch.nn.Module, folder: Path):
    """TRL's trainer with our clipping."""
    from datasets import Dataset
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    settings = GRPOConfig(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        report_to=[],
        loss_type="dapo",
        epsilon=UpdateConfig().clip_low,
        epsilon_high=UpdateConfig().clip_high,
        beta=0.0,
        temperature=1.0,
        per_device_train_batch_size=2,
        num_generations=2,
        gradient_checkpointing=False,
    )
    words = Tokenizer(WordLevel({str(number): number for number in range(9)}, unk_token="0"))
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": ["2 3"] * 2}),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", eos_token="1"),
    )
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def trls(trainer, model: torch.nn.Module, passes: Sequence[dict]) -> float:
    """TRL's loss; gradients are left on the parameters."""
    total = 0.0
    for inputs in passes:
        loss = trainer._compute_loss(model, inputs)
        loss.backward()
        total += float(loss.detach())
    return total


def timed(
    calls: dict[str, Callable[[], float]], model: torch.nn.Module
) -> dict[str, tuple[float, float, torch.Tensor]]:
    """For each call: median CPU seconds, loss, gradients. The first round of calls is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    outcomes = {}
    for repetition in range(REPETITIONS + 1):
        for name, call in calls.items():
            model.zero_grad(set_to_none=True)
            clock = time.process_time()
            loss = call()
            if repetition:
                seconds[name].append(time.process_time() - clock)
            else:
                outcomes[name] = (loss, gradients(model))
    return {name: (median(seconds[name]), *outcomes[name]) for name in calls}


def compare(size: str, folder: Path, rollouts: int) -> None:
    """Measure one size of policy, and print its rows of the table."""
    experiment = small_world.settings(size, rollout={"tasks": rollouts // 8, "group_size": 8})
    plan = small_world.make(experiment, folder)
    table = tables.read(small_world.play(plan))
    sequences = sequences_of(table)
    model = models.load_model(plan.sft_policy(JobKeys()), dtype="float32").train()
    torch.manual_seed(0)
    advantages = torch.randn(table.num_rows)
    trainer = trainer_for(model, folder / "trl")
    tokens_per_pass = experiment.update.tokens_per_pass
    passes = {count: trl_batches(sequences, advantages, count) for count in PASSES}

    def whole_layer() -> float:
        with patch.object(token_sequences, "states_at", read_whole):
            return ours(model, sequences, advantages, tokens_per_pass)

    calls: dict[str, Callable[[], float]] = {
        f"TRL, one row a turn, {count} a pass": partial(trls, trainer, model, passes[count]) for count in PASSES
    }
    calls["ours, whole last layer"] = whole_layer
    calls["ours"] = lambda: ours(model, sequences, advantages, tokens_per_pass)
    results = timed(calls, model)
    best = min((name for name in results if name.startswith("TRL")), key=lambda name: results[name][0])
    learned = sum(int((sequence.turn >= 0).sum()) for sequence in sequences)
    real = sum(len(sequence.ids) for sequence in sequences)
    stacked = [len(part) * max(len(s.ids) for s in part) for part in batches(sequences, tokens_per_pass)]
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"\n{parameters / 1e6:.2f} M parameters; {len(sequences)} rollouts, {table.num_rows} turns, {learned} response"
    )
    print(f"tokens in {real} tokens ({sum(stacked) / real - 1:.1%} padding).\n")
    print("| | tokens read | CPU s | response tokens/s | times TRL | loss | largest difference of gradients |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    _, _, reference = results[best]
    for name in (best, "ours, whole last layer", "ours"):
        seconds, loss, gradient = results[name]
        count = passes[int(name.split()[-3])] if name == best else None
        read = (
            sum(part["prompt_ids"].numel() + part["completion_ids"].numel() for part in count)
            if count
            else sum(stacked)
        )
        difference = float((gradient - reference).abs().max() / reference.abs().max())
        print(
            f"| {name} | {read:,} | {seconds:.2f} | {learned / seconds:,.0f} | {results[best][0] / seconds:.1f} "
            f"| {loss:.6f} | {difference:.1e} |"
        )


def main(rollouts: int = 32) -> None:
    """Measure both sizes."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    print("# The update against TRL's GRPO trainer\n")
    print(f"`python -m benchmarks.update.run`, {platform.machine()}, torch {torch.__version__}, Python")
    print(f"{platform.python_version()}, {torch.get_num_threads()} thread, load {os.getloadavg()[0]:.1f} at the start.")
    for size in small_world.SIZES:
        with tempfile.TemporaryDirectory() as name:
            compare(size, Path(name), rollouts)


if __name__ == "__main__":
    typer.run(main)
