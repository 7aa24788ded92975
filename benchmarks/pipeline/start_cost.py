"""The cost of planning and of starting jobs: against a bare workflow, by launcher and by granularity.

python -m benchmarks.pipeline.start_cost plan|tiny|demo [--repeats 3] [--only TEXT;...]

Prints Markdown tables of medians. The variants of a table are run in turn, and the turns are repeated, so that other
work on the machine falls on all of them. CPU seconds are those of all processes that a command starts, its daemons
included (from the cgroup of the command; without the right to make one, from the processes that it waited for).

The bare workflow has the same jobs, an input function for each rule, as many inputs and outputs, and a script; nothing
else. What was measured of the patches of Snakemake that version 0.3 had is in START.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from string import Template
from typing import NamedTuple

import yaml

from benchmarks.pipeline.plan import EVALUATED, ROUNDS, SEEDS, many, total_jobs

ROOT = Path(__file__).resolve().parents[2]
RUNS = 1000
CPU_GROUPS = Path("/sys/fs/cgroup/cpuacct")
#: What a folder needs to run the workflow.
LINKED = ("Snakefile", "rules", "workflow_scripts", "config.yaml", "profiles", "envs_conda", "schemas")


class Cost(NamedTuple):
    """What a command took, in seconds, and how many jobs it planned or ran."""

    wall: float
    cpu: float
    jobs: int


Command = Callable[[], Cost]


def run(command: list[str], folder: Path) -> Cost:
    """Run Snakemake in `folder`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    with cpu_group() as group:
        done = subprocess.run(
            [sys.executable, "-m", "snakemake", *command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            preexec_fn=lambda: group and (group / "tasks").write_text(str(os.getpid()), encoding="utf-8"),
        )
        wall = time.perf_counter() - started
        cpu = int((group / "cpuacct.usage").read_text(encoding="utf-8")) / 1e9 if group else 0.0
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    if not group:
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, cpu, total_jobs(done.stdout))


@contextmanager
def cpu_group() -> Iterator[Path | None]:
    """A cgroup that counts the CPU time of the processes in it; None where one cannot be made."""
    group = CPU_GROUPS / f"turncredit-bench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        for _ in range(100):  # a server ends soon after the run that it belongs to
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def pipeline(*arguments: str, configuration: dict | None = None) -> Command:
    """A command that runs the workflow with `arguments`, in a fresh folder each time."""

    def command() -> Cost:
        with tempfile.TemporaryDirectory(prefix="start-cost-") as name:
            for part in LINKED:
                (Path(name) / part).symlink_to(ROOT / part)
            if configuration is not None:
                (Path(name) / "many.yaml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
            return run(list(arguments), Path(name))

    return command


def bare(granularity: str, *, dressed: bool = False) -> Command:
    """A command that plans a bare workflow with the same jobs as the pipeline's.

    `dressed`: its rules also have what the pipeline's have: messages, parameters, priorities, threads, memory, logs.
    """

    def command() -> Cost:
        with tempfile.TemporaryDirectory(prefix="start-cost-") as name:
            (Path(name) / "job.py").write_text("", encoding="utf-8")
            (Path(name) / "Snakefile").write_text(
                bare_workflow(granularity, RUNS // SEEDS, dressed=dressed), encoding="utf-8"
            )
            return run(["-n", "--cores", "2"], Path(name))

    return command


DRESS = """
    log: "logs/{name}/{keys}.log"
    priority: priority
    conda: "job.yaml"
    container: "job.sif"
    threads: 1
    resources: mem_mb=memory, runtime=60
    params: config=config_of
    message: "{title}"
"""


#: The bare workflow without its rules: the input function of each, and the run's settings.
FUNCTIONS = Template("""
SFT, TRAIN, EVAL = "results/policy", "results/tasks/train/games.parquet", "results/tasks/eval/games.parquet"
METHODS = [f"m{number}" for number in range($methods)]
RUNS = [(method, seed) for method in METHODS for seed in range($seeds)]
MEMORY = {"a": 1000}

def player(w):
    return "sft" if int(w.round) == 1 else w.method

def policy(method, seed, round):
    return f"results/$policy/{method}/seed{seed}/round{round:02d}/policy" if round and method != "sft" else SFT

def shared(kind, w, round=None):
    name = {"rollout": "turns", "measures": "measures"}[kind]
    return f"results/{kind}/{player(w)}/seed{w.seed}/round{w.round}/{name}.parquet"

def evaluated(w): return [EVAL, policy(w.method, w.seed, int(w.round))]
def sampled(w): return [TRAIN, policy(w.method, w.seed, int(w.round) - 1)]
def turns(w): return [f"results/rollout/{w.method}/seed{w.seed}/round{w.round}/turns.parquet"]
def credited(w): return [shared("rollout", w), shared("measures", w)]
def trained(w):
    credit = f"results/credit/{w.method}/seed{w.seed}/round{w.round}/credit.parquet"
    return [credit, shared("rollout", w), policy(w.method, w.seed, int(w.round) - 1), SFT]
def all_of_run(w):
    return [
        f"results/{rule}/{w.method}/seed{w.seed}/round{round:02d}/{name}.parquet"
        for round in range(1, $rounds + 1)
        for rule, name in (("update", "updates"), ("credit", "credit"))
    ] + [f"results/eval/{w.method}/seed{w.seed}/round{round:02d}/evals.parquet" for round in $evaluated]
def first(w):
    folder = f"seed{w.seed}/round01"
    turns = [f"results/rollout/sft/{folder}/turns.parquet", f"results/measures/sft/{folder}/measures.parquet"]
    return [*turns, SFT, TRAIN, EVAL]
def before(w):
    if int(w.round) == 1:
        return first(w)
    return [policy(w.method, w.seed, int(w.round) - 1), *([EVAL] if int(w.round) in $evaluated else [])]
def finished(w):
    return [f"$end".format(method=method, seed=seed) for method, seed in RUNS] + [
        f"results/eval/sft/seed0/round{part:02d}/evals.parquet" for part in range(1, 5)
    ]
def config_of(w): return MEMORY
def memory(w, attempt): return 1000 * attempt
def priority(w): return 1000 - int(getattr(w, "round", 1))

rule all:
    input: "results/config.json", "results/index.html", "results/tracked.json", finished

""")


def bare_workflow(granularity: str, methods: int, *, dressed: bool = False) -> str:
    """The Snakefile of the bare workflow. Every output has the pipeline's number of folders in its path."""
    run_keys, round_keys = "{method}/seed{seed}", "{method}/seed{seed}/round{round}"
    rules = [
        ("config", "", "[]", "config.json"),
        ("tasks", "{split}", "[]", "games.parquet"),
        ("demos", "", "'results/tasks/train/games.parquet'", "demos.parquet"),
        ("base", "", "'results/demos.parquet'", "base"),
        ("sft", "", "'results/base', 'results/demos.parquet'", "policy"),
        ("eval", round_keys, "evaluated", "evals.parquet", "metrics.json"),
        ("rollout", round_keys, "sampled", "turns.parquet", "metrics.json"),
        ("measures", round_keys, "turns", "measures.parquet", "metrics.json"),
        ("report", "", "finished", "index.html", "summary.json", "curves.svg", "report-metrics.json"),
        ("track", "", "finished", "tracked.json"),
    ]
    if granularity == "stage":
        rules += [
            ("credit", round_keys, "credited", "credit.parquet", "metrics.json"),
            ("update", round_keys, "trained", "policy", "updates.parquet", "metrics.json"),
            ("invariants", run_keys, "all_of_run", "invariants.parquet", "metrics.json"),
        ]
        policy, end = "update", "results/invariants/{method}/seed{seed}/invariants.parquet"
    elif granularity == "round":
        rules += [("rounds", round_keys, "before", "policy")]
        policy, end = "rounds", f"results/rounds/{{method}}/seed{{seed}}/round{ROUNDS:02d}/policy"
    else:
        rules += [("rounds", run_keys, "first", "policy", "invariants.parquet")]
        policy, end = "rounds", "results/rounds/{method}/seed{seed}/invariants.parquet"
    functions = FUNCTIONS.substitute(
        methods=methods, seeds=SEEDS, rounds=ROUNDS, evaluated=EVALUATED, policy=policy, end=end
    )
    return functions + "".join(bare_rule(*rule, dressed=dressed) for rule in rules)


def bare_rule(name: str, keys: str, inputs: str, *outputs: str, dressed: bool) -> str:
    """A rule of the bare workflow, whose outputs lie under its wildcards `keys`."""
    names = re.findall(r"{(\w+)}", keys)
    title = f"{name} of " + ", ".join(f"{{wildcards.{key}}}" for key in names)
    dress = DRESS.format(name=name, keys=keys, title=title) if dressed and names else ""
    made = ", ".join(f'"results/{name}/{keys}/{output}"' if keys else f'"results/{output}"' for output in outputs)
    return f"rule {name}:\n    input: {inputs}\n    output: {made}{dress}\n    script: 'job.py'\n\n"


def plan_variants() -> dict[str, Command]:
    """Dry runs of an experiment of 1,000 runs and 10 rounds."""
    variants: dict[str, Command] = {}
    for granularity in ("run", "round", "stage"):
        arguments = ("-n", "--configfile", "many.yaml", "--config", f"granularity={granularity}")
        variants[f"{granularity}: bare workflow"] = bare(granularity)
        variants[f"{granularity}: bare workflow with all that a rule has"] = bare(granularity, dressed=True)
        variants[f"{granularity}: this workflow"] = pipeline(*arguments, configuration=many(RUNS))
    return variants


def run_variants(*arguments: str) -> dict[str, Command]:
    """Whole runs of an experiment on two cores."""
    return {
        f"granularity {granularity}, launcher {launcher}": pipeline(
            "--cores", "2", *arguments, "--config", f"launcher={launcher}", f"granularity={granularity}"
        )
        for granularity in ("stage", "round", "run")
        for launcher in ("plain", "warm")
    }


TABLES = {
    "plan": plan_variants,
    "tiny": lambda: run_variants("--configfile", str(ROOT / "config" / "test" / "tiny.yaml")),
    "demo": run_variants,
}


def main() -> None:
    """Measure the variants of a table in turn, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="regular expressions of variants, separated by ;")
    asked = parser.parse_args()
    wanted = asked.only.split(";")
    variants = {
        name: one for name, one in TABLES[asked.table]().items() if any(re.search(text, name) for text in wanted)
    }
    costs: dict[str, list[Cost]] = {name: [] for name in variants}
    for turn in range(asked.repeats):
        for name, command in variants.items():
            costs[name].append(command())
            last, load = costs[name][-1], os.getloadavg()[0]
            print(
                f"{turn} {name}: {last.wall:.1f} s, CPU {last.cpu:.1f} s, load {load:.1f}", file=sys.stderr, flush=True
            )
    print(
        f"`python -m benchmarks.pipeline.start_cost {' '.join(sys.argv[1:])}`, {time.strftime('%Y-%m-%d')}, Snakemake"
    )
    print(
        f"{version('snakemake')}, Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores.\n"
    )
    print(f"| {asked.table} | jobs | wall s | CPU s | CPU s, least to most |\n|---|---|---|---|---|")
    for name, taken in costs.items():
        wall, cpu = (statistics.median(getattr(cost, what) for cost in taken) for what in ("wall", "cpu"))
        cpus = sorted(cost.cpu for cost in taken)
        print(f"| {name} | {taken[0].jobs} | {wall:.1f} | {cpu:.1f} | {cpus[0]:.1f} to {cpus[-1]:.1f} |")


if __name__ == "__main__":
    main()
