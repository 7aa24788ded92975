"""The configuration, checked; paths; what a round reads; what a job asks for; how local jobs start."""

import re
import sys
from functools import cache
from os.path import dirname
from pathlib import Path

from turncredit.workflow import launch
from turncredit.stages import plan
from turncredit.config import from_mapping, sampling_slug
from turncredit.credit.configured import configured_method
from turncredit.credit.configured import labels_of as configured_labels
from turncredit.errors import UserError
from turncredit.judges.config import judge_name
from turncredit.workflow import locks
from turncredit.workflow import watch


def checked_configuration():
    """The experiment that `config` describes. A mistake in it ends Snakemake here, with one line, before any job."""
    try:
        experiment = from_mapping(config)
        plan.check(experiment)
        return experiment
    except UserError as error:
        print(f"turncredit: {error}", file=sys.stderr)
        sys.exit(2)


EXPERIMENT = checked_configuration()
RESULTS = f"results/{EXPERIMENT.experiment}"
LOGS = f"{RESULTS}/logs"
#: Environments, for `--sdm conda`; without that option they are ignored.
CORE = "../envs_conda/core.yaml"
PLAYING = (
    "../envs_conda/gpu-rollout.yaml" if EXPERIMENT.policy.engine == "vllm" else CORE
)
RUN = f"{RESULTS}/runs/{{method}}/seed{{seed}}/round{{round}}"
SHARED_ROLLOUTS = f"{RESULTS}/sft/rollouts/{{sampling}}/seed{{seed}}"

#: Sampling settings by the name of their folder: the experiment's, and those that methods override.
SAMPLINGS = {
    sampling_slug(section): section
    for section in (
        EXPERIMENT.section_for(name, "rollout") for name in ["sft", *EXPERIMENT.define]
    )
}


wildcard_constraints:
    split="train|eval",
    sampling=r"t\d+k\d+T[0-9.]+(s\d+)?",
    method=r"[A-Za-z][A-Za-z0-9_]*",
    seed=r"\d+",
    round=r"\d\d|[1-9]\d\d",
    judge=re.escape(judge_name(EXPERIMENT.judge)),
    ask="role|progress|score",


# A large experiment has tens of thousands of jobs but few methods: what follows from a method's name is worked out once.


@cache
def method_of(name):
    """The method that the configuration calls `name`."""
    return configured_method(EXPERIMENT, name)


@cache
def credit_model_of(name):
    """The learned credit model behind the method `name`, and its settings."""
    return plan.credit_model(EXPERIMENT, name)


@cache
def labels_of(name):
    """The file of the labels that the method `name` reads, beside the turns."""
    return f"labels/{configured_labels(EXPERIMENT, name)}.parquet"


@cache
def own_file_of(name):
    """The user's own file that defines the method `name`, if it is one's own."""
    return plan.method_file(EXPERIMENT, name)


@cache
def sampling_of(name):
    """The folder of the SFT policy's rollouts that are sampled as the method `name` samples."""
    return sampling_slug(EXPERIMENT.section_for(name, "rollout"))


@cache
def part_of(stage, **named):
    """The part of the configuration that decides the result of a job of `stage`."""
    return plan.reads(EXPERIMENT, stage, **named)


def reads(stage):
    """Params function: the part of the configuration that decides the job's result. A change of it runs it again."""

    @known
    def part(wildcards):
        if stage == "eval":
            return part_of(stage, round=int(wildcards.round))
        named = {
            name: getattr(wildcards, name)
            for name in ("split", "method")
            if hasattr(wildcards, name)
        }
        return part_of(stage, **named)

    return part


def ask(stage):
    """What a job of `stage` asks of the scheduler, from the block `resources`; memory grows with each retry."""
    wanted = EXPERIMENT.resource(stage)

    @known
    def memory(wildcards, attempt):
        return wanted.mem_mb * attempt

    return {
        "mem_mb": memory,
        "runtime": wanted.runtime,
        "gpu": wanted.gpu,
    }


@known
def earlier_first(wildcards):
    """Priority: all runs advance together, so that no core is idle while one run is left over at the end."""
    return 1000 - int(getattr(wildcards, "round", 1))


@known
def evaluation_later(wildcards):
    """Priority: nobody waits for an evaluation, so it may lag behind the rounds that are being learned."""
    return earlier_first(wildcards) - 2


@known
def policy_before(wildcards):
    """The policy that a round starts from: the SFT policy in round 1, the previous round's after that."""
    previous = int(wildcards.round) - 1
    if previous == 0:
        return f"{RESULTS}/sft/policy"
    return f"{RESULTS}/runs/{wildcards.method}/seed{wildcards.seed}/round{previous:02d}/policy"


@known
def turns_of(wildcards):
    """The rollouts that a round learns from. Round 1's are the SFT policy's, shared by all that sample alike."""
    if int(wildcards.round) == 1:
        sampling = sampling_of(wildcards.method)
        return f"{RESULTS}/sft/rollouts/{sampling}/seed{wildcards.seed}/turns.parquet"
    return f"{RUN}/rollouts/turns.parquet".format(**wildcards)


@known
def side_tables(wildcards):
    """The side tables that the method reads: labels lie beside the turns, a run's own model makes its values."""
    needs = method_of(wildcards.method).needs
    if not needs:
        return {}
    files = {
        "labels": f"{dirname(turns_of(wildcards))}/{labels_of(wildcards.method)}",
        "values": f"{RUN}/values.parquet".format(**wildcards),
    }
    return {name: files[name] for name in needs}


@known
def method_file_of(wildcards):
    """The user's own file that defines the method, as an input."""
    return own_file_of(wildcards.method) or []


def every_round(pattern, rounds):
    """`pattern` for every method, seed and one of `rounds`."""
    return [
        pattern.format(method=method, seed=seed, round=f"{round:02d}")
        for method, seed in EXPERIMENT.runs()
        for round in rounds
    ]


def all_updates():
    return every_round(f"{RUN}/updates.parquet", range(1, EXPERIMENT.rounds + 1))


def all_evaluations():
    """Evaluations of all runs, and of the SFT policy on the same games."""
    rounds = EXPERIMENT.eval_rounds()
    return [
        *(f"{RESULTS}/sft/evals/round{round:02d}.parquet" for round in rounds),
        *every_round(f"{RUN}/evals.parquet", rounds),
    ]


if workflow.is_main_process:
    # A run that was killed leaves Snakemake's lock behind; the next one takes it over, if nobody else is running.
    locks.take_over(Path(".snakemake"))
    watch.tell_plan(results=RESULTS, runs=len(EXPERIMENT.runs()))


onstart:
    stop_planning()
    # Only where jobs run on this machine: never in a dry run, never for or on a cluster.
    if workflow.is_main_process and workflow.local_exec and not workflow.touch:
        # The limit on jobs per second is for schedulers that others use. Here it costs: while jobs wait, each one
        # that ends adds a timer that goes off every second from then on (hundreds a second in a long run).
        workflow.scheduler.job_rate_limiter = None
        if EXPERIMENT.launcher == "warm":
            executable, reason = launch.start(
                also=("snakemake.iocontainers", "snakemake.logging")
            )
            if executable is None:
                logger.info(f"Jobs start as plain processes: {reason}.")
            else:
                shell.executable(executable)
