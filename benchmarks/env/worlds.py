"""Speed and memory of the environments, and continuations per second for ground truth in each: without any model.

    python -m benchmarks.env.worlds                     all of them; ScienceWorld only where there is Java
    python -m benchmarks.env.worlds webshop searchqa    these
    python -m benchmarks.env.worlds --repetitions 1 scienceworld

Each environment has its default settings (ScienceWorld: at most 20 actions a rollout) and generated tasks. Each
repetition is a process of its own, and the table has the medians. Actions are the environment's random ones (those of
noise in demonstrations), chosen beforehand: times are of the same actions played once more, so caches are warm.

steps/s           actions a second, one environment, and 64 of them in lockstep, as in a rollout; what has ended is
                  reset, which counts
MB                resident memory added by the first environment after a reset and a few actions, with the data and
                  code that all share, and by 64 of them; includes child processes
continuations/s   as in branching: open the task, restore the state in the middle of a rollout, play to its end. Where
                  an environment has no snapshots, restoring plays the actions before the state again

All times are CPU times, those of child processes included.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pyarrow.parquet as pq

from turncredit import envs
from turncredit.config import EnvSlice
from turncredit.errors import UserError
from turncredit.rollouts.tasks import Games, make_tasks

TOGETHER = 64


class Amount(NamedTuple):
    """How much is measured: actions with one environment, actions of each of 64, and continuations."""

    alone: int = 5000
    together: int = 100
    continuations: int = 640


NAMES = {
    name: Amount() for name in ("household", "webshop", "searchqa", "desk", "sokoban", "virtualhome", "scienceworld")
}
NAMES["virtualhome"] = Amount(alone=1000, together=20, continuations=128)
NAMES["scienceworld"] = Amount(alone=40, together=3, continuations=4)
SETTINGS: dict[str, dict[str, Any]] = {"scienceworld": {"horizon": 20, "gold": False}}
#: a column of the table: its name in what a repetition prints, and its heading
COLUMNS = {
    "steps_1": "steps/s, 1",
    "steps_64": "steps/s, 64",
    "mb_1": "MB, 1",
    "mb_64": "MB, 64",
    "continuations": "continuations/s",
    "restored": "actions before the state",
    "played": "actions of a continuation",
}


def measure(name: str, tasks: Path, seed: int, amount: Amount) -> dict[str, float]:
    """One repetition, in this process."""
    games = Games(EnvSlice(name=name, settings=SETTINGS.get(name, {})), pq.read_table(tasks))
    rng = np.random.default_rng(seed)
    gc.collect()
    before = _megabytes()
    running = [games.open(games.rows[0])]
    _chosen(games, running, min(20, amount.together), rng)
    gc.collect()
    one = _megabytes() - before
    running += [games.open(row) for row in games.rows[1:]]
    together = _chosen(games, running, amount.together, rng)
    gc.collect()
    all_of_them = _megabytes() - before
    alone = _chosen(games, running[:1], amount.alone, rng)
    games.each(running, "reset")
    seconds_64 = _cpu_of(lambda: _play(games, running, together))
    games.each(running[:1], "reset")
    seconds_1 = _cpu_of(lambda: _play(games, running[:1], alone))
    games.close_each(running)
    return {
        "steps_1": amount.alone / seconds_1,
        "steps_64": amount.together * len(running) / seconds_64,
        "mb_1": one,
        "mb_64": all_of_them,
        **_continuations(games, amount.continuations, rng),
    }


def _chosen(games: Games, running: Sequence[Any], steps: int, rng: np.random.Generator) -> list[list[str]]:
    """Random actions, `steps` for each environment, which have been carried out after a reset of each."""
    games.each(running, "reset")
    ticks = []
    for _ in range(steps):
        ticks.append([games.random_action(env, rng) for env in running])
        _tick(games, running, ticks[-1])
    return ticks


def _play(games: Games, running: Sequence[Any], ticks: Sequence[Sequence[str]]) -> None:
    """Carry out these actions."""
    for actions in ticks:
        _tick(games, running, actions)


def _tick(games: Games, running: Sequence[Any], actions: Sequence[str]) -> None:
    steps = games.each(running, "step", actions)
    if ended := [env for env, step in zip(running, steps, strict=True) if step.done]:
        games.each(ended, "reset")


def _continuations(games: Games, count: int, rng: np.random.Generator) -> dict[str, float]:
    """Continuations per second of CPU time, one after the other, of tasks in turn; and their mean lengths."""
    tasks = [games.rows[number % len(games.rows)] for number in range(count)]
    states = {}
    for task in tasks[: len(games.rows)]:
        env = games.open(task)
        env.reset()
        passed = [env.snapshot()]
        while not env.step(games.random_action(env, rng)).done:
            passed.append(env.snapshot())
        env.close()
        states[task["task_id"]] = len(passed) // 2, passed[len(passed) // 2]
    actions = []
    for task in tasks:
        env = games.open(task)
        env.restore(states[task["task_id"]][1])
        actions.append([games.random_action(env, rng)])
        while not env.step(actions[-1][-1]).done:
            actions[-1].append(games.random_action(env, rng))
        env.close()

    def play() -> None:
        for task, own in zip(tasks, actions, strict=True):
            env = games.open(task)
            env.restore(states[task["task_id"]][1])
            for action in own:
                env.step(action)
            env.close()

    return {
        "continuations": count / _cpu_of(play),
        "restored": float(np.mean([states[task["task_id"]][0] for task in tasks])),
        "played": float(np.mean([len(own) for own in actions])),
    }


def _cpu_of(work: Callable[[], None]) -> float:
    """CPU seconds of this process and its children."""
    before = _cpu()
    work()
    return _cpu() - before


def _cpu() -> float:
    times = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    return time.process_time() + sum(one.user + one.system for one in times)


def _megabytes() -> float:
    """Resident memory of this process and its children."""
    own = psutil.Process()
    return sum(one.memory_info().rss for one in (own, *own.children(recursive=True))) / 2**20


def medians(name: str, repetitions: int, amount: Amount) -> dict[str, float]:
    """Each figure's median over repetitions, each in a process of its own."""
    config = EnvSlice(name=name, settings=SETTINGS.get(name, {}))
    with tempfile.TemporaryDirectory() as folder:
        tasks = Path(folder) / "tasks.parquet"
        pq.write_table(make_tasks(config, "train", TOGETHER, 0, key="tasks"), tasks)
        found = []
        for seed in range(repetitions):
            given = json.dumps([name, str(tasks), seed, list(amount)])
            command = [sys.executable, "-m", "benchmarks.env.worlds", "--one", given]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found.append(json.loads(done.stdout.splitlines()[-1]))
    return {column: float(np.median([one[column] for one in found])) for column in COLUMNS}


def missing(name: str) -> str | None:
    """Why an environment cannot be played here; None if it can."""
    try:
        environment = envs.load(name)
        if environment.check_installed is not None:
            environment.check_installed(environment.Settings.model_validate(SETTINGS.get(name, {})))
    except UserError as error:
        return str(error)
    return None


def figure(value: float) -> str:
    """A number with as many digits as mean something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table as Markdown, each line as soon as it is measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all if none is given")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one:
        name, tasks, seed, amount = json.loads(given.one)
        print(json.dumps(measure(name, Path(tasks), seed, Amount(*amount))))
        return
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    print(f"| | {' | '.join(COLUMNS.values())} |")
    print(f"|---|{'---:|' * len(COLUMNS)}", flush=True)
    for name in given.names or NAMES:
        if why := missing(name):
            print(f"{name} is left out: {why}", file=sys.stderr)
            continue
        found = medians(name, given.repetitions, NAMES[name])
        print(f"| {name} | {' | '.join(figure(found[column]) for column in COLUMNS)} |", flush=True)


if __name__ == "__main__":
    main()
