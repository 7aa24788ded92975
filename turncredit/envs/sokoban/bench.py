"""Measure the environment: making tasks, tables of distances, rollouts, and how random play ends; solve files."""

from __future__ import annotations

import gc
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from turncredit.envs.sokoban import planner, tasks
from turncredit.envs.sokoban.expert import Expert, random_command, slip_command
from turncredit.envs.sokoban.files import read_levels, solvable
from turncredit.envs.sokoban.game import Sokoban
from turncredit.envs.sokoban.settings import Settings
from turncredit.envs.speed import snapshot_restore_us

_clock = time.process_time


def measure(settings: Settings, split: str, count: int, steps: int, seed: int) -> dict[str, Any]:
    """CPU time of `count` tasks, `steps` actions each: the expert's, but for one in five, which is random.

    Returns milliseconds to make a task and to fill a table of distances, microseconds per step (the observation
    included) and per snapshot and restore, steps per second, the mean length of optimal plans, and how many of the
    levels a rollout of random possible actions solves or leaves dead.
    """
    start = _clock()
    rows = tasks.make_tasks(split, count, seed, settings)
    made = _clock() - start
    envs = [tasks.open_task(row, settings) for row in rows]
    planner.forget()
    start = _clock()
    for env in envs:
        env.distance()
    tables = _clock() - start
    traces = [_trace(env, steps, random.Random(f"{seed}:{n}")) for n, env in enumerate(envs)]
    gc.collect()
    start = _clock()
    for env, trace in zip(envs, traces, strict=True):
        env.reset()
        for action in trace:
            if env.step(action).done:
                env.reset()
    step = _clock() - start
    ends = Counter(_wander(env, random.Random(f"{seed}:{n}")) for n, env in enumerate(envs))
    done = sum(map(len, traces))
    return {
        "games": count,
        "steps": done,
        "make_ms": 1e3 * made / count,
        "table_ms": 1e3 * tables / count,
        "step_us": 1e6 * step / done,
        "steps_per_second": done / step,
        "snapshot_restore_us": snapshot_restore_us(envs[0]),
        "optimal_length": float(np.mean([row["optimal_length"] for row in rows])),
        "random_solves": ends["solved"] / count,
        "random_dies": ends["dead"] / count,
    }


def solved(path: Path) -> dict[str, Any]:
    """Solve the levels of a file. Raises UserError for one that is damaged or has no solution."""
    levels = read_levels(path)
    start = _clock()
    lengths = [solvable(level, f"{path}: level {number}") for number, level in enumerate(levels, start=1)]
    boxes = Counter(len(level.start.boxes) for level in levels)
    return {
        "levels": len(levels),
        "rooms": len({level.room.digest for level in levels}),
        "boxes": {str(number): boxes[number] for number in sorted(boxes)},
        "shortest": min(lengths),
        "longest": max(lengths),
        "seconds": _clock() - start,
    }


def _trace(env: Sokoban, steps: int, rng: random.Random) -> list[str]:
    trace: list[str] = []
    expert = Expert(env, rng)
    env.reset()
    while len(trace) < steps:
        trace.append(random_command(env, rng) if rng.random() < 0.2 else expert.act())
        if env.step(trace[-1]).done:
            env.reset()
    return trace


def _wander(env: Sokoban, rng: random.Random) -> str:
    """How a rollout of random possible actions ends."""
    env.reset()
    while not (step := env.step(slip_command(env, rng))).done:
        pass
    return "solved" if step.success else "dead" if env.distance() == planner.DEAD else "alive"
