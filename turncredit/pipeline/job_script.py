"""The entry point of a job's script: runs one stage, reports its result, and measures it.

The script of every rule is workflow_scripts/stage.py. Each job writes `<log>.job.json` next to its log, from which the
script can repeat it by hand:

    python workflow_scripts/stage.py results/household/logs/rollouts/flat_grpo/seed0/round02/rollout.job.json
"""

from __future__ import annotations

import io
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from turncredit import envs
from turncredit.config import from_mapping, stages
from turncredit.data.files import discard_leftovers, write_json
from turncredit.data.metrics import metrics_hash, read_metrics
from turncredit.data.provenance import config_hash, file_hash
from turncredit.errors import UserError, in_one_line
from turncredit.pipeline import failures, live_progress, partitions, preflight, resources
from turncredit.pipeline.job import Job, JobKeys, Store
from turncredit.pipeline.plan import Plan


@dataclass(frozen=True)
class Description:
    """The description of a job by its rule, as plain data: `slice` is the stage's part of the configuration."""

    stage: str
    rule: str
    slice: dict[str, Any]
    config: dict[str, Any]
    input: dict[str, Any]
    output: dict[str, str]
    wildcards: dict[str, str] = field(default_factory=dict)
    log: str | None = None
    threads: int = 1

    @property
    def label(self) -> str:
        """The rule and its wildcards in a readable form: `credit gigpo seed0 round02`."""
        return failures.label(self.rule, self.wildcards)

    @property
    def settings(self) -> dict[str, Any]:
        """What determines the outputs besides the inputs (`Plan.settings`)."""
        return {**JobKeys.of(self.wildcards).recorded, **self.slice}

    @property
    def experiment_folder(self) -> Path:
        """The experiment's folder."""
        name, output = next(iter(self.output.items()))
        record = stages.stage(self.stage)
        return experiment_folder(output, record.metrics if name == "metrics" else record.makes[name].pattern)

    def plan(self) -> Plan:
        """The plan of the experiment that the job belongs to. The configuration is validated here, once in a job."""
        load_own_environment(self.config.get("env", {}).get("name", ""))
        return Plan(from_mapping(self.config), self.experiment_folder.parent)

    def job(self) -> Job:
        """The stage's job, with Snakemake's paths; of several rounds it knows only the last outputs."""
        plan = self.plan()
        planned = plan.job(self.stage, JobKeys.of(self.wildcards), threads=self.threads, store=Store())
        written = {name: path for name, path in self.output.items() if name != "metrics"}
        read = self.input if plan.experiment.granularity == "stage" else planned.input
        return replace(planned, input=read, output=written)


def load_own_environment(name: str) -> None:
    """Load a user's environment from its file, so that it is found by the name that tables use."""
    if ".py" in name:
        envs.load(name)


def run_described() -> None:
    """Run the job that the `.job.json` named on the command line describes."""
    described = _from_file(sys.argv)
    carry_out(described, lambda: run_job(described.job()))


def run(stage: str, snakemake: Any) -> None:
    """Run `stage` on Snakemake's job. What it prints goes to the job's log, its metrics to the output `metrics`.

    A UserError is one line on stderr and exit status 2. Any other error is one line there, a traceback in the log, and
    exit status 1. A stage's warning is a line on stderr and in the log.
    """
    set_environment()
    if stage != "label":  # a judge's server may be on a GPU that nothing was asked for
        hide_gpus_not_asked_for(snakemake.resources)
    described = _from_snakemake(stage, snakemake)

    def work() -> Mapping[str, float]:
        preflight.check_gpu(stage, partitions.gpus_asked(snakemake.resources))
        return run_job(described.job())

    folder = str(described.experiment_folder)
    with failing_in_one_line(described.label), failures.recorded(described.rule, described.wildcards, folder):
        write_description(described)
        carry_out(described, work)


def run_job(job: Job) -> Mapping[str, float]:
    """Do a stage's work: it is made from the user's own files as they are now. Returns its metrics."""
    job.hash_own_files()
    metrics: Mapping[str, float] = stages.stage(job.stage).run(job)
    return metrics


def write_description(described: Description) -> None:
    """Write a job's description next to its log, from which it can be repeated by hand."""
    if described.log:
        path = Path(described.log).with_suffix(".job.json")
        clear_leftovers([str(path)])
        write_json(path, asdict(described))


def set_environment() -> None:
    """Set what libraries of a job take from the environment, unless it is set.

    vLLM and Triton keep what they have compiled in the working folder, which all jobs share: a home directory may be
    small or read-only, and each job would compile again. vLLM sends no usage statistics. On a node of a cluster, hub
    models are read from the cache alone: Snakemake fetched them before any job. On a part of a GPU (MIG) vLLM starts
    its process anew: NVML does not count such parts, so torch asks CUDA, and then no forked process can use it.
    """
    compiled = Path(".snakemake/turncredit-compiled").resolve()
    os.environ.setdefault("VLLM_CACHE_ROOT", str(compiled / "vllm"))
    os.environ.setdefault("TRITON_CACHE_DIR", str(compiled / "triton"))
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if "MIG-" in os.environ.get("CUDA_VISIBLE_DEVICES", ""):
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    if "SLURM_JOB_ID" in os.environ:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")


def hide_gpus_not_asked_for(resources: Mapping[str, Any]) -> None:
    """Have a job whose resources name no GPU see none: torch would compute on the first, beside the job that has it.

    Slurm may be asked for GPUs in words of its own, and for parts of them.
    """
    of_slurm = resources.get("gres") or "gpu" in str(resources.get("slurm_extra") or "")
    if not partitions.gpus_asked(resources) and not of_slurm:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def experiment_folder(output: str, pattern: str) -> Path:
    """The experiment's folder by an output's path, which may be a copy's in `.snakemake/storage`, and its pattern."""
    return Path(output).parents[pattern.count("/")]


def carry_out(described: Description, work: Callable[[], Mapping[str, float]]) -> None:
    """Do a job's work: announced, logged and measured. Ends the process if it fails."""
    with (
        failing_in_one_line(described.label),
        logged(described.log) as say,
        live_progress.announced(described.rule, described.label) as tell,
    ):
        line, status = "", 0
        try:
            metrics = measured(described.stage, described.settings, described.output, work)
        except UserError as error:
            line, status = f"{described.label}: {error}", failures.status_of(error)
        except Exception as error:
            reason = in_one_line(error)
            if reason is None:
                with suppress(OSError):  # the disk of the log may be the full one
                    traceback.print_exc()
            where = f"; the traceback is in {described.log}" if described.log else ""
            reason = reason or f"{_in_words(error, described)}{where}"
            line, status = f"{described.label}: {reason}", failures.OTHER_ERROR
        if status:
            tell(error=line)
            say(line)
            raise failures.JobFailed(status, line, described.log)
        warn = stages.stage(described.stage).warning
        if warn is not None and (warning := warn(metrics)):
            line = f"{described.label}: warning: {warning}"
            tell(warning=line)
            say(line)
        tell(metrics=metrics)


def _in_words(error: Exception, described: Description) -> str:
    """An error with its kind; of a GPU whose memory is full, what to do as well."""
    if type(error).__name__ != "OutOfMemoryError":  # torch's, which a job of another stage need not import
        return f"{type(error).__name__}: {error}"
    said = str(error).partition(". GPU ")[0]
    return f"{said}; {resources.less_memory(described.plan(), described.stage)}"


@contextmanager
def failing_in_one_line(label: str) -> Iterator[None]:
    """Inside, a user error, a full disk or an unusable path ends the process with one line on the terminal."""
    try:
        yield
        return
    except UserError as error:
        line, status = f"{label}: {error}", failures.status_of(error)
    except OSError as error:
        reason = in_one_line(error)
        if reason is None:
            raise
        line, status = f"{label}: {reason}", failures.OTHER_ERROR
    print(line, file=sys.stderr, flush=True)
    raise failures.JobFailed(status, line, None)


def measured(
    stage: str, settings: Mapping[str, Any], output: Mapping[str, str], work: Callable[[], Mapping[str, float]]
) -> dict[str, float]:
    """Run a stage, and write its metrics, time, memory and the hash of its settings to the output `metrics`.

    An earlier run's metrics are removed first: where they are, the job has ended.
    """
    clear_leftovers(output.values())
    if "metrics" in output:
        Path(output["metrics"]).unlink(missing_ok=True)
    started, clock, before = time.time(), time.perf_counter(), _cpu_seconds()
    metrics = dict(work())
    own = {
        "stage": stage,
        "settings": config_hash(settings),
        "started": started,
        "wall_s": time.perf_counter() - clock,
        "cpu_s": _cpu_seconds() - before,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    if "metrics" in output:
        write_metrics(output["metrics"], {**own, "metrics": metrics}, output)
    return metrics


def write_metrics(path: str, data: Mapping[str, Any], output: Mapping[str, str]) -> None:
    """Write a job's metrics, with the hashes of the files among its outputs and one of the metrics.

    By these `turncredit check` finds any changed byte. Folders have hashes of their own.
    """
    files = {name: file_hash(file) for name, file in output.items() if name != "metrics" and Path(file).is_file()}
    written = json.loads(json.dumps({**data, "files": files}, default=str))
    write_json(path, {**written, "hash": metrics_hash(written)})


def rewritten(plan: Plan, stage: str, at: JobKeys) -> None:
    """Record that a command has written a job's outputs again, if the job has ended before."""
    path = plan.metrics(stage, at)
    if os.path.exists(path):
        data = read_metrics(Path(path))
        write_metrics(
            path, {name: data[name] for name in data if name not in ("files", "hash")}, plan.outputs(stage, at)
        )


def _from_snakemake(stage: str, snakemake: Any) -> Description:
    """A `Description` of the `snakemake` object of a script; paths become plain strings and lists."""
    return Description(
        stage=stage,
        rule=snakemake.rule,
        slice=snakemake.params["config"],
        config=dict(snakemake.config),
        input={name: _plain(value) for name, value in snakemake.input.items()},
        output={name: str(value) for name, value in snakemake.output.items()},
        wildcards={name: str(value) for name, value in snakemake.wildcards.items()},
        log=str(snakemake.log[0]) if len(snakemake.log) else None,
        threads=int(snakemake.threads),
    )


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, str) else [str(part) for part in value]


def _from_file(argv: list[str]) -> Description:
    if len(argv) != 2:
        raise SystemExit(f"usage: python {argv[0]} FILE.job.json (each job writes one next to its log)")
    path = Path(argv[1])
    try:
        return Description(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise SystemExit(f"{path}: no such file; each job writes a .job.json next to its log") from None
    except (ValueError, TypeError) as error:
        raise SystemExit(f"{path}: not a job's description ({error})") from None


@contextmanager
def logged(log: str | None):
    """Redirect all output to `log`, including that of native code; yields a function that writes to both."""
    if log is None:
        yield lambda line: print(line, file=sys.stderr, flush=True)
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)

    def say(line: str) -> None:
        os.write(kept[1], f"{line}\n".encode())
        with suppress(OSError):  # a log on a full disk
            print(line, file=sys.stderr, flush=True)

    Path(log).parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a log is UTF-8, whatever the terminal's encoding
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        yield say
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        for target, saved in enumerate(kept, start=1):
            os.dup2(saved, target)
            os.close(saved)


def clear_leftovers(outputs: Iterable[str]) -> None:
    """Remove what a killed job left of these outputs, or of the folders that they are in: temporary names."""
    for output in map(Path, outputs):
        for whole in (output, output.parent):
            discard_leftovers(whole)


def _cpu_seconds() -> float:
    """User and system seconds of this process and of its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
