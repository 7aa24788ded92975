"""What the methods of an experiment need of its environment, and which of them read measures."""

from __future__ import annotations

from typing import NamedTuple

from turncredit import agents
from turncredit.config import Experiment
from turncredit.credit.models.settings import model_capabilities, required_capabilities
from turncredit.credit.parts.compose import Method
from turncredit.credit.parts.configured import compared_methods, configured_method, forks_of
from turncredit.data.tables import MEASURES
from turncredit.envs.environment import Environment


class Credited(NamedTuple):
    """A method whose credit is computed, by its name in the configuration.

    runs    the runs whose turns it credits: its own if it is trained, the audited ones if the audit compares it
    forks   how many forks of each task it credits; None where it credits rollouts alone
    """

    name: str
    method: Method
    runs: tuple[str, ...]
    forks: int | None


def credited(experiment: Experiment) -> list[Credited]:
    """The methods that are trained, then others that the audit compares. Raises UserError for one that is not known."""
    runs: dict[str, list[str]] = {name: [name] for name in experiment.trained()}
    for name in compared_methods(experiment):
        runs[name] = [*runs.get(name, ()), *experiment.audit.runs]
    return [
        Credited(name, configured_method(experiment, name), tuple(dict.fromkeys(own)), forks_of(experiment, name))
        for name, own in runs.items()
    ]


def trials(experiment: Experiment, who: str) -> int:
    """The largest number of trials in a rollout of `who`, a method or turns by their key `policy`."""
    chosen = experiment.agent_of(who).chosen()
    return agents.load(chosen.name).trials_of(chosen.settings)


def measurable(experiment: Experiment, environment: Environment, who: str) -> bool:
    """Whether progress or distance of the rollouts of `who` (as for `trials`) can be computed by replaying them."""
    have = environment.capabilities
    return "replay" in have and not have.isdisjoint(MEASURES) and trials(experiment, who) == 1


def measures_read(method: Method) -> list[str]:
    """Which of progress and distance the credit of `method` reads, by the columns that it names."""
    return [measure for measure, its in MEASURES.items() if not set(its).isdisjoint(method.reads)]


def credit_reads_measures(experiment: Experiment, environment: Environment, method: Method) -> bool:
    """Whether the credit of `method` gets measures. A user's own file may read any column, so it gets them."""
    undeclared = not method.declares_reads
    return bool(measures_read(method)) or (undeclared and measurable(experiment, environment, method.name))


def model_reads_measures(experiment: Experiment, name: str) -> bool:
    """Whether the learned credit model of the method `name` is trained on measures."""
    return not set(MEASURES).isdisjoint(model_capabilities(experiment, name))


def needed(experiment: Experiment, method: Method) -> list[str]:
    """The capabilities that `method` needs, its credit model included."""
    named = dict.fromkeys([*required_capabilities(experiment, method.name), *measures_read(method)])
    return [*named, *(["replay"] if not named.keys().isdisjoint(MEASURES) else [])]
