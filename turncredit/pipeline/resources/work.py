"""What a job computes, in the terms in which a stage's record says it (`gpu_work`), and the sizes behind that."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from turncredit import agents, envs
from turncredit.agents.action_forms import action_forms
from turncredit.config import Experiment, RolloutConfig
from turncredit.config.sections import AgentSlice
from turncredit.envs.environment import Lengths
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.assumed import TYPICAL
from turncredit.policy.shapes import BYTES, Shapes


class Contexts(NamedTuple):
    """The lengths of an agent's contexts.

    longest   tokens of the longest context, with its response
    mean      tokens of a mean context, with its response
    whole     tokens of all sequences of a mean rollout: one a turn, or one of all turns where contexts only grow
    response  tokens of a mean response
    fresh     tokens of a mean prompt that an engine with a prefix cache has to read
    turns     turns of the longest rollout
    """

    longest: int
    mean: int
    whole: int
    response: int
    fresh: int
    turns: int


def contexts(experiment: Experiment, shapes: Shapes, agent: AgentSlice | None = None) -> Contexts:
    """The lengths of the contexts of `agent`; without one, of each the largest among the experiment's agents."""
    every = [agent] if agent else [one.chosen() for one in (experiment.agent, *experiment.agents.values())]
    found = [_contexts(experiment, shapes, one) for one in every]
    return Contexts(*map(max, zip(*found, strict=True)))


def env_lengths(experiment: Experiment) -> Lengths:
    """Mean tokens of the environment's texts."""
    environment = envs.load(experiment.env.name)
    return environment.lengths(environment.Settings.model_validate(experiment.env.chosen().settings))


def _contexts(experiment: Experiment, shapes: Shapes, agent: AgentSlice) -> Contexts:
    """By what the agent shows of a rollout, and how long the environment's texts are."""
    environment, spec = envs.load(experiment.env.name), agents.load(agent.name)
    settings = environment.Settings.model_validate(experiment.env.chosen().settings)
    own, words, lengths = spec.Settings.model_validate(agent.settings), environment.words, env_lengths(experiment)
    shown = spec.shown(own, words)
    turns = int(getattr(settings, "horizon", None) or TYPICAL.horizon)
    response = TYPICAL.response * agent.max_response_tokens
    whole_turns = turns if shown.turns is None else shown.turns
    forms = lengths.admissible if spec.lists_admissible(agent.settings, words) else _tokens(action_forms(words))
    opening = lengths.first if whole_turns >= turns - 1 else lengths.observation
    a_turn = lengths.observation + TYPICAL.markup + (response if shown.responses else lengths.action)

    def prompt(turn: int) -> float:
        whole = min(turn - 1, whole_turns)
        return shown.own + lengths.goal + forms + opening + whole * a_turn + (turn - 1 - whole) * shown.folded

    limit = min(getattr(own, "max_prompt_tokens", None) or shapes.positions, shapes.positions)
    played = range(1, max(1, round(TYPICAL.turns * turns)) + 1)
    mean = sum(min(prompt(turn), limit) for turn in played) / len(played)
    longest = min(TYPICAL.longest * prompt(turns), limit) + agent.max_response_tokens
    last = min(prompt(len(played)), limit) + response
    return Contexts(
        longest=int(min(longest, shapes.positions)),
        mean=int(min(mean + response, shapes.positions)),
        whole=int(last if spec.append_only else len(played) * (mean + response)),
        response=int(response),
        # What is rebuilt shares about half with the prompt before.
        fresh=int(lengths.observation + TYPICAL.markup if spec.append_only else mean / 2),
        turns=turns,
    )


def _tokens(text: str) -> int:
    """About how many tokens a text has."""
    return round(len(text) / TYPICAL.characters)


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
        """The lengths of the contexts of the agent that plays, or has played."""
        return contexts(self.experiment, self.model, self.plan.agent(self.at))

    @property
    def rollouts(self) -> int:
        """The rollouts of a round."""
        return self.rollout.tasks * self.rollout.group_size

    @property
    def learned(self) -> int:
        """The rollouts that a round's update learns from: as the job's method samples them, with its forks."""
        rollout = self.experiment.section_for(self.at.method, "rollout")
        forks = self.plan.forks_per_task(self.at.method) if self.at.method else None
        return rollout.tasks * (rollout.group_size + (forks or 0))

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
        return self.model.passes(int(rollouts * self.length.whole))


class Played(NamedTuple):
    """What a job plays: rollouts, or continuations of them; the mean turns of each; how many at a time, at the most."""

    rollouts: int
    turns: float
    at_once: int


def second_pass(work: Work) -> float:
    """bf16 operations of a pass over a round's sequences."""
    return work.forward(work.rollouts)
