"""What planning costs: `snakemake -n` of experiments of many runs, beside a bare workflow of the same shape.

python benchmarks/pipeline/plan.py 50 200

Processor seconds of the process, so that other work on the machine counts little. The bare workflow has the same jobs
and files and nothing else: no configuration, no parameters, resources, messages, logs or scripts. It is what Snakemake
itself asks for each job.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
ROUNDS, SEEDS = 10, 10
BARE = """
def before(wildcards):
    previous = int(wildcards.round) - 1
    return f"r/{{wildcards.method}}/{{wildcards.seed}}/{{previous:02d}}/policy" if previous else []

wanted = [
    f"r/{{method}}/{{seed}}/{{round:02d}}/{{name}}"
    for method in range({methods})
    for seed in range({seeds})
    for round in range(1, {rounds} + 1)
    for name in ("policy", *(["evals"] if round in (5, 8, 9, 10) else []))
]

rule all:
    input: wanted
""" + "".join(
    f"""
rule {name}:
    input: {source}
    output: "r/{{{{method}}}}/{{{{seed}}}}/{{{{round}}}}/{name}"
    shell: "touch {{{{output}}}}"
"""
    for name, source in (
        ("turns", "before"),
        ("credits", '"r/{{method}}/{{seed}}/{{round}}/turns"'),
        ("policy", '"r/{{method}}/{{seed}}/{{round}}/credits"'),
        ("evals", '"r/{{method}}/{{seed}}/{{round}}/policy"'),
    )
)


def planned(folder: Path, *arguments: str) -> tuple[int, float]:
    """(jobs, processor seconds) of a dry run in `folder`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(
        [sys.executable, "-m", "snakemake", "-n", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    jobs = int(re.search(r"^total\s+(\d+)$", run.stdout, re.MULTILINE)[1])
    return jobs, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure experiments of as many runs as the command line says, and print a table."""
    print("# Planning large experiments\n")
    print(f"`python benchmarks/pipeline/plan.py {' '.join(sys.argv[1:])}`, Snakemake {version('snakemake')}, Python")
    print(f"{platform.python_version()}, {platform.machine()}, load {os.getloadavg()[0]:.1f} at the start.")
    print(
        f"Processor seconds of `snakemake -n`; {ROUNDS} rounds, {SEEDS} seeds, evaluation at rounds 5, 8, 9 and 10.\n"
    )
    print(
        "| runs | jobs | seconds | ms a job | bare workflow: jobs | seconds | ms a job |\n|---|---|---|---|---|---|---|"
    )
    for runs in map(int, sys.argv[1:]):
        names = [f"m{number}" for number in range(runs // SEEDS)]
        config = {
            "methods": names,
            "seeds": list(range(SEEDS)),
            "rounds": ROUNDS,
            "audit": {"rounds": []},
            "define": {name: {"base": "has_progressive", "params": {"alpha": 0.5}} for name in names},
        }
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for part in ("Snakefile", "rules", "workflow_scripts", "config.yaml", "profiles", "envs_conda"):
                (folder / part).symlink_to(ROOT / part)
            (folder / "many.yaml").write_text(yaml.safe_dump(config))
            jobs, ours = planned(folder, "--configfile", "many.yaml")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "Snakefile").write_text(BARE.format(methods=len(names), seeds=SEEDS, rounds=ROUNDS))
            bare_jobs, bare = planned(folder)
        cells = (runs, jobs, f"{ours:.1f}", f"{1000 * ours / jobs:.2f}")
        cells += (bare_jobs, f"{bare:.1f}", f"{1000 * bare / bare_jobs:.2f}")
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
