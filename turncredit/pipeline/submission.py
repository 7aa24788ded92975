"""Resubmits jobs that Slurm refuses for now. This does not consume `retries`.

A user may have as many jobs as an account allows, or the controller does not answer. Snakemake's plugin (2.8) takes
each refusal for a failure of the job, which is tried again at once.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from turncredit.errors import UserError
from turncredit.pipeline import internals, slurm

#: Seconds between two tries, and after which a refusal is a failure: longer than a cluster is maintained.
EVERY, AT_MOST = 30.0, 86_400.0
#: What Slurm's commands say of limits on submitted jobs, and of a controller that does not answer (slurm_errno.c).
PASSING = re.compile(
    r"\w*Submit\w*Limit|too many jobs in the system|temporarily un|Unable to contact slurm controller|Socket timed out"
    r"|Connection (?:refused|reset|timed out)|backup controller|Zero Bytes were transmitted|Transport endpoint",
    re.IGNORECASE,
)


class Submission:
    """Submits the jobs of Snakemake's Slurm executor again until Slurm takes them. Replaces its `run_job`.

    Ctrl-C ends the wait. Arrays of jobs are left to the plugin.
    """

    def __init__(
        self,
        executor: Any,
        *,
        every: float = EVERY,
        at_most: float = AT_MOST,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._executor, self._every, self._at_most, self._clock = executor, every, at_most, clock
        self._ended = threading.Event()
        self._waiting = threading.Lock()  # the plugin submits in several threads: one of them says what Slurm says
        self._since: float | None = None
        self._here = threading.local()
        internals.require(executor, "run_uuid", "slurm_logdir", "_report_job_submission_threadsafe")
        self._submit = internals.replace(executor, "run_job", self.run_job)
        self._fail = internals.replace(executor, "_report_job_error_threadsafe", self._noting)
        self._shutdown = internals.replace(executor, "shutdown", self.shutdown)

    def run_job(self, job: Any) -> None:
        """Submit a job, however often; reports a failure where Slurm refuses it for good."""
        while True:
            self._here.refusal = None
            self._here.submits = True
            try:
                self._submit(job)
            finally:
                self._here.submits = False
            if self._here.refusal is None:
                self._taken()
                return
            refused, said = self._here.refusal
            if not self._waits(said):
                self._fail(refused, said)
                return
            if self._is_there(job):
                return

    def shutdown(self) -> None:
        """As the executor's own, without waiting until Slurm takes jobs."""
        self._ended.set()
        self._shutdown()

    def _noting(self, refused: Any, said: str) -> None:
        if getattr(self._here, "submits", False):
            self._here.refusal = refused, said
        else:
            self._fail(refused, said)

    def _waits(self, said: str) -> bool:
        """Wait for the next try; False where there is none."""
        words = PASSING.search(said.partition("sbatch call:")[0])
        if words is None or self._ended.is_set():
            return False
        with self._waiting:
            if self._since is None:
                self._since = self._clock()
                print(
                    f"turncredit: Slurm takes no jobs now ({words[0]}); they are submitted again every "
                    f"{self._every:.0f} s",
                    file=sys.stderr,
                )
            waited = self._clock() - self._since
        return waited < self._at_most and not self._ended.wait(self._every)

    def _taken(self) -> None:
        with self._waiting:
            if self._since is not None:
                print("turncredit: Slurm takes jobs again", file=sys.stderr)
            self._since = None

    def _is_there(self, job: Any) -> bool:
        """Whether Slurm has taken the job although its answer was lost: then it is waited for like any other.

        Of a group of jobs this is not known: several may have the same comment.
        """
        if job.is_group():
            return False
        run, wildcards = self._executor.run_uuid, [str(key) for key in job.wildcards]
        comment = slurm.comment_of(job.rule.name, wildcards)
        try:
            there = next((one for one in slurm.queue([run]) if one.comment == comment), None)
        except UserError:  # squeue does not answer either
            return False
        if there is None:
            return False
        folder = self._executor.slurm_logdir / f"rule_{job.rule.name}" / slurm.joined(wildcards)
        log = folder / f"{there.id}.log"
        taken = SubmittedJobInfo(job, external_jobid=there.id, aux={"slurm_logfile": log})
        self._executor._report_job_submission_threadsafe(taken)
        self._taken()
        return True
