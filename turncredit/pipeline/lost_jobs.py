"""Slurm jobs for which Snakemake's plugin (2.8) would wait for ever: preempted for good, no longer listed, dropped.

The plugin takes a preempted job for one that Slurm puts back into the queue, which Slurm does only with
`PreemptMode=REQUEUE`, and a job that it finds nowhere for one that is about to appear. Here squeue decides: a job that
is neither waiting nor running in two looks in a row has ended. When its status command fails, the plugin drops all
jobs; here they stay. A job that waits for something that does not come is named once.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from turncredit.errors import UserError
from turncredit.pipeline import internals, slurm

#: Seconds between two looks. A job that has just been submitted, or is put back into the queue, is listed by then.
LOOK_EVERY = 30.0
#: The state of a job that squeue does not list.
FORGOTTEN = "FORGOTTEN"
#: Reasons of squeue for which a job waits until somebody does something (slurm's job_reason_string).
STUCK = re.compile(r"JobHeld|JobHold|\bheld\b|BadConstraints|NeverSatisfied|Partition(Time|Node)Limit|PerJob")
#: Resources that send a job to another cluster, whose jobs the local squeue does not list.
CLUSTERS = ("slurm_cluster", "cluster", "clusters")


class LostJobs:
    """Ends the wait of Snakemake's Slurm executor for jobs that are lost, and counts the preempted ones.

    `state` is Snakemake's folder. Replaces the executor's `check_active_jobs`.
    """

    def __init__(
        self, executor: Any, state: Path, *, every: float = LOOK_EVERY, clock: Callable[[], float] = time.monotonic
    ):
        self._executor, self._state, self._every, self._clock = executor, state, every, clock
        self._looked = clock()
        self._gone: dict[str, str] = {}
        self._preempted: Counter[Any] = Counter()
        self._reported: set[str] = set()
        self._told: set[str] = set()
        internals.require(executor, "run_uuid", "report_job_success", "report_job_error")
        self._check = internals.replace(executor, "check_active_jobs", self.check_active_jobs)
        executor.report_job_success = self._noting(executor.report_job_success)
        executor.report_job_error = self._noting(executor.report_job_error)

    def preemptions(self, job: Any) -> int:
        """How often Slurm has preempted this job of Snakemake's, over all attempts."""
        return self._preempted[job.jobid]

    async def check_active_jobs(self, active_jobs: Sequence[Any]) -> AsyncIterator[Any]:
        """As the executor's own: reports jobs that have ended, and yields the others."""
        self._reported.clear()
        async for _ in self._check(active_jobs):
            pass
        waiting = [job for job in active_jobs if job.external_jobid not in self._reported]
        ended = [job.external_jobid for job in active_jobs if job.external_jobid in self._reported]
        slurm.forget_success(self._state, self._executor.run_uuid, ended)
        lost = await self._lost(waiting)
        for job in waiting:
            state = lost.get(job.external_jobid)
            if state is None:
                yield job
            elif slurm.succeeded(self._state, self._executor.run_uuid, job.external_jobid):
                self._executor.report_job_success(job)
            else:
                self._report(job, state)

    def _noting(self, report: Callable[..., None]) -> Callable[..., None]:
        """The executor's `report`, of a job's end, which also notes the job."""

        def noting(job: Any, *args: Any, **more: Any) -> None:
            self._reported.add(job.external_jobid)
            report(job, *args, **more)

        return noting

    async def _lost(self, waiting: Sequence[Any]) -> dict[str, str]:
        """The states of jobs that were gone in this look and in the one before; none between two looks."""
        if not waiting or self._clock() - self._looked < self._every:
            return {}
        self._looked = self._clock()
        try:
            listed = await asyncio.to_thread(slurm.queue, [self._executor.run_uuid], ended=True)
        except UserError:  # squeue does not answer now
            return {}
        self._tell_of_stuck(listed)
        here = [job for job in waiting if not any(job.job.resources.get(name) for name in CLUSTERS)]
        states = {job.external_jobid: slurm.state_of(job.external_jobid, listed) or FORGOTTEN for job in here}
        gone = {number: state for number, state in states.items() if state not in slurm.LIVING}
        before, self._gone = self._gone, gone
        return {number: state for number, state in gone.items() if number in before}

    def _tell_of_stuck(self, listed: Sequence[slurm.SlurmJob]) -> None:
        for job in listed:
            if job.state == "PENDING" and STUCK.search(job.reason) and job.id not in self._told:
                self._told.add(job.id)
                print(
                    f"turncredit: warning: Slurm job {job.id} ({job.comment}) does not start by itself: {job.reason}; "
                    f"release or change it (scontrol), or give it up (scancel {job.id}), and it is submitted again",
                    file=sys.stderr,
                )

    def _report(self, job: Any, state: str) -> None:
        if state == slurm.PREEMPTED:
            self._preempted[job.job.jobid] += 1
            slurm.count_preemption(self._state, self._executor.run_uuid)
        log = (job.aux or {}).get("slurm_logfile")
        said = f"SLURM-job '{job.external_jobid}' failed, SLURM status is: '{state}'. Slurm does not run it again."
        self._executor.report_job_error(job, msg=said, aux_logs=[str(log)] if log else [])
