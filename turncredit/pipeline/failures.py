"""What went wrong in jobs that failed: a small file for each, beside Snakemake's own state.

Snakemake reads it before it tries a job again, and `turncredit status` shows it. For a job that Slurm ended, Snakemake
writes it.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from turncredit.data.files import write_json
from turncredit.pipeline.job import JobKeys

#: In the folder in which Snakemake runs, which all its jobs share.
FOLDER = Path(".snakemake/turncredit-failures")
#: The exit status of a job that a user error ended, and of one that any other error ended.
USER_ERROR, OTHER_ERROR = 2, 1
#: What Slurm calls a job whose process ended with an error, and so has said why, and one that took too much memory.
FAILED, OUT_OF_MEMORY = "FAILED", "OUT_OF_MEMORY"


class JobFailed(SystemExit):
    """Ends the process of a job with `status`, after `line` has been printed; details are in `log`."""

    def __init__(self, status: int, line: str, log: str | None):
        super().__init__(status)
        self.line, self.log = line, log


class Failure(NamedTuple):
    """How a job failed, and when. `state` is Slurm's for a job that Slurm ended; empty where the job has said why."""

    rule: str
    wildcards: dict[str, str]
    status: int
    line: str
    log: str | None
    results: str
    when: float
    state: str = ""


@contextmanager
def recorded(rule: str, wildcards: Mapping[str, str], results: str) -> Iterator[None]:
    """Record the failure of the job that runs in the block, of the experiment in `results`; forget an earlier one."""
    forget(rule, wildcards, results)
    try:
        yield
    except JobFailed as failed:
        status = int(failed.code or OTHER_ERROR)  # type: ignore[call-overload]
        failure = Failure(rule, dict(wildcards), status, failed.line, failed.log, results, time.time())
        with suppress(OSError):  # what failed may be the disk
            write_json(_path(rule, wildcards, results), failure._asdict())
        raise


def label(rule: str, wildcards: Mapping[str, str]) -> str:
    """A job's rule and wildcards in a readable form: `credit gigpo seed0 round02`."""
    return f"{rule.replace('_', ' ')} {JobKeys.of(wildcards)}".rstrip()


def record_what_slurm_says(executor: Any, results: str) -> None:
    """Let Snakemake's Slurm executor record the failures of jobs that could not do it themselves.

    They ran out of time or memory, were cancelled, lost their node, or ended before their stage began. What a job has
    recorded itself stays: Slurm only knows its exit status.
    """
    report = executor.report_job_error

    def recording(job_info: Any, msg: str | None = None, **more: Any) -> None:
        if not job_info.job.is_group():
            _record_ended(job_info, msg or "", results)
        report(job_info, msg=msg, **more)

    executor.report_job_error = recording


def _record_ended(job_info: Any, said: str, results: str) -> None:
    rule, wildcards = job_info.job.rule.name, {name: str(key) for name, key in job_info.job.wildcards.items()}
    match = re.search(r"SLURM status is: '(\w+)", said)
    state = match[1] if match else ""
    if state == FAILED and failure_of(rule, wildcards, results) is not None:
        return
    said = f"Slurm job {job_info.external_jobid} ended: {state}" if state else said
    line = f"{label(rule, wildcards)}: {(said.splitlines() or ['not submitted'])[0]}"
    logs = [(job_info.aux or {}).get("slurm_logfile"), *job_info.job.log]
    log = next((str(path) for path in logs if path is not None and Path(path).exists()), None)
    failure = Failure(rule, wildcards, OTHER_ERROR, line, log, results, time.time(), state)
    with suppress(OSError):
        write_json(_path(rule, wildcards, results), failure._asdict())


def forget(rule: str, wildcards: Mapping[str, str], results: str) -> None:
    """Forget how a job failed."""
    _path(rule, wildcards, results).unlink(missing_ok=True)


def failure_of(rule: str, wildcards: Mapping[str, str], results: str) -> Failure | None:
    """How a job of the experiment in the folder `results` failed the last time, if it did and anything said so."""
    return _read(_path(rule, wildcards, results))


def failures_in(results: str) -> list[Failure]:
    """The failures of jobs of the experiment in the folder `results`, the latest last."""
    failures = [failure for path in FOLDER.glob("*.json") if (failure := _read(path)) and failure.results == results]
    return sorted(failures, key=lambda failure: failure.when)


def _read(path: Path) -> Failure | None:
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Failure(**record)
    except (OSError, ValueError, TypeError):
        return None


def _path(rule: str, wildcards: Mapping[str, str], results: str) -> Path:
    # Experiments in one folder have rules and wildcards in common.
    named = json.dumps([results, rule, sorted((key, str(value)) for key, value in wildcards.items())])
    return FOLDER / f"{hashlib.sha256(named.encode()).hexdigest()[:20]}.json"
