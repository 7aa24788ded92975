"""Time the training and the application of learned credit models on rollouts made of noise.

    python -m benchmarks.learned.run                 the sizes of a 1.5 B policy (640 rollouts x 40 turns x 1536)
    python -m benchmarks.learned.run --small         those of the default experiment, after 12 rounds

Wall and CPU seconds of one training each, on OMP_NUM_THREADS threads (1 if it is not set). On a machine
with a GPU the models train there.
"""

from __future__ import annotations

import os
import platform
import resource
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import typer

from turncredit.credit.models import train
from turncredit.credit.models.replay import Rollouts
from turncredit.credit.models.settings import kinds
from turncredit.policy.sampling import device


def noise(rollouts: int, turns: int, width: int, seed: int) -> Rollouts:
    """Rollouts of `turns` turns, half of them successes."""
    maker = torch.Generator().manual_seed(seed)
    shape = (rollouts, turns)
    reward = torch.zeros(shape)
    reward[::2, -1] = 1.0
    value = torch.randn(shape, generator=maker)
    return Rollouts(
        hidden=torch.randn((*shape, width), generator=maker).half(),
        present=torch.ones(shape, dtype=torch.bool),
        reward=reward,
        goal=torch.randn((rollouts, width), generator=maker).half(),
        old=value,
        target=value + reward,
        pair=torch.arange(rollouts * turns).reshape(shape),
    )


def main(small: bool = False) -> None:
    """Print one table as Markdown."""
    rounds, rollouts, turns, width = (11, 256, 30, 64) if small else (1, 640, 40, 1536)
    where = torch.cuda.get_device_name() if device().type == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {platform.machine()}, {where}, load {os.getloadavg()[0]:.1f}\n")
    print(f"{rounds} rounds of {rollouts} rollouts x {turns} turns x {width}\n")
    print("| model | parameters | optimiser steps | training, wall s | CPU s | applying to a round, wall s |")
    print("|---|---:|---:|---:|---:|---:|")
    replay = [noise(rollouts, turns, width, seed) for seed in range(rounds)]
    for name, kind in kinds().items():
        model = train.fresh(name, kind.settings, width, seed=0)
        learned = replay[-1:] if kind.last_round_only else replay
        if small:
            model.steps = 1  # not the first training
        clock, cpu = time.perf_counter(), time.process_time()
        metrics = train.train(model, learned, seed=0, round=rounds + 1)
        wall, cpu = time.perf_counter() - clock, time.process_time() - cpu
        clock = time.perf_counter()
        value_N, _ = train.apply(model, replay[-1])
        applied = time.perf_counter() - clock
        assert np.isfinite(value_N).all()
        size = sum(parameter.numel() for parameter in model.network.parameters())
        print(f"| {name} | {size:,} | {metrics['steps']:.0f} | {wall:.1f} | {cpu:.1f} | {applied:.2f} |", flush=True)
    print(f"\nPeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GB")


if __name__ == "__main__":
    typer.run(main)
