"""The checked configuration; inputs, outputs and parameters of the rules; how local jobs start."""

import sys
from pathlib import Path

from snakemake.jobs import Job

from turncredit import layout, starts
from turncredit.config import from_mapping
from turncredit.errors import UserError
from turncredit.stages import checks, needs
from turncredit.stages.job import At
from turncredit.stages.plan import Plan, load
from turncredit.workflow import launch, locks, preflight, retries, slurm, watch
from turncredit.yaml_files import read_mapping


def checked_plan():
    """The plan of the experiment in `config`. A mistake in it ends Snakemake with one line."""
    try:
        for path in workflow.configfiles if workflow.is_main_process else ():
            # Snakemake's own reader keeps the last of two equal keys.
            read_mapping(path)
        experiment = from_mapping(config)
        checks.check(experiment)
        plan = Plan(experiment)
        layout.refuse_old(plan.layout.root)
        return plan
    except UserError as error:
        print(f"turncredit: {error}", file=sys.stderr)
        sys.exit(2)


PLAN = checked_plan()
EXPERIMENT = PLAN.experiment
#: Whether one job runs the stages of whole rounds (rules/rounds.smk).
FUSED = EXPERIMENT.granularity != "stage"
#: Environments for `--sdm conda`; ignored without that option.
CORE = "../envs_conda/core.yaml"
PLAYING = (
    "../envs_conda/gpu-rollout.yaml" if EXPERIMENT.policy.engine == "vllm" else CORE
)


#: The key `policy` of turns that methods share.
SHARED = layout.SHARED
#: The key `start` of other agents than the experiment's own.
OTHER_AGENTS = f"(?!{starts.SFT}/){layout.START}"


wildcard_constraints:
    **layout.KEYS,


def reads(stage):
    """Input function: the files and folders that a job reads, by name. For `unpack`."""

    @known
    def files(wildcards):
        return PLAN.inputs(stage, At.of(wildcards))

    return files


def makes(stage, start="{start}", **flags):
    """Output: the artifacts and the metrics file of a job. `flags` wrap outputs (`policy=temp`).

    `start` takes the place of the wildcard for the warm start, in stages that make one.
    """

    def pattern(path):
        return path.replace("{start}", start)

    kinds = {name: layout.ARTIFACTS[kind] for name, kind in load(stage).OUTPUTS.items()}
    files = {
        name: (
            directory(pattern(PLAN.layout.pattern(kind.name)))
            if kind.folder
            else pattern(PLAN.layout.pattern(kind.name))
        )
        for name, kind in kinds.items()
    }
    flagged = {
        name: flags[name](path) if name in flags else path
        for name, path in files.items()
    }
    return {**flagged, "metrics": pattern(PLAN.layout.metrics(stage))}


def part(stage):
    """Params function: the stage's slice of the configuration. The job runs again if it changes."""

    @known
    def slice(wildcards):
        config = PLAN.slice(stage, At.of(wildcards))
        if id(config) not in PARTS:
            PARTS[id(config)] = config.model_dump(mode="json")
        return PARTS[id(config)]

    return slice


#: slices as plain data, by the id of the slice, which the plan keeps alive
PARTS = {}


def ask(stage):
    """Resources of a job of `stage`, from the block `resources` or the model's size."""
    return ask_for(needs.resource(PLAN, stage), stage)


def ask_for(wanted, named):
    """Resources of the rule `named` as Snakemake takes them. What ran out of memory is tried again with twice as much."""

    @known
    def memory(wildcards, attempt):
        return wanted.mem_mb * retries.memory_factor(
            named, dict(wildcards.items()), attempt, run_id()
        )

    return {"mem_mb": memory, "runtime": wanted.runtime, "gpu": wanted.gpu}


def threads(stage):
    """The number of cores that a job of `stage` asks for."""
    return EXPERIMENT.resource(stage).threads


@known
def earlier_first(wildcards):
    """Priority: all runs advance together, so that no core idles while a last run finishes."""
    return 1000 - int(getattr(wildcards, "round", 1))


@known
def evaluation_later(wildcards):
    """Priority: no job waits for an evaluation, so evaluations may lag behind training."""
    return earlier_first(wildcards) - 2


if workflow.is_main_process:
    # A killed run leaves Snakemake's lock behind; the next run takes it over if no other process is running.
    locks.take_over(Path(".snakemake"))
    watch.tell_plan(results=str(PLAN.layout.root), runs=len(EXPERIMENT.runs()))


def run_id():
    """The id by which Slurm knows the jobs of this run; None elsewhere."""
    scheduler = getattr(workflow, "scheduler", None)
    return getattr(getattr(scheduler, "_executor", None), "run_uuid", None)


def with_conda():
    """Whether `--sdm conda` was given."""
    methods = workflow.deployment_settings.deployment_method
    return "conda" in map(str, methods)


def before_the_first_job():
    """Refuse, in one line, jobs that cannot work, and cancel those that an earlier run has left in Slurm."""
    jobs = list(workflow.dag.needrun_jobs())
    executor = "slurm" if run_id() else "local" if workflow.local_exec else "other"
    asked = [
        tuple(values_of(jobs, f"slurm_{kind}")) for kind in ("partition", "account")
    ]
    where = preflight.Where(with_conda(), executor, *asked)
    try:
        for line in preflight.refuse(PLAN, stages_of(jobs), where):
            print(f"turncredit: warning: {line}", file=sys.stderr)
        line = slurm.cancel_leftovers(Path(".snakemake"), str(PLAN.layout.root))
        if line:
            print(f"turncredit: {line}", file=sys.stderr)
        if run_id():
            slurm.remember(Path(".snakemake"), str(PLAN.layout.root), run_id())
    except UserError as error:
        print(f"turncredit: {error}", file=sys.stderr)
        sys.exit(2)


def stages_of(jobs):
    """The stages that these jobs run."""
    scripts = {Path(job.rule.script).stem for job in jobs if job.rule.script}
    return scripts | (set(fused_stages()) if "rounds" in scripts else set())


def fused_stages():
    """The stages that jobs of several rounds run for some method."""
    from turncredit.workflow.rounds import steps_of_round

    last = range(1, EXPERIMENT.rounds + 1)
    runs = {method: seed for method, seed in EXPERIMENT.runs()}
    return {
        stage
        for method, seed in runs.items()
        for round in last
        for stage, _ in steps_of_round(PLAN, method, seed, round)
    }


def values_of(jobs, resource):
    """The values of a resource that these jobs name, each once."""
    named = (job.resources.get(resource) for job in jobs if not job.is_local)
    return dict.fromkeys(str(value) for value in named if value)


def restart_times(job):
    """How often Snakemake tries a job again: never if it ended with a user's mistake."""
    mistake = retries.is_users_mistake(job.rule.name, dict(job.wildcards.items()))
    return 0 if mistake else job.rule.restart_times


onstart:
    stop_planning()
    if workflow.is_main_process and not workflow.touch:
        before_the_first_job()
        Job.restart_times = property(restart_times)
    # Only if jobs run on this machine: never in a dry run, never for or on a cluster.
    if workflow.is_main_process and workflow.local_exec and not workflow.touch:
        # The limit on jobs per second is meant for shared schedulers. Here it is costly: while jobs wait, each job that
        # ends adds a timer that then fires every second (hundreds per second in a long run).
        workflow.scheduler.job_rate_limiter = None
        if EXPERIMENT.launcher == "warm":
            executable, reason = launch.start(
                also=("snakemake.iocontainers", "snakemake.logging")
            )
            if executable is None:
                logger.info(f"Jobs start as plain processes: {reason}.")
            else:
                shell.executable(executable)


def shown(caption, what):
    """Flag of an output that `snakemake --report` shows."""
    return lambda path: report(
        path,
        caption=f"captions/{caption}.rst",
        category="Report",
        labels={"what": what},
    )
