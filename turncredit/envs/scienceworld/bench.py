"""Measure the simulator behind this environment: time and memory with few and many rollouts, and its gold paths."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from turncredit.envs.replaying import Replaying
from turncredit.envs.scienceworld import simulator as java
from turncredit.envs.scienceworld import tasks
from turncredit.envs.scienceworld.expert import slip_command
from turncredit.envs.scienceworld.settings import Settings
from turncredit.envs.scienceworld.world import ScienceWorld, Task

_RESTORED = 8


def measure(counts: Sequence[int], steps: int, seed: int) -> Iterator[dict[str, Any]]:
    """For each number of rollouts at a time, in a fresh Java process: CPU time of both processes, and Java's memory.

    The rollouts are of all 30 tasks in turn, and each takes `steps` harmless random actions in lockstep with the
    others, so that the worlds alternate with every step. Restoring is playing these actions again in another rollout.
    The figures include what Java spends on compiling.
    """
    settings = Settings(horizon=1000)
    for count in counts:
        java.stop()
        begun = _cpu()
        java.simulator()
        started = _cpu()
        chosen = [Task(settings.tasks[number % len(settings.tasks)], number // 30, "") for number in range(count)]
        running = [Replaying(ScienceWorld(task, settings), task.name) for task in chosen]
        wall, before = time.monotonic(), _cpu()
        for env in running:
            env.reset()
        opened = _cpu()
        rng = random.Random(seed)
        for _ in range(steps):
            for env in running:
                env.step(slip_command(env, rng))
        walked, walked_wall = _cpu(), time.monotonic() - wall
        kept = [(task, env.snapshot()) for task, env in zip(chosen, running, strict=True)][:_RESTORED]
        copying = _cpu()
        others = [Replaying(ScienceWorld(task, settings), task.name) for task, _ in kept]
        for other, (_, state) in zip(others, kept, strict=True):
            other.restore(state)
        copied = _cpu()
        yield {
            "rollouts": count,
            "steps": count * steps,
            "java_start_s": started - begun,
            "reset_ms": 1e3 * (opened - before) / count,
            "step_ms": 1e3 * (walked - opened) / (count * steps),
            "steps_per_cpu_second": count * steps / (walked - opened),
            "wall_s": walked_wall,
            "restores_per_cpu_second": len(others) / (copied - copying),
            "restored_actions": steps,
            "java_mb": _memory_mb(),
        }
        for env in [*running, *others]:
            env.close()
    java.stop()


def gold(names: Sequence[str], each: int, settings: Settings) -> Iterator[dict[str, Any]]:
    """Of the first `each` training variations of each task: how many gold paths complete it, and their lengths."""
    for name in names:
        begun = _cpu()
        variations = java.simulator().variations(name)["train"][:each]
        lengths, completed = [], 0
        for variation in variations:
            env = ScienceWorld(tasks.describe(name, variation, settings, gold=True), settings)
            env.reset()
            step = None
            for action in env.gold():
                step = env.step(action)
            completed += bool(step and step.success)
            lengths.append(len(env.gold()))
            env.close()
        yield {
            "task": name,
            "variations": len(variations),
            "completed": completed,
            "longest": max(lengths),
            "cpu_s": _cpu() - begun,
        }


def _cpu() -> float:
    """CPU seconds of this process and of its Java process so far."""
    running = java._simulators.get(os.getpid())
    own = time.process_time()
    if running is None or not running.alive:
        return own
    fields = Path(f"/proc/{running.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return own + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb() -> float:
    """The Java process's resident memory."""
    lines = Path(f"/proc/{java.simulator().process.pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024
