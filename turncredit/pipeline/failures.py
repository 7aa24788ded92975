"""What went wrong in jobs that failed: a small file for each, beside Snakemake's own state.

Snakemake reads it before it tries a job again, and `turncredit status` shows it. For a job that Slurm ended, or that
was killed on this machine, Snakemake writes it. Further files have when attempts of a job stopped before its time
limit, and when they ran out of memory: unlike the first, they stay until the job has succeeded.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from turncredit.data.files import write_json
from turncredit.errors import OutOfTime, OutsideFault, UserError
from turncredit.pipeline import internals, slurm
from turncredit.pipeline.job import JobKeys

#: In the folder in which Snakemake runs, which all its jobs share.
FOLDER = Path(".snakemake/turncredit-failures")
#: The exit status of a job that a user error ended, of one that any other error ended, of one on an unfit node, of one
#: that stopped before its time limit and can go on, and of one that a connection or a server outside ended.
USER_ERROR, OTHER_ERROR, NODE_ERROR, OUT_OF_TIME, OUTSIDE_FAULT = 2, 1, 3, 4, 5
#: What Slurm calls a job whose process ended with an error, and so has said why, and one that took too much memory.
FAILED, OUT_OF_MEMORY = "FAILED", "OUT_OF_MEMORY"
#: What is said of a job that has said nothing.
KILLED = "nothing says why it failed; it may have been killed, which happens when memory runs out"
#: The endings of the files with the times of attempts that stopped before the time limit, and that ran out of memory.
STOPS, MEMORY_OUTS = ".stops", ".memory"


class NodeFault(UserError):
    """A job cannot run on this node; on another one it may."""


class JobFailed(SystemExit):
    """Ends the process of a job with `status`, after `line` has been printed; details are in `log`."""

    def __init__(self, status: int, line: str, log: str | None):
        super().__init__(status)
        self.line, self.log = line, log


class Failure(NamedTuple):
    """How a job failed, and when. `state` is Slurm's for a job that Slurm ended; empty where the job has said why.

    `node` is Slurm's name of the node, for a job that could not run there.
    """

    rule: str
    wildcards: dict[str, str]
    status: int
    line: str
    log: str | None
    results: str
    when: float
    state: str = ""
    node: str = ""


def status_of(error: UserError) -> int:
    """The exit status of a job that a user error ended. One that another attempt may not meet is told apart.

    On Slurm, so is one that another node may not have.
    """
    if isinstance(error, OutOfTime):
        return OUT_OF_TIME
    if isinstance(error, OutsideFault):
        return OUTSIDE_FAULT
    return NODE_ERROR if isinstance(error, NodeFault) and "SLURM_JOB_ID" in os.environ else USER_ERROR


@contextmanager
def recorded(rule: str, wildcards: Mapping[str, str], results: str) -> Iterator[None]:
    """Record how the job that runs in the block ends, of the experiment in `results`; forget an earlier failure.

    A success is noted only in a Slurm job; it ends the counts of `stops` and `memory_outs`.
    """
    forget(rule, wildcards, results)
    try:
        yield
    except JobFailed as failed:
        status = int(failed.code or OTHER_ERROR)  # type: ignore[call-overload]
        node = os.environ.get("SLURMD_NODENAME", "") if status == NODE_ERROR else ""
        failure = Failure(rule, dict(wildcards), status, failed.line, failed.log, results, time.time(), node=node)
        with suppress(OSError):  # what failed may be the disk
            _write(failure)
            if status == OUT_OF_TIME:
                _count(_path(rule, wildcards, results).with_suffix(STOPS), failure.when)
        raise
    for counted in (STOPS, MEMORY_OUTS):
        _path(rule, wildcards, results).with_suffix(counted).unlink(missing_ok=True)
    slurm.note_success(FOLDER.parent)


def label(rule: str, wildcards: Mapping[str, str]) -> str:
    """A job's rule and wildcards in a readable form: `credit gigpo seed0 round02`."""
    return f"{rule.replace('_', ' ')} {JobKeys.of(wildcards)}".rstrip()


def record_what_slurm_says(executor: Any, results: str, *, since: float) -> None:
    """Let Snakemake's Slurm executor record the failures of jobs that could not do it themselves.

    They ran out of time or memory, were cancelled, lost their node, or ended before their stage began. What a job has
    recorded itself `since` this run began stays: Slurm only knows its exit status. A node on which a job could not run
    gets no more jobs.
    """
    internals.require(executor, "_failed_nodes")

    def recording(job_info: Any, msg: str | None = None, **more: Any) -> None:
        if not job_info.job.is_group():
            _record_ended(job_info, msg or "", results, since)
            _exclude_node(executor, job_info, results)
        report(job_info, msg=msg, **more)

    report = internals.replace(executor, "report_job_error", recording)


def named(job: Any) -> tuple[str, dict[str, str]]:
    """The rule and the wildcards of a job of Snakemake's."""
    return job.rule.name, {name: str(key) for name, key in job.wildcards.items()}


def _said(rule: str, wildcards: Mapping[str, str], results: str, since: float) -> bool:
    """Whether a job has said why it failed since a time in seconds since 1970."""
    own = failure_of(rule, wildcards, results)
    return own is not None and own.when >= since


def _write(failure: Failure) -> None:
    write_json(_path(failure.rule, failure.wildcards, failure.results), failure._asdict())


def record_killed(failed: Iterable[Any], results: str, *, since: float) -> None:
    """Record the jobs among Snakemake's `failed` that have said nothing `since` it began.

    For jobs on this machine: elsewhere a job's own record may not be here.
    """
    for job in failed:
        if job.is_group():
            continue
        rule, wildcards = named(job)
        if _said(rule, wildcards, results, since):
            continue
        log = next((str(path) for path in job.log), None)
        line = f"{label(rule, wildcards)}: {KILLED}"
        with suppress(OSError):
            _write(Failure(rule, wildcards, OTHER_ERROR, line, log, results, time.time()))


def _record_ended(job_info: Any, said: str, results: str, since: float) -> None:
    rule, wildcards = named(job_info.job)
    match = re.search(r"SLURM status is: '(\w+)", said)
    state = match[1] if match else ""
    if state == FAILED and _said(rule, wildcards, results, since):
        return
    said = f"Slurm job {job_info.external_jobid} ended: {state}" if state else said
    line = f"{label(rule, wildcards)}: {(said.splitlines() or ['not submitted'])[0]}"
    logs = [(job_info.aux or {}).get("slurm_logfile"), *job_info.job.log]
    log = next((str(path) for path in logs if path is not None and Path(path).exists()), None)
    failure = Failure(rule, wildcards, OTHER_ERROR, line, log, results, time.time(), state)
    with suppress(OSError):
        _write(failure)
        if state == OUT_OF_MEMORY:
            _count(_path(rule, wildcards, results).with_suffix(MEMORY_OUTS), failure.when)


def _exclude_node(executor: Any, job_info: Any, results: str) -> None:
    failure = failure_of(*named(job_info.job), results)
    if failure is None or failure.status != NODE_ERROR or not failure.node:
        return
    # The plugin passes these to sbatch as --exclude; its public option is read only at the start.
    if failure.node not in executor._failed_nodes:
        executor._failed_nodes.add(failure.node)
        print(f"turncredit: node {failure.node} gets no more jobs of this run: {failure.line}", file=sys.stderr)


def forget(rule: str, wildcards: Mapping[str, str], results: str) -> None:
    """Forget how a job failed."""
    _path(rule, wildcards, results).unlink(missing_ok=True)


def failure_of(rule: str, wildcards: Mapping[str, str], results: str) -> Failure | None:
    """How a job of the experiment in the folder `results` failed the last time, if it did and anything said so."""
    return _read(_path(rule, wildcards, results))


def stops(rule: str, wildcards: Mapping[str, str], results: str, *, since: float) -> int:
    """How many attempts of a job have stopped before its time limit, since a time in seconds since 1970."""
    return _counted(STOPS, rule, wildcards, results, since)


def memory_outs(rule: str, wildcards: Mapping[str, str], results: str, *, since: float) -> int:
    """How many attempts of a job Slurm has ended since a time in seconds since 1970 because they ran out of memory.

    Slurm itself forgets a job some minutes after its end (MinJobAge).
    """
    return _counted(MEMORY_OUTS, rule, wildcards, results, since)


def failures_in(results: str, where: Path = Path()) -> list[Failure]:
    """The failures of jobs of the experiment in the folder `results`, the latest last.

    `where` is the folder in which Snakemake runs.
    """
    folder = (where / results).resolve()
    read = (_read(path) for path in (where / FOLDER).glob("*.json"))
    failures = [one for one in read if one is not None and (where / one.results).resolve() == folder]
    return sorted(failures, key=lambda failure: failure.when)


def _read(path: Path) -> Failure | None:
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Failure(**record)
    except (OSError, ValueError, TypeError):
        return None


def _counted(kind: str, rule: str, wildcards: Mapping[str, str], results: str, since: float) -> int:
    return sum(when >= since for when in _times(_path(rule, wildcards, results).with_suffix(kind)))


def _count(path: Path, when: float) -> None:
    write_json(path, [*_times(path), when])


def _times(path: Path) -> list[float]:
    try:
        return [float(when) for when in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


def _path(rule: str, wildcards: Mapping[str, str], results: str) -> Path:
    # Experiments in one folder have rules and wildcards in common.
    named = json.dumps([results, rule, sorted((key, str(value)) for key, value in wildcards.items())])
    return FOLDER / f"{hashlib.sha256(named.encode()).hexdigest()[:20]}.json"
