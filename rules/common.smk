"""The checked configuration; inputs, outputs, parameters and resources of the rules."""

import sys

from turncredit.config import layout, warm_starts as starts
from turncredit.config import from_mapping
from turncredit.errors import UserError
from turncredit.pipeline import checks, resources as needs
from turncredit.pipeline.job import At
from turncredit.pipeline.plan import Plan, load
from turncredit.pipeline import retries
from turncredit.data.yaml_files import read_mapping

#: Whether files go through a storage, because jobs share no file system.
STORED = workflow.storage_settings.default_storage_provider is not None


def checked_plan():
    """The plan of the experiment in `config`. A mistake in it ends Snakemake with one line."""
    try:
        for path in workflow.configfiles if workflow.is_main_process else ():
            # Snakemake's own reader keeps the last of two equal keys.
            read_mapping(path)
        experiment = from_mapping(config)
        # Without a shared file system jobs do not run where Snakemake does, so only they know what is there.
        checks.check(experiment, installed=not (STORED and workflow.is_main_process))
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
#: The same as images for `--sdm apptainer` (containers/turncredit.def).
CORE_IMAGE = "containers/core.sif"
PLAYING_IMAGE = (
    "containers/gpu-rollout.sif" if EXPERIMENT.policy.engine == "vllm" else CORE_IMAGE
)


container: CORE_IMAGE


#: The key `policy` of turns that methods share.
SHARED = layout.SHARED
#: The key `start` of other agents than the experiment's own.
OTHER_AGENTS = f"(?!{starts.SFT}/){layout.START}"


wildcard_constraints:
    **layout.KEYS,


# What the command line or the profile gives a rule holds for the rules that run the same stage under other names.
GIVEN = workflow.resource_settings._parsed_overwrite_resources
GIVEN_THREADS = workflow.resource_settings._parsed_overwrite_threads
for name, others in retries.OTHER_NAMES.items():
    for other in others:
        if name in GIVEN:
            own = GIVEN.get(other, {})
            GIVEN[other] = GIVEN[name].copy()
            GIVEN[other].update(own)
        if name in GIVEN_THREADS:
            GIVEN_THREADS.setdefault(other, GIVEN_THREADS[name])


def reads(stage):
    """Input function: the files and folders that a job reads, by name. For `unpack`."""

    @cached_parameters
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

    @cached_parameters
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

    @cached_parameters
    def memory(wildcards, attempt):
        return wanted.mem_mb * retries.memory_factor(
            named,
            dict(wildcards.items()),
            attempt,
            run_id(),
            str(PLAN.layout.root),
            known=run_id() is not None or not STORED,
        )

    return {"mem_mb": memory, **needs.requested(wanted)}


def threads(stage):
    """The number of cores that a job of `stage` asks for."""
    return EXPERIMENT.resource(stage).threads


@cached_parameters
def earlier_first(wildcards):
    """Priority: all runs advance together, so that no core idles while a last run finishes."""
    return 1000 - int(getattr(wildcards, "round", 1))


@cached_parameters
def evaluation_later(wildcards):
    """Priority: no job waits for an evaluation, so evaluations may lag behind training."""
    return earlier_first(wildcards) - 2


def executor():
    """What starts the jobs of this run: Slurm's or another cluster's executor; None before it is known."""
    return getattr(getattr(workflow, "scheduler", None), "_executor", None)


def run_id():
    """The id by which Slurm knows the jobs of this run; None elsewhere."""
    return getattr(executor(), "run_uuid", None)


def shown(caption, what):
    """Flag of an output that `snakemake --report` shows."""
    return lambda path: report(
        path,
        caption=f"captions/{caption}.rst",
        category="Report",
        labels={"what": what},
    )
