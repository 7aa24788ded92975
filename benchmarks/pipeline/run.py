"""What it costs to start a job, warm and plain, and to plan a run. Prints a Markdown table.

python benchmarks/pipeline/run.py > benchmarks/pipeline/RESULTS.md
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from turncredit import launch

ROOT = Path(__file__).resolve().parents[2]
#: What the scripts of these stages import, and nothing else.
IMPORTS = {
    "rollout": "import turncredit.stage, turncredit.learn.rollout, turncredit.policy.lockstep",
    "update": "import turncredit.stage, turncredit.learn.update, transformers.models.qwen2.modeling_qwen2",
    "credit": "import turncredit.stage, turncredit.learn.credit",
}


def seconds(command: str, executable: str, repeats: int) -> float:
    """The median time of a shell command."""
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        subprocess.run(
            command,
            shell=True,
            executable=executable,
            check=True,
            env={**os.environ, **launch.ONE_THREAD},
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def main() -> None:
    """Measure and print."""
    shell, reason = launch.start()
    if shell is None:
        sys.exit(reason)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for stage, code in IMPORTS.items():
            script = Path(name) / f"tmpbench.{stage}.py"
            script.write_text(code + "\n")
            command = f"{sys.executable} {script}"
            seconds(command, shell, 1)  # waits until the server is ready, and fills the file cache
            rows.append(
                (f"start of a job that imports what `{stage}` imports, plain process", seconds(command, "/bin/bash", 5))
            )
            rows.append((f"the same, forked by the launcher ({stage})", seconds(command, shell, 20)))
    dry = f"{sys.executable} -m snakemake -n --quiet all"
    rows.append(("`snakemake -n` of the default experiment", seconds(dry, "/bin/bash", 3)))
    print("# Starting jobs\n\n`python benchmarks/pipeline/run.py`, ", end="")
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, ", end="")
    print(f"load {os.getloadavg()[0]:.1f} at the end. Medians.\n")
    print("| what | seconds |\n|---|---|")
    for what, value in rows:
        print(f"| {what} | {value:.2f} |")


if __name__ == "__main__":
    main()
