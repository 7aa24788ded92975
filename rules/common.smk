"""The checked configuration; inputs, outputs, parameters and resources of the rules."""

import atexit
import gc
import os
import sys
from functools import cache

from snakemake.resources import Resource

from turncredit.config import layout, stages
from turncredit.config.warm_starts import SFT
from turncredit.config import from_mapping, in_sweep, refuse_lost
from turncredit.errors import UserError
from turncredit.pipeline import checks, resources as needs
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.pipeline import blocks, machine, preflight, retries
from turncredit.data.yaml_files import CONFIG, read_mapping

# While Snakemake plans, all objects stay alive, and looking for others is a fifth of the time of a large dry run
# (benchmarks/pipeline/START.md). `onstart` turns the collector on again; the interpreter collects once more at its end.
gc.disable()
atexit.register(gc.freeze)

machine.name_the_user()
machine.hide_this_folder_from_imports()
if workflow.is_main_process and (line := machine.state_mistake()) is not None:
    sys.exit(f"turncredit: {line}")

#: Whether files go through a storage, because jobs share no file system.
STORED = workflow.storage_settings.default_storage_provider is not None


def name_of(path):
    """A configuration file as it is named in messages: from here, if it is below this folder."""
    here = os.path.relpath(path)
    return str(path) if here.startswith(os.pardir) else here


def checked_plan():
    """The plan of the experiment in `config`. A mistake in it ends Snakemake with one line."""
    try:
        # Snakemake's own reader keeps the last of two equal keys. It merges CONFIG first, and lists it last.
        given = workflow.configfiles if workflow.is_main_process else ()
        files = {
            name_of(path): read_mapping(path)
            for path in sorted(given, key=lambda path: str(path) != CONFIG)
        }
        # Where a key is given, for messages: in the last of these that has it.
        keys = {"--config": workflow.config_settings.config, "sweep": in_sweep(config)}
        experiment = from_mapping(config, sources=files | keys)
        refuse_lost(files.values(), config)
        # Without a shared file system jobs do not run where Snakemake does, so only they know what is there.
        checks.check(experiment, installed=not (STORED and workflow.is_main_process))
        return Plan(experiment)
    except UserError as error:
        print(f"turncredit: {error}", file=sys.stderr)
        sys.exit(2)


PLAN = checked_plan()
EXPERIMENT = PLAN.experiment


def refuse_unknown_rules():
    """End Snakemake with one line if an option names rules that no experiment has, and so would have no effect."""
    given = workflow.resource_settings
    for option, names in (
        ("--set-resources", given.overwrite_resources),
        ("--set-threads", given.overwrite_threads),
    ):
        try:
            preflight.refuse_unknown_rules(option, names, EXPERIMENT.granularity)
        except UserError as error:
            print(f"turncredit: {error}", file=sys.stderr)
            sys.exit(2)


if workflow.is_main_process:
    refuse_unknown_rules()
#: Whether one job runs the stages of whole rounds (rules/rounds.smk).
FUSED = EXPERIMENT.granularity != "stage"
#: Environments for `--sdm conda`; ignored without that option.
CORE = "../envs_conda/core.yaml"
VLLM = "../envs_conda/gpu-rollout.yaml"
#: The same as images for `--sdm apptainer` (containers/turncredit.def).
CORE_IMAGE = "containers/core.sif"
VLLM_IMAGE = "containers/gpu-rollout.sif"


container: CORE_IMAGE


wildcard_constraints:
    **layout.KEYS,


def reads(stage):
    """Input function: the files and folders that a job reads, by name. For `unpack`."""

    def files(wildcards):
        files = PLAN.inputs(stage, JobKeys.of(wildcards))
        return blocks.declared(PLAN, files) if FUSED else files

    return files


def known(paths):
    """These paths as rules declare them: the last policy of a job of rounds stands for all that the job makes."""
    paths = list(paths)
    return blocks.declared(PLAN, {"": paths})[""] if FUSED else paths


def only_start(pattern):
    """A pattern without the key of the warm start where there is one: such a rule can be asked for by its name."""
    return pattern if EXPERIMENT.agents else pattern.replace("{warm_start}", SFT)


def makes(stage, **flags):
    """Output: the artifacts and the metrics file of a job. `flags` wrap outputs (`policy=temp`)."""
    files = {
        name: only_start(PLAN.layout.pattern(kind.name))
        for name, kind in stage.makes.items()
    }
    files |= {
        name: directory(files[name])
        for name, kind in stage.makes.items()
        if kind.folder
    }
    files |= {name: flag(files[name]) for name, flag in flags.items()}
    return {**files, "metrics": only_start(PLAN.layout.metrics(stage.name))}


def kept_policies():
    """Pattern of the rest of the path, from the method on, of the policies that `keep_policies: last` keeps."""
    last = rf"[^/]+/seed\d+/round{EXPERIMENT.rounds:02d}/"
    # The policy of round r-1 samples round r.
    audited = [
        rf"{method}/seed{seed}/round{round - 1:02d}/"
        for method in EXPERIMENT.audit.runs
        for seed, round in EXPERIMENT.audited_rounds()
    ]
    return "(?:" + "|".join([last, *audited]) + ")"


def part(stage):
    """Params function: the stage's slice of the configuration. The job runs again if it changes."""

    def slice(wildcards):
        config = PLAN.slice(stage, JobKeys.of(wildcards))
        if id(config) not in PARTS:
            PARTS[id(config)] = config.model_dump(mode="json")
        return PARTS[id(config)]

    return slice


#: Slices as plain data, by the id of the slice. The plan keeps each slice alive, so its id stays its own.
PARTS = {}


def ask(stage, name):
    """Resources of the rule `name`, which runs `stage`, from the block `resources` or the model's size."""
    wanted = needs.resource(PLAN, stage)
    return {
        "mem_mb": memory(lambda _: wanted, name),
        **needs.requested(wanted, EXPERIMENT.slurm(stage), EXPERIMENT.nodes(stage)),
        **(as_for(stage, name) if name != stage else {}),
    }


def as_for(stage, name):
    """What --set-resources gives the rule of a stage, for the rule `name` that runs it too."""
    given = workflow.resource_settings.overwrite_resources
    own = given.get(name, {})
    values = {key: one for key, one in given.get(stage, {}).items() if key not in own}
    for key, one in values.items():
        if isinstance(one, Resource) and one.is_evaluable():
            sys.exit(
                f"turncredit: --set-resources {stage}:{key} is an expression; give it to {name} as well, which runs "
                f"the stage {stage} where its policies are kept (keep_policies: last)"
            )
    return {
        key: one.value if isinstance(one, Resource) else one
        for key, one in values.items()
    }


def threads(stage, name):
    """The cores of a job of the rule `name`, which runs `stage`."""
    given = workflow.resource_settings.overwrite_threads
    return given.get(stage, EXPERIMENT.threads(stage))


#: On Slurm: for each rule, the memory in MB of the largest node that its jobs can get.
LARGEST_MEMORY = {}


def memory(wanted, name):
    """The memory of a job of the rule `name`, whose resources are `wanted(wildcards)`.

    A job that ran out of memory gets twice as much when it is tried again, or what the largest node has.
    """

    def megabytes(wildcards, attempt):
        first = wanted(wildcards).mem_mb
        factor = retries.memory_factor(
            name,
            dict(wildcards.items()),
            attempt,
            str(PLAN.layout.root),
            since=BEGAN,
            on_slurm=run_id() is not None,
            known=run_id() is not None or not STORED,
        )
        return min(first * factor, max(first, LARGEST_MEMORY.get(name, first * factor)))

    return megabytes


def earlier_first(wildcards):
    """Priority: all runs advance together, so that no core idles while a last run finishes."""
    return 1000 - int(getattr(wildcards, "round", 1))


def evaluation_later(wildcards):
    """Priority: no job waits for an evaluation, so evaluations may lag behind training."""
    return earlier_first(wildcards) - 2


def priority_of(stage):
    """The priority of a stage's jobs. Queries, checks and the viewer read the configuration: it comes first."""
    if stage.after is None:
        return 2000
    later = stage.lags or stage.phase == "audit"
    return (
        evaluation_later
        if later
        else earlier_first if stage.phase in ("round", "signal") else 0
    )


def is_local(stage):
    """Whether a stage runs where Snakemake does: a hub's model is copied from the cache into which it was fetched."""
    return stage.local or (
        stage.name == "base" and EXPERIMENT.policy.source != "scratch"
    )


def with_vllm(*those):
    """Whether jobs of these stages need the environment with vLLM."""
    return any(
        (stage.policy == "samples" and EXPERIMENT.policy.engine == "vllm")
        or EXPERIMENT.serves(stage.name)
        for stage in those
    )


def environment_of(*those):
    """The conda environment of jobs of these stages."""
    return VLLM if with_vllm(*those) else CORE


def image_of(*those):
    """The image of jobs of these stages."""
    return VLLM_IMAGE if with_vllm(*those) else CORE_IMAGE


def executor():
    """What starts the jobs of this run: Slurm's or another cluster's executor; None before it is known.

    Snakemake has no public name for it. The run's id is needed to find its jobs in Slurm again, and what an executor
    does by default costs a second start of Snakemake for each job (turncredit/pipeline/slurm.py).
    """
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


# Jobs of several rounds -----------------------------------------------------------------------------------------------

BLOCKS = {f"{block[-1]:02d}": block for block in EXPERIMENT.blocks()}
#: Whether one job runs a whole run.
WHOLE = len(BLOCKS) == 1


def last_of(wildcards):
    """The last round of a job, as it is written in paths."""
    return next(iter(BLOCKS)) if WHOLE else wildcards.round


@cache
def block_inputs(method, last):
    return blocks.inputs_by_seed(PLAN, method, BLOCKS[last])


@cache
def block_parts(method, last):
    return blocks.parts(PLAN, method, BLOCKS[last])


@cache
def block_resources(method, last):
    return blocks.resource_of_block(PLAN, method, EXPERIMENT.seeds[0], BLOCKS[last])


def of_block(wildcards):
    """The resources of a job of several rounds: `resources.rounds`, or what its stages ask for."""
    return block_resources(wildcards.method, last_of(wildcards))


def outputs_of_block():
    """The policy after a job's last round; with a whole run in one job, its invariants too."""
    policy = PLAN.layout.pattern("policy")
    if not WHOLE:
        return [update(directory(policy))]
    policy = policy.replace("{round}", last_of(None))
    return [update(directory(policy)), update(PLAN.layout.pattern("invariants"))]


def ask_of_block():
    """Resources of a job of several rounds, by method and rounds; the number of GPUs is the largest of all."""
    every = [
        block_resources(method, last)
        for method in EXPERIMENT.trained()
        for last in BLOCKS
    ]
    most = max((one.gpu or 0 for one in every), default=0)
    return {
        "mem_mb": memory(of_block, "rounds"),
        "runtime": lambda wildcards: of_block(wildcards).runtime,
        **needs.gpus_requested(
            most, EXPERIMENT.slurm("rounds"), EXPERIMENT.nodes("rounds")
        ),
    }
