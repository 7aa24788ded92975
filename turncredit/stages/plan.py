"""What the pipeline must know before a job runs: whether the configuration can work, and what each stage reads of it.

`reads` is the part of the configuration that decides a job's result. Snakemake keeps it with the job's output and
runs the job again when it has changed, and only then.
"""

from __future__ import annotations

from typing import Any

from turncredit import agents, envs, tables
from turncredit.config import Experiment, validated
from turncredit.credit.configured import configured_method
from turncredit.credit_models.settings import ModelSettings, model_settings
from turncredit.errors import UserError
from turncredit.judges.config import decides
from turncredit.judges.rule import knows


def check(experiment: Experiment) -> None:
    """Raise UserError, one line, for what would only fail in a job: environment, agent, their settings, methods."""
    environment = envs.load(experiment.env.name)
    settings = validated(environment.Settings, experiment.env.settings, "env.settings")
    _check_agent(experiment)
    for name, entry in experiment.define.items():
        if "values" in configured_method(experiment, name).needs or entry.model:
            credit_model(experiment, name)
    for name in _credited(experiment):
        _check_columns(experiment, name)
        by_rule = "labels" in configured_method(experiment, name).needs and experiment.judge.kind == "rule"
        if by_rule and not knows(environment.name):
            raise UserError(
                f"config: methods: '{name}' reads labels, and the rule judge does not know the actions of "
                f"'{experiment.env.name}'; set judge.kind to llm, or take another method"
            )
        if "values" in configured_method(experiment, name).needs:
            _check_turns(experiment, name, getattr(settings, "horizon", None))


def _credited(experiment: Experiment) -> list[str]:
    """The methods whose credit is computed, each once: those that run, and those that an audit compares."""
    compared = experiment.audit_methods() if experiment.audit.rounds else ()
    return list(dict.fromkeys([*(name for name in experiment.methods if name != "sft"), *compared]))


def credit_model(experiment: Experiment, name: str) -> tuple[str, ModelSettings]:
    """The learned credit model behind the method `name`, and its settings."""
    try:
        return model_settings(experiment, name)
    except UserError as error:
        raise UserError(f"config: {error}") from None


def _check_columns(experiment: Experiment, name: str) -> None:
    """Raise UserError where a method reads columns of the turns that the stage rollout does not write."""
    agent = agents.load(experiment.agent.name)
    written = {*tables.schema("turns").names, *agent.turn_columns}
    missing = [column for column in configured_method(experiment, name).reads if column not in written]
    if missing:
        where = "methods" if name in experiment.methods else "audit.methods"
        raise UserError(
            f"config: {where}: '{name}' reads the columns {', '.join(missing)} of the turns, which the agent "
            f"'{agent.name}' does not write; take an agent that does (agent.name), or another method"
        )


def _check_agent(experiment: Experiment) -> None:
    """Raise UserError for an unknown agent, settings it does not have, and demonstrations that can't teach it."""
    agent = agents.load(experiment.agent.name)
    validated(agent.Settings, experiment.agent.settings, "agent.settings")
    written = {*tables.schema("demos").names, *getattr(envs.load(experiment.env.name), "EXPERT_COLUMNS", {})}
    missing = [column for column in agent.demo_columns if column not in written]
    if missing and experiment.sft.epochs:
        raise UserError(
            f"config: agent: '{agent.name}' learns from the columns {', '.join(missing)} of the demonstrations, "
            f"which the expert of '{experiment.env.name}' does not write; take another agent, or no "
            "warm start (sft.epochs: 0)"
        )


def _agent(experiment: Experiment) -> dict[str, Any]:
    """What of the configuration decides how the agent acts: its entry, and the content of a file of one's own."""
    entry = experiment.agent.model_dump(mode="json")
    return {**entry, "file": tables.file_hash(entry["name"])} if entry["name"].endswith(".py") else entry


def _check_turns(experiment: Experiment, name: str, horizon: int | None) -> None:
    """Raise UserError where a rollout can be longer than what the method's credit model reads."""
    kind, settings = credit_model(experiment, name)
    longest = getattr(settings, "max_turns", None)
    if longest is not None and horizon is not None and longest < horizon:
        raise UserError(
            f"config: methods: '{name}' reads at most {longest} turns (max_turns of its model {kind}), but "
            f"env.settings.horizon is {horizon}; set define.{name}.model.max_turns"
        )


def method_file(experiment: Experiment, name: str) -> str | None:
    """The user's own file that defines the method, if it is one's own."""
    entry = experiment.define.get(name)
    return entry.credit.partition(".py")[0] + ".py" if entry and entry.credit else None


def learned(experiment: Experiment) -> list[str]:
    """The methods of the audit that have a learned credit model."""
    return [name for name in experiment.audit_methods() if "values" in configured_method(experiment, name).needs]


def reads(experiment: Experiment, stage: str, *, split: str = "", method: str = "", round: int = 0) -> dict[str, Any]:
    """The part of the configuration that a job of `stage` reads, as plain data.

    `split` is for tasks, `method` for rollout, credit_model, values, credit and update, `round` for eval. Raises
    KeyError for a stage that is not one of the pipeline's.
    """
    whole = experiment.model_dump(mode="json")
    policy, evaluation = whole["policy"], whole["eval"]
    playing = {"env": whole["env"], "agent": _agent(experiment), "engine": policy["engine"], "dtype": policy["dtype"]}
    if stage == "tasks":
        keys = (split, f"{split}_split", "seed")
        return {"env": whole["env"], **{key: whole["tasks"][key] for key in keys}}
    if stage == "demos":
        return {"env": whole["env"], "demos": whole["demos"]}
    if stage == "base":
        return {key: policy[key] for key in ("source", "revision", "scratch", "dtype")}
    if stage == "sft":
        shared = {"tokens_per_pass": whole["update"]["tokens_per_pass"], "dtype": policy["dtype"]}
        return {"agent": _agent(experiment), "sft": whole["sft"], "lora": policy["lora"], **shared}
    if stage == "rollout":
        return {**playing, "rollout": experiment.section_for(method, "rollout").model_dump(mode="json")}
    if stage == "credit":
        return {"method": experiment.definition(method)}
    if stage == "hiddens":
        return {"dtype": policy["dtype"], "tokens_per_pass": whole["update"]["tokens_per_pass"]}
    if stage in {"credit_model", "values"}:
        kind, settings = credit_model(experiment, method)
        return {"model": kind, "settings": settings.model_dump()}
    if stage == "invariants":
        return {"judge": decides(experiment.judge), "dtype": policy["dtype"]}
    if stage == "leaks":
        parts = ("credit", "credit_model")
        return {name: {part: reads(experiment, part, method=name) for part in parts} for name in learned(experiment)}
    if stage == "label":
        return decides(experiment.judge)
    if stage == "update":
        section = experiment.section_for(method, "update").model_dump(mode="json")
        # A learning rate that decays over the rounds depends on how many there are; a constant one does not.
        rounds = {"rounds": whole["rounds"]} if section["final_lr"] < 1 else {}
        return {"update": section, "lora": policy["lora"], "dtype": policy["dtype"], **rounds}
    if stage == "eval":
        # Which slice of the held-out games is the round's, not how many rounds there are: more rounds change nothing.
        rounds = experiment.eval_rounds()
        if round not in rounds:
            raise UserError(f"round {round} is not evaluated; eval.every and rounds make it {rounds}")
        at = rounds.index(round) if evaluation["fresh"] else 0
        kept = {key: evaluation[key] for key in ("games", "modes")}
        return {**playing, **kept, "slice": at, "slots": whole["rollout"]["slots"]}
    if stage == "branch":
        return {**playing, "branch": whole["audit"]["branch"], "slots": whole["rollout"]["slots"]}
    if stage == "fidelity":
        return {"methods": list(experiment.audit_methods())}
    if stage == "gradients":
        updates = {name: _of_loss(experiment, name) for name in experiment.audit_methods()}
        return {"methods": updates, "dtype": policy["dtype"], "tokens_per_pass": whole["update"]["tokens_per_pass"]}
    if stage == "pages":
        names = experiment.audit_methods()
        return {
            "pages": experiment.audit.pages,
            "methods": {name: reads(experiment, "credit", method=name) for name in names},
        }
    if stage == "report":
        return {key: whole[key] for key in ("methods", "seeds", "rounds", "eval")}
    raise KeyError(stage)


def _of_loss(experiment: Experiment, name: str) -> dict[str, Any]:
    """What of a method's update settings decides its gradient at the policy that sampled."""
    settings = experiment.section_for(name, "update").model_dump(mode="json")
    keys = ("minibatch", "loss_aggregation", "advantage_scale", "skip_dead_groups", "kl")
    return {key: settings[key] for key in keys}
