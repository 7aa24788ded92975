"""Several rounds of a run in one process (`granularity: round` or `run`): the same artifacts as job by job.

Tables and weights that one stage has made are passed to the next in memory. A stage whose artifacts are up to date is
skipped, so a killed job loses at most the stage that was running.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from turncredit.config import from_mapping, stages
from turncredit.data.files import remove_folder
from turncredit.errors import OutOfTime
from turncredit.pipeline import failures, loop, partitions, preflight, slurm
from turncredit.pipeline import job_script as jobs
from turncredit.pipeline.job import Job, JobKeys, Store
from turncredit.pipeline.loop import Step
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.playing import plays

#: Seconds kept free before a job's end.
SPARE = 60.0


def passing_policies(plan: Plan, method: str, seed: int, rounds: Sequence[int]) -> dict[str, str]:
    """The policies of these rounds that are deleted when the next round is done (`keep_policies: last`).

    Each has the file that shows it: if the next round's log of updates exists and the policy does not, the policy was
    deleted. The same holds for implicit reward models and the next log-probabilities. The block's last policy and those
    that sampled audited rounds are kept.
    """
    if plan.experiment.keep_policies == "all":
        return {}
    rounds_of_audits = plan.experiment.audited_rounds() if method in plan.experiment.audit.runs else []
    audited = {round - 1 for _, round in rounds_of_audits}
    passing = [round for round in rounds if round != rounds[-1] and round not in audited]
    path = plan.layout.path
    after = {
        path("policy", method=method, seed=seed, round=round): path(
            "updates", method=method, seed=seed, round=round + 1
        )
        for round in passing
    }
    if plan.method(method).scorer == "implicit":
        for round in rounds[:-1]:
            turns = plan.turns_at(method, seed, round + 1)
            after[_implicit(plan, method, seed, round)] = plan.read_by("logprobs", turns, method)
    return after


def _implicit(plan: Plan, method: str, seed: int, round: int) -> str:
    return plan.layout.path("implicit", plan.turns_at(method, seed, round).keys, method=method)


def run(snakemake: Any) -> None:
    """Run the rounds of Snakemake's job; an error in a stage is one line and ends the job."""
    experiment = from_mapping(snakemake.config)
    jobs.load_own_environment(experiment.env.name)
    policy = str(snakemake.output[0])
    plan = Plan(experiment, jobs.experiment_folder(policy, stages.artifacts()["policy"].pattern).parent)
    method, seed = str(snakemake.wildcards.method), int(snakemake.wildcards.seed)
    jobs.set_environment()
    if not experiment.serves("label"):
        jobs.hide_gpus_not_asked_for(snakemake.resources)
    wildcards = {name: str(value) for name, value in snakemake.wildcards.items()}
    label = failures.label(snakemake.rule, wildcards)
    with failures.recorded(snakemake.rule, wildcards, str(plan.layout.root)), jobs.failing_in_one_line(label):
        preflight.check_gpu("rounds", partitions.gpus_asked(snakemake.resources))
        limit = TimeLimit(slurm.end_of_this_job())
        rounds = list(snakemake.params["rounds"])
        run_rounds(plan, method, seed, rounds, threads=int(snakemake.threads), limit=limit)
    for path in map(str, snakemake.output):  # even of existing outputs, which are up to date with these inputs
        with suppress(FileNotFoundError):  # a file that appears late: Snakemake waits for it, and names it
            os.utime(path)


class TimeLimit:
    """When a job of several rounds ends, in seconds since 1970 (None: never), and what its stages took so far.

    A stage that would not end in time is not begun: Slurm would end it in the middle, and its work would be lost. Nor
    is an update, which could stop by itself: Slurm may end it before its first step, and that uses up a retry.
    """

    def __init__(self, ends: float | None, now: Callable[[], float] = time.time):
        self._ends, self._now = ends, now
        self._took: dict[str, float] = {}

    @contextmanager
    def within(self, stage: str) -> Iterator[None]:
        """Run a stage in the block. Raises OutOfTime if there is too little time for it, never for the first stage."""
        begun, took = self._now(), self._took.get(stage, 0.0)
        if self._ends is not None and self._took:
            left = self._ends - begun
            if left < SPARE + took:
                before = f", which took {took:.0f} s in an earlier round" if took else ""
                raise OutOfTime(
                    f"stopped before the job's time limit: {left:.0f} s are left for {stage}{before}; another attempt "
                    "goes on from there"
                )
        yield
        self._took[stage] = max(took, self._now() - begun)


def run_rounds(
    plan: Plan, method: str, seed: int, rounds: Sequence[int], *, threads: int = 1, limit: TimeLimit | None = None
) -> None:
    """Run the stages of these rounds of a run that are not up to date, one after another, in this process.

    Raises OutOfTime before a stage that would not end within the limit.
    """
    limit = limit or TimeLimit(None)
    store = Store(keep=True, slots=most_slots(plan, method), engines=plan.experiment.policy.sample_engines)
    passing = passing_policies(plan, method, seed, rounds)
    jobs.clear_leftovers(passing)
    steps = loop.block(plan, method, seed, rounds)
    again = _made_again(plan, steps, passing, store)
    games = [plan.layout.path("tasks", split=split) for split in ("train", "eval")]
    asked = {stage: plan.experiment.threads(stage) for stage, _ in steps}
    # More than any stage asks for, as by --set-threads, and those of `resources.rounds`, are for all stages.
    for_all = threads > max(asked.values()) or plan.experiment.resource("rounds").threads is not None
    for number, round in enumerate(rounds):
        for stage, at in loop.block(plan, method, seed, [round]):
            most = threads if for_all else min(threads, asked[stage])
            job = plan.job(stage, at, threads=most, store=store)
            if not _is_made(plan, job, _gone(passing) - again):
                with limit.within(stage):
                    _run_with_room(plan, job)
        if number:
            for before in (plan.policy_before(method, seed, round), _implicit(plan, method, seed, round - 1)):
                if before in passing:
                    remove_folder(before)
        policy = plan.layout.path("policy", method=method, seed=seed, round=round)
        store.forget([*games, policy, plan.sft_policy(JobKeys(method=method))])


def most_slots(plan: Plan, method: str) -> int:
    """The most rollouts at a time that a round of the method plays: an engine starts once, with room for all."""
    rollout = plan.experiment.section_for(method, "rollout")
    if any(one.policy == "samples" and one.needed(plan, method) for one in stages.stages_in("signal")):
        return rollout.slots  # continuations or forks of the rollouts, of which there are many
    return min(rollout.slots, max(rollout.tasks * rollout.group_size, plan.experiment.eval.games))


def _run_with_room(plan: Plan, job: Job) -> None:
    """Run one stage. vLLM, or a judge's server, gets the whole GPU: it does not start where others hold its memory."""
    experiment = plan.experiment
    samples = plays(job.stage) and experiment.policy.engine == "vllm"
    serves = experiment.serves(job.stage)
    if samples or serves:
        job.store.release()
    if serves:
        job.store.end_engine()
    run_stage(plan, job)
    if samples or serves:
        job.store.rest()


def _is_made(plan: Plan, job: Job, deleted: Collection[str]) -> bool:
    return job.is_made(deleted=sorted(deleted)) and os.path.exists(plan.metrics(job.stage, job.at))


def _gone(passing: Mapping[str, str]) -> set[str]:
    return {policy for policy, after in passing.items() if os.path.exists(after) and not os.path.exists(policy)}


def _made_again(plan: Plan, steps: Sequence[Step], passing: Mapping[str, str], store: Store) -> set[str]:
    """The deleted policies that a stage still needs: one that is not up to date, or that makes such a policy again."""
    gone = deleted = _gone(passing)
    for step in reversed(steps) if deleted else ():  # a policy is made before it is read
        job = plan.job(*step, store=store)
        if not _is_made(plan, job, gone):
            gone = gone - {path for name in job.input for path in job.paths(name)}
    return deleted - gone


def run_stage(plan: Plan, job: Job) -> None:
    """Run one stage as a job of its own would: announced, logged and measured. Ends the process if it fails."""
    output = {**job.output, "metrics": plan.metrics(job.stage, job.at)}
    described = jobs.Description(
        stage=job.stage,
        rule=job.stage,
        slice=job.config.model_dump(mode="json"),
        config=plan.experiment.model_dump(mode="json"),
        input=job.input,
        output=output,
        wildcards={key: str(value) for key, value in job.at.keys.items()},
        log=plan.log(job.stage, job.at),
        threads=job.threads,
    )
    with jobs.failing_in_one_line(described.label):
        jobs.write_description(described)
    jobs.carry_out(described, lambda: jobs.run_job(job))
