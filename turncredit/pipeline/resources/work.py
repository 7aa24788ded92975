"""What a job computes, in the terms in which a stage's record says it (`gpu_work`), and the sizes behind that."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from turncredit import agents, envs
from turncredit.config import Experiment, RolloutConfig
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.assumed import TYPICAL
from turncredit.policy.shapes import BYTES, Shapes


class Contexts(NamedTuple):
    """Tokens of the longest and of a mean context with its response, and turns of the longest rollout."""

    longest: int
    mean: int
    turns: int


def contexts(experiment: Experiment, shapes: Shapes) -> Contexts:
    """The lengths of the agents' contexts: as they limit them, else the turns that they show, with mean responses."""
    environment = envs.load(experiment.env.name)
    settings = environment.Settings.model_validate(experiment.env.chosen().settings)
    turns = int(getattr(settings, "horizon", None) or TYPICAL.horizon)
    longest = mean = 0
    for config in (experiment.agent, *experiment.agents.values()):
        own = agents.load(config.name).Settings.model_validate(config.chosen().settings)
        response = config.max_response_tokens
        limit = getattr(own, "max_prompt_tokens", None)
        shown = min(turns, getattr(own, "history", turns - 1) + 1)
        a_turn = TYPICAL.observation + TYPICAL.response * response
        most = min(limit + response if limit else TYPICAL.instruction + int(shown * a_turn), shapes.positions)
        some = TYPICAL.instruction + int(min(shown, TYPICAL.turns * turns / 2) * a_turn)
        longest, mean = max(longest, most), max(mean, min(some, most))
    return Contexts(longest, mean, turns)


def mean_response(experiment: Experiment) -> float:
    """Tokens of a mean response, of the agent whose responses may be the longest."""
    return TYPICAL.response * max(
        agent.max_response_tokens for agent in (experiment.agent, *experiment.agents.values())
    )


def rebuilds_context(experiment: Experiment) -> bool:
    """Whether the agent rebuilds the context each turn, so that a rollout has one sequence per turn."""
    return not agents.load(experiment.agent.name).append_only


def round_turns(experiment: Experiment, shapes: Shapes) -> float:
    """Turns of a round's rollouts, the most."""
    return experiment.rollout.tasks * experiment.rollout.group_size * contexts(experiment, shapes).turns


def trained_parameters(experiment: Experiment, model: Shapes) -> int:
    """The number of parameters that are trained: all, or an adapter's."""
    lora = experiment.policy.lora
    return model.parameters if lora is None else model.adapter(lora.rank, lora.targets)


def stepped_type(experiment: Experiment) -> str:
    """The type of trained weights: adapters are float32."""
    policy = experiment.policy
    return "float32" if policy.lora else policy.train_dtype


def saved(experiment: Experiment, model: Shapes, *, moments: bool) -> float:
    """Bytes of a trained policy's folder, with or without the optimiser's moments."""
    each = BYTES[stepped_type(experiment)] + (2 * BYTES[experiment.policy.moments_dtype] if moments else 0)
    return each * trained_parameters(experiment, model)


@dataclass(frozen=True)
class Work:
    """A job, and the sizes that its time follows from; `model` is the policy, or the judge that the job serves."""

    plan: Plan
    at: JobKeys
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

    @property
    def turns_left(self) -> float:
        """Mean turns from the state before a turn to the rollout's end: (T + 1) / 2 of T (docs/methods/vineppo.md)."""
        return (self.turns + 1) / 2

    @property
    def gradient_passes(self) -> float:
        """Forward passes that cost as much as one with its gradient. A backward pass costs two, or one with LoRA."""
        return 1.0 + (1.0 if self.experiment.policy.lora else 2.0)

    def forward(self, rollouts: float) -> float:
        """bf16 operations of a pass over the sequences of so many rollouts."""
        contexts_read = self.turns if rebuilds_context(self.experiment) else 2
        return self.model.passes(int(rollouts * contexts_read * self.length.mean))


class Played(NamedTuple):
    """What a job plays: rollouts, or continuations of them; the mean turns of each; how many at a time, at the most."""

    rollouts: int
    turns: float
    at_once: int


def second_pass(work: Work) -> float:
    """bf16 operations of a pass over a round's sequences."""
    return work.forward(work.rollouts)
