"""Time audit queries over ten million turns, as `turncredit sql` runs them.

    python -m benchmarks.sql.run results/household              ten million turns, as Markdown
    python -m benchmarks.sql.run results/household --turns 1e6

The turns, credits and updates of a finished experiment's runs are copied under further runs' names, in a temporary
folder, until there are enough turns. Each query runs in a process of its own, which opens the files, answers and ends;
wall and CPU time and the process's peak memory are those of the second run, so that the files are in the page cache.
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

from turncredit.config.layout import Layout, of_sft

QUERIES = {
    "turns of each policy": "SELECT policy, seed, count(*) FROM turns GROUP BY ALL",
    "success, counted once per rollout": (
        "SELECT policy, round, avg(success::INT) FROM (SELECT policy, seed, round, group_id, rollout_id, "
        "bool_or(success) AS success FROM turns GROUP BY ALL) GROUP BY ALL"
    ),
    "credit by position": "SELECT method, turn, avg(advantage) FROM run_credits GROUP BY ALL",
    "credit against progress (a join of all turns)": (
        "SELECT c.method, c.round, corr(c.advantage, t.distance_before - t.distance) FROM run_credits c "
        "JOIN turns t USING (turn_id) GROUP BY ALL"
    ),
    "the same for one run": (
        "SELECT c.round, corr(c.advantage, t.distance_before - t.distance) FROM run_credits c "
        "JOIN turns t USING (turn_id) WHERE c.method = 'flat_grpo' AND c.seed = 0 AND t.seed = 0 "
        "AND (t.policy LIKE 'sft-%' OR t.policy = 'flat_grpo') GROUP BY ALL"
    ),
}
_ONE = """
import json, resource, sys, time
wall, cpu = time.perf_counter(), time.process_time()
from pathlib import Path
from turncredit.views.sql import answer
loaded = time.perf_counter() - wall, time.process_time() - cpu
rows = answer(sys.argv[1], Path(sys.argv[2])).num_rows
print(json.dumps({"rows": rows, "wall": time.perf_counter() - wall - loaded[0],
                  "cpu": time.process_time() - cpu - loaded[1],
                  "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def copies(source: Path, folder: Path, wanted: int) -> tuple[int, int]:
    """Fill `folder` with the runs of `source`, copied under new names until it has `wanted` turns. (turns, files)."""
    old, new = Layout(source), Layout(folder)
    folder.mkdir(parents=True)
    shutil.copy(old.path("config"), new.path("config"))
    turns = files = 0
    for number in count():
        for kind in ("turns", "credits", "updates"):
            for artifact in old.find(kind):
                keys = dict(artifact.keys)
                shared = "policy" in keys and of_sft(str(keys["policy"]))
                if shared and kind == "turns" and number:
                    continue
                for name in ("policy", "method"):
                    if number and name in keys and not (name == "policy" and shared):
                        keys[name] = f"{keys[name]}_{number}"
                target = Path(new.path(kind, keys))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(artifact.path, target)
                files += 1
                turns += pq.read_metadata(artifact.path).num_rows if kind == "turns" else 0
        if turns >= wanted:
            return turns, files
    raise AssertionError


def main(
    source: Annotated[Path, typer.Argument(help="A finished experiment's folder.")],
    turns: Annotated[float, typer.Option(help="How many turns.")] = 1e7,
) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as place:
        copied, files = copies(source, Path(place) / source.resolve().name, int(turns))
        machine = f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f}"
        print(f"{copied / 1e6:.1f} M turns in {files} files; {machine}\n")
        print("| query | rows | wall, s | CPU, s | peak, MB |\n|---|---:|---:|---:|---:|")
        for name, query in QUERIES.items():
            cost = {}
            for _ in range(2):
                command = [sys.executable, "-c", _ONE, query, place]
                run = subprocess.run(command, capture_output=True, text=True, check=True)
                cost = json.loads(run.stdout)
            print(
                f"| {name} | {cost['rows']} | {cost['wall']:.2f} | {cost['cpu']:.2f} | {cost['mb']:.0f} |", flush=True
            )


if __name__ == "__main__":
    typer.run(main)
