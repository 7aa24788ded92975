"""The training loop: which stages a run goes through, round by round.

This is the one definition of their order. Snakemake's rules, jobs of several rounds, `turncredit plan`, `status` and
`where` all follow it. A step is a stage's name and the keys of its job; what a stage reads, computes and writes is in
its own file, `turncredit/pipeline/stages/<stage>.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from turncredit.config.layout import IMPLICIT, of_sft
from turncredit.config.stages import stage, stages_in
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan

#: A stage and the keys of one of its jobs.
Step = tuple[str, JobKeys]


def run(plan: Plan, method: str, seed: int) -> Iterator[Step]:
    """Every step of a run: the rounds of one method with one seed."""
    for round in range(1, plan.experiment.rounds + 1):
        yield from one_round(plan, method, seed, round)


def one_round(plan: Plan, method: str, seed: int, round: int) -> Iterator[Step]:
    """The steps of one round of a run.

    Round 1 samples with the SFT policy, whose rollouts all methods share; later rounds with the policy that the round
    before has made.
    """
    turns = plan.turns_at(method, seed, round)

    def step(name: str) -> Step:
        return name, stage(name).keys(plan, turns, method)

    yield step("rollout")
    for signal in stages_in("signal"):  # what the method's credit reads: labels, values of a model, second passes, ...
        keys = signal.keys(plan, turns, method) if signal.needed(plan, method) else None
        if keys is not None:
            yield signal.name, keys
    yield step("credit")
    yield step("update")
    if round in plan.experiment.eval_rounds():
        yield step("eval")
    if round == plan.experiment.rounds:
        yield "invariants", JobKeys(method=method, seed=seed)


def is_shared(keys: JobKeys) -> bool:
    """Whether methods share the job with these keys.

    They share round-1 rollouts of an SFT policy, and everything computed from them that depends on no method.
    """
    return not keys.method and of_sft(keys.policy) and not keys.scorer.startswith(IMPLICIT)


def block(plan: Plan, method: str, seed: int, rounds: Sequence[int]) -> list[Step]:
    """The steps of these rounds that one job of several rounds does: what is the run's own.

    With granularity `round` the run's invariants are a job of their own.
    """
    apart = plan.experiment.granularity == "round" and len(plan.experiment.blocks()) > 1
    steps = (step for round in rounds for step in one_round(plan, method, seed, round))
    return [(name, keys) for name, keys in steps if not is_shared(keys) and not (apart and name == "invariants")]


def block_of(plan: Plan, name: str, keys: JobKeys) -> tuple[str, range] | None:
    """The method and the rounds whose job does this step; None if it is a job of its own."""
    own_model = keys.scorer.startswith(IMPLICIT)
    method = keys.method or (keys.scorer.removeprefix(IMPLICIT) if own_model else keys.policy)
    if plan.experiment.granularity == "stage" or (method, keys.seed) not in plan.experiment.runs():
        return None
    round = plan.experiment.rounds if keys.round < 0 else keys.round
    if (name, keys) not in block(plan, method, keys.seed, [round]):
        return None
    return method, next(rounds for rounds in plan.experiment.blocks() if round in rounds)
