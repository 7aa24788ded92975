"""Time audit queries over ten million turns, as `turncredit sql` runs them.

    python -m benchmarks.sql.run results/household              ten million turns, as Markdown
    python -m benchmarks.sql.run results/household --turns 1e6

The turns and credits of a finished experiment are copied under further runs' names, in a temporary folder, until there
are enough. Each query runs in a process of its own, which opens the files, answers and ends; wall and CPU time and the
process's peak memory are those of the second run, so that the files are in the page cache.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import Annotated

import pyarrow.parquet as pq
import typer

QUERIES = {
    "turns of each run": "SELECT method, seed, count(*) FROM turns GROUP BY ALL",
    "success, once a rollout": (
        "SELECT method, round, avg(success::INT) FROM (SELECT method, seed, round, group_id, rollout_id, "
        "bool_or(success) AS success FROM turns GROUP BY ALL) GROUP BY ALL"
    ),
    "credit by position": "SELECT method, turn, avg(advantage) FROM credits GROUP BY ALL",
    "credit against progress (a join of all turns)": (
        "SELECT c.method, c.round, corr(c.advantage, t.distance_before - t.distance) FROM credits c "
        "JOIN turns t USING (turn_id) GROUP BY ALL"
    ),
    "the same for one run": (
        "SELECT c.round, corr(c.advantage, t.distance_before - t.distance) FROM credits c JOIN turns t USING (turn_id) "
        "WHERE c.method = 'flat_grpo' AND c.seed = 0 AND t.method IN ('sft', 'flat_grpo') AND t.seed = 0 GROUP BY ALL"
    ),
}
_ONE = """
import json, resource, sys, time
wall, cpu = time.perf_counter(), time.process_time()
from pathlib import Path
from turncredit.results.sql import answer
loaded = time.perf_counter() - wall, time.process_time() - cpu
rows = answer(sys.argv[1], Path(sys.argv[2])).num_rows
print(json.dumps({"rows": rows, "wall": time.perf_counter() - wall - loaded[0],
                  "cpu": time.process_time() - cpu - loaded[1],
                  "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def copies(source: Path, folder: Path, wanted: int) -> tuple[int, int]:
    """Fill `folder` with the runs of `source`, copied under new names until it has `wanted` turns. (turns, files)."""
    folder.mkdir(parents=True)
    shutil.copy(source / "config.json", folder)
    turns = files = 0
    for path in source.glob("sft/rollouts/*/seed*/turns.parquet"):
        (folder / path.relative_to(source)).parent.mkdir(parents=True)
        shutil.copy(path, folder / path.relative_to(source))
        turns, files = turns + pq.read_metadata(path).num_rows, files + 1
    for copy in count():
        for run in sorted(source.glob("runs/*")):
            name = run.name if copy == 0 else f"{run.name}_{copy}"
            for path in sorted(run.glob("seed*/round*/**/*.parquet")):
                if path.name not in ("turns.parquet", "credits.parquet"):
                    continue
                target = folder / "runs" / name / path.relative_to(run)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
                files += 1
                turns += pq.read_metadata(path).num_rows if path.name == "turns.parquet" else 0
            if turns >= wanted:
                return turns, files
    raise AssertionError


def main(
    source: Annotated[Path, typer.Argument(help="A finished experiment's folder.")],
    turns: Annotated[float, typer.Option(help="How many turns.")] = 1e7,
) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as place:
        found, files = copies(source, Path(place) / source.resolve().name, int(turns))
        machine = f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f}"
        print(f"{found / 1e6:.1f} M turns in {files} files; {machine}\n")
        print("| query | rows | wall, s | CPU, s | peak, MB |\n|---|---:|---:|---:|---:|")
        for name, query in QUERIES.items():
            told = {}
            for _ in range(2):
                command = [sys.executable, "-c", _ONE, query, place]
                run = subprocess.run(command, capture_output=True, text=True, check=True)
                told = json.loads(run.stdout)
            print(
                f"| {name} | {told['rows']} | {told['wall']:.2f} | {told['cpu']:.2f} | {told['mb']:.0f} |", flush=True
            )


if __name__ == "__main__":
    typer.run(main)
