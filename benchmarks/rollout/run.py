"""Rollouts side by side: the lockstep engine, transformers' `generate`, one process and two.

    python -m benchmarks.rollout.run                                     about four minutes on a quiet machine
    python -m benchmarks.rollout.run --sizes "0.14 M" --repeats 1          a short look

Every engine has its own process with one thread, and all take turns in every repetition. Times are wall times and
include loading the policy and the environment.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
import typer

from benchmarks import small_world

#: Engine, games (of eight rollouts), and what it is.
ENGINES = (
    ("generate", 16, "`transformers` `generate`, full prompt each turn"),
    ("full context", 16, "`policy/engines/transformers.py`, full prompt each turn"),
    ("lockstep", 16, "lockstep"),
    ("lockstep", 64, "lockstep, a round of 512"),
    ("lockstep x2", 64, "lockstep, a round of 512, two processes"),
)
#: Repeated only once: it is slow and not a target.
ONCE = "full context"


class Engine:
    """An engine's process."""

    def __init__(self, name: str, size: str, folder: Path, games: int):
        self.name = name
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.rollout.engines", name, size, str(folder), str(games)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._requests, self._answers = process, process.stdin, process.stdout
        self._answer()

    def _answer(self) -> str:
        line = self._answers.readline()
        if not line:
            sys.exit(f"the engine '{self.name}' ended; python -m benchmarks.rollout.engines shows why")
        return line

    def ask(self) -> dict[str, float]:
        """One repetition."""
        self._requests.write("\n")
        self._requests.flush()
        return json.loads(self._answer())

    def end(self) -> None:
        """Let the process end."""
        self._requests.close()
        self._process.wait()


def compare(size: str, folder: Path, repeats: int) -> None:
    """The table of one size, and its ratios."""
    engines = [Engine(name, size, folder, games) for name, games, _ in ENGINES]
    by_engine: list[list[dict[str, float]]] = [[] for _ in engines]
    for repeat in range(repeats):
        for engine, answers in zip(engines, by_engine, strict=True):
            if not repeat or engine.name != ONCE:
                answers.append(engine.ask())
    for engine in engines:
        engine.end()
    print(f"\n## {size} parameters\n")
    print("| engine | rollouts | turns | tokens read | tokens sampled | s | turns/s | peak memory, GB |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    speed = []
    for (_, games, what), answers in zip(ENGINES, by_engine, strict=True):
        one = answers[0]
        wall = statistics.median(answer["wall"] for answer in answers)
        speed.append(statistics.median(answer["turns"] / answer["wall"] for answer in answers))
        read = f"{one['read']:,.0f}" if one["read"] else ""
        print(
            f"| {what} | {games * 8} | {one['turns']:,.0f} | {read} | {one['sampled']:,.0f} | {wall:.2f} "
            f"| {speed[-1]:,.0f} | {max(answer['memory'] for answer in answers):.2f} |",
            flush=True,
        )
    print("\n| | ratio of turns/s | at least |\n|---|---:|---:|")
    print(f"| lockstep against `generate`, the same {ENGINES[0][1] * 8} rollouts | {speed[2] / speed[0]:.1f}x | 6x |")
    print(f"| two processes against one | {speed[4] / speed[3]:.2f}x | 1.7x |")


def where_time_goes(sizes: list[str], folders: dict[str, Path], repeats: int) -> None:
    """Shares of a round's time by part."""
    columns = {}
    for size in sizes:
        engine = Engine("profile", size, folders[size], ENGINES[3][1])
        answers = [engine.ask() for _ in range(min(repeats, 3))]
        engine.end()
        columns[size] = min(answers, key=lambda answer: sum(answer.values()))
    print("\n## Where the time of a round of 512 goes\n")
    print("One process, the fastest of three rounds, timers included.\n")
    print(f"| part | {' | '.join(sizes)} |\n|---|{'---:|' * len(sizes)}")
    for part in columns[sizes[0]]:
        shares = [f"{column[part] / sum(column.values()):.0%}" for column in columns.values()]
        print(f"| {part} | {' | '.join(shares)} |")
    print(f"| seconds | {' | '.join(f'{sum(column.values()):.2f}' for column in columns.values())} |")


def main(sizes: list[str] = list(small_world.SIZES), repeats: int = 5) -> None:  # noqa: B006 (typer reads it)
    """Make a small policy of each size, then measure."""
    print("# Rollouts\n\n`python -m benchmarks.rollout.run`\n")
    print(
        f"Machine: {os.cpu_count()} x {platform.machine()}, load {os.getloadavg()[0]:.1f} at the start; Python "
        f"{platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}, one thread "
        f"an engine. Medians of {repeats} interleaved repetitions of whole rounds: policy loaded, agents and "
        "environment; games and policy as in the default experiment, but for brief training. "
        "Both engines return the log-probabilities that training needs. "
        "`policy/engines/transformers.py` was run once. Memory is that of the largest process.",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="turncredit-bench-") as name:
        folders = {size: Path(name) / size.replace(" ", "") for size in sizes}
        torch.set_num_threads(1)
        for size, folder in folders.items():
            folder.mkdir()
            small_world.make(small_world.settings(size), folder)
            compare(size, folder, repeats)
        where_time_goes(sizes, folders, repeats)


if __name__ == "__main__":
    typer.run(main)
