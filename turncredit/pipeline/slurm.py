"""Slurm jobs of a run: how they start and are polled, how they ended; those of earlier runs, found and cancelled.

Snakemake's plugin names all jobs of a run after the run's id and puts rule and wildcards into their comment. Each run
leaves its id here, so that the next one of the same experiment finds what is still queued or running.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from turncredit.data.counts import number_of
from turncredit.data.files import write_json
from turncredit.errors import UserError
from turncredit.pipeline import internals, locks

#: Below Snakemake's folder.
RECORDS = "turncredit-slurm"
#: Seconds until cancelled jobs have to be gone (Slurm kills after KillWait, 30 s by default), and between two looks.
GONE_WITHIN, LOOK_EVERY = 120.0, 2.0
#: States of jobs that have not ended.
LIVING = (
    "PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", "STOPPED", "COMPLETING", "STAGE_OUT",
    "SIGNALING", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT",
)  # fmt: skip
#: The state of a job that had to make room for another one.
PREEMPTED = "PREEMPTED"


class SlurmJob(NamedTuple):
    """A job as squeue lists it: id, state, why it waits, the run that submitted it, and its rule with wildcards."""

    id: str
    state: str
    reason: str
    run: str
    comment: str

    @property
    def rule(self) -> str:
        """The rule of the job; '' for a group of several."""
        match = re.match(r"rule_(.+?)(_wildcards_.*)?$", self.comment)
        return match[1] if match else ""


def remember(state: Path, experiment: str, run: str, *, process: int) -> None:
    """Record in `state` (Snakemake's folder) that the run `run` of this machine's `process` submits its jobs."""
    (state / RECORDS).mkdir(parents=True, exist_ok=True)
    record = {"experiment": experiment, "run": run, "process": locks.identity(process)}
    write_json(state / RECORDS / f"{run}.json", record)


def runs_of(state: Path, experiment: str, *, ended: bool = False) -> list[str]:
    """The recorded runs of the experiment; with `ended` without those whose Snakemake still runs on this machine."""
    runs = []
    for path in sorted((state / RECORDS).glob("*.json")):
        record = _record(path)
        if record.get("experiment") == experiment and not (ended and locks.lives(record.get("process"))):
            runs.append(str(record["run"]))
    return runs


def _record(path: Path) -> dict[str, Any]:
    """The record of a run; empty if it is just being written, or another Snakemake has removed it."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def queue(runs: Sequence[str], *, ended: bool = False) -> list[SlurmJob]:
    """The jobs of these runs that have not ended (with `ended`, all that Slurm lists). Raises UserError."""
    if not runs:
        return []
    command = ["squeue", "--noheader", "--format=%i|%T|%r|%j|%k", f"--name={','.join(runs)}"]
    if ended:
        command.append("--states=all")
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"squeue does not answer ({error}); run this where Slurm's commands work") from None
    if done.returncode:
        why = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[0]
        raise UserError(f"squeue does not answer ({why}); run this where Slurm's commands work")
    rows = [line.split("|", 4) for line in done.stdout.splitlines() if line.count("|") >= 4]
    jobs = [SlurmJob(*(part.strip() for part in row)) for row in rows]
    return jobs if ended else [job for job in jobs if job.state in LIVING]


def state_of(number: str, listed: Iterable[SlurmJob]) -> str | None:
    """The state of the job with this id among the jobs that squeue lists; None if it is not there.

    Tasks of an array that wait are listed together, as `17_[3-8]`.
    """
    states = {job.id.partition("[")[0]: job.state for job in listed}
    return states.get(number) or states.get(f"{number.partition('_')[0]}_")


def count_preemption(state: Path, run: str) -> None:
    """Add one to the preempted jobs of a run that is recorded in `state`."""
    path = state / RECORDS / f"{run}.json"
    if record := _record(path):
        write_json(path, {**record, "preempted": record.get("preempted", 0) + 1})


def preempted(state: Path, experiment: str) -> int:
    """How many jobs of the experiment's recorded runs were preempted and submitted again."""
    records = (_record(state / RECORDS / f"{run}.json") for run in runs_of(state, experiment))
    return sum(int(record.get("preempted", 0)) for record in records)


def note_success(state: Path) -> None:
    """In a Slurm job: leave a mark that its work is done, by which it is known when squeue no longer lists it."""
    run, number = os.environ.get("SLURM_JOB_NAME"), os.environ.get("SLURM_JOB_ID")
    if not run or not number or not (state / RECORDS / f"{run}.json").exists():
        return  # not a job that a Snakemake has submitted from here
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        number = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    (state / RECORDS / run).mkdir(exist_ok=True)
    (state / RECORDS / run / number).touch()


def end_of_this_job(now: Callable[[], float] = time.time) -> float | None:
    """When Slurm ends the job that this process is in, in seconds since 1970; None without a limit or outside of Slurm.

    Slurm says so in the job's environment from 23.02 on; before, squeue is asked.
    """
    number, ends = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_JOB_END_TIME", "")
    if ends.isdecimal():
        return float(ends)
    if not number:
        return None
    try:
        command = ["squeue", "--noheader", "--format=%L", f"--job={number}"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    left = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", done.stdout.strip())
    if left is None:  # such as UNLIMITED
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in left.groups())
    return now() + 60 * (60 * (24 * days + hours) + minutes) + seconds


def other_nodes(count: int) -> list[str]:
    """The nodes of the Slurm job that this process is in, without its own. Raises UserError unless it has `count`."""
    listed = os.environ.get("SLURM_JOB_NODELIST")
    if not listed:
        raise UserError(
            f"policy.train_nodes is {count}, and this is no Slurm job; run with --profile slurm, or set it to 1"
        )
    try:
        command = ["scontrol", "show", "hostnames", listed]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"scontrol does not name this job's nodes ({error}); a job on several nodes needs it") from None
    names = done.stdout.split()
    if len(names) != count:
        raise UserError(
            f"policy.train_nodes is {count}, and this Slurm job has {len(names)} ({listed}); ask for as many (nodes)"
        )
    return [name for name in names if name != os.environ.get("SLURMD_NODENAME", names[0])]


def started_on(node: str) -> list[str]:
    """The beginning of a command that this Slurm job runs on another one of its nodes, with all that it has there."""
    return ["srun", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--overlap", "--cpu-bind=none"]


def succeeded(state: Path, run: str, number: str) -> bool:
    """Whether a job of the run has left the mark of `note_success`."""
    return (state / RECORDS / run / number).exists()


def forget_success(state: Path, run: str, numbers: Iterable[str]) -> None:
    """Remove the marks of these jobs of the run."""
    for number in numbers:
        (state / RECORDS / run / number).unlink(missing_ok=True)


def cancel_leftovers(state: Path, experiment: str, *, sleep: Callable[[float], None] = time.sleep) -> str | None:
    """Cancel what earlier runs of the experiment have left in Slurm, and wait until it is gone.

    We cannot tell whether these jobs match the configuration, so they are rerun. A run whose Snakemake still works here
    keeps its jobs. Returns the line to be printed, if any. Raises UserError for jobs that do not go.
    """
    runs = runs_of(state, experiment, ended=True)
    if not runs:
        return None
    if shutil.which("squeue") is None:
        return (
            f"Slurm jobs of an earlier run of {experiment} may still be running, and there is no squeue here to find "
            "them; cancel them if there are any"
        )
    left = queue(runs)
    if left:
        _cancel(left)
    waited = 0.0
    while going := (queue(runs) if left else []):
        if waited >= GONE_WITHIN:
            raise UserError(
                f"Slurm jobs of an earlier run do not end although they were cancelled ({_ids(going)}); wait until "
                "squeue does not list them, and start again"
            )
        sleep(LOOK_EVERY)
        waited += LOOK_EVERY
    for run in runs:
        (state / RECORDS / f"{run}.json").unlink(missing_ok=True)
        shutil.rmtree(state / RECORDS / run, ignore_errors=True)
    if not left:
        return None
    running = sum(job.state != "PENDING" for job in left)
    return (
        f"{number_of(len(left), 'Slurm job')} of an earlier run ({_ids(left)}; {running} running) "
        "were cancelled, and run again if still needed"
    )


def _cancel(jobs: Iterable[SlurmJob]) -> None:
    ids = [job.id for job in jobs]
    done = subprocess.run(
        ["scancel", *ids], capture_output=True, encoding="utf-8", errors="replace", timeout=60, check=False
    )
    if done.returncode and queue([job.run for job in jobs]):
        why = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[0]
        raise UserError(
            f"Slurm jobs of an earlier run ({', '.join(ids)}) cannot be cancelled ({why}); cancel them and start again"
        )


def _ids(jobs: Sequence[SlurmJob]) -> str:
    ids = [job.id for job in jobs]
    return ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")


def comment_of(rule: str, wildcards: Iterable[str]) -> str:
    """The comment that the plugin gives a job of the rule."""
    named = joined(wildcards)
    return f"rule_{rule}_wildcards_{named}" if named else f"rule_{rule}"


def joined(wildcards: Iterable[str]) -> str:
    """A job's wildcards as the plugin writes them in comments and in the folders of logs."""
    return "_".join(wildcards).replace("/", "_")


def poll_every(executor: Any, seconds: float) -> None:
    """Let Snakemake's executor look at its jobs every `seconds`: the plugin (2.8) ignores that option."""
    internals.replace(executor, "sleep", lambda: asyncio.sleep(seconds))


def without_job_step(executor: Any) -> None:
    """Let a Slurm job run its stage directly, not in a job step.

    The plugin's jobs start a second Snakemake by `srun`, which places the tasks of parallel jobs; ours have one task.
    With job arrays (`--slurm-array-jobs`) nothing is changed: only the plugin's own executor runs their later tasks.
    """
    if executor.workflow.executor_settings.array_jobs:
        return
    internals.replace(executor, "additional_general_args", lambda: "--executor local")
