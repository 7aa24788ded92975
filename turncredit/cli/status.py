"""`turncredit status`: which rounds and jobs are done, running, queued or failed, and how long the rest takes."""

from __future__ import annotations

import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from turncredit.cli.configured import ConfigfileOption, ConfigOption, ResultsOption, plans_of
from turncredit.cli.plan import submitted_jobs
from turncredit.config.experiment import ROUNDS
from turncredit.config.stages import stages
from turncredit.data.provenance import config_hash
from turncredit.errors import UserError
from turncredit.pipeline import failures, integrity, locks, loop, resources, retries, slurm
from turncredit.pipeline.all_jobs import jobs_and_inputs, maker
from turncredit.pipeline.changed_settings import changed_settings, in_words
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.loop import Step
from turncredit.pipeline.plan import Plan

#: The folder of Snakemake's own state.
STATE = Path(".snakemake")
#: The results folder by the name that Snakemake's own state has for it.
RESULTS = Path("results")
#: What to do where Snakemake goes by the times of files, and these say nothing.
TOUCH = "Snakemake runs them again, unless `snakemake --touch` with the same options gives all files their times anew"
#: Lines of a failed job's log that are shown.
LAST_LINES = 5
#: Seconds without any job after which nobody was running the experiment, if jobs take a minute or more; where they take
#: seconds, this many times their mean, and at least `SHORT_PAUSE`.
PAUSE, PAUSE_IN_JOBS, SHORT_PAUSE = 600.0, 10.0, 60.0


def status(configfile: ConfigfileOption = None, config: ConfigOption = None, results: ResultsOption = RESULTS) -> None:
    """Show, for each run of an experiment, which rounds are done, what runs or waits now, and what failed and why.

    Run it where Snakemake runs, or in the same folder on another node. Example: turncredit status --configfile
    config/rails.yaml
    """
    if results.resolve() == RESULTS.resolve():
        results = RESULTS
    print("\n\n".join("\n".join(lines_of(plan)) for plan in plans_of(configfile, results, config, installed=False)))


class Measured(NamedTuple):
    """What the jobs that have ended took: seconds by stage, and how many of them ran at a time."""

    seconds: Mapping[str, list[float]]
    at_a_time: float

    def mean(self, stage: str) -> float:
        """Mean seconds of a stage; of all stages, if none of its jobs has ended."""
        seconds = self.seconds.get(stage) or [one for several in self.seconds.values() for one in several]
        return sum(seconds) / len(seconds) if seconds else 0.0


class Work(NamedTuple):
    """A job that has not ended: running, queued, preempted, interrupted, or submitted, where Slurm does not say.

    `reason` is why it waits.
    """

    state: str
    reason: str = ""


def lines_of(plan: Plan) -> list[str]:
    """What `turncredit status` prints."""
    jobs = jobs_and_inputs(plan)
    records, outdated = ended(plan, jobs)
    works, silent = current(plan)
    now = at_work(plan, works, records)
    ended_badly = [one for one in failures.failures_in(str(plan.layout.root)) if still_failed(plan, jobs, one)]
    failed = [failure for failure in ended_badly if failure.status != failures.OUT_OF_TIME]
    preemptions = slurm.preempted(STATE, str(plan.layout.root))
    count, changed = Counter(work.state for work in now.values()), changed_settings(plan)
    waits = Counter(work.reason for work in now.values() if work.state == "queued")
    lines = [
        f"{plan.experiment.experiment}: {len(records):,} of {len(jobs):,} stages done, {count['running']} running, "
        f"{count['queued']} queued, {len(failed)} failed"
        + (f", {count['preempted']} preempted" if count["preempted"] else "")
        + (f", {count['interrupted']} interrupted" if count["interrupted"] else "")
        + (f", {count['submitted']} submitted" if count["submitted"] else "")
        + (f", {outdated} to do again because settings or inputs changed" if outdated else ""),
        *([f"settings have changed since the last run: {in_words(changed)}"] if outdated and changed else []),
        *([f"{count['queued']} queued: {_counts(waits)}"] if waits else []),
        *([f"{preemptions} preempted so far, and submitted again each time"] if preemptions else []),
        *([f"whether submitted jobs wait, run or are gone is not known: {silent}"] if count["submitted"] else []),
        *[one.line for one in ended_badly if one.status == failures.OUT_OF_TIME],
        "",
        *run_lines(plan, records, {step: work.state for step, work in now.items()}),
    ]
    if copied := made_before_their_inputs(plan, jobs, records):
        lines += ["", f"{copied} of the stages done have inputs that are newer, as after a copy: {TOUCH}"]
    for failure in failed:
        lines += ["", f"failed: {failure.line}", *(f"    {line}" for line in _log_lines(failure.log))]
    idle = not any(count[state] for state in ("running", "queued", "submitted"))
    return [*lines, "", *rest_lines(plan, list(jobs), records, idle=idle)]


def ended(plan: Plan, jobs: Mapping[Step, Sequence[str]]) -> tuple[dict[Step, Any], int]:
    """The metrics of the jobs that have ended, and the number of those that have to be done again.

    A job is done again if its settings, a job that it reads from, or a user's own file that it reads has changed.
    `jobs` has the paths that each reads, each job after those it reads from.
    """
    records: dict[Step, Any] = {}
    outdated: set[Step] = set()
    deleted: set[str] | None = None
    own = {path for reads in jobs.values() for path in reads if maker(plan, path) is None}
    for job, reads in jobs.items():
        record = _record(plan, job)
        if record is None:
            continue
        before = {step for path in reads if (step := maker(plan, path)) is not None}
        again = bool(before & outdated) or record.get("settings") not in (None, config_hash(plan.settings(*job)))
        later = any(records[step]["started"] > record["started"] for step in before & records.keys())
        if not again and (later or any(_changed_since(path, record["started"]) for path in reads if path in own)):
            deleted = integrity.deleted_after_use(plan) if deleted is None else deleted
            again = not plan.job(*job).is_made(deleted=sorted(deleted))
        if again:
            outdated.add(job)
        else:
            records[job] = record
    return records, len(outdated)


def made_before_their_inputs(plan: Plan, jobs: Mapping[Step, Sequence[str]], records: Collection[Step]) -> int:
    """How many of the jobs that have ended Snakemake would run again by the times of their files: an input is newer
    than an output, or is made again itself. (It compares the contents of small files, if it has a record of them.)"""
    again: set[Step] = set()
    for job, reads in jobs.items():
        if job in records:
            times = [time for path in plan.outputs(*job).values() if (time := _time_of(path)) is not None]
            before = {step for path in reads if (step := maker(plan, path)) is not None}
            newer = any((time := _time_of(path)) is not None and time > min(times) for path in reads if times)
            if newer or before & again:
                again.add(job)
    return len(again)


def still_failed(plan: Plan, jobs: Collection[Step], failure: failures.Failure) -> bool:
    """Whether the job that failed is one of the experiment's `jobs`, as it is now, and has not ended well since.

    A preempted job has not failed: it runs again.
    """
    if failure.state == slurm.PREEMPTED:
        return False
    try:
        steps = steps_of(plan, failure)
    except (TypeError, ValueError):  # keys of another version
        return False
    made = [_record(plan, step) for step in steps]
    since = steps and all(record and record["started"] + record["wall_s"] >= failure.when for record in made)
    return bool(steps) and set(steps) <= set(jobs) and not since


def steps_of(plan: Plan, failure: failures.Failure) -> list[Step]:
    """The stages of the job that failed; none if it is of rounds that are no longer one job."""
    if failure.rule != ROUNDS:
        stage = retries.stage_of(failure.rule)
        return [(stage, JobKeys.of(failure.wildcards))] if stage in stages() else []  # a rule of another version
    method, seed = failure.wildcards["method"], int(failure.wildcards["seed"])
    every, last = plan.experiment.blocks(), failure.wildcards.get("round")  # a whole run's job has no round
    blocks = [block for block in every if (len(every) == 1 if last is None else block[-1] == int(last))]
    if plan.experiment.granularity == "stage" or not blocks or (method, seed) not in plan.experiment.runs():
        return []
    return loop.block(plan, method, seed, blocks[0])


def run_lines(plan: Plan, records: Mapping[Step, Any], now: Mapping[Step, str]) -> list[str]:
    """A line for each run: its rounds that are done, its latest success, and what it does now."""
    doing: dict[tuple[str, int], list[str]] = defaultdict(list)
    for (stage, at), state in now.items():
        named = f"{stage} of round {at.round}" if at.round > 0 else stage
        doing[at.method or at.policy, at.seed].append(f"{named} {state}")
    done: Counter[tuple[str, int]] = Counter()
    latest: dict[tuple[str, int], tuple[int, str]] = {}
    for (stage, at), record in records.items():
        run = at.method, at.seed
        done[run] += stage == "update"
        if stage == "eval":
            primary = record["metrics"].get(f"success_{plan.experiment.eval.primary}")
            if primary is not None:
                latest[run] = max(latest.get(run, (0, "")), (at.round, f"{primary:.3f}"))
    width = max((len(method) for method, _ in plan.experiment.runs()), default=0)
    lines = []
    for method, seed in plan.experiment.runs():
        run = method, seed
        success = f"success {latest[run][1]} (round {latest[run][0]})" if run in latest else ""
        rounds = f"{done[run]:>3} of {plan.experiment.rounds} rounds"
        lines.append(f"{method:<{width}} seed {seed}  {rounds}  {success:<25} {', '.join(doing.pop(run, []))}".rstrip())
    shared = [what for several in doing.values() for what in several]
    return [*lines, *([f"shared by runs: {', '.join(shared)}"] if shared else [])]


def rest_lines(plan: Plan, jobs: list[Step], records: Mapping[Step, Any], *, idle: bool = False) -> list[str]:
    """How long the rest takes at the pace so far, and GPU hours. With `idle` that nothing runs or waits comes first."""
    left = [job for job in jobs if job not in records]
    measured = measured_in(records)
    if not left:
        lines = ["nothing is left to do"]
    elif not records:
        lines = ["nothing has ended yet, so the time that is left is not known"]
    else:
        seconds = sum(measured.mean(stage) for stage, _ in left) / max(measured.at_a_time, 1e-9)
        rest = f"{'nothing runs; ' if idle else ''}about {_time(seconds)} left"
        lines = [f"{rest}, at the pace so far: {measured.at_a_time:.1f} jobs at a time, each stage in its mean time"]
    gpus = plan.experiment.all_gpus
    if any(gpus(stage) for stage, _ in jobs):
        spent = sum(gpus(stage) * record["wall_s"] for (stage, _), record in records.items())
        coming = 0.0
        for submitted in submitted_jobs(plan, left):
            on_gpu = [(stage, at) for stage, at in submitted.stages if gpus(stage) and (stage, at) not in records]
            for (stage, _), seconds in zip(on_gpu, resources.gpu_seconds_in_turn(plan, on_gpu), strict=True):
                mean = measured.mean(stage) if stage in measured.seconds else None
                coming += submitted.gpus * (mean or seconds)
        lines.append(f"GPU hours: {spent / 3600:.1f} spent in stages, about {coming / 3600:.1f} to come")
    return lines


def measured_in(records: Mapping[Step, Any]) -> Measured:
    """What jobs took, from their metrics."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for (stage, _), record in records.items():
        seconds[stage].append(record["wall_s"])
    if not records:
        return Measured(seconds, 1.0)
    mean = sum(map(sum, seconds.values())) / len(records)
    pause = min(PAUSE, max(SHORT_PAUSE, PAUSE_IN_JOBS * mean))
    busy, until = 0.0, -math.inf
    for start, length in sorted((record["started"], record["wall_s"]) for record in records.values()):
        busy += start - until if 0 < start - until < pause else 0.0
        busy += max(0.0, start + length - max(start, until))
        until = max(until, start + length)
    return Measured(seconds, sum(map(sum, seconds.values())) / max(busy, 1e-9))


def current(plan: Plan) -> tuple[dict[Step, Work], str]:
    """Jobs that Snakemake has started or submitted and that have not ended, and why squeue does not answer, if so.

    Snakemake marks each output that is being made. One whose Slurm job or Snakemake is gone was interrupted.
    """
    listed: list[slurm.SlurmJob] = []
    silent = ""
    try:
        listed = slurm.queue(slurm.runs_of(STATE, str(plan.layout.root)), ended=True)
    except UserError as error:
        silent = str(error)
    alive = locks.holder(STATE, str(plan.layout.root)) is not None
    works = {}
    for path, job in locks.being_made(STATE).items():
        try:
            step = maker(plan, path)
        except UserError:
            continue  # of another version
        if step is None:
            continue
        if job is None:
            works[step] = Work("running" if alive else "interrupted")
        elif silent:
            works[step] = Work("submitted")
        else:
            works[step] = _work(job, listed)
    return works, silent


def _work(number: str, listed: Sequence[slurm.SlurmJob]) -> Work:
    """What squeue says about the job with this id."""
    state, array = slurm.state_of(number, listed), number.partition("_")[0]
    if state == "PENDING":
        reasons = [one.reason for one in listed if one.id.partition("_")[0] == array and one.state == state]
        return Work("queued", reasons[0])
    if state == slurm.PREEMPTED:
        return Work("preempted")
    return Work("running" if state in slurm.LIVING else "interrupted")


def at_work(plan: Plan, works: Mapping[Step, Work], records: Mapping[Step, Any]) -> dict[Step, Work]:
    """The stages that have not ended and at which the jobs of `works` are; of several rounds, the first of them."""
    stages = {}
    for step, work in works.items():
        block = loop.block_of(plan, *step)
        steps = [step] if block is None else loop.block(plan, block[0], step[1].seed, block[1])
        if (at := next((one for one in steps if one not in records), None)) is not None:
            stages[at] = work
    return stages


def _time_of(path: str) -> float | None:
    """When a file, or what Snakemake marks a folder with, was written; None if it is not there."""
    for one in (os.path.join(path, ".snakemake_timestamp"), path):
        with suppress(OSError):
            return os.lstat(one).st_mtime
    return None


def _counts(what: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in what.most_common())


def _changed_since(path: str, time: float) -> bool:
    try:
        return os.path.getmtime(path) > time
    except OSError:
        return True


def _record(plan: Plan, job: Step) -> Any:
    """The metrics file of a job that has ended well; None if there is none."""
    try:
        record = json.loads(Path(plan.metrics(*job)).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if {"wall_s", "started", "metrics"} <= record.keys() else None


def tail(log: Path) -> list[str]:
    """The last lines of a log, if it is there."""
    return log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:] if log.exists() else []


def _log_lines(log: str | None) -> list[str]:
    """A log's path and its last lines; nothing without any."""
    lines = tail(Path(log)) if log is not None else []
    return [f"{log}:", *lines] if lines else []


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
