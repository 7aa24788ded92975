"""Time branching, and measure the effect of common random numbers and of adaptive numbers of continuations.

    snakemake --cores 1 results/household/rollouts/sft-t64k8T1.0/seed0/round01/turns.parquet
    python -m benchmarks.branch.run                      turns per second on one core
    python -m benchmarks.branch.run --what luck          the same random numbers for neighbouring states
    python -m benchmarks.branch.run --what numbers       adaptive numbers of continuations against the same number
                                                         everywhere

`turns/s` counts the policy's turns in all continuations of one call, including reading all contexts, per second of that
call; CPU seconds are those of the process. OMP_NUM_THREADS is 1 if it is not set.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import typer

from turncredit.audit.branch import choose, true_values
from turncredit.audit.estimates import Values
from turncredit.config import Experiment, load
from turncredit.config.layout import Layout
from turncredit.config.warm_starts import SFT
from turncredit.data import tables
from turncredit.data.seeding import derive_seed, generator
from turncredit.data.turns import Turns
from turncredit.policy.open import OpenPolicy
from turncredit.rollouts.play import Checkpoint, Player, Start
from turncredit.rollouts.restore import RestoredRollout, restored
from turncredit.rollouts.tasks import Games


def recorded(experiment: Experiment, results: Path, turns: int) -> tuple[list[RestoredRollout], Player]:
    """Restored rollouts of the SFT policy with about this many turns, and a player of that policy."""
    layout = Layout(results)
    games = Games(experiment.env.chosen(), tables.read(layout.path("tasks", split="train"), "tasks"))
    view = Turns(tables.read(next(layout.find("turns", round=1)).path, "turns"))
    policy = OpenPolicy(
        layout.path("sft_policy", warm_start=SFT), dtype=experiment.policy.dtype, engine=experiment.policy.engine
    )
    player = Player(policy, experiment.agent.chosen(), games, experiment.rollout.slots)
    clock = time.perf_counter()
    rollouts = restored(view, choose(view, turns, generator(0, "benchmark")), player)
    count = sum(len(rollout.turns) for rollout in rollouts)
    print(f"{count} turns of {len(rollouts)} rollouts restored and checked in {time.perf_counter() - clock:.2f} s\n")
    return rollouts, player


def speed(experiment: Experiment, rollouts: list[RestoredRollout], player: Player) -> None:
    """One call of the stage's values."""
    print("| turns | continuations | continuation turns | wall s | CPU s | turns/s of wall | turns/s of CPU |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for part in (rollouts[: max(1, len(rollouts) // 4)], rollouts):
        clock, cpu = time.perf_counter(), time.process_time()
        values = true_values(
            part,
            lambda starts: player.stream(starts, temperature=1.0),
            experiment.audit.branch.model_copy(update={"budget_turns": 10**9}),
            seed=1,
            low=0.0,
            high=1.0,
        )
        wall, cpu = time.perf_counter() - clock, time.process_time() - cpu
        played, count = int(values.turns_S.sum()), int(values.count_S.sum())
        print(
            f"| {len(values.value_S)} | {count:,} | {played:,} | {wall:.1f} | {cpu:.1f} | {played / wall:,.0f} "
            f"| {played / cpu:,.0f} |",
            flush=True,
        )


def returns(
    rollouts: list[RestoredRollout],
    player: Player,
    copies: int,
    start: Callable[[RestoredRollout, Checkpoint, int], Start],
) -> list[np.ndarray]:
    """Returns (T, copies) of each rollout's states, copy by copy."""
    starts = [
        start(rollout, checkpoint, copy)
        for rollout in rollouts
        for checkpoint in rollout.checkpoints
        for copy in range(copies)
    ]
    played = player.play(starts, temperature=1.0)
    flat = np.array([float(sum(turn.reward for turn in one.turns)) for one in played]).reshape(-1, copies)
    return np.split(flat, np.cumsum([len(rollout.checkpoints) for rollout in rollouts])[:-1])


def luck(rollouts: list[RestoredRollout], player: Player, copies: int = 48) -> None:
    """The reduction in variance of V(s_{t+1}) - V(s_t) if copies of neighbouring states share their random numbers."""

    def own(rollout: RestoredRollout, checkpoint: Checkpoint, copy: int) -> Start:
        seed = derive_seed("own", rollout.rollout_id, checkpoint.turn, copy)
        return Start("", "", rollout.task, seed, checkpoint)

    def by_turn(rollout: RestoredRollout, checkpoint: Checkpoint, copy: int) -> Start:
        return Start("", "", rollout.task, derive_seed("shared", rollout.rollout_id, copy), checkpoint)

    def by_step(rollout: RestoredRollout, checkpoint: Checkpoint, copy: int) -> Start:
        at_start = replace(checkpoint, turn=0)  # its numbers begin with those of turn 0
        return Start("", "", rollout.task, derive_seed("shared", rollout.rollout_id, copy), at_start)

    print("| random numbers of a copy | correlation of neighbours' returns | variance of the difference |")
    print("|---|---:|---:|")
    named = {
        "its own": own,
        "those of its rollout, turn by turn": by_turn,
        "those of its rollout, from the start of the continuation": by_step,
    }
    for name, start in named.items():
        shared, spread = 0.0, 0.0
        for part in returns(rollouts, player, copies, start):
            for one, two in pairwise(part):
                shared += float(np.cov(one, two)[0, 1])
                spread += float(np.var(one, ddof=1) + np.var(two, ddof=1))
        print(f"| {name} | {2 * shared / spread:+.3f} | {1 - 2 * shared / spread:.3f} |", flush=True)


def numbers(experiment: Experiment, rollouts: list[RestoredRollout], player: Player) -> None:
    """The error of an advantage for about the same number of continuation turns."""
    settings = experiment.audit.branch

    def values_with(least: int, most: int) -> Values:
        changed = settings.model_copy(update={"min_continuations": least, "max_continuations": most})
        play = lambda starts: player.stream(starts, temperature=1.0)  # noqa: E731
        return true_values(rollouts, play, changed, seed=2, low=0.0, high=1.0)

    adaptive = values_with(settings.min_continuations, settings.max_continuations)
    alike = round(float(adaptive.turns_S.sum() / (adaptive.turns_S / adaptive.count_S).sum()))
    print("| rule | continuations per state | turns | error of an advantage, root mean square | 90th percentile |")
    print("|---|---:|---:|---:|---:|")
    for name, values in (("adaptive", adaptive), ("the same everywhere", values_with(alike, alike))):
        low, middle, high = np.percentile(values.count_S, [10, 50, 90])
        error_S = values.step_error_S
        print(
            f"| {name} | {middle:.0f} ({low:.0f} to {high:.0f}) | {int(values.turns_S.sum()):,} "
            f"| {np.sqrt((error_S**2).mean()):.3f} | {np.percentile(error_S, 90):.3f} |",
            flush=True,
        )


def main(
    what: Literal["speed", "luck", "numbers"] = "speed",
    config: Path = Path("config.yaml"),
    results: Path = Path("results/household"),
    turns: int = 96,
) -> None:
    """Print one table as Markdown."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    experiment = load([config])
    print(f"torch {torch.__version__}, {platform.machine()}, {torch.get_num_threads()} threads, ", end="")
    print(f"load {os.getloadavg()[0]:.1f}, {experiment.rollout.slots} slots\n")
    rollouts, player = recorded(experiment, results, turns)
    if what == "speed":
        speed(experiment, rollouts, player)
    elif what == "luck":
        luck(rollouts, player)
    else:
        numbers(experiment, rollouts, player)


if __name__ == "__main__":
    typer.run(main)
