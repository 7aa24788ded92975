"""Inject faults into the tests' tiny experiment, one after another, and record how each ended (`make chaos`).

    python -m benchmarks.chaos.run FOLDER [--seed N] [--only REGEX] [--limit N]
    python -m benchmarks.chaos.run FOLDER --record benchmarks/chaos

The experiment is made once in FOLDER without faults (a minute); every fault then gets a copy of it. The same seed
injects the same faults. The order is random too, so that a part of them is a sample of all. Each fault is recorded in
FOLDER/faults.jsonl as soon as it is judged, and an interrupted run goes on behind it. `--only` keeps the faults whose
name matches a regular expression; `--record` writes what is recorded as faults.csv, and ends.

The exit status is 1 if a fault ended SILENT or STUCK (benchmarks/chaos/faults.py).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import numpy as np

from benchmarks.chaos import children, damage, kills, machine, record, runs, world
from benchmarks.chaos.faults import Baseline, Fault, inflict, opened, outputs_of
from turncredit.data.files import write_json

#: Set in the process that runs from the copy of the source.
INSIDE = "TURNCREDIT_CHAOS_SOURCE"


def every_fault(baseline: Baseline, seed: int) -> list[Fault]:
    """All faults, in an order that the seed gives."""

    def rng(number: int) -> np.random.Generator:
        return np.random.default_rng([seed, number])

    def each() -> Iterator[Fault]:
        yield from kills.of_stages(baseline, rng(1), times=2, renames=1)
        yield from kills.inside(baseline, rng(2))
        yield from kills.of_rounds(baseline, rng(3), times=3, renames=2)
        yield from kills.of_tracking(baseline, rng(4), times=2)
        yield from damage.of_artifacts(baseline, rng(5), flips=2, truncations=1)
        yield from damage.of_records(baseline, rng(6), flips=4)
        yield from machine.of_disk(baseline, rng(7))
        yield from machine.of_memory(baseline, rng(8))
        yield from runs.of_snakemake(baseline, rng(9))

    faults = {fault.name: fault for fault in each()}
    names = sorted(faults)
    return [faults[names[number]] for number in rng(0).permutation(len(names))]


def import_what_jobs_import(baseline: Baseline, folder: Path) -> None:
    """Import here, once, what jobs import as they run, so that the children that run them do not.

    Found by running one job of every stage in a child. This process itself must not compute with torch: a process that
    has done so cannot be forked safely.
    """
    names = folder / "modules.json"
    if not names.exists():
        steps = kills.one_of_each(baseline.plan, np.random.default_rng(0))
        plan = baseline.plan_in(world.copy(baseline.folder, folder / "fault", outputs_of(baseline.plan, steps)))

        def work() -> None:
            world.perform(plan, steps)
            write_json(names, sorted(sys.modules))

        children.run(work)
    import torch

    torch.set_num_threads(1)
    for name in json.loads(names.read_text(encoding="utf-8")):
        # What was patched in, or moved while it was imported, is imported again by who needs it.
        with suppress(Exception):
            import_module(name)


def main(arguments: list[str]) -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=int, default=10**9)
    parser.add_argument("--record", type=Path)
    asked = parser.parse_args(arguments)
    folder = asked.folder.resolve()
    lines = folder / "faults.jsonl"
    if asked.record:
        return record.write(record.read(lines), asked.record)
    _from_source(folder, arguments)

    baseline = opened(folder / "made", world.make(folder / "made"))
    recorded = {row["name"] for row in record.read(lines)}
    faults = [fault for fault in every_fault(baseline, asked.seed) if re.search(asked.only, fault.name)]
    print(f"{len(faults)} faults, {sum(fault.name in recorded for fault in faults)} of them recorded", flush=True)
    left = [fault for fault in faults if fault.name not in recorded][: asked.limit]
    if any(fault.forks for fault in left):
        import_what_jobs_import(baseline, folder)
    for fault in left:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            row = {"name": fault.name, "seed": asked.seed, **inflict(fault, folder / "fault").row()}
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            print(f"no verdict: {fault.name}: {error}; it comes again with the next run", flush=True)
            continue
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        row["cpu_seconds"] = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)
        with lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{row['outcome']:<9} {fault.name} ({row['seconds']:.1f} s) {row['printed']}", flush=True)
    bad = [row for row in record.read(lines) if row["outcome"] in ("SILENT", "STUCK")]
    print(f"{len(record.read(lines))} faults recorded, {len(bad)} of them SILENT or STUCK")
    return 1 if bad else 0


def _from_source(folder: Path, arguments: list[str]) -> None:
    """Go on in a process that uses the copy of the source; returns in that process."""
    source = world.copy_of_source(folder)
    if os.environ.get(INSIDE) == str(source):
        return
    environment = {**os.environ, INSIDE: str(source), "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    os.chdir(source)
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks.chaos.run", str(folder), *arguments[1:]], environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
