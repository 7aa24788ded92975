"""How long the rollouts of an experiment are: turns, and tokens of contexts and responses."""

from __future__ import annotations

from typing import NamedTuple

from turncredit import agents, envs
from turncredit.config import Experiment
from turncredit.pipeline.resources.assumed import TYPICAL
from turncredit.policy.shapes import Shapes


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
