"""What a job computes on a GPU, in the terms in which a stage's record says it (`gpu_work`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from turncredit.config import Experiment, RolloutConfig
from turncredit.pipeline.job import At
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.assumed import TYPICAL
from turncredit.pipeline.resources.lengths import Contexts, contexts, rebuilds_context
from turncredit.policy.shapes import Shapes


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
