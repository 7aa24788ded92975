"""Seconds that jobs take on a GPU: what they play and read, by stage."""

from __future__ import annotations

import math
from collections.abc import Iterable

from turncredit.config import stages
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.learned_models import judge_shapes, shapes
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.assumed import A100, STARTS, TYPICAL
from turncredit.pipeline.resources.work import Played, Work, env_lengths
from turncredit.policy.shapes import BYTES


def gpu_seconds(plan: Plan, stage: str, at: JobKeys) -> float:
    """Seconds that a job of this stage alone takes on its GPU; 0 for a stage without one, or with an unknown model."""
    return gpu_seconds_in_turn(plan, [(stage, at)])[0]


def gpu_seconds_in_turn(plan: Plan, steps: Iterable[tuple[str, JobKeys]]) -> list[float]:
    """`gpu_seconds` of each of the stages that one job runs in turn.

    The first includes the start of the process. vLLM sleeps between stages that sample, and ends before a judge starts.
    """
    experiment, seconds = plan.experiment, []
    process = engine = False
    for stage, at in steps:
        served = experiment.serves(stage)
        samples = stages.stage(stage).policy == "samples" and experiment.policy.engine == "vllm"
        model = judge_shapes(experiment) if served else shapes(experiment)
        if not experiment.gpus(stage) or model is None:
            seconds.append(0.0)
            continue
        billions = model.parameters / 1e9
        start = 0.0 if process else STARTS.process
        if samples and engine:
            start = STARTS.vllm_wakes + STARTS.vllm_wakes_a_billion * billions
        elif samples or served:
            start = STARTS.vllm + STARTS.vllm_a_billion * billions
        process, engine = True, samples or (engine and not served)
        work, gpu_work = Work(plan, at, model), stages.stage(stage).gpu_work
        computed = gpu_work(work) if gpu_work and not served else 0.0
        if served:
            start += _judging(work)
        elif isinstance(computed, Played):
            start += _sampling(work, computed)
        else:
            start += float(computed / (A100.operations * A100.reached))
        seconds.append(start)
    return seconds


def longest(plan: Plan, stage: str) -> float:
    """Seconds of the longest job of a stage on its GPU, of any method (see `gpu_seconds`)."""
    experiment = plan.experiment
    audited = {at.policy: at for at in plan.audited}.values()
    match stages.stage(stage).phase:
        case "audit":
            jobs: list[JobKeys | None] = list(audited)
        case "round" | "signal":
            seed, rounds = experiment.seeds[0], (1, experiment.rounds)
            learned = [(plan.turns_at(name, seed, round), name) for name in experiment.trained() for round in rounds]
            compared = [(at, name) for at in audited for name in plan.audit_methods]
            jobs = [plan.keys_for(stage, turns, name) for turns, name in (*learned, *compared)]
        case _:
            jobs = [JobKeys()]
    return max((gpu_seconds(plan, stage, at) for at in dict.fromkeys(filter(None, jobs))), default=0.0)


def _sampling(work: Work, played: Played) -> float:
    """Seconds of playing: each step of decoding reads all weights and the caches, and prompts are read.

    No rollout waits for another, so a wave of rollouts takes as many steps as a mean rollout has tokens. Each of
    several engines plays its share of the slots.
    """
    model, policy = work.model, work.experiment.policy
    slots = min(work.rollout.slots, played.at_once)
    share = math.ceil(slots / policy.sample_engines)
    step = BYTES[policy.dtype] * model.parameters + model.cache(share * work.length.mean, "bfloat16")
    waves = math.ceil(played.rollouts / slots)
    decoded = waves * played.turns * work.length.response * step / (A100.bandwidth * A100.decoded)
    read = model.passes(int(played.rollouts * played.turns * work.length.fresh)) / policy.sample_engines
    return (decoded + read / (A100.operations * A100.reached)) / policy.sample_gpus


def _judging(work: Work) -> float:
    """Seconds of a judge's answers, one for each turn, none of them cached. The rubric is read once.

    vLLM answers as many questions at a time as its cache holds, and queues the rest.
    """
    judge, model, questions = work.experiment.judge, work.model, work.rollouts * work.turns
    lengths = env_lengths(work.experiment)
    shown = (2 * judge.window + 1) * (lengths.observation + lengths.action + TYPICAL.markup)
    longest = TYPICAL.response * judge.max_tokens
    without_thinking = TYPICAL.reasoned if judge.structured == "never" else TYPICAL.answer
    answer = longest if judge.thinking else min(without_thinking, longest)
    held = TYPICAL.question + shown + answer / 2
    weights, cache = BYTES["bfloat16"] * model.parameters, model.cache(int(held), "bfloat16")
    room = work.experiment.gpus("label") * A100.memory * A100.vllm - weights
    at_once = max(1, min(judge.in_flight, int(questions), int(room / cache)))
    step = weights + at_once * cache
    decoded = math.ceil(questions / at_once) * answer * step / (A100.bandwidth * A100.decoded)
    return decoded + model.passes(int(questions * shown)) / (A100.operations * A100.reached)
