"""Measure the speed of the engines on the same games and commands."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turncredit.envs.household.game import Game
from turncredit.envs.household.native import NativeEnv
from turncredit.envs.household.profile import identify

ENGINES = ("alfworld", "textworld", "native")
"""The order in which one process can measure them: `textworld` patches the package that `alfworld` measures."""

Trace = list[list[str]]
"""The commands of a few rollouts."""
_HORIZON = 50
_clock = time.process_time


def measure(engine: str, games: Sequence[Mapping[str, Any]], steps: int, seed: int) -> dict[str, Any]:
    """CPU time of an engine on `games` (contents of `game.tw-pddl` files), `steps` commands each.

    A step includes the list of admissible commands. Every game is loaded afresh, so that caches start cold.
    Returns milliseconds per load and per reset, steps per second, and microseconds per snapshot and per restore (None
    for `alfworld`, which has neither).
    """
    traces = [_trace(data, steps, random.Random(f"{seed}:{n}")) for n, data in enumerate(games)]
    gc.collect()
    timed = _time_package if engine == "alfworld" else _time_env
    load, reset, step, resets, restore = timed(engine, games, traces)
    done = sum(len(rollout) for trace in traces for rollout in trace)
    return {
        "games": len(games),
        "steps": done,
        "load_ms": 1e3 * load / len(games),
        "reset_ms": 1e3 * reset / resets,
        "step_us": 1e6 * step / done,
        "steps_per_second": done / step,
        "snapshot_restore_us": None if restore is None else 1e6 * restore,
    }


def _trace(data: Mapping[str, Any], steps: int, rng: random.Random) -> Trace:
    """Random rollouts: one command in ten refused, the others half from anywhere, half without `go to`."""
    env = NativeEnv(_native_game(data), _HORIZON)
    trace: Trace = [[]]
    env.reset()
    for _ in range(steps):
        admissible = env.admissible()
        kind = rng.random()
        if kind < 0.1:
            command = "examine nothing 9"
        elif kind < 0.55:
            command = rng.choice([c for c in admissible if not c.startswith("go to")])
        else:
            command = rng.choice(admissible)
        trace[-1].append(command)
        if env.step(command).done:
            env.reset()
            trace.append([])
    return [rollout for rollout in trace if rollout]


def _native_game(data: Mapping[str, Any]) -> Game:
    return Game(*identify(data["pddl_domain"], data["grammar"]), data["pddl_problem"])


def _opener(engine: str) -> Callable[[Mapping[str, Any]], Any]:
    """Opens a game on an engine; each engine has its own kind of snapshot."""
    if engine == "native":
        return lambda data: NativeEnv(_native_game(data), _HORIZON)
    from turncredit.envs.household import textworld

    textworld.speed_up()
    return lambda data: textworld.TextworldEnv(data, _HORIZON)


def _time_env(
    engine: str, games: Sequence[Mapping[str, Any]], traces: Sequence[Trace]
) -> tuple[float, float, float, int, float]:
    """Seconds for loads, resets and steps, the number of resets, and seconds for one snapshot and restore."""
    open_env = _opener(engine)
    load = reset = step = restore = 0.0
    resets = 0
    repeats = 20_000 if engine == "native" else 3
    for data, trace in zip(games, traces, strict=True):
        start = _clock()
        env = open_env(data)
        load += _clock() - start
        for rollout in trace:
            start = _clock()
            env.reset()
            begun = _clock()
            for command in rollout:
                env.admissible()
                env.step(command)
            ended = _clock()
            reset += begun - start
            step += ended - begun
            resets += 1
        env.reset()
        for command in trace[0][:20]:
            env.step(command)
        start = _clock()
        for _ in range(repeats):
            env.restore(env.snapshot())
        restore += (_clock() - start) / repeats
    return load, reset, step, resets, restore / len(games)


def _time_package(
    _engine: str, games: Sequence[Mapping[str, Any]], traces: Sequence[Trace]
) -> tuple[float, float, float, int, None]:
    """The package as installed; its step gives the admissible commands along with the text."""
    from turncredit.envs.household.textworld import Reference

    load = reset = step = 0.0
    resets = 0
    for data, trace in zip(games, traces, strict=True):
        engine = Reference()
        start = _clock()
        engine.load(data)
        load += _clock() - start
        for rollout in trace:
            start = _clock()
            engine.reset()
            begun = _clock()
            for command in rollout:
                engine.step(command)
            step += _clock() - begun
            reset += begun - start
            resets += 1
    return load, reset, step, resets, None
