"""Measure the environment: speed and memory of rollouts, and how many recorded programs end as recorded."""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from collections import Counter
from collections.abc import Mapping
from typing import Any

from turncredit.envs.speed import snapshot_restore_us
from turncredit.envs.virtualhome import engine, tasks
from turncredit.envs.virtualhome.actions import parse
from turncredit.envs.virtualhome.expert import expert, random_command
from turncredit.envs.virtualhome.goals import Goal
from turncredit.envs.virtualhome.home import VirtualHome
from turncredit.envs.virtualhome.real import Program, data_root, recorded
from turncredit.envs.virtualhome.settings import Settings

_clock = time.process_time
_MANY = 64


def measure(settings: Settings, split: str, games: int, steps: int, seed: int) -> dict[str, Any]:
    """CPU time of `games` tasks, `steps` actions each: the expert's, but for one in five, which is random.

    Returns milliseconds to open a task, microseconds per step, per list of admissible actions and per snapshot and
    restore, steps per second, and the memory (Python's own objects, in MB) of one environment and of 64 on other tasks.
    """
    rows = tasks.make_tasks(split, games, seed, settings)
    opened, step = 0.0, 0.0
    envs = []
    for row in rows:
        start = _clock()
        envs.append(tasks.open_task(row, settings))
        opened += _clock() - start
    traces = [_trace(env, steps, random.Random(f"{seed}:{n}")) for n, env in enumerate(envs)]
    gc.collect()
    for env, trace in zip(envs, traces, strict=True):
        start = _clock()
        env.reset()
        for action in trace:
            if env.step(action).done:
                env.reset()
        step += _clock() - start
    start = _clock()
    for env in envs:
        env.reset()
        env.admissible()
    admissible = (_clock() - start) / len(envs)
    done = sum(map(len, traces))
    return {
        "games": games,
        "steps": done,
        "open_ms": 1e3 * opened / games,
        "step_us": 1e6 * step / done,
        "steps_per_second": done / step,
        "reset_and_admissible_us": 1e6 * admissible,
        "snapshot_restore_us": snapshot_restore_us(envs[0]),
        **_memory(settings, split, seed),
    }


def _trace(env: VirtualHome, steps: int, rng: random.Random) -> list[str]:
    trace: list[str] = []
    while len(trace) < steps:
        player = expert(env, rng)
        player.observe(env.reset())
        done = False
        while not done and len(trace) < steps:
            action = player.act()
            if rng.random() < 0.2:
                action = random_command(env, rng)
            trace.append(action)
            result = env.step(action)
            done = result.done
            player.observe(result.observation, action)
    return trace


def _memory(settings: Settings, split: str, seed: int) -> dict[str, float]:
    """MB of one environment, and of 64 on tasks of their own, each half-way through a rollout of the expert."""
    rows = tasks.make_tasks(split, _MANY, seed + 1, settings)
    out = {}
    for count in (1, _MANY):
        tasks.forget()
        gc.collect()
        tracemalloc.start()
        envs = [tasks.open_task(row, settings) for row in rows[:count]]
        for env in envs:
            _trace(env, 4, random.Random(0))
        gc.collect()
        out[f"memory_mb_{count}"] = tracemalloc.get_traced_memory()[0] / 1e6
        tracemalloc.stop()
    return out


def programs(settings: Settings, sample: int = 1) -> dict[str, Any]:
    """Run every `sample`-th recorded program as it stands.

    Returns how many there are, how many finish, how many of these with the recorded states of all nodes, the verbs that
    the package refuses in the others; and for each kind of goals how many programs have one, and how many reach it.
    """
    source = recorded(data_root(settings))
    refused: Counter[str] = Counter()
    chosen = sorted(source.programs)[::sample]
    goals, reached = Counter(), Counter()
    finished = same = 0
    for number in chosen:
        before, after = source.graphs(number)
        goal_of = {kind: source.goal(number, kind) for kind in ("annotated", "recorded")}
        state, verb, won = _run(engine.start(before), source.programs[number], goal_of)
        for kind, goal in goal_of.items():
            goals[kind] += goal is not None
            reached[kind] += kind in won
        if verb:
            refused[verb] += 1
            continue
        finished += 1
        states = {node["id"]: set(node["states"]) for node in after["nodes"]}
        same += states == {node.id: {one.name for one in node.states} for node in state.get_nodes()}
    return {
        "programs": len(chosen),
        "finish": finished,
        "with_recorded_states": same,
        "refused": dict(refused.most_common()),
        "goals": dict(goals),
        "reached": dict(reached),
    }


def _run(state: engine.State, program: Program, goals: Mapping[str, Goal | None]) -> tuple[engine.State, str, set[str]]:
    """The last state, the verb that was refused (or nothing), and the goals that held after some action."""
    done: set[str] = set()

    def holding() -> set[str]:
        return {kind for kind, goal in goals.items() if goal is not None and goal.progress(state, done) == 1.0}

    won: set[str] = set()
    for line in program.lines:
        parsed = parse(line)
        assert parsed is not None, line
        after, _ = engine.execute(state, parsed[0], [one.number for one in parsed[1]])
        if after is None:
            return state, parsed[0], won
        state = after
        done.add(parsed[0])
        won |= holding()
    return state, "", won
