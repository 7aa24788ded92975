"""Checks of a configuration before any job runs."""

from __future__ import annotations

import json
from pathlib import Path

from turncredit import agents, envs, tables
from turncredit.config import AgentConfig, EnvConfig, Experiment, validated
from turncredit.credit.configured import compared_methods, configured_method, continuations_of, forks_of
from turncredit.credit_models.settings import model_settings
from turncredit.errors import UserError, nearest
from turncredit.judges.rule import knows
from turncredit.stages import implicit_model
from turncredit.stages.capabilities import check_capabilities, credited, measures_read, trials


def check(experiment: Experiment) -> None:
    """Raise UserError, one line, for mistakes that a job would run into: environment, agent, settings, methods."""
    environment = envs.load(experiment.env.name)
    _check_owners("env", experiment.env)
    settings = validated(environment.Settings, experiment.env.chosen().settings, f"env.{experiment.env.owner}")
    _check_agent(experiment)
    for name, entry in experiment.define.items():
        method = configured_method(experiment, name)
        if method.reader == "implicit":
            implicit_model.settings(experiment, name)
        elif "values" in method.needs or entry.model:
            model_settings(experiment, name)
        continuations_of(experiment, name)
        forks_of(experiment, name)
    check_capabilities(experiment, environment)
    for name in credited(experiment):
        _check_columns(experiment, name)
        side = [*configured_method(experiment, name).needs, *measures_read(experiment, name)]
        if forks_of(experiment, name) is not None and side:
            raise UserError(
                f"config: methods: '{name}' credits forks, and its part that reads {side[0]} has none for their turns; "
                "take that part away"
            )
        compared = experiment.audit.rounds and name in compared_methods(experiment)
        if compared and forks_of(experiment, name) is not None:
            raise UserError(
                f"config: audit.methods: '{name}' credits forks of its own rollouts, which those of an audit do not "
                "have; name the methods to compare without it, or set audit.rounds to []"
            )
        by_rule = "labels" in configured_method(experiment, name).needs and experiment.judge.kind == "rule"
        if by_rule and not knows(environment.name):
            raise UserError(
                f"config: methods: '{name}' reads labels, and the rule judge does not know the actions of "
                f"'{experiment.env.name}'; set judge.kind to llm, or choose another method"
            )
        if "values" in configured_method(experiment, name).needs:
            _check_turns(experiment, name, getattr(settings, "horizon", None))


def _check_columns(experiment: Experiment, name: str) -> None:
    """Raise UserError if a method reads columns that neither the turns nor the measures have."""
    agent = agents.load(experiment.agent.name)
    credited_table = "turns" if forks_of(experiment, name) is None else "forks"
    written = {*tables.schema(credited_table).names, *tables.MEASURED, *agent.turn_columns}
    missing = [column for column in configured_method(experiment, name).reads if column not in written]
    if missing:
        where = "methods" if name in experiment.methods else "audit.methods"
        raise UserError(
            f"config: {where}: '{name}' reads the columns {', '.join(missing)} of the turns, which the agent "
            f"'{agent.name}' does not write; choose an agent that does (agent.name), or another method"
        )


def _check_owners(block: str, config: EnvConfig | AgentConfig) -> None:
    """Raise UserError for settings under a name that looks like the chosen one's; those of others are not read."""
    for name in config.owners():
        if name != config.owner and (hint := nearest(name, [config.owner])):
            raise UserError(f"config: unknown key '{block}.{name}'{hint}")


def _check_agent(experiment: Experiment) -> None:
    """Raise UserError for an unknown agent, settings it does not have, and demonstrations that it cannot learn from."""
    agent = agents.load(experiment.agent.name)
    _check_owners("agent", experiment.agent)
    settings = validated(agent.Settings, experiment.agent.chosen().settings, f"agent.{experiment.agent.owner}")
    _check_context(experiment, getattr(settings, "max_prompt_tokens", None))
    written = {*tables.schema("demos").names, *envs.load(experiment.env.name).expert_columns}
    missing = [column for column in agent.demo_columns if column not in written]
    if missing and experiment.sft.epochs:
        raise UserError(
            f"config: agent: '{agent.name}' learns from the columns {', '.join(missing)} of the demonstrations, "
            f"which the expert of '{experiment.env.name}' does not write; take another agent, or no "
            "warm start (sft.epochs: 0)"
        )


def _check_context(experiment: Experiment, prompt: int | None) -> None:
    """Raise UserError if the contexts that the agent may make, with a response, are longer than the model can read."""
    positions, response = _positions(experiment), experiment.agent.max_response_tokens
    if prompt is None or positions is None or prompt + response <= positions:
        return
    raise UserError(
        f"config: agent.{experiment.agent.owner}.max_prompt_tokens is {prompt} and agent.max_response_tokens "
        f"{response}, but the model has {positions} positions; lower one of them, or take a model with more"
    )


def _positions(experiment: Experiment) -> int | None:
    """The length of the longest context of the model, where it is known before any job: not of a hub's model."""
    policy = experiment.policy
    if policy.source == "scratch":
        return policy.scratch.max_positions
    try:
        return json.loads((Path(policy.source) / "config.json").read_text()).get("max_position_embeddings")
    except (OSError, ValueError):  # the stage `base` says what is wrong with it
        return None


def _check_turns(experiment: Experiment, name: str, horizon: int | None) -> None:
    """Raise UserError if a rollout can be longer than the method's credit model can read."""
    kind, settings = model_settings(experiment, name)
    longest = getattr(settings, "max_turns", None)
    if longest is None or horizon is None:
        return
    tries = trials(experiment)
    needed = horizon * tries + tries - 1  # a lesson between two trials
    if longest < needed:
        played = f" and a rollout has up to {needed} turns in {tries} trials" if tries > 1 else ""
        raise UserError(
            f"config: methods: '{name}' reads at most {longest} turns (max_turns of its model {kind}), but "
            f"env.{experiment.env.owner}.horizon is {horizon}{played}; set define.{name}.model.max_turns"
        )
