"""An experiment's requirements of its environment: capabilities, checked before any job; measures to record."""

from __future__ import annotations

from turncredit import agents
from turncredit.config import Experiment
from turncredit.credit.configured import configured_method
from turncredit.credit_models.settings import required_capabilities
from turncredit.envs.environment import Environment
from turncredit.envs.protocol import CAPABILITIES, MEASURES
from turncredit.errors import UserError


def credited(experiment: Experiment) -> list[str]:
    """The methods whose credit is computed, each once: those that are trained, and those that an audit compares."""
    compared = experiment.audit_methods() if experiment.audit.rounds else ()
    return list(dict.fromkeys([*(name for name in experiment.methods if name != "sft"), *compared]))


def measures(experiment: Experiment, environment: Environment) -> frozenset[str]:
    """Which of `progress` and `distance` rollouts must record, because something in the experiment reads them.

    These are the measures that a credited method or its learned model needs, and, with an audit, all that the
    environment has: branches record the change of distance, pages show both. A method from a user's own file may read
    any column, so it gets all of them. Columns of other measures are null.
    """
    names = credited(experiment)
    own_files = any(experiment.define[name].credit for name in names if name in experiment.define)
    needed = {measure for name in names for measure in required_capabilities(experiment, name)}
    if experiment.audit.rounds or own_files:
        needed |= environment.capabilities
    return frozenset(needed & set(MEASURES))


def check_capabilities(experiment: Experiment, environment: Environment) -> None:
    """Raise UserError, one line, if the experiment needs something that the environment does not provide."""

    def lacks(capability: str) -> str:
        return f"the environment's {CAPABILITIES[capability]}, which '{environment.name}' does not have"

    have = environment.capabilities
    for name in credited(experiment):
        missing = [capability for capability in required_capabilities(experiment, name) if capability not in have]
        if missing and name in experiment.methods:
            raise UserError(f"config: methods: '{name}' needs {lacks(missing[0])}")
        if missing:
            listed = "" if experiment.audit.methods else " (the audit compares it unless audit.methods names others)"
            raise UserError(f"config: audit.methods: '{name}' needs {lacks(missing[0])}{listed}")
    if experiment.audit.rounds and "snapshot" not in have:
        raise UserError(f"config: audit.rounds: branching needs {lacks('snapshot')}; set audit.rounds to []")
    agent = agents.load(experiment.agent.name)
    for name in credited(experiment):
        if agent.hindsight is None and configured_method(experiment, name).reader == "hindsight":
            raise UserError(f"config: methods: '{name}' reads turns in hindsight, and {agent.cannot_look_back()}")
    chosen = experiment.agent
    lists = agent.shows_admissible and chosen.chosen().settings.get("show_admissible", True)
    if lists and "admissible" not in have:
        key = f"agent.{chosen.owner}.show_admissible"
        raise UserError(f"config: agent: '{agent.name}' shows {lacks('admissible')}; set {key} to false")
    demos = experiment.demos
    if "expert" not in have:
        raise UserError(f"config: demos: demonstrations need {lacks('expert')}")
    for key, share, possible in (
        ("noise", demos.noise, environment.acts_at_random),
        ("slips", demos.slips, environment.slip_command is not None or "admissible" in have),
    ):
        if share and not possible:
            command = {"noise": "random_command", "slips": "slip_command"}[key]
            raise UserError(f"config: demos.{key}: needs {lacks('admissible')}, nor a {command}; set it to 0")
    if demos.skip and not environment.takes_skip():
        raise UserError(f"config: demos.skip: the expert of '{environment.name}' cannot skip steps; set it to 0")
