"""Time reading, joining and writing a million turns through `turncredit.data.tables`. Prints a Markdown table.

    python -m benchmarks.tables.run
    python -m benchmarks.tables.run --turns 100000

The turns are synthetic, with the sizes of the household's: 20 per rollout, 8 rollouts per group, texts that repeat,
prompts of 60 tokens at first and 16 later. Each line is a separate process. Seconds are of the work alone; memory is
its peak in addition to what the process held before: after the imports and, for writing, after building the table.
Files are in the page cache.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer

from turncredit.config import from_mapping
from turncredit.data import provenance, tables
from turncredit.data.turns import Turns
from turncredit.pipeline.plan import Plan, load

LENGTH, SIZE = 20, 8
#: The measurements, each with the most seconds it may take and the most MB it may add, for a million turns.
TARGETS = {
    "write all columns": (3, 1000),
    "read all columns": (2, 1500),
    "read the columns of a closed-form method (keys, reward)": (0.5, 250),
    "read those of a method that compares states (also valid, observation)": (0.5, 500),
    "read the keys": (0.5, 250),
    "hash the file, as jobs that read it do": (0.2, 10),
    "join credits and labels by key, rows in the same order": (1, 1000),
    "join them, rows in another order": (2, 1000),
    "stage `credit`: flat_grpo": (4, 2000),
    "stage `credit`: triage, with labels": (4, 2000),
}


def texts(rng: np.random.Generator, count: int, words: int) -> pa.Array:
    """`count` distinct texts of about this many words."""
    terms = np.array(["mug 1", "shelf", "you", "see", "the", "drawer 2", "open", "is", "a", "on", "arrive", "cabinet"])
    picked = terms[rng.integers(len(terms), size=(count, words))]
    return pa.array([f"{' '.join(row)} {number}." for number, row in enumerate(picked)])


def lists(rng: np.random.Generator, lengths_N: np.ndarray, values: pa.DataType) -> pa.ListArray:
    """Lists of these lengths: token ids, or log-probabilities."""
    total = int(lengths_N.sum())
    flat = rng.integers(700, size=total) if pa.types.is_integer(values) else -rng.exponential(0.3, total)
    offsets = np.concatenate([[0], np.cumsum(lengths_N)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(flat, values))


def keys(turns: int) -> dict[str, pa.Array]:
    """The key columns of this many turns."""
    rollout_N = np.arange(turns) // LENGTH
    group_N, place_N = pa.array(rollout_N // SIZE), pa.array(rollout_N % SIZE)
    group = pc.binary_join_element_wise("train-look", pc.cast(group_N, pa.string()), "013fa73", "-")
    rollout = pc.binary_join_element_wise(group, pc.cast(place_N, pa.string()), "#")
    return {"group_id": group, "rollout_id": rollout, "turn": pa.array(np.arange(turns) % LENGTH, pa.int32())}


def made_up_turns(turns: int) -> pa.Table:
    """This many turns with every column of the schema."""
    rng = np.random.default_rng(0)
    named = keys(turns)
    turn_N, n = np.arange(turns) % LENGTH, turns
    observations, acts = texts(rng, 20_000, 9), texts(rng, 2_000, 3)
    action = acts.take(pa.array(rng.integers(len(acts), size=n)))
    response_N = rng.integers(4, 9, size=n)
    won_N = np.repeat(rng.random(-(-n // LENGTH)) < 0.4, LENGTH)[:n]
    progress_N = rng.integers(0, 4, size=n) / 3
    far_N = rng.integers(1, 18, size=n)

    def same(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), n)

    columns = {
        **named,
        "env": same("household", pa.string()),
        "split": same("train", pa.string()),
        "task_id": named["group_id"],
        "family": same("look", pa.string()),
        "goal": texts(rng, 500, 6).take(pa.array(np.arange(n) // (LENGTH * SIZE) % 500)),
        "observation": observations.take(pa.array(rng.integers(len(observations), size=n))),
        "context_reset": pa.array(turn_N == 0),
        "prompt_ids": lists(rng, np.where(turn_N == 0, 60, rng.integers(5, 28, size=n)), pa.int32()),
        "response_ids": lists(rng, response_N, pa.int32()),
        "response_logprobs": lists(rng, response_N, pa.float32()),
        "response_text": pc.binary_join_element_wise(" ", action, ""),
        "action": action,
        "valid": pa.array(rng.random(n) < 0.9),
        "well_formed": same(True, pa.bool_()),
        "admissible": pa.nulls(n, pa.list_(pa.string())),
        "next_observation": observations.take(pa.array(rng.integers(len(observations), size=n))),
        "reward": pa.array(10.0 * (won_N & (turn_N == LENGTH - 1))),
        "progress_before": pa.array(progress_N),
        "progress": pa.array(progress_N),
        "distance_before": pa.array(far_N, pa.int32()),
        "distance": pa.array(far_N - 1, pa.int32()),
        "failed": pa.nulls(n, pa.bool_()),
        "error_reply": pa.nulls(n, pa.bool_()),
        "done": pa.array(turn_N == LENGTH - 1),
        "success": pa.array(won_N),
        "score": pa.array(won_N.astype(float)),
        "policy_id": same("sft", pa.string()),
        "agent": same("transcript", pa.string()),
        "seed": same(0, pa.int64()),
        "temperature": same(1.0, pa.float64()),
        "created_by": same("0.1.0+000000000000", pa.string()),
    }
    return pa.table(columns)


def made_up_side(turns: int) -> dict[str, pa.Table]:
    """Credits and labels of those turns."""
    rng = np.random.default_rng(1)
    n = turns
    credits_ = {
        **keys(turns),
        "method": pa.repeat("flat_grpo", n),
        "advantage": pa.array(rng.normal(size=n)),
        "advantage_rollout": pa.array(rng.normal(size=n)),
    }
    role = pa.array(np.array(["D", "E", "N", "R"])).take(pa.array(rng.integers(4, size=n)))
    labels = {
        **keys(turns),
        "judge": pa.repeat("rule", n),
        "role": role,
        **{name: pa.nulls(n, pa.string()) for name in ("evidence", "reason")},
        "score": pa.nulls(n, pa.float64()),
        "prompt_hash": pc.binary_join_element_wise("5f3a", pc.cast(pa.array(np.arange(n)), pa.string()), "-"),
        "cached": pa.repeat(False, n),
        "tokens_in": pa.nulls(n, pa.int32()),
        "tokens_out": pa.nulls(n, pa.int32()),
        "seconds": pa.nulls(n, pa.float64()),
    }
    return {"credits": pa.table(credits_), "labels": pa.table(labels)}


def joined(folder: Path, ending: str) -> None:
    """Read keys, a method's credits and labels, and bring their columns to the turns' order."""
    wanted = {"credits": ["advantage"], "labels": ["role"]}
    side = {
        name: tables.read(folder / f"{name}{ending}.parquet", name, [*tables.KEYS, *columns])
        for name, columns in wanted.items()
    }
    view = Turns(tables.read(folder / "turns.parquet", columns=[*tables.KEYS, "reward"]), side)
    view.side["credits"].numbers("advantage", "the benchmark")
    view.side["labels"].texts("role", "the benchmark")


def stage(folder: Path, method: str, side: dict[str, Path]) -> None:
    """The whole stage: read, compute, write."""
    plan = Plan(from_mapping({"methods": [method]}), folder)
    job = plan.job("credit", replace(plan.turns_at(method, 0, 1), method=method))
    job.input = {name: str(path) for name, path in {"turns": folder / "turns.parquet", **side}.items()}
    load("credit").run(job)


def work(what: str, folder: Path, turns: int) -> Callable[[], object]:
    """The work to be timed; untimed preparation is done here."""
    path = folder / "turns.parquet"
    if what == "write all columns":
        table, made_by = made_up_turns(turns), provenance.record("rollout")
        return lambda: tables.write(table, path, "turns", made_by)
    columns = {
        "read the columns of a closed-form method (keys, reward)": [*tables.KEYS, "reward"],
        "read those of a method that compares states (also valid, observation)": [
            *tables.KEYS, "reward", "valid", "observation"
        ],
        "read the keys": tables.KEYS,
        "read all columns": None,
    }  # fmt: skip
    if what in columns:
        return lambda: tables.read(path, "turns", columns[what])
    if what.startswith("hash"):
        return lambda: provenance.file_hash(path)
    if what.startswith("join"):
        return lambda: joined(folder, "-shuffled" if "another" in what else "")
    provenance.code_version()
    if "labels" in what:
        return lambda: stage(folder, "triage", {"labels": folder / "labels.parquet"})
    return lambda: stage(folder, "flat_grpo", {})


def held(name: str) -> float:
    """MB that this process holds: `VmRSS` now, `VmHWM` at its peak."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (kilobytes,) = re.findall(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
    return int(kilobytes) / 1024


def one(what: str, folder: Path, turns: int) -> dict[str, float]:
    """Do it once and measure."""
    task = work(what, folder, turns)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak starts from here
    before, used, started = held("VmRSS"), time.process_time(), time.perf_counter()
    task()
    wall, cpu = time.perf_counter() - started, time.process_time() - used
    return {"wall": wall, "cpu": cpu, "mb": held("VmHWM") - before}


def main(
    turns: int = 1_000_000, only: Annotated[str, typer.Option(hidden=True)] = "", folder: Path | None = None
) -> None:
    """Measure, one process each, and print a table."""
    if only and folder:
        print(json.dumps(one(only, folder, turns)))
        return
    with tempfile.TemporaryDirectory() as name:
        for side, table in made_up_side(turns).items():
            tables.write(table, Path(name) / f"{side}.parquet", side, provenance.record("label"))
            shuffled = table.take(pa.array(np.random.default_rng(2).permutation(turns)))
            tables.write(shuffled, Path(name) / f"{side}-shuffled.parquet", side, provenance.record("label"))
        results = {}
        for what in TARGETS:
            command = [
                sys.executable,
                "-m",
                "benchmarks.tables.run",
                "--turns",
                str(turns),
                "--only",
                what,
                "--folder",
                name,
            ]
            run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            results[what] = json.loads(run.stdout)
        size = (Path(name) / "turns.parquet").stat().st_size / 2**20
    print("# Tables of a million turns\n")
    print("`python -m benchmarks.tables.run`, ", end="")
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, pyarrow {pa.__version__}, ",
        end="",
    )
    print(f"load {os.getloadavg()[0]:.1f} at the end. {turns:,} turns, {size:.0f} MB on disk.\n")
    print("| what | wall s | CPU s | target: CPU s at most | memory, MB | target: at most |\n|---|---|---|---|---|---|")
    for what, (seconds, memory) in TARGETS.items():
        row = results[what]
        print(f"| {what} | {row['wall']:.2f} | {row['cpu']:.2f} | {seconds} | {row['mb']:.0f} | {memory} |")


if __name__ == "__main__":
    typer.run(main)
