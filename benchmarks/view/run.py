"""Time the pages of `turncredit view` over five million turns, and its memory.

    python -m benchmarks.view.run                     24 runs, 150 rounds, 128 rollouts of 11 turns, as Markdown
    python -m benchmarks.view.run --rounds 10         fewer

SYNTHETIC: a few rounds are written from a formula and linked under every run's and round's name, each with the metrics
files that jobs leave. The server is a process of its own, as a user starts it; pages are asked for over HTTP. Memory is
the process's peak after all of them.
"""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from html import unescape
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer

from turncredit.config import from_mapping
from turncredit.config.layout import Layout, fill, sampled_by
from turncredit.config.stages import stages
from turncredit.data import tables

METHODS = ("flat_grpo", "gigpo", "scpo", "rloo", "has_progressive", "mgr_no_critic", "oracle_progress", "random_credit")
SEEDS, GROUPS, SIBLINGS, TURNS = 3, 16, 8, 11
#: Rounds that are written; every other one is a link to one of them.
WRITTEN = 8
MADE_BY = {"stage": "synthetic", "code": "synthetic", "config": {}, "config_hash": "", "inputs": {}, "seed": 0}
PLACES = ("shelf 1", "fridge 1", "desk 1", "sink 1", "table 1", "drawer 3")


def turns_of(rng: np.random.Generator) -> list[dict]:
    """The turns of a round of household-like games, from a formula."""
    rows = []
    for group in range(GROUPS):
        for copy in range(SIBLINGS):
            won, length = bool(rng.random() < 0.5), int(rng.integers(TURNS - 4, TURNS + 5))
            for turn in range(length):
                place, valid = PLACES[int(rng.integers(len(PLACES)))], bool(rng.random() < 0.8)
                action = f"go to {place}"
                got = f"You arrive at {place}. On the {place}, you see a mug {turn}." if valid else "Nothing happens."
                rows.append(
                    {
                        "group_id": f"train-{group:03d}", "rollout_id": f"train-{group:03d}#{copy}", "turn": turn,
                        "env": "household", "split": "train", "task_id": f"train-{group:03d}", "family": "pick",
                        "goal": f"put a clean mug in {place}.", "observation": got, "context_reset": turn == 0,
                        "prompt_ids": rng.integers(0, 900, 40).tolist(), "response_ids": [5, 7, 11, 2],
                        "response_logprobs": (-rng.random(4)).tolist(), "response_text": action, "action": action,
                        "valid": valid, "well_formed": True, "admissible": ["look", action], "next_observation": got,
                        "reward": float(won and turn == length - 1), "done": turn == length - 1, "success": won,
                        "score": float(won), "policy_id": "sft", "agent": "transcript", "seed": 0, "temperature": 1.0,
                        "created_by": "synthetic",
                    }
                )  # fmt: skip
    return rows


def make(root: Path, rounds: int) -> tuple[int, int]:
    """An experiment's folder below `root`. (turns, files)."""
    experiment = from_mapping(
        {"experiment": "large", "methods": METHODS, "seeds": list(range(SEEDS)), "rounds": rounds,
         "rollout": {"tasks": GROUPS, "group_size": SIBLINGS}, "tasks": {"train": 2000, "eval": 64 * rounds},
         "eval": {"games": 64, "every": 1}}
    )  # fmt: skip
    layout = Layout(root / experiment.experiment)
    layout.root.mkdir(parents=True)
    Path(layout.path("config")).write_text(json.dumps(experiment.model_dump(mode="json")), encoding="utf-8")
    sources, sizes = [], []
    for number in range(WRITTEN):
        folder, rng = root / f"source{number}", np.random.default_rng(number)
        rows = turns_of(rng)
        turns = pa.Table.from_pylist(rows, schema=tables.schema("turns"))
        tables.write(turns, folder / "turns.parquet", "turns", MADE_BY)
        advantage = rng.normal(size=turns.num_rows)
        columns = {name: turns.column(name) for name in tables.KEYS}
        columns |= {"method": pa.repeat("m", turns.num_rows), "advantage": advantage, "trajectory": advantage / 2}
        for method in METHODS:
            credit = pa.table({**columns, "method": pa.repeat(method, turns.num_rows)})
            tables.write(credit, folder / f"{method}.parquet", "credits", MADE_BY)
        sources.append(folder)
        sizes.append(turns.num_rows)
    total = files = 0
    for method, seed in experiment.runs():
        for round_ in range(1, rounds + 1):
            policy = sampled_by(experiment, method, round_)
            keys: dict[str, str | int | None] = {"policy": policy, "method": method, "seed": seed, "round": round_}
            number = (round_ + 7 * seed) % WRITTEN
            total += sizes[number] if link(sources[number] / "turns.parquet", layout.path("turns", keys)) else 0
            link(sources[number] / f"{method}.parquet", layout.path("credits", keys))
            success = min(0.95, 0.3 + 0.5 * round_ / rounds)
            metrics(layout, "rollout", keys, success=success, invalid=0.2, tokens=5e4, turns=1400.0)
            metrics(layout, "update", keys, entropy=0.5, entropy_limit=6.0, largest_log_ratio=0.1)
            metrics(layout, "eval", keys, success_sampled=success)
            files += 5
    return total, files


def link(source: Path, to: str) -> bool:
    """Link a file to another path; whether it was not there yet."""
    target = Path(to)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        return False
    os.link(source, target)
    return True


def metrics(layout: Layout, stage: str, keys: dict, **numbers: float) -> None:
    """What a job of `stage` leaves of itself."""
    path = layout.root / fill(stages()[stage].metrics, keys)
    path.parent.mkdir(parents=True, exist_ok=True)
    own = {f"other{number}": number / 7 for number in range(20)}  # an update has some twenty
    path.write_text(
        json.dumps({"stage": stage, "started": 1.7e9, "wall_s": 3.0, "cpu_s": 3.0, "metrics": own | numbers})
    )


class Server:
    """`turncredit view` as a process; `seconds` until it printed its address."""

    def __init__(self, results: Path) -> None:
        began = time.perf_counter()
        command = [sys.executable, "-c", "from turncredit.cli.main import main; main()", "view", str(results)]
        self.process = subprocess.Popen([*command, "--no-browser"], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address, _, token = self.process.stdout.readline().strip().partition("/?token=")
        self.seconds = time.perf_counter() - began
        self.cookie = {"Cookie": f"turncredit-{self.address.rpartition(':')[2]}={token}"}

    def get(self, path: str) -> tuple[float, str]:
        """Seconds and text of a page."""
        began = time.perf_counter()
        with urllib.request.urlopen(urllib.request.Request(self.address + path, headers=self.cookie)) as answer:
            text = answer.read().decode()
        return time.perf_counter() - began, text

    @property
    def peak_mb(self) -> float:
        """The most memory that the process had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024

    @property
    def cpu(self) -> float:
        """Seconds of CPU time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(server: Server, rounds: int, times: int) -> dict[str, list[tuple[float, float]]]:
    """(wall, CPU) seconds of each kind of page."""
    found: dict[str, list[tuple[float, float]]] = {}

    def page(kind: str, path: str) -> str:
        before = server.cpu
        wall, text = server.get(path)
        found.setdefault(kind, []).append((wall, server.cpu - before))
        return text

    page("experiment, first", "/experiment/large")
    while "reading what is there" in server.get("/experiment/large")[1]:
        time.sleep(0.2)
    choose = random.Random(0)
    for _ in range(times):
        page("experiment, once read", "/experiment/large")
        method, seed, round_ = choose.choice(METHODS), choose.randrange(SEEDS), choose.randint(2, rounds)
        where = f"large/{method}/seed{seed}/round{round_:02d}"
        text = page("round", f"/round/{where}")
        page("round, filtered by text and sorted by credit", f"/round/{where}?text=fridge&sort=credit")
        page("round, by a condition in SQL", f"/round/{where}?where=turns+%3E+8+AND+NOT+success")
        rollout = unescape(re.findall(r'href="(/rollout/[^"]+)"', text)[choose.randrange(50)])
        page("rollout, the first of its round", rollout)
        page("rollout, another of the round", unescape(re.findall(r'href="(/rollout/[^"]+)"', text)[3]))
        page("rollout, with credit on demand", rollout + "&also=reinforce_pp")
        page("group", unescape(re.findall(r'href="(/group/[^"]+)"', text)[0]))
    last = f"/round{rounds:02d}"
    page("compare two rounds", f"/compare/large?a=gigpo/seed0{last}&b=scpo/seed0{last}")
    return found


def main(
    rounds: Annotated[int, typer.Option(help="Rounds of each of the 24 runs.")] = 150,
    times: Annotated[int, typer.Option(help="Rounds that are looked at.")] = 5,
) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        turns, files = make(Path(folder), rounds)
        server = Server(Path(folder) / "large")
        try:
            found, peak = measured(server, rounds, times), server.peak_mb
        finally:
            server.process.terminate()
            server.process.wait()
    load = os.getloadavg()[0]
    print(f"{turns / 1e6:.1f} M turns in {files} files, load {load:.1f}; address after {server.seconds:.2f} s\n")
    print("| page | median, s | slowest, s | CPU, s |\n|---|---:|---:|---:|")
    for kind, both in found.items():
        walls, cpus = zip(*both, strict=True)
        print(f"| {kind} | {statistics.median(walls):.2f} | {max(walls):.2f} | {statistics.median(cpus):.2f} |")
    print(f"\npeak memory {peak:.0f} MB")


if __name__ == "__main__":
    typer.run(main)
