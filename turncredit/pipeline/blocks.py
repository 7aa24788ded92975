"""Inputs and resources of a multi-round Snakemake job (`rounds`). Planning thousands of them must stay fast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from turncredit.config import ResourceConfig
from turncredit.pipeline import loop
from turncredit.pipeline import resources as needs
from turncredit.pipeline.all_jobs import made_paths, maker, read_paths
from turncredit.pipeline.job import Inputs
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.playing import plays


def resource_of_block(plan: Plan, method: str, seed: int, rounds: Sequence[int]) -> ResourceConfig:
    """What a block's job asks for: the most of any of its stages and the sum of their runtimes.

    A vLLM that has sampled sleeps while other stages run. `resources.rounds` replaces these, but not with fewer GPUs
    than the model is trained on.
    """
    steps = loop.block(plan, method, seed, rounds)
    asked = {stage: needs.resource(plan, stage) for stage in dict(steps)}
    resources = [asked[stage] for stage, _ in steps]
    asleep = needs.asleep_mb(plan) if any(plays(stage) for stage in asked) else 0
    memory = {stage: one.mem_mb + (0 if plays(stage) else asleep) for stage, one in asked.items() if one.mem_mb}
    asks = {
        "mem_mb": max(memory.values()),
        "gpu": max(one.gpu or 0 for one in resources),
        "threads": max(one.threads or 1 for one in resources),
        "runtime": sum(one.runtime for one in resources if one.runtime is not None),
    }
    if "rounds" in plan.experiment.resources:
        given = plan.experiment.resource("rounds").model_dump(exclude_unset=True, exclude_none=True)
        asks |= given
        asks["gpu"] = max(asks["gpu"], plan.experiment.gpus("rounds"))
    return ResourceConfig(**asks)


def stages_of_a_job(plan: Plan) -> dict[str, float]:
    """How many jobs of each stage a job of several rounds runs, in the mean over methods and blocks; empty without."""
    experiment = plan.experiment
    if experiment.granularity == "stage":
        return {}
    every = [(method, block) for method in experiment.trained() for block in experiment.blocks()]
    seed = experiment.seeds[0]
    count = Counter(stage for method, block in every for stage, _ in loop.block(plan, method, seed, block))
    return {stage: number / len(every) for stage, number in count.items()}


def inputs_of_block(plan: Plan, method: str, seed: int, rounds: Sequence[int]) -> list[str]:
    """The inputs of a block: for the first block, everything its stages read that other jobs write, each path once.

    Later blocks name the policy of the round before, which implies the rest, and the games of evaluations. This keeps
    planning many runs fast.
    """
    if rounds[0] > 1:
        evaluates = not set(rounds).isdisjoint(plan.experiment.eval_rounds())
        games = [plan.layout.path("tasks", split="eval")] if evaluates else []
        return [plan.policy_before(method, seed, rounds[0]), *games]
    steps = loop.block(plan, method, seed, rounds)
    inside = {path for step in steps for path in made_paths(plan, step)}
    paths = dict.fromkeys(path for step in steps for path in read_paths(plan, step).values())
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


def parts(plan: Plan, method: str, rounds: Sequence[int]) -> dict[str, Any]:
    """Each stage's part of the configuration in these rounds of a method, the same for all seeds."""
    steps = loop.block(plan, method, plan.experiment.seeds[0], rounds)
    return {f"{stage} {at.round:02d}": plan.slice(stage, at).model_dump(mode="json") for stage, at in steps}


def declared(plan: Plan, inputs: Inputs) -> Inputs:
    """The inputs of a job as Snakemake knows them: the last policy of a job of rounds stands for all that it makes."""

    def by_output(path: str) -> str:
        step = maker(plan, path)
        # A run's invariants are declared themselves.
        inside = loop.block_of(plan, *step) if step is not None and step[0] != "invariants" else None
        if step is None or inside is None:
            return path
        method, rounds = inside
        return plan.layout.path("policy", method=method, seed=step[1].seed, round=rounds[-1])

    return {
        name: by_output(value) if isinstance(value, str) else list(dict.fromkeys(map(by_output, value)))
        for name, value in inputs.items()
    }
