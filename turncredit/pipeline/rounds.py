"""Several rounds of a run in one process (`granularity: round` or `run`): the same artifacts as job by job.

Each stage runs as it does in a job of its own, with the same inputs, slice of the configuration, log, metrics and
provenance; tables and weights that one stage has made are passed to the next in memory. A stage whose artifacts exist
and are up to date is skipped, so a killed job loses at most the stage that was running.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from turncredit.config import ResourceConfig, from_mapping
from turncredit.config.layout import LOGS, fill
from turncredit.data.files import remove_folder
from turncredit.errors import UserError
from turncredit.pipeline import failures, preflight
from turncredit.pipeline import job_script as jobs
from turncredit.pipeline import resources as needs
from turncredit.pipeline.job import At, Job, Store
from turncredit.pipeline.plan import Plan, load
from turncredit.pipeline.playing import plays

Step = tuple[str, At]
#: Stages whose artifacts methods share in round 1, in which the SFT policy samples for all of them.
SHARED_STAGES = ("rollout", "measures", "continuations", "forks", "label", "hiddens", "logprobs")


def steps_of_round(plan: Plan, method: str, seed: int, round: int) -> Iterator[Step]:
    """The stages of one round of a run, in order, with their keys; after the last round the run's invariants.

    This leaves out what methods share: games, the SFT policy, and its rollouts with what belongs to them
    (continuations, forks, labels, hidden states, second passes).
    """
    turns = plan.turns_at(method, seed, round)
    elsewhere: set[str] = set()
    if round == 1:
        elsewhere = {*SHARED_STAGES, "implicit_model"}  # a method's first implicit reward model is the SFT policy
        if plan.method(method).reader == "implicit":
            elsewhere.remove("logprobs")  # of the method's own model
    for stage in plan.stages_of(method):
        at = None if stage in elsewhere else plan.keys_for(stage, turns, method)
        if at is not None:
            yield stage, at


def steps_of_block(plan: Plan, method: str, seed: int, rounds: Sequence[int]) -> list[Step]:
    """The stages of several rounds of a run, in order."""
    return [step for round in rounds for step in steps_of_round(plan, method, seed, round)]


def block_of(plan: Plan, stage: str, at: At) -> tuple[str, range] | None:
    """The method and the rounds whose job runs the stage with the keys `at`; None if it is a job of its own."""
    method = at.method or at.policy
    if plan.experiment.granularity == "stage" or (method, at.seed) not in plan.experiment.runs():
        return None
    for block in plan.experiment.blocks():
        if (stage, at) in steps_of_block(plan, method, at.seed, block):
            return method, block
    return None


def resource_of_block(plan: Plan, method: str, seed: int, rounds: Sequence[int]) -> ResourceConfig:
    """What a block's job asks for: the most of any of its stages and the sum of their runtimes.

    While other stages run, a vLLM that has sampled sleeps in the same job. What `resources.rounds` gives stands in
    place of that, but for fewer GPUs than the model is trained on.
    """
    steps = steps_of_block(plan, method, seed, rounds)
    asked = {stage: needs.resource(plan, stage) for stage in dict(steps)}
    resources = [asked[stage] for stage, _ in steps]
    asleep = needs.asleep_mb(plan) if any(plays(stage) for stage in asked) else 0
    memory = {stage: one.mem_mb + (0 if plays(stage) else asleep) for stage, one in asked.items() if one.mem_mb}
    asks = {
        "mem_mb": max(memory.values()),
        "gpu": max(one.gpu or 0 for one in resources),
        "threads": max(one.threads for one in resources),
        "runtime": sum(one.runtime for one in resources if one.runtime is not None),
    }
    if "rounds" in plan.experiment.resources:
        given = plan.experiment.resource("rounds").model_dump(exclude_unset=True, exclude_none=True)
        asks |= given
        asks["gpu"] = max(asks["gpu"], plan.experiment.gpus("rounds"))
    return ResourceConfig(**asks)


def made_inside(plan: Plan, steps: Sequence[Step]) -> set[str]:
    """Every path that these stages make, including their metrics."""
    paths = {path for step in steps for path in plan.outputs(*step).values()}
    return paths | {plan.metrics(*step) for step in steps}


def inputs_of_block(plan: Plan, method: str, seed: int, rounds: Sequence[int]) -> list[str]:
    """The inputs of a block: for the first block, everything its stages read that other jobs write, each path once.

    Later blocks read the same and what earlier blocks made; all of it exists if the policy of the previous round does,
    but for the games of evaluations, which nothing has read before the first evaluation. Naming no more than that keeps
    planning many runs fast.
    """
    if rounds[0] > 1:
        evaluates = not set(rounds).isdisjoint(plan.experiment.eval_rounds())
        games = [plan.layout.path("tasks", split="eval")] if evaluates else []
        return [plan.policy_before(method, seed, rounds[0]), *games]
    steps = steps_of_block(plan, method, seed, rounds)
    inside = made_inside(plan, steps)
    paths: dict[str, None] = {}
    for step in steps:
        for value in plan.inputs(*step).values():
            paths.update(dict.fromkeys([value] if isinstance(value, str) else value))
    return [path for path in paths if path not in inside]


def inputs_by_seed(plan: Plan, method: str, rounds: Sequence[int]) -> Callable[[int], list[str]]:
    """A function from a seed to the inputs of a block. They are found once, for the first seed: other seeds read the
    same artifacts with their own seed, and finding them anew is most of the time to plan a thousand runs."""
    paths = inputs_of_block(plan, method, plan.experiment.seeds[0], rounds)
    located = [(path, plan.layout.locate(path)) for path in paths]

    def inputs(seed: int) -> list[str]:
        return [
            plan.layout.path(at.artifact, at.keys, seed=seed) if at is not None and "seed" in at.keys else path
            for path, at in located
        ]

    return inputs


def passing_policies(plan: Plan, method: str, seed: int, rounds: Sequence[int]) -> dict[str, str]:
    """The policies of these rounds that are deleted when the next round is done (`keep_policies: last`).

    Each with the next round's log of updates: if the log exists and the policy does not, the policy was deleted. The
    same for a method's implicit reward models, with the log-probabilities that the next round's model gave.

    The block's last policy, which the next job reads, and those that sampled audited rounds are kept.
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
    if plan.method(method).reader == "implicit":
        for round in rounds[:-1]:
            logprobs = plan.logprobs_at(plan.turns_at(method, seed, round + 1), method)
            after[_implicit(plan, method, seed, round)] = path("logprobs", logprobs.keys)
    return after


def _implicit(plan: Plan, method: str, seed: int, round: int) -> str:
    """The implicit reward model of a run's round."""
    return plan.layout.path("implicit", plan.turns_at(method, seed, round).keys, method=method)


def run(snakemake: Any) -> None:
    """Run the rounds of Snakemake's job; an error in a stage is one line and ends the job."""
    experiment = from_mapping(snakemake.config)
    jobs.load_own_environment(experiment.env.name)
    plan = Plan(experiment, jobs.experiment_folder(str(snakemake.output[0])).parent)
    method, seed = str(snakemake.wildcards.method), int(snakemake.wildcards.seed)
    jobs.without_network()
    wildcards = {name: str(value) for name, value in snakemake.wildcards.items()}
    with failures.recorded(snakemake.rule, wildcards, str(plan.layout.root)):
        _check_gpu(snakemake)
        run_rounds(plan, method, seed, list(snakemake.params["rounds"]), threads=int(snakemake.threads))
    for path in map(str, snakemake.output):  # even of existing outputs, which are up to date with these inputs
        with suppress(FileNotFoundError):  # a file that appears late: Snakemake waits for it, and names it
            os.utime(path)


def _check_gpu(snakemake: Any) -> None:
    """As a job of one stage does before its work: end with one line if no GPU is seen."""
    try:
        preflight.check_gpu("rounds", int(snakemake.resources.get("gpu", 0)))
    except UserError as error:
        line = f"{snakemake.rule}: {error}"
        print(line, file=sys.stderr, flush=True)
        raise failures.JobFailed(failures.USER_ERROR, line, None) from None


def run_rounds(plan: Plan, method: str, seed: int, rounds: Sequence[int], *, threads: int = 1) -> None:
    """Run the stages of these rounds of a run that are not up to date, one after another, in this process."""
    store = Store(keep=True)
    passing = passing_policies(plan, method, seed, rounds)
    jobs.clear_leftovers(passing)
    again = _made_again(plan, steps_of_block(plan, method, seed, rounds), passing, store)
    games = [plan.layout.path("tasks", split=split) for split in ("train", "eval")]
    given = "threads" in plan.experiment.resource("rounds").model_fields_set
    for number, round in enumerate(rounds):
        for stage, at in steps_of_round(plan, method, seed, round):
            # `resources.rounds` gives its threads to all stages; otherwise they are the most that one of them asks for.
            most = threads if given else min(threads, plan.experiment.resource(stage).threads)
            job = plan.job(stage, at, threads=most, store=store)
            if not _is_made(plan, job, _gone(passing) - again):
                _run_with_room(plan, job)
        if number:
            for before in (plan.policy_before(method, seed, round), _implicit(plan, method, seed, round - 1)):
                if before in passing:
                    remove_folder(before)
        policy = plan.layout.path("policy", method=method, seed=seed, round=round)
        store.forget([*games, policy, plan.sft_policy(At(method=method))])


def _run_with_room(plan: Plan, job: Job) -> None:
    """Run one stage. One that samples with vLLM gets the whole GPU, and leaves it to the next.

    vLLM refuses to start in a process of its own where less than the share of memory that it takes (92%) is free. So
    does a judge's server, for which the engine that samples, and otherwise sleeps until it is needed, ends.
    """
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
    """The deleted policies that a stage still needs: one that is not up to date, or that makes such a policy again.

    An evaluation on other games needs the policy of its round, and so all before it.
    """
    gone = deleted = _gone(passing)
    for step in reversed(steps) if deleted else ():  # a policy is made before it is read
        job = plan.job(*step, store=store)
        if not _is_made(plan, job, gone):
            gone = gone - {path for name in job.input for path in job.paths(name)}
    return deleted - gone


def run_stage(plan: Plan, job: Job) -> None:
    """Run one stage as a job of its own would: announced, logged and measured. Ends the process if it fails."""
    output = {**job.output, "metrics": plan.metrics(job.stage, job.at)}
    log = f"{plan.layout.root}/{fill(LOGS[job.stage], plan.keys(job.at))}"
    described = jobs.Description(
        stage=job.stage,
        rule=job.stage,
        slice=job.config.model_dump(mode="json"),
        config=plan.experiment.model_dump(mode="json"),
        input=job.input,
        output=output,
        wildcards={key: str(value) for key, value in job.at.keys.items()},
        log=log,
        threads=job.threads,
    )
    with jobs.failing_in_one_line(described.label):
        jobs.write_description(described)
    jobs.carry_out(described, lambda: load(job.stage).run(job))
