"""What would stop an experiment's jobs, found before the first: engines, torch, weights, memory, time, disk, Slurm.

Snakemake checks the stages that it is about to run, and `turncredit doctor` those of a whole experiment. Whether a node
sees its GPU is checked by the job itself.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from turncredit.config import Experiment
from turncredit.config.experiment import ROUNDS
from turncredit.config.stages import policy_stages
from turncredit.config.stages import stages as every_stage
from turncredit.data.counts import number_of
from turncredit.errors import UserError, extra_of, nearest
from turncredit.pipeline import imports, machine, partitions, resources, retries
from turncredit.pipeline.checks import check_installed
from turncredit.pipeline.failures import NodeFault
from turncredit.pipeline.learned_models import config_of, shapes
from turncredit.pipeline.partitions import Asked
from turncredit.pipeline.plan import Plan
from turncredit.policy import cuda_driver
from turncredit.policy.hub import FETCHED_FILES, SAVE_AGAIN, lacking
from turncredit.policy.shapes import lockstep_reads

#: The share of free disk that an experiment may be estimated to fill.
FILLED = 0.95
#: The programs with which Snakemake 9 makes environments, by its `--sdm`: the first that is here. It does not run mamba
#: or micromamba in conda's place (its deployment/conda.py and deployment/singularity.py).
PROGRAMS = {"conda": ("conda",), "apptainer": ("apptainer", "singularity")}
INSTALL = {
    "conda": "install Miniforge (https://conda-forge.org/download) or load your cluster's module; mamba or micromamba "
    "alone is not enough",
    "apptainer": "install Apptainer (https://apptainer.org) or load your cluster's module",
}


#: The packages of environments that no environment of `--sdm` has by itself.
OWN_PACKAGES = {"scienceworld": "scienceworld", "virtualhome": "virtualhome"}


@dataclass(frozen=True)
class Where:
    """How jobs will run: in environments of their own ("conda", "apptainer", or "image": that of a cloud's jobs) or in
    this one (""); by which executor; in which partitions and accounts; whether files go through a storage.

    `own` are (rule, resource, value) of what a profile gives single rules. `asked` is what each rule's jobs ask for,
    empty where the executor chooses their partitions by itself; None: not known yet. `gpu_limit` is Snakemake's, on the
    GPUs of all jobs that run at a time; None: it has none.
    """

    deployed: str = ""
    executor: str = "local"
    partitions: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    storage: bool = False
    own: tuple[tuple[str, str, str], ...] = ()
    asked: tuple[Asked, ...] | None = None
    gpu_limit: int | None = 1


class Finding(NamedTuple):
    """One check: whether jobs can run (None: perhaps not), and a line about it."""

    fine: bool | None
    line: str


def findings(plan: Plan, stages: Collection[str], where: Where) -> Iterator[Finding]:
    """Everything that was checked for jobs of these stages."""
    return (finding for check in CHECKS for finding in check(plan, stages, where))


def refuse(plan: Plan, stages: Collection[str], where: Where) -> list[str]:
    """Raise UserError for the first thing that would stop jobs of these stages; returns lines about what may."""
    warnings = []
    for fine, line in findings(plan, stages, where):
        if fine is False:
            raise UserError(line)
        warnings += [line] if fine is None else []
    return warnings


def refuse_unknown_rules(option: str, names: Collection[str], granularity: str) -> None:
    """Raise UserError if an option names a rule that Snakemake would not find, and so ignore."""
    known = (*every_stage(), ROUNDS, retries.KEPT)
    for name in names:
        if name not in known:
            raise UserError(f"{option}: there is no rule '{name}'{nearest(name, known)}; rules are called like stages")
        if granularity != "stage" and retries.stage_of(name) == "update":
            raise UserError(
                f"{option}: with granularity {granularity} updates are in the jobs of the rule {ROUNDS}; name {ROUNDS} "
                f"and not {name}"
            )


def environment(plan: Plan, stages: Collection[str], where: Where) -> Iterator[Finding]:
    """What playing needs is installed, and its files are here. With a storage, jobs find that out where they run."""
    if where.storage or not (_playing(stages) or "tasks" in stages):
        return
    try:
        line = check_installed(plan.experiment)
    except UserError as error:
        yield Finding(False, str(error))
    else:
        if line:
            yield Finding(True, f"env.{plan.experiment.env.owner}: {line}")


def environments_package(plan: Plan, stages: Collection[str], where: Where) -> Iterator[Finding]:
    """The environments that Snakemake makes for jobs get the package of the experiment's environment, if it has one."""
    package = OWN_PACKAGES.get(plan.experiment.env.name)
    if package is None or where.deployed not in PROGRAMS or not (_playing(stages) or "tasks" in stages):
        return
    used = ["core", *(["gpu-rollout"] if plan.experiment.policy.engine == "vllm" and _playing(stages) else [])]
    scripts = [Path("envs_conda") / f"{name}.post-deploy.sh" for name in used]
    lacking = [str(script) for script in scripts if script.exists() and package not in script.read_text("utf-8")]
    if lacking:
        line = (
            f"env.{plan.experiment.env.owner}: {' and '.join(lacking)} do{'es' * (len(lacking) == 1)} not install the "
            f"package {package}, which jobs need with --sdm {where.deployed}; add it there "
            f"(docs/environments/{plan.experiment.env.name}.md)"
        )
        yield Finding(None, line)


def interpreter_and_folders(_plan: Plan, _stages: Collection[str], where: Where) -> Iterator[Finding]:
    """Snakemake can start a job with this interpreter, and write its own folders."""
    lines = [*machine.folder_mistakes(), *([] if where.deployed else machine.interpreter_mistakes())]
    yield from (Finding(False, line) for line in lines)


def deployment(_plan: Plan, _stages: Collection[str], where: Where) -> Iterator[Finding]:
    """The program that makes the jobs' environments is here and runs."""
    names = PROGRAMS.get(where.deployed, ())
    if not names:
        return
    program = next(filter(shutil.which, names), None)
    option = f"--sdm {where.deployed}"
    if program is None:
        line = f"{option}: missing: no {' or '.join(names)} is on PATH; {INSTALL[where.deployed]}"
        yield Finding(False, line)
    elif version := partitions.printed(program, "--version"):
        yield Finding(True, f"{option}: {version[0]}")
    else:
        yield Finding(False, f"{option}: `{program} --version` fails; {INSTALL[where.deployed]}")


def engines(plan: Plan, stages: Collection[str], where: Where) -> Iterator[Finding]:
    """The sampling engine, and the judge's server, can be imported where the rules that need them run."""
    experiment = plan.experiment
    engine, playing = experiment.policy.engine, _playing(stages)
    if playing and engine == "vllm":
        yield _installed(
            "policy.engine: vllm", "vllm", playing[0], where, "set policy.engine to lockstep or transformers"
        )
    if playing and engine == "lockstep":
        refused = lockstep_reads(config_of(experiment.policy.source, experiment.policy.revision))
        line = f"policy.engine: the lockstep engine does not read {refused}; set it to transformers or vllm"
        yield Finding(not refused, line if refused else "the lockstep engine needs no further package")
    serve = experiment.judge.serve
    if "label" in stages and serve is not None:
        joint = experiment.granularity != "stage" and engine != "vllm"
        if where.deployed and joint and not os.path.isabs(serve.python):
            line = (
                f"judge.serve: with granularity {experiment.granularity}, labels are made in the environment of the "
                f"policy's engine {engine}, which has no vLLM; set granularity to stage, or name an interpreter with "
                "vLLM by its whole path in judge.serve.python"
            )
            yield Finding(False, line)
        elif shutil.which(serve.python) is None and not where.deployed:
            line = f"judge.serve.python is '{serve.python}', which is not here; name the interpreter of an environment "
            yield Finding(False, line + "with vLLM, or run with --sdm conda")
        elif not os.path.isabs(serve.python) and not where.deployed:
            yield _installed(
                "judge.serve", "vllm", "label", where, "name an interpreter with vLLM in judge.serve.python"
            )
        else:
            yield Finding(True, f"{serve.python} serves the judge")
    if experiment.policy.lora and set(stages) & set(policy_stages()) and not where.deployed:
        yield _installed("policy.lora", "peft", "sft", where, "install it")


def packages(_plan: Plan, stages: Collection[str], where: Where) -> Iterator[Finding]:
    """What the stages import can be imported here, where Snakemake runs, unless jobs have environments of their own."""
    if where.deployed or where.storage:
        return
    needed: dict[str, list[str]] = {}
    for stage in (name for name in every_stage() if name in stages):
        for package in imports.packages(stage).keys() - imports.CHOSEN:
            needed.setdefault(package, []).append(stage)
    missing = [package for package in sorted(needed) if importlib.util.find_spec(package) is None]
    for package in missing:
        extra = extra_of(package)
        brought = f"turncredit[{extra}]" if extra else "turncredit"
        line = f"the package {package} is not installed in {sys.prefix}, where {', '.join(needed[package])} needs it; "
        yield Finding(False, line + f"pip install '{brought}' there, or add --sdm conda")
    if not missing:
        yield Finding(True, f"{len(needed)} packages that the stages import are installed")


def compiler(plan: Plan, stages: Collection[str], where: Where) -> Iterator[Finding]:
    """A C compiler is here for vLLM's kernels, unless jobs have environments of their own; nodes may have another."""
    samples = plan.experiment.policy.engine == "vllm" and _playing(stages)
    if where.deployed or not samples:
        return
    names = [os.environ["CC"]] if os.environ.get("CC") else ["gcc", "cc", "clang"]
    found = next(filter(None, map(shutil.which, names)), None)
    line = (
        f"no C compiler is here ({', '.join(names)}), and vLLM's Triton needs one on the nodes; install gcc or set CC"
    )
    yield Finding(True, f"C compiler for vLLM: {found}") if found else Finding(None, line)


def _playing(stages: Collection[str]) -> list[str]:
    """Those of the stages in which a policy plays. Scripts that are no stage, such as `rounds`, may be among them."""
    return [stage for stage in policy_stages("samples") if stage in stages]


def _installed(key: str, package: str, stage: str, where: Where, instead: str) -> Finding:
    if where.deployed:
        return Finding(True, f"{package} comes with the environment of {stage} ({where.deployed})")
    if importlib.util.find_spec(package) is not None:
        return Finding(True, f"{package} is installed")
    line = f"{key}: the package {package} is not installed in {sys.prefix}, where {stage} runs; add --sdm conda, or "
    return Finding(False, line + instead)


def storage(plan: Plan, _stages: Collection[str], where: Where) -> Iterator[Finding]:
    """Where jobs share no file system, their files are those that the rules name: a job of a single stage."""
    kind = plan.experiment.granularity
    if where.storage and kind != "stage":
        line = f"granularity: {kind} needs a file system that all jobs share; with a storage provider set it to stage"
        yield Finding(False, line)


def images(plan: Plan, stages: Collection[str], where: Where) -> Iterator[Finding]:
    """The images that the rules name have been built."""
    if where.deployed != "apptainer":
        return
    playing = plan.experiment.policy.engine == "vllm" and _playing(stages)
    serving = plan.experiment.judge.serve is not None and "label" in stages
    for environment in ("core", *(["gpu-rollout"] if playing or serving else [])):
        image = Path("containers") / f"{environment}.sif"
        command = f"apptainer build --build-arg environment={environment} {image} containers/turncredit.def"
        line = f"{image} is there" if image.exists() else f"{image}: there is no such image; build it: {command}"
        yield Finding(image.exists(), line)


def torch_build(plan: Plan, stages: Collection[str], where: Where) -> Iterator[Finding]:
    """torch can use GPUs, if jobs ask for them."""
    asking = [name for name in every_stage() if name in stages and name != "label" and plan.experiment.gpus(name)]
    if not asking or where.deployed or importlib.util.find_spec("torch") is None:
        return
    version = importlib.metadata.version("torch")
    who = f"{', '.join(asking)} {'asks for a GPU' if len(asking) == 1 else 'ask for GPUs'}"
    zero = f"set resources: {{{', '.join(f'{name}: {{gpu: 0}}' for name in asking)}}}"
    if version.endswith("+cpu"):
        yield Finding(
            False,
            f"{who}, but torch {version} in {sys.prefix} is the build for CPUs; make the environment again with "
            f"TORCH_INDEX=https://download.pytorch.org/whl/cu130 make setup, add --sdm conda, or {zero}",
        )
    elif where.executor == "local" and not Path("/proc/driver/nvidia").exists() and shutil.which("nvidia-smi") is None:
        yield Finding(False, f"{who}, and this machine has no NVIDIA driver; {zero}")
    else:
        yield Finding(True, f"torch {version}")


def one_gpu_job_at_a_time(plan: Plan, _stages: Collection[str], where: Where) -> Iterator[Finding]:
    """On one machine, jobs that ask for a GPU do not meet on it: none of them chooses another than the first."""
    asking = next((asked.rule for asked in where.asked or () if asked.gpus), None)
    given = plan.experiment.resources.items()
    by_gres = next((name for name, one in given if partitions.gpus_in(one.slurm_gres or "")), None)
    if where.executor == "local" and asking and by_gres:
        line = f"resources.{by_gres}.slurm_gres asks Slurm for GPUs, and jobs run on this machine; leave it out here"
        yield Finding(False, line)
        return
    if where.executor != "local" or asking is None or where.gpu_limit == 1:
        return
    limit = "no limit" if where.gpu_limit is None else f"--resources gpu={where.gpu_limit}"
    line = (
        f"{asking} asks for a GPU, and with {limit} several such jobs would run on this machine's first GPU at a time; "
        "give --resources gpu=1 (several GPUs: Slurm, or a folder and a CUDA_VISIBLE_DEVICES for each experiment)"
    )
    yield Finding(False, line)


def weights(plan: Plan, stages: Collection[str], _where: Where) -> Iterator[Finding]:
    """Models in folders are whole; a hub's are in its cache, or can be fetched into it: nodes need no network."""
    for key, name, revision, reader in models_read(plan.experiment, stages):
        if Path(name).is_dir():
            lack = lacking(Path(name), reader)
            line = f"{key} {name} is whole" if lack is None else f"{key} '{name}' has no {lack}; {SAVE_AGAIN}"
            yield Finding(lack is None, line)
        if Path(name).exists():
            continue
        try:
            size = fetched(name, revision, reader)
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            line = f"{key} '{name}' is neither a local folder nor in the hub's cache, and cannot be fetched ({reason})"
            yield Finding(False, line)
        else:
            yield Finding(True, f"{key} {name} is in the hub's cache ({size / 1e9:.1f} GB)")


def models_read(experiment: Experiment, stages: Collection[str]) -> Iterator[tuple[str, str, str | None, str]]:
    """(key, folder or name, revision, reader) of the pretrained models that these stages read."""
    policy = experiment.policy
    if "base" in stages and policy.source != "scratch":
        yield "policy.source", policy.source, policy.revision, "policy"
    if "label" in stages and experiment.judge.serve is not None:
        yield "judge.model", experiment.judge.model, None, "judge"
    if "credit" in stages:
        for name, entry in experiment.define.items():
            kind, _, model = str(entry.params.get("scorer", "")).partition(":")
            if kind in ("bi-encoder", "cross-encoder") and model:
                yield f"define.{name}.params.scorer", model, None, "scorer"


def fetched(name: str, revision: str | None, reader: str) -> int:
    """Fetch a model into the hub's cache unless it is there; returns its bytes."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    patterns = list(FETCHED_FILES)
    try:
        folder = snapshot_download(name, revision=revision, allow_patterns=patterns, local_files_only=True)
        whole = lacking(Path(folder), reader) is None
    except LocalEntryNotFoundError:
        whole = False
    if not whole:
        folder = snapshot_download(name, revision=revision, allow_patterns=patterns)
    return sum(file.stat().st_size for file in Path(folder).iterdir() if file.is_file())


def memory(plan: Plan, stages: Collection[str], where: Where) -> Iterator[Finding]:
    """Jobs fit an 80 GB GPU; on this machine's CPU, its memory."""
    loading = resources.ordered(stages)
    lines = [line for stage in loading if (line := resources.fits(plan, stage))]
    if where.executor == "local":
        ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        asked = {stage: 1e6 * (resources.resource(plan, stage).mem_mb or 0) for stage in loading}
        lines += [
            f"{stage} takes about {size / 1e9:.0f} GB of memory, and this machine has {ram / 1e9:.0f} GB"
            for stage, size in asked.items()
            if size > ram and not plan.experiment.gpus(stage) and shapes(plan.experiment) is not None
        ]
    yield from _estimated("memory", lines, "every stage fits the memory of its GPU or machine, as estimated")


def time(plan: Plan, stages: Collection[str], _where: Where) -> Iterator[Finding]:
    """Jobs on a GPU end within the time that is given for them, as estimated."""
    lines = [line for stage in resources.ordered(stages) if (line := resources.in_time(plan, stage))]
    yield from _estimated("time", lines, "every stage on a GPU ends within its time, as estimated")


def _estimated(what: str, lines: list[str], fine: str) -> list[Finding]:
    return [Finding(None, f"{what}: {line}") for line in lines] or [Finding(True, fine)]


def disk(plan: Plan, _stages: Collection[str], _where: Where) -> Iterator[Finding]:
    """The results fit the disk, as estimated."""
    estimate = sum(resources.disk(plan).values())
    folder = plan.layout.root
    while not folder.exists():
        folder = folder.parent
    used = sum(file.stat().st_size for file in plan.layout.root.rglob("*") if file.is_file())
    free = shutil.disk_usage(folder).free
    left = max(0.0, estimate - used)
    if left <= FILLED * free:
        yield Finding(True, f"{left / 1e9:.1f} GB more are needed, {free / 1e9:,.0f} GB are free")
        return
    keep = "; keep_policies: last takes less" if plan.experiment.keep_policies == "all" else ""
    there = f"{folder.resolve()} has {free / 1e9:,.0f} GB"
    yield Finding(None, f"disk: the results take about {left / 1e9:,.0f} GB more, and {there}{keep}")


def nodes(plan: Plan, stages: Collection[str], where: Where) -> Iterator[Finding]:
    """Jobs that train on several nodes are Slurm's, whose srun starts the processes of the other nodes."""
    training = [stage for stage in (*policy_stages("trains"), ROUNDS) if stage in stages]
    count = max(map(plan.experiment.nodes, training), default=1)
    if count == 1:
        return
    lacks = ""
    if where.executor != "slurm" or where.storage:
        lacks = "needs Slurm and a file system that its nodes share; run with --profile slurm, or set it to 1"
    elif where.deployed in ("apptainer", "image"):
        lacks = "needs srun, which jobs in an image do not have; use .venv or --sdm conda, or set it to 1"
    yield Finding(not lacks, f"policy.train_nodes is {count}{f', and {lacks}' if lacks else ''}")


def slurm(_plan: Plan, _stages: Collection[str], where: Where) -> Iterator[Finding]:
    """Slurm's commands are here, it knows the partitions and accounts that jobs name, and has nodes for these jobs."""
    if where.executor != "slurm":
        return
    known = partitions.listed()
    mistakes = list(dict.fromkeys(_mistakes_for_slurm(where, known)))
    yield from (Finding(False, line) for line in mistakes)
    if not known.offers:
        # No refusal: the controller may only be restarting, and jobs wait for it.
        said = partitions.failure("sinfo", "--noheader")
        why = f"sinfo fails ({said}): Slurm does not work here now" if said else "sinfo lists none here"
        yield Finding(None, f"not checked: partitions and what their nodes have, because {why}")
    elif not mistakes:
        yield Finding(True, f"partitions: {', '.join(sorted(known.offers))}")


def _mistakes_for_slurm(where: Where, known: partitions.Partitions) -> Iterator[str]:
    missing = [command for command in ("sbatch", "squeue", "scancel") if shutil.which(command) is None]
    if missing:
        yield (f"the slurm profile needs {', '.join(missing)}, not found here; start Snakemake on a login node")
    # A job may name several, of which Slurm takes the first that is free.
    every = [*where.partitions, *(value for _, name, value in where.own if name == "slurm_partition")]
    every += [asked.partition for asked in where.asked or () if asked.partition]
    named = dict.fromkeys(name.strip() for several in every for name in several.split(","))
    there = ", ".join(sorted(known.offers))
    for name in named:
        if known.offers and name not in known.offers:
            yield f"slurm_partition is '{name}', which Slurm does not have; there are {there}"
    refused: dict[str, str] = {}
    for asked in where.asked or ():
        if (line := partitions.refusal(asked, known)) is not None:
            refused.setdefault(asked.rule, line)
    yield from refused.values()
    user = os.environ.get("USER", "")
    accounts = partitions.printed(
        "sacctmgr", "--noheader", "--parsable2", "show", "associations", f"user={user}", "format=account"
    )
    for name in where.accounts:
        if accounts and name not in accounts:
            yield f"slurm_account is '{name}', and {user} may use {', '.join(sorted(set(accounts)))}"


#: (plan, stages that will run, how) -> findings
CHECKS = (
    interpreter_and_folders,
    storage,
    environment,
    environments_package,
    packages,
    deployment,
    engines,
    compiler,
    images,
    torch_build,
    one_gpu_job_at_a_time,
    nodes,
    slurm,
    weights,
    memory,
    time,
    disk,
)


def check_gpu(stage: str, asked: int) -> None:
    """Raise UserError if a job sees fewer GPUs than it asked for: torch would silently compute on the CPU.

    It is a NodeFault unless torch is the build for CPUs: another node may show its GPU, or have a newer driver.
    NVML is asked how many there are, and another process whether CUDA starts: CUDA's own count of devices would leave
    this process unable to fork one that uses a GPU.
    """
    if not asked or stage == "label":  # labels are computed by a server of their own
        return
    import torch

    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"

    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
    if torch.cuda.is_available():
        if asked > 1 and (seen := torch.cuda.device_count()) < asked:
            raise NodeFault(
                f"asks for {asked} GPUs on {os.uname().nodename}, and torch sees {seen} (CUDA_VISIBLE_DEVICES: "
                f"{visible}); fix the node, or give resources.{stage}.gpu as many as there are"
            )
        if torch.version.cuda and (fault := cuda_driver.fault(torch.version.cuda)):
            raise NodeFault(
                f"asks for {number_of(asked, 'GPU')} on {os.uname().nodename}, where {fault}; fix the node, or "
                "install torch and vLLM built for its driver (docs/cluster.md)"
            )
        return
    for_cpus = torch.version.cuda is None
    build = "it is a build for CPUs" if for_cpus else f"a build for CUDA {torch.version.cuda}"
    raise (UserError if for_cpus else NodeFault)(
        f"asks for {number_of(asked, 'GPU')} on {os.uname().nodename}, and torch {torch.__version__} sees none "
        f"({build}; CUDA_VISIBLE_DEVICES: {visible}); fix the environment or the node, or set "
        f"resources.{stage}.gpu to 0"
    )
