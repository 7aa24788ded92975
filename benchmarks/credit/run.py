"""Time every closed-form method: 128 rollouts x 50 turns against plain Python loops, then 10 k to 1 M turns.

    python -m benchmarks.credit.run > benchmarks/credit/speed.csv
    python -m benchmarks.credit.run --no-scaling     the comparison with plain Python only

The plain loops (`reference.py`) are also what the tests compare the methods with, so the two columns compute the same
numbers. Times are CPU times of one thread, medians of several runs. Both start from an Arrow table in memory: the
loops turn the columns that they read into rows, the library into arrays; the library ends with an Arrow table.
"""

from __future__ import annotations

import csv
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
import typer

from benchmarks.credit import reference, synthetic
from turncredit.credit import METHODS, compute

ROLLOUTS, TURNS, GROUP = 128, 50, 8
SIZES = (10_000, 100_000, 1_000_000)


def median_ms(work: Callable[[], object], times: int) -> float:
    """The median CPU time of several runs; what takes a second or more runs once."""
    taken: list[float] = []
    while len(taken) < times and (not taken or taken[0] < 1):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return statistics.median(taken) * 1e3


class _Asked(dict):
    """A row that remembers which of its columns were asked for."""

    asked: ClassVar[set[str]] = set()

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return super().__getitem__(name)


def columns_read(loops: Callable[[list[dict]], list[float]], rows: list[dict]) -> list[str]:
    """The names of the columns that a row-by-row form reads of `rows`."""
    _Asked.asked.clear()
    loops([_Asked(row) for row in rows])
    return sorted(_Asked.asked)


def _by_rows(loops: Callable[[list[dict]], list[float]], table: pa.Table) -> list[float]:
    return loops(table.to_pylist())


def against_loops() -> dict[str, dict[str, str]]:
    """Milliseconds of each method and of its plain loops, and their ratio, at 128 rollouts x 50 turns."""
    rows = synthetic.rows(ROLLOUTS // GROUP, GROUP, TURNS, equal_length=True)
    table, side = synthetic.tables(rows)
    whole = pa.Table.from_pylist(rows)
    costs = {}
    for name, loops in reference.METHODS.items():
        method = METHODS[name]
        mine = median_ms(partial(compute, table, method, side), 9)
        read = whole.select(columns_read(loops, rows))
        plain = median_ms(partial(_by_rows, loops, read), 3)
        costs[name] = {"library_ms": f"{mine:.1f}", "python_ms": f"{plain:.0f}", "times_faster": f"{plain / mine:.0f}"}
        print(name, costs[name], file=sys.stderr)
    return costs


def repeated(turns: int) -> tuple[pa.Table, dict[str, pa.Table]]:
    """About `turns` turns: a table of 10,000 over and over, under new ids. Texts repeat, as in a real batch."""
    table, side = synthetic.tables(synthetic.rows(25, GROUP, TURNS, equal_length=True))

    def copy(part: pa.Table, number: int) -> pa.Table:
        for place, name in enumerate(part.column_names):
            if name in ("group_id", "rollout_id", "parent_rollout_id"):  # a rollout that is no fork has the parent ""
                ids = pa.array([text and f"{number:04d}-{text}" for text in part[name].to_pylist()])
                part = part.set_column(place, name, ids)
        return part

    numbers = range(turns // table.num_rows)
    whole = pa.concat_tables([copy(table, number) for number in numbers])
    return whole, {name: pa.concat_tables([copy(part, number) for number in numbers]) for name, part in side.items()}


def one_size(turns: int) -> dict[str, float]:
    """Milliseconds of each method at this size, and the process's peak memory in MB; run in a process of its own."""
    table, side = repeated(turns)
    costs = {name: median_ms(partial(compute, table, method, side), 3) for name, method in METHODS.items()}
    costs["peak memory, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return costs


def scaling() -> dict[str, dict[str, str]]:
    """Milliseconds of each method at each of `SIZES`; each size's peak memory goes to the standard error."""
    costs: dict[str, dict[str, str]] = {}
    for size in SIZES:
        command = [sys.executable, "-m", "benchmarks.credit.run", "--only-size", str(size)]
        taken = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"{size:,} turns: peak memory {taken.pop('peak memory, MB'):,.0f} MB", file=sys.stderr)
        for name, milliseconds in taken.items():
            costs.setdefault(name, {})[f"ms_{size}"] = f"{milliseconds:.0f}"
    return costs


def main(
    scaling_too: bool = typer.Option(True, "--scaling/--no-scaling"),
    only_size: int = typer.Option(0, "--only-size", hidden=True),
) -> None:
    """Print a row for each method, as CSV."""
    if only_size:
        print(json.dumps(one_size(only_size)))
        return
    print(f"{platform.machine()}, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}", file=sys.stderr)
    costs = against_loops()
    sizes = scaling() if scaling_too else {}
    columns = ["method", "library_ms", "python_ms", "times_faster", *(f"ms_{size}" for size in SIZES if sizes)]
    table = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    table.writeheader()
    table.writerows({"method": name, **costs.get(name, {}), **sizes.get(name, {})} for name in {**costs, **sizes})


if __name__ == "__main__":
    typer.run(main)
