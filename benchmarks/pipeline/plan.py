"""The cost of planning: `snakemake -n` of experiments of many runs, next to bare workflows of the same or fewer jobs.

python -m benchmarks.pipeline.plan 50 200 [--before FOLDER]

CPU seconds of the process, so that other work on the machine matters little. A bare workflow has the jobs and files and
nothing else: no configuration, parameters, resources, messages, logs or scripts. It measures Snakemake's own cost per
job, without garbage collection while planning, as in rules/common.smk. FOLDER is a checkout to compare with; its
library is not used, only its Snakefile and rules.
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
EVALUATED = (5, 8, 9, 10)
#: Bare workflows: the outputs of a round's jobs, each made from the one before, and the input of the first.
SHAPES = {
    "the same jobs": ("turns", "credits", "policy"),
    "credit in the update's job": ("turns", "policy"),
    "one job a round": ("policy",),
}


def bare(outputs: tuple[str, ...], methods: int) -> str:
    """A Snakefile whose rounds have one job for each of `outputs` (the last one makes the policy), and evaluations."""
    rules = [
        f"""
rule {name}:
    input: {repr("r/{method}/{seed}/{round}/" + outputs[at - 1]) if at else "before"}
    output: "r/{{method}}/{{seed}}/{{round}}/{name}"
    shell: "touch {{output}}"
"""
        for at, name in enumerate(outputs)
    ]
    return f"""
import atexit, gc

gc.disable()
atexit.register(gc.freeze)

def before(wildcards):
    previous = int(wildcards.round) - 1
    return f"r/{{wildcards.method}}/{{wildcards.seed}}/{{previous:02d}}/policy" if previous else []

wanted = [
    f"r/{{method}}/{{seed}}/{{round:02d}}/{{name}}"
    for method in range({methods})
    for seed in range({SEEDS})
    for round in range(1, {ROUNDS} + 1)
    for name in ("policy", *(["evals"] if round in {EVALUATED} else []))
]

rule all:
    input: wanted

rule evals:
    input: "r/{{method}}/{{seed}}/{{round}}/policy"
    output: "r/{{method}}/{{seed}}/{{round}}/evals"
    shell: "touch {{output}}"
""" + "".join(rules)


def total_jobs(stdout: str) -> int:
    """The number of jobs that Snakemake's table of jobs adds up to."""
    match = re.search(r"^total\s+(\d+)$", stdout, re.MULTILINE)
    if match is None:
        raise ValueError(f"no table of jobs in Snakemake's output:\n{stdout[-3000:]}")
    return int(match[1])


def planned(folder: Path, *arguments: str) -> tuple[int, float]:
    """(jobs, CPU seconds) of a dry run in `folder`."""
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
    return total_jobs(run.stdout), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def many(runs: int) -> dict:
    """The configuration of an experiment of `runs` runs: methods with parameters of their own, ten seeds each."""
    names = [f"m{number}" for number in range(runs // SEEDS)]
    return {
        "methods": names,
        "seeds": list(range(SEEDS)),
        "rounds": ROUNDS,
        "audit": {"rounds": []},
        "define": {name: {"base": "has_progressive", "params": {"alpha": 0.5}} for name in names},
    }


def ours(runs: int, root: Path = ROOT) -> dict[str, tuple[int, float]]:
    """(jobs, CPU seconds) of planning the pipeline for `runs` runs, all of it and a tenth."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("Snakefile", "rules", "workflow_scripts", "config.yaml", "profiles", "envs_conda"):
            (folder / part).symlink_to(root / part)
        (folder / "many.yaml").write_text(yaml.safe_dump(many(runs)), encoding="utf-8")
        many_runs = ("--configfile", "many.yaml")
        tenth = ("results/household/report/index.html", *many_runs, "--batch", "report=1/10")
        measured = {
            "": planned(folder, *many_runs),
            ", a tenth of it (`--batch report=1/10`)": planned(folder, *tenth),
        }
        if (root / "rules" / "rounds.smk").exists():
            for granularity in ("round", "run"):
                arguments = (*many_runs, "--config", f"granularity={granularity}")
                measured[f", `granularity: {granularity}`"] = planned(folder, *arguments)
        return measured


def main() -> None:
    """Measure experiments of the numbers of runs given on the command line, and print a table."""
    counts, _, before = " ".join(sys.argv[1:]).partition("--before")
    print("# Planning large experiments\n")
    print(f"`python -m benchmarks.pipeline.plan {counts.strip()}`, Snakemake {version('snakemake')}, Python")
    print(f"{platform.python_version()}, {platform.machine()}, load {os.getloadavg()[0]:.1f} at the start.")
    print(f"CPU seconds of `snakemake -n`; {ROUNDS} rounds, {SEEDS} seeds, evaluation at rounds {EVALUATED}.\n")
    print("| runs | what | jobs | seconds | ms a job |\n|---|---|---|---|---|")
    for runs in map(int, counts.split()):
        measured = {f"this pipeline{how}": cost for how, cost in ours(runs).items()}
        if before:
            measured |= {f"before{how}": cost for how, cost in ours(runs, Path(before.strip())).items()}
        for what, outputs in SHAPES.items():
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                (folder / "Snakefile").write_text(bare(outputs, runs // SEEDS), encoding="utf-8")
                measured[f"bare workflow, {what}"] = planned(folder)
        for what, (jobs, seconds) in measured.items():
            print(f"| {runs} | {what} | {jobs} | {seconds:.1f} | {1000 * seconds / jobs:.2f} |", flush=True)


if __name__ == "__main__":
    main()
