"""An experiment's requirements of its environment, checked before any job; which methods read measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from turncredit import agents
from turncredit.config import Experiment
from turncredit.credit.models.settings import model_capabilities, required_capabilities
from turncredit.credit.parts.compose import Method
from turncredit.credit.parts.configured import compared_methods, configured_method, forks_of
from turncredit.data.tables import MEASURES
from turncredit.envs.environment import Environment
from turncredit.envs.protocol import CAPABILITIES
from turncredit.errors import UserError


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


def check_capabilities(experiment: Experiment, environment: Environment, methods: Sequence[Credited]) -> None:
    """Raise UserError, one line, if the experiment needs something that the environment does not provide.

    `methods` are those of `credited(experiment)`.
    """
    for one in methods:
        _check_needs(experiment, environment, one.method)
    _check_branching(experiment, environment)
    _check_audited_trials(experiment)
    for one in methods:
        _check_trials(experiment, one)
    for one in methods:
        _check_hindsight(experiment, one)
    for start in experiment.starts():
        _check_shown(experiment, environment, start)
    _check_demonstrations(experiment, environment)


def _lacks(environment: Environment, capability: str) -> str:
    return f"the environment's {CAPABILITIES[capability]}, which '{environment.name}' does not have"


def _check_needs(experiment: Experiment, environment: Environment, method: Method) -> None:
    """Raise UserError for a method that needs something of the environment for its credit, or for its model."""
    missing = [capability for capability in needed(experiment, method) if capability not in environment.capabilities]
    if not missing:
        return
    lacks = f"'{method.name}' needs {_lacks(environment, missing[0])}"
    if method.name in experiment.methods:
        raise UserError(f"config: methods: {lacks}")
    listed = "" if experiment.audit.methods else " (the audit compares it unless audit.methods names others)"
    raise UserError(f"config: audit.methods: {lacks}{listed}")


def _check_branching(experiment: Experiment, environment: Environment) -> None:
    """Raise UserError for an audit in an environment whose states cannot be restored."""
    for capability in ("snapshot", "replay") if experiment.audit.rounds else ():
        if capability not in environment.capabilities:
            raise UserError(
                f"config: audit.rounds: branching needs {_lacks(environment, capability)}; set audit.rounds to []"
            )


def _agent_and_change(experiment: Experiment, run: str) -> tuple[str, str]:
    """The name of the agent of `run`, and how to take another."""
    agent = agents.load(experiment.agent_of(run).name)
    return agent.name, f"take another agent ({experiment.agent_key(run)}.name)"


def _check_audited_trials(experiment: Experiment) -> None:
    """Raise UserError for an audit, which reads a rollout as one trial, of an agent that plays several."""
    for run in experiment.audit.runs if experiment.audit.rounds else ():
        if trials(experiment, run) > 1:
            agent, instead = _agent_and_change(experiment, run)
            raise UserError(
                f"config: audit.rounds: '{agent}' plays several trials, an audit reads one; set it to [] or {instead}"
            )


def _check_trials(experiment: Experiment, one: Credited) -> None:
    """Raise UserError for a trained method that reads a rollout as one trial, with an agent that plays several."""
    if one.name not in experiment.methods or trials(experiment, one.name) == 1:
        return
    measured = [*measures_read(one.method), *model_capabilities(experiment, one.name)]
    reads = next((measure for measure in MEASURES if measure in measured), None)
    if reads is None and "labels" in one.method.needs and experiment.judge.kind == "rule":
        reads = "labels of the rule judge"
    if reads is not None:
        agent, instead = _agent_and_change(experiment, one.name)
        raise UserError(
            f"config: methods: '{one.name}' reads {reads}, that of one trial, and '{agent}' plays several; {instead}, "
            "or another method"
        )


def _check_hindsight(experiment: Experiment, one: Credited) -> None:
    """Raise UserError for a method that reads turns in hindsight, of an agent that cannot look back."""
    if one.method.reader != "hindsight":
        return
    for run in one.runs:
        agent, key = agents.load(experiment.agent_of(run).name), experiment.agent_key(run)
        if agent.hindsight is None:
            whose = "" if run == one.name or run not in experiment.methods else f" of '{run}'"
            raise UserError(
                f"config: methods: '{one.name}' reads turns{whose} in hindsight, and {agent.cannot_look_back(key)}"
            )


def _check_shown(experiment: Experiment, environment: Environment, start: str) -> None:
    """Raise UserError for an agent that shows the possible actions of an environment that does not list them."""
    chosen, key = experiment.agent_of(start), experiment.agent_key(start)
    agent = agents.load(chosen.name)
    lists = agent.shows_admissible and chosen.chosen().settings.get("show_admissible", True)
    if lists and "admissible" not in environment.capabilities:
        setting = f"{key}.{chosen.owner}.show_admissible"
        raise UserError(
            f"config: {key}: '{agent.name}' shows {_lacks(environment, 'admissible')}; set {setting} to false"
        )


def _check_demonstrations(experiment: Experiment, environment: Environment) -> None:
    """Raise UserError for demonstrations that the environment has no expert for, or whose mistakes it cannot make."""
    demos, have = experiment.demos, environment.capabilities
    if "expert" not in have:
        if experiment.sft.epochs or experiment.policy.source == "scratch":
            raise UserError(
                f"config: demos: demonstrations need {_lacks(environment, 'expert')}; without any, take a pretrained "
                "model (policy.source) and set sft.epochs to 0"
            )
        return
    for key, share, possible, command in (
        ("noise", demos.noise, environment.acts_at_random, "random_command"),
        ("slips", demos.slips, environment.slip_command is not None or "admissible" in have, "slip_command"),
    ):
        if share and not possible:
            raise UserError(
                f"config: demos.{key}: needs {_lacks(environment, 'admissible')}, nor a {command}; set it to 0"
            )
    if demos.skip and not environment.takes_skip():
        raise UserError(f"config: demos.skip: the expert of '{environment.name}' cannot skip steps; set it to 0")
