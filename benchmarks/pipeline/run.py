"""The cost of starting a job, warm and plain, and of planning a run; what is imported. Prints Markdown tables.

python -m benchmarks.pipeline.run
"""

from __future__ import annotations

import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from turncredit.config.stages import stages
from turncredit.pipeline import launch

ROOT = Path(__file__).resolve().parents[2]
#: The imports of these stages' scripts, and nothing else.
IMPORTS = {
    "rollout": "import turncredit.pipeline.job_script, turncredit.rollouts.rollout, turncredit.policy.engines.lockstep",
    "update": "import turncredit.pipeline.job_script, turncredit.training.update, "
    "transformers.models.qwen2.modeling_qwen2",
    "credit": "import turncredit.pipeline.job_script, turncredit.pipeline.stages.credit",
}

#: The imports of a command's process.
COMMANDS = {
    "`turncredit --help`": "import turncredit.cli.main",
    "`turncredit credit`": "import turncredit.cli.main, turncredit.cli.credit",
    "`turncredit sql`": "import turncredit.cli.main, turncredit.views.sql",
    "`turncredit run`": "import turncredit.cli.main, turncredit.pipeline.run",
    "Snakemake itself": "import snakemake.cli",
    "the Snakefile": "import turncredit.pipeline.plan, turncredit.pipeline.live_progress, turncredit.pipeline.locks",
}


def imports_of(stage: str) -> str:
    """A job's imports before its work begins: those of the script, of the stage's module, and inside its functions."""
    source = (ROOT / "turncredit" / "pipeline" / "stages" / f"{stage}.py").read_text(encoding="utf-8")
    lines = re.findall(r"^ +(from turncredit\S* import .*)$", source, re.MULTILINE)
    return "\n".join(["import turncredit.pipeline.job_script", f"import turncredit.pipeline.stages.{stage}", *lines])


def imported(code: str) -> tuple[float, int, str]:
    """CPU seconds of the imports, the number of modules, and the packages that take most of the time."""
    clock = "import sys, time; used = time.process_time(); had = set(sys.modules)\n"
    tell = "\nprint(time.process_time() - used, len(set(sys.modules) - had))"
    environment = {**os.environ, **launch.ONE_THREAD}

    def run(*flags: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *flags, "-c", clock + code + tell]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=ROOT)

    used, modules = min(tuple(map(float, run().stdout.split())) for _ in range(3))
    each: Counter[str] = Counter()
    for line in run("-X", "importtime").stderr.splitlines():
        match = re.match(r"import time:\s+(\d+) \|\s+\d+ \| +(\w+)", line)
        if match:
            each[match[2]] += int(match[1])
    whole = sum(each.values())
    most = ", ".join(f"{name} {count / whole:.0%}" for name, count in each.most_common(4) if count > 0.05 * whole)
    return used, int(modules), most


def print_imports() -> None:
    """Print the table of imports: commands, then jobs by name."""
    codes = COMMANDS | {f"job `{stage}`": imports_of(stage) for stage in sorted(stages())}
    print("\n## Imports\n")
    print("CPU seconds of the imports of a fresh process, least of three. With the launcher a local run")
    print("pays for most of them once, in its one server, from which jobs fork. Shares are of `-X importtime`.\n")
    print("| process | CPU s | modules | most of it |\n|---|---|---|---|")
    for name, code in codes.items():
        used, modules, most = imported(code)
        print(f"| {name} | {used:.2f} | {modules} | {most} |", flush=True)


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


def dry_run() -> float:
    """CPU seconds of planning the default experiment."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "snakemake", "-n"], cwd=ROOT, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print."""
    shell, reason = launch.start()
    if shell is None:
        sys.exit(reason)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for stage, code in IMPORTS.items():
            script = Path(name) / f"tmpbench.{stage}.py"
            script.write_text(code + "\n", encoding="utf-8")
            command = f"{sys.executable} {script}"
            seconds(command, shell, 1)  # waits until the server is ready, and fills the file cache
            rows.append(
                (f"start of a job that imports what `{stage}` imports, plain process", seconds(command, "/bin/bash", 5))
            )
            rows.append((f"the same, forked by the launcher ({stage})", seconds(command, shell, 20)))
    rows.append(("`snakemake -n` of the default experiment, CPU seconds", min(dry_run() for _ in range(3))))
    print("# Starting jobs\n\n`python -m benchmarks.pipeline.run`, ", end="")
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, ", end="")
    print(f"load {os.getloadavg()[0]:.1f} at the end. Medians.\n")
    print("| what | seconds |\n|---|---|")
    for what, value in rows:
        print(f"| {what} | {value:.2f} |")
    print_imports()


if __name__ == "__main__":
    main()
