"""Measure the speed of the environment: making cases, random actions, and the expert's success."""

from __future__ import annotations

import gc
import random
import time
from typing import Any

from turncredit.envs.desk import tasks
from turncredit.envs.desk.expert import Expert, random_command
from turncredit.envs.desk.settings import Settings
from turncredit.envs.desk.world import Desk
from turncredit.envs.speed import by_expert, snapshot_restore_us

_clock = time.process_time


def measure(settings: Settings, split: str, count: int, steps: int, seed: int) -> dict[str, Any]:
    """CPU time of `count` cases, `steps` random actions each (a rollout that ends is started again).

    Returns milliseconds to make a case, steps per second without and with the list of admissible actions and the
    distance, microseconds per snapshot and restore, and the expert's success and its mean number of actions.
    """
    start = _clock()
    rows = tasks.make_tasks(split, count, seed, settings)
    made = _clock() - start
    envs = [tasks.open_task(row, settings) for row in rows]
    traces = [_trace(env, steps, random.Random(f"{seed}:{number}")) for number, env in enumerate(envs)]
    won = [by_expert(env, Expert(env, random.Random(0))) for env in envs]
    gc.collect()
    figures = {}
    for name, asked in (("steps_per_second", False), ("steps_per_second_with_lists_and_distances", True)):
        start = _clock()
        for env, trace in zip(envs, traces, strict=True):
            _replay(env, trace, asked)
        figures[name] = count * steps / (_clock() - start)
    return {
        "cases": count,
        "steps": count * steps,
        "case_ms": 1e3 * made / count,
        **figures,
        "snapshot_restore_us": snapshot_restore_us(envs[0]),
        "expert_success": sum(success for success, _ in won) / count,
        "expert_actions": sum(actions for _, actions in won) / count,
    }


def _trace(env: Desk, steps: int, rng: random.Random) -> list[str]:
    trace = []
    env.reset()
    for _ in range(steps):
        trace.append(random_command(env, rng))
        if env.step(trace[-1]).done:
            env.reset()
    return trace


def _replay(env: Desk, trace: list[str], asked: bool) -> None:
    env.reset()
    for action in trace:
        if asked:
            env.admissible()
            env.distance()
        if env.step(action).done:
            env.reset()
