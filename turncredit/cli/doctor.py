"""`turncredit doctor`: whether an experiment's jobs can run, here and on the cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from turncredit import agents, envs
from turncredit.cli.configured import ConfigfileOption, ConfigOption, ResultsOption, plan_of, profile_options
from turncredit.cli.plan import submitted_jobs
from turncredit.config import Experiment, merge, stages
from turncredit.config.experiment import GPU_JOBS, ROUNDS
from turncredit.config.layout import Layout
from turncredit.data.counts import number_of
from turncredit.errors import UserError, require
from turncredit.pipeline import failures, preflight, run
from turncredit.pipeline.all_jobs import every_job
from turncredit.pipeline.machine import SNAKEMAKE
from turncredit.pipeline.partitions import Asked
from turncredit.pipeline.plan import Plan

#: What makes environments for jobs, by Snakemake's `--sdm`.
DEPLOYED = ("conda", "apptainer")
#: Seconds in which a Snakemake that is ended has to cancel its jobs.
CANCELS_WITHIN = 60.0
VERDICTS = {True: "ok", None: "?", False: "FAIL"}


def doctor(
    configfile: ConfigfileOption = None,
    config: ConfigOption = None,
    profile: Annotated[str | None, typer.Option(help="Snakemake's profile: slurm, or a folder.")] = None,
    sdm: Annotated[str | None, typer.Option(help="As in snakemake: conda or apptainer.")] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Run tiny jobs of every kind, through the profile, and report.")
    ] = False,
    minutes: Annotated[
        int | None,
        typer.Option(min=1, help="With --cluster: end what has not ended by then.", show_default="10; 30 with vLLM"),
    ] = None,
    results: ResultsOption = Path("results"),
) -> None:
    """Check that an experiment's jobs can run: engines, torch, weights, memory, disk, Slurm. Exit code 1 if not.

    Example: turncredit doctor --cluster --profile slurm --configfile config/qwen2.5-1.5b.yaml
    """
    if sdm not in (None, *DEPLOYED):
        raise UserError(f"--sdm is '{sdm}'; the environments of this workflow are for {' or '.join(DEPLOYED)}")
    where = setting(profile, sdm)
    plan = plan_of(configfile, results, config, installed=False)  # what is missing is one of the findings
    preflight.refuse_unknown_rules("set-resources", {rule for rule, _, _ in where.own}, plan.experiment.granularity)
    configured = (plan.experiment.slurm(job).get("slurm_account") for job in (*stages.stages(), ROUNDS))
    where = replace(where, accounts=tuple(dict.fromkeys([*where.accounts, *filter(None, configured)])))
    where = where if where.asked is not None else replace(where, asked=asked_by_rules(plan, where))
    failed = False
    for finding in preflight.findings(plan, {stage for stage, _ in every_job(plan)}, where):
        print(f"{VERDICTS[finding.fine]:<5} {finding.line}")
        failed |= finding.fine is False
    if cluster and not failed:
        most = minutes or (30 if plan.experiment.policy.engine == "vllm" else 10)
        failed = try_jobs(plan.experiment, profile, sdm, most, conda=where.deployed == "conda")
    if failed:
        raise typer.Exit(1)


def setting(profile: str | None, sdm: str | None) -> preflight.Where:
    """How jobs of a Snakemake with this profile run. Raises UserError for a profile that is not there."""
    if profile is None:
        return preflight.Where(sdm or "")
    options = profile_options(profile)
    named = str(options.get("software-deployment-method", options.get("sdm", "")))
    deployed = sdm or next(
        (method for method in DEPLOYED if method in named), "image" if "container-image" in options else ""
    )
    defaults = _default_resources(options.get("default-resources") or {})
    chosen = {
        key: tuple(value for name, value in defaults if name == f"slurm_{key}") for key in ("partition", "account")
    }
    executor = str(options.get("executor", "local"))
    storage = "default-storage-provider" in options
    own = tuple(
        (rule, name, value)
        for rule, given in _of_rules(options.get("set-resources") or {})
        for name, value in _default_resources(given)
    )
    # Where the plugin chooses the partitions, from a file, nothing is known of them here.
    chosen_there = "slurm-partition-config" in options or "SNAKEMAKE_SLURM_PARTITIONS" in os.environ
    asked = () if chosen_there else None
    return preflight.Where(deployed, executor, chosen["partition"], chosen["account"], storage, own, asked)


def asked_by_rules(plan: Plan, where: preflight.Where) -> tuple[Asked, ...]:
    """What the jobs of each rule ask for, by the configuration and the profile, as Snakemake would ask for it."""
    copied = plan.experiment.policy.source != "scratch"  # where Snakemake runs, from the hub's cache
    here = {one.name for one in stages.stages().values() if one.local or (copied and one.name == "base")}
    asked: dict[Asked, None] = {}
    for job in submitted_jobs(plan, every_job(plan)):
        rule, one = ROUNDS if job.rounds else job.stages[0][0], job.asked
        if rule not in here:
            partition = plan.experiment.slurm(rule).get("slurm_partition", "")
            asked[Asked(rule, partition, one.gpu or 0, one.runtime or 0, one.mem_mb or 0, one.threads or 1)] = None
    return tuple(_with_profile(one, where) for one in asked)


def _with_profile(asked: Asked, where: preflight.Where) -> Asked:
    """The same with what a profile gives this rule; what it does not give as a plain number is not known here."""
    own = {name: value for rule, name, value in where.own if rule == asked.rule}
    default = where.partitions[0] if where.partitions else ""

    def number(name: str, otherwise: int) -> int:
        return (int(own[name]) if own[name].isdigit() else 0) if name in own else otherwise

    return asked._replace(
        partition=own.get("slurm_partition", asked.partition or default),
        gpus=number("gpu", asked.gpus),
        minutes=number("runtime", asked.minutes),
        mem_mb=number("mem_mb", asked.mem_mb),
    )


def _of_rules(resources: Any) -> list[tuple[str, Any]]:
    """Resources of rules as a profile gives them: a mapping by rule, or a list of `rule:name=value`."""
    if isinstance(resources, dict):
        return list(resources.items())
    pairs = (str(entry).split(":", 1) for entry in resources)
    return [(rule, [given]) for rule, given in pairs]


def _default_resources(resources: Any) -> list[tuple[str, str]]:
    """Resources as a profile gives them: a mapping, or a list of `name=value`."""
    pairs = resources.items() if isinstance(resources, dict) else (str(entry).split("=", 1) for entry in resources)
    return [(str(name), str(value).strip("'\"")) for name, value in pairs]


def try_jobs(
    experiment: Experiment, profile: str | None, sdm: str | None, minutes: float, *, conda: bool = False
) -> bool:
    """Run the experiment in miniature, through the profile; print what each kind of job did. Returns if one failed.

    conda    make the jobs' conda environments first, which may take longer than `minutes`
    """
    require("snakemake")
    if not Path("Snakefile").exists():
        raise UserError("--cluster needs the Snakefile of this workflow in this folder")
    with tempfile.TemporaryDirectory(prefix="turncredit-doctor-", dir=".") as scratch:
        small = Path(scratch) / "doctor.yaml"
        small.write_text(yaml.safe_dump(miniature(experiment), sort_keys=False), encoding="utf-8")
        command = [*SNAKEMAKE, *(["--profile", profile] if profile else ["--cores", "all"])]
        command += ["--sdm", sdm] if sdm else []
        command += ["--configfile", str(small)]
        root = Path("results") / f"{experiment.experiment}_doctor"  # where Snakemake writes, whatever --results is
        shutil.rmtree(root, ignore_errors=True)
        for earlier in failures.failures_in(str(root)):
            failures.forget(earlier.rule, earlier.wildcards, earlier.results)
        if conda and not _made_environments(command):
            return True
        print(f"      running the experiment in miniature in {root} (Snakemake's log: .snakemake/log)", flush=True)
        status, said, late = within(60 * minutes, command, Path(scratch) / "said")
    lines = report_of(root)
    print("\n".join(lines))
    if late:
        print(f"FAIL  not every job has ended after {minutes:g} minutes (--minutes); {late}")
    elif status and not any(line.startswith("FAIL") for line in lines):
        print("\n".join(f"FAIL  {line}" for line in run.mistakes_in("\n".join(said)) or said[-5:]))
    if status == 0:
        shutil.rmtree(root, ignore_errors=True)
    return status != 0


def _made_environments(command: Sequence[str]) -> bool:
    """Have Snakemake make the jobs' conda environments that are not there yet; says so if it cannot."""
    print("      making the jobs' conda environments that are not there yet", flush=True)
    made = subprocess.run([*command, "--conda-create-envs-only"], capture_output=True, text=True, check=False)
    if made.returncode:
        print("\n".join(f"FAIL  {line}" for line in made.stderr.splitlines()[-5:]))
    return made.returncode == 0


def within(seconds: float, command: Sequence[str], log: Path) -> tuple[int, list[str], str]:
    """Run Snakemake, its standard error in `log`. Returns its exit status, what it said, and, if it was ended because
    it took longer than `seconds`, what became of its jobs."""
    late = ""
    # Files, not pipes, which a job that lives on would keep open; in a session of its own, to be ended with its jobs.
    with log.open("w", encoding="utf-8") as file, log.with_name("output").open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=file, start_new_session=True)
        try:
            process.wait(timeout=seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
            late = "Snakemake was ended, and has cancelled its jobs"
            if not _ended(process):
                late = "Snakemake was killed; cancel its jobs if there are any left"
            if isinstance(error, KeyboardInterrupt):
                raise
    return process.returncode or int(bool(late)), log.read_text(encoding="utf-8", errors="replace").splitlines(), late


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """End Snakemake as Ctrl-C does; returns if it went by itself, and was not killed."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(timeout=CANCELS_WITHIN)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return False
    return True


def report_of(root: Path) -> list[str]:
    """What each kind of job did: seconds and memory of the slowest one, or its error."""
    slowest: dict[str, dict[str, Any]] = {}
    count: dict[str, int] = {}
    for stage, _, path in Layout(root).find_metrics():
        measured = json.loads(path.read_text(encoding="utf-8"))
        count[stage] = count.get(stage, 0) + 1
        if measured["wall_s"] >= slowest.get(stage, measured)["wall_s"]:
            slowest[stage] = measured
    lines = [
        f"ok    {stage:<15} {number_of(count[stage], 'job'):>7}, the slowest {slowest[stage]['wall_s']:.1f} s, "
        f"{slowest[stage]['peak_mb']:,.0f} MB"
        for stage in slowest
    ]
    return [*lines, *(f"FAIL  {failure.line}" for failure in failures.failures_in(str(root)))]


def miniature(experiment: Experiment) -> dict[str, Any]:
    """The experiment, so small that it takes minutes: a tiny model, two rounds, few games.

    Methods, agents, environment, engine, types and what jobs ask for stay, but for the time: half an hour for each. So
    does the model where the environment has no expert, from whose demonstrations a tiny one gets its tokenizer.
    """
    minutes = {stage: {"runtime": 30} for stage in experiment.resources if stage != GPU_JOBS}
    small: dict[str, Any] = {
        "experiment": f"{experiment.experiment}_doctor",
        "seeds": [0],
        "rounds": 2,
        "tasks": {"train": 8, "eval": 8},
        "agent": {"max_response_tokens": 32},
        "agents": {name: {"max_response_tokens": 32} for name in experiment.agents},
        "demos": {"count": 8},
        "sft": {"epochs": min(experiment.sft.epochs, 1), "batch": 4},
        "rollout": {"tasks": 2, "group_size": 2, "slots": 4},
        "update": {"minibatch": 2},
        "eval": {"games": 2, "every": 1, "rounds": None},
        "audit": {
            "rounds": [2] if experiment.audit.rounds else [],
            "seeds": None,
            "pages": min(experiment.audit.pages, 1),
            "branch": {"turns": 4, "min_continuations": 2, "max_continuations": 2, "budget_turns": 50},
        },
        "tracking": {"enabled": False},
        "keep_policies": "all",
        "resources": minutes,
    }
    own = {"rollout": small["rollout"], "update": small["update"]}
    small["define"] = {
        name: {section: own[section] for section in own if getattr(entry, section)}
        for name, entry in experiment.define.items()
    }
    whole, env = experiment.model_dump(mode="json"), experiment.env.chosen()
    if "expert" in envs.load(env.name).with_settings(env.settings).capabilities:
        small["policy"] = _tiny_model(experiment)
        whole["policy"].pop("chat_template", None)
    return merge(whole, small)


def _tiny_model(experiment: Experiment) -> dict[str, Any]:
    """The keys of `policy` that make it tiny, with room for the contexts of the experiment's agents."""
    chosen = [one.chosen() for one in (experiment.agent, *experiment.agents.values())]
    every = [agents.load(one.name).Settings.model_validate(one.settings) for one in chosen]
    longest = max(getattr(settings, "max_prompt_tokens", None) or 0 for settings in every)
    # vLLM's attention takes heads of at least 32 numbers.
    sizes = {"hidden": 64, "layers": 2, "heads": 2, "kv_heads": 1, "mlp": 96, "vocab": 1024}
    scratch = {**sizes, "max_positions": max(16384, longest + 32)}
    adapter = {"lora": {"rank": 8, "alpha": 16}} if experiment.policy.lora else {}
    return {"source": "scratch", "revision": None, "scratch": scratch, **adapter}
