"""Seconds that jobs take on a GPU: what they play and read, by stage."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from turncredit.config import Experiment, RolloutConfig
from turncredit.config.layout import named_continuations, named_forks
from turncredit.pipeline.job import At
from turncredit.pipeline.learned_models import judge_shapes, shapes
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.assumed import A100, STARTS, TYPICAL
from turncredit.pipeline.resources.lengths import Contexts, contexts, mean_response, rebuilds_context
from turncredit.policy.shapes import BYTES, Shapes

#: Share of a round's sequences that the invariants read again (analysis/logprobs.py: four rollouts).
CHECKED = 0.02


def gpu_seconds(plan: Plan, stage: str, at: At) -> float:
    """Seconds that a job of this stage alone takes on its GPU; 0 for a stage without one, or with an unknown model."""
    return gpu_seconds_in_turn(plan, [(stage, at)])[0]


def gpu_seconds_in_turn(plan: Plan, steps: Iterable[tuple[str, At]]) -> list[float]:
    """Seconds that each of the stages which one job runs in turn takes on its GPU, as `gpu_seconds`.

    The first one's include the start of the process. vLLM starts for the first that samples, sleeps until the next one,
    and ends before a judge is served.
    """
    experiment, seconds = plan.experiment, []
    process = engine = False
    for stage, at in steps:
        served = experiment.serves(stage)
        samples = stage in PLAYED and experiment.policy.engine == "vllm"
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
        seconds.append(start + _computing(Work(plan, at, model), stage, served=served))
    return seconds


def _computing(work: Work, stage: str, *, served: bool) -> float:
    """Seconds of a stage without anything's start."""
    if served:
        return _judging(work)
    if stage in PLAYED:
        return _sampling(work, PLAYED[stage](work))
    operations = OPERATIONS[stage](work) if stage in OPERATIONS else 0.0
    return operations / (A100.operations * A100.reached)


def longest(plan: Plan, stage: str) -> float:
    """Seconds of the longest job of a stage on its GPU, of any method (see `gpu_seconds`)."""
    experiment = plan.experiment
    audited = {at.policy: at for at in plan.audited}.values()
    jobs: list[At | None] = [At()] if stage in ("sft", "eval", "invariants") else []
    if stage in ("branch", "gradients"):
        jobs += audited
    elif not jobs:
        seed, rounds = experiment.seeds[0], (1, experiment.rounds)
        learned = [(plan.turns_at(name, seed, round), name) for name in experiment.trained() for round in rounds]
        compared = [(at, name) for at in audited for name in plan.audit_methods]
        jobs += [plan.keys_for(stage, turns, name) for turns, name in (*learned, *compared)]
    return max((gpu_seconds(plan, stage, at) for at in dict.fromkeys(filter(None, jobs))), default=0.0)


@dataclass(frozen=True)
class Work:
    """A job, and the sizes that its time follows from; `model` is the policy, or the judge that the job serves."""

    plan: Plan
    at: At
    model: Shapes

    @property
    def experiment(self) -> Experiment:
        """The job's experiment."""
        return self.plan.experiment

    @cached_property
    def rollout(self) -> RolloutConfig:
        """How the job's turns were sampled, or are."""
        return self.plan.sampling(self.at.policy) if self.at.policy else self.experiment.rollout

    @cached_property
    def length(self) -> Contexts:
        """The lengths of contexts."""
        return contexts(self.experiment, self.model)

    @property
    def rollouts(self) -> int:
        """The rollouts of a round."""
        return self.rollout.tasks * self.rollout.group_size

    @property
    def turns(self) -> float:
        """Turns of a mean rollout."""
        return TYPICAL.turns * self.length.turns

    def forward(self, rollouts: float) -> float:
        """Operations of a pass over the sequences of so many rollouts."""
        contexts_read = self.turns if rebuilds_context(self.experiment) else 2
        return self.model.passes(int(rollouts * contexts_read * self.length.mean))


# Stages in which a policy plays ---------------------------------------------------------------------------------------


class Played(NamedTuple):
    """What a job plays: rollouts, or continuations of them; the mean turns of each; how many at a time, at the most."""

    rollouts: int
    turns: float
    at_once: int


def _rollouts(work: Work) -> Played:
    return Played(work.rollouts, work.turns, work.rollouts)


def _evaluations(work: Work) -> Played:
    games = work.experiment.eval.games * len(work.experiment.eval.modes)
    return Played(games, work.turns, games)


def _turns_left(work: Work) -> float:
    """Mean turns from the state before a turn of a rollout to its end: (T + 1) / 2 of T (docs/methods/vineppo.md)."""
    return (work.turns + 1) / 2


def _continuations(work: Work) -> Played:
    """The same number from every state; one in any case, if the budget is small (rollouts/continuations.py)."""
    states, settings = work.rollouts * work.turns, named_continuations(work.at.continued)
    per_state = settings.per_state or 1
    if settings.budget_turns is not None:
        per_state = max(1, min(per_state, int(settings.budget_turns / (states * _turns_left(work)))))
    number = round(states * per_state)
    return Played(number, _turns_left(work), number)


def _forks(work: Work) -> Played:
    """Those of all tasks side by side, those of one task one after the other (docs/methods/carl.md)."""
    tasks = work.rollout.tasks
    return Played(tasks * named_forks(work.at.forked), _turns_left(work), tasks)


def _branches(work: Work) -> Played:
    """The most continuations of each sampled turn that the budget allows, the first of them in any case."""
    branch = work.experiment.audit.branch
    allowed = int(branch.budget_turns / (branch.turns * _turns_left(work)))
    number = branch.turns * max(branch.min_continuations, min(branch.max_continuations, allowed))
    return Played(number, _turns_left(work), number)


#: what a job plays, by stage
PLAYED: Mapping[str, Callable[[Work], Played]] = {
    "rollout": _rollouts,
    "eval": _evaluations,
    "continuations": _continuations,
    "forks": _forks,
    "branch": _branches,
}


def _sampling(work: Work, played: Played) -> float:
    """Seconds of playing: each step of decoding reads all weights and the caches, and prompts are read."""
    model, policy = work.model, work.experiment.policy
    slots = min(work.rollout.slots, played.at_once)
    step = BYTES[policy.dtype] * model.parameters + model.cache(slots * work.length.mean, "bfloat16")
    waves, response = math.ceil(played.rollouts / slots), mean_response(work.experiment)
    decoded = waves * played.turns * response * step / (A100.bandwidth * A100.decoded)
    # A prefix cache saves what contexts share, about half of a rebuilt one.
    fresh = work.length.mean / 2 if rebuilds_context(work.experiment) else TYPICAL.observation
    read = model.passes(int(played.rollouts * played.turns * fresh))
    return (decoded + read / (A100.operations * A100.reached)) / policy.sample_gpus


# Labels of a judge that the job serves --------------------------------------------------------------------------------


def _judging(work: Work) -> float:
    """Seconds of a judge's answers, one for each turn. The cache of earlier answers is taken to be empty.

    A question shows the turns around the one that is judged; its rubric is read once, and kept by vLLM's prefix cache.
    """
    judge, model, questions = work.experiment.judge, work.model, work.rollouts * work.turns
    shown = (2 * judge.window + 1) * TYPICAL.observation
    longest = TYPICAL.response * judge.max_tokens
    answer = longest if judge.thinking else min(TYPICAL.answer, longest)
    at_once = min(judge.concurrency, questions)
    held = TYPICAL.instruction + shown + answer / 2
    step = BYTES["bfloat16"] * model.parameters + model.cache(int(at_once * held), "bfloat16")
    decoded = math.ceil(questions / at_once) * answer * step / (A100.bandwidth * A100.decoded)
    return decoded + model.passes(int(questions * shown)) / (A100.operations * A100.reached)


# Stages that read or train --------------------------------------------------------------------------------------------


def _gradient_passes(experiment: Experiment) -> float:
    """Forward passes that cost as much as one with its gradient: a backward pass costs two, one without weights'."""
    return 1.0 + (1.0 if experiment.policy.lora else 2.0)


def _sft(work: Work) -> float:
    experiment = work.experiment
    shown = experiment.demos.count * experiment.sft.epochs
    return _gradient_passes(experiment) * work.forward(shown) / experiment.policy.train_gpus


def _update(work: Work) -> float:
    experiment = work.experiment
    update = experiment.section_for(work.at.method, "update") if work.at.method else experiment.update
    passes = update.epochs * (_gradient_passes(experiment) + update.gradient_checkpointing)
    passes += (update.kl != "none") + (update.old_logprobs == "recomputed")
    return passes * work.forward(work.rollouts) / experiment.policy.train_gpus


def _implicit_model(work: Work) -> float:
    return _gradient_passes(work.experiment) * work.forward(work.rollouts)


def _second_pass(work: Work) -> float:
    return work.forward(work.rollouts)


def _gradients(work: Work) -> float:
    return 3.0 * work.forward(work.rollouts)


def _invariants(work: Work) -> float:
    return CHECKED * work.experiment.rounds * work.forward(work.rollouts)


#: bf16 operations of a job, by stage; other stages compute next to nothing on a GPU, but labels of a served judge
OPERATIONS: Mapping[str, Callable[[Work], float]] = {
    "sft": _sft,
    "update": _update,
    "implicit_model": _implicit_model,
    "hiddens": _second_pass,
    "logprobs": _second_pass,
    "gradients": _gradients,
    "invariants": _invariants,
}
