"""Checks of a configuration before any job runs: a function for each rule."""

from __future__ import annotations

from typing import Any

from turncredit import agents, envs
from turncredit.agents import window
from turncredit.config import (
    AgentConfig,
    EnvConfig,
    Experiment,
    MethodConfig,
    validated,
)
from turncredit.config.stages import policy_stages
from turncredit.credit import METHODS
from turncredit.credit.configured import compared_methods, configured_method, continuations_of, forks_of
from turncredit.credit.models.settings import model_settings
from turncredit.credit.parts.groups import check_result, needs_a_group
from turncredit.data import tables
from turncredit.errors import UserError, nearest
from turncredit.judges.rule import knows
from turncredit.pipeline.capabilities import Credited, check_capabilities, credited, measures_read, trials
from turncredit.pipeline.learned_models import positions
from turncredit.pipeline.stages import implicit_model


def check(experiment: Experiment, *, installed: bool = True) -> None:
    """Raise UserError, one line, for mistakes that a job would run into: environment, agent, settings, methods.

    Without `installed` the environment need not be, as for a plan on a machine that runs no jobs.
    """
    _check_settings(experiment)
    if installed:
        check_installed(experiment)
    _check_agent(experiment, "agent", experiment.agent)
    for name, agent in experiment.agents.items():
        _check_agent(experiment, f"agents.{name}", agent)
    for start in experiment.starts():
        _check_actions(experiment, start)
        _check_demos(experiment, start)
        _check_thoughts(experiment, start)
    for name, entry in experiment.define.items():
        _check_builtin(name, entry)
        _check_definition(experiment, name, entry)
    methods = credited(experiment)
    environment = envs.load(experiment.env.name).with_settings(experiment.env.chosen().settings)
    check_capabilities(experiment, environment, methods)
    _check_spread(experiment)
    _check_processes(experiment)
    _check_idle_gpus(experiment)
    for one in methods:
        if one.name in experiment.methods:
            _check_minibatch(experiment, one)
            _check_group(experiment, one)
    for one in methods:
        _check_columns(experiment, one)
        _check_forks(experiment, one)
        _check_rule_judge(experiment, one)
        _check_turns(experiment, one)


def check_installed(experiment: Experiment) -> None:
    """Raise UserError if something that playing needs is not installed on this machine."""
    look = envs.load(experiment.env.name).check_installed
    if look is not None:
        look(_check_settings(experiment))


def _check_settings(experiment: Experiment) -> Any:
    """The environment's settings. Raises UserError for those that it does not take."""
    taken = envs.load(experiment.env.name).Settings
    _check_owners("env", experiment.env)
    return validated(taken, experiment.env.chosen().settings, f"env.{experiment.env.owner}")


def _check_agent(experiment: Experiment, key: str, config: AgentConfig) -> None:
    """Raise UserError for settings that the agent at `key` of the configuration does not take."""
    _check_owners(key, config)
    own = validated(agents.load(config.name).Settings, config.chosen().settings, f"{key}.{config.owner}")
    _check_context(experiment, config, key, getattr(own, "max_prompt_tokens", None))


def _check_actions(experiment: Experiment, start: str) -> None:
    """Raise UserError for an agent of one-line actions where the environment's are code."""
    environment, agent = envs.load(experiment.env.name), agents.load(experiment.agent_of(start).name)
    agent.check_actions(environment.multiline, environment.name, experiment.agent_key(start))


def _check_definition(experiment: Experiment, name: str, entry: MethodConfig) -> None:
    """Raise UserError for a definition that cannot be: unknown, broken, or with settings of what the method lacks."""
    method = configured_method(experiment, name)
    if entry.credit is not None:
        try:
            check_result(method)
        except UserError as error:
            raise UserError(f"config: define.{name}: {error} (tried on a small table)") from error
    if method.reader == "implicit":
        implicit_model.settings(experiment, name)
    elif "values" in method.needs or entry.model:
        model_settings(experiment, name)
    continuations_of(experiment, name)
    forks_of(experiment, name)


def _check_builtin(name: str, entry: MethodConfig) -> None:
    """Raise UserError for a definition that gives a built-in method's name to another method."""
    if name in METHODS and entry.base != name:
        other = f"the file {entry.credit}" if entry.base is None else f"'{entry.base}'"
        raise UserError(
            f"config: define.{name}: '{name}' is a built-in method, and this definition makes {other} of it, which "
            f"every table and figure would call '{name}'; give the definition another name"
        )


def _key(experiment: Experiment, name: str, section: str, setting: str) -> str:
    """The key that a setting of `rollout` or `update` for the method `name` is at: its own, or the experiment's."""
    entry = experiment.define.get(name)
    own = entry is not None and setting in getattr(entry, section)
    return f"define.{name}.{section}.{setting}" if own else f"{section}.{setting}"


def _check_minibatch(experiment: Experiment, one: Credited) -> None:
    """Raise UserError for a round of a trained method with too few rollouts for a minibatch."""
    rollout, update = experiment.section_for(one.name, "rollout"), experiment.section_for(one.name, "update")
    total = rollout.tasks * (rollout.group_size + (one.forks or 0))
    if update.minibatch > total:
        raise UserError(
            f"config: {_key(experiment, one.name, 'update', 'minibatch')} is {update.minibatch}, but a round of "
            f"'{one.name}' has only {total} rollouts (tasks x group_size{' and forks' if one.forks else ''}); set it "
            f"to {total} or fewer"
        )


def _check_group(experiment: Experiment, one: Credited) -> None:
    """Raise UserError for a trained method that compares the rollouts of a group, where a group is one rollout."""
    alone = experiment.section_for(one.name, "rollout").group_size == 1 and not one.forks
    if alone and needs_a_group(one.method):
        raise UserError(
            f"config: {_key(experiment, one.name, 'rollout', 'group_size')} is 1, and '{one.name}' compares a rollout "
            "with the others of its group: every advantage would be 0; set it to 2 or more"
        )


def _check_spread(experiment: Experiment) -> None:
    """Raise UserError for training that cannot be spread over GPUs: only AdamW in float32 can."""
    policy, warm = experiment.policy, experiment.sft.epochs > 0
    if policy.train_gpus == 1:
        return
    updates = {name: experiment.section_for(name, "update") for name in experiment.trained()}
    wrong = {
        f"policy.train_dtype: {policy.train_dtype}": policy.train_dtype != "float32",
        f"policy.moments_dtype: {policy.moments_dtype}": policy.moments_dtype != "float32",
        "sft.optimizer: muon": warm and experiment.sft.optimizer == "muon",
        f"sft.shards: {experiment.sft.shards}": warm and experiment.sft.shards > 1,
        "update.optimizer: muon": any(update.optimizer == "muon" for update in updates.values()),
        "update.shards above 1": any(update.shards > 1 for update in updates.values()),
    }
    conflicts = [name for name, present in wrong.items() if present]
    if conflicts:
        raise UserError(
            f"config: policy.train_gpus is {policy.train_gpus}, which goes with AdamW in float32 and one shard a GPU, "
            f"but there is {conflicts[0]}; change it, or set train_gpus to 1"
        )


def _check_processes(experiment: Experiment) -> None:
    """Raise UserError for rollouts in several processes where these cannot use a GPU.

    They are forks (`processes.workers.gathered`): of a process that has used a GPU, none can; and vLLM, which has a
    process of its own on the first GPU, cannot start in one.
    """
    rollouts = [experiment.rollout, *(experiment.section_for(name, "rollout") for name in experiment.trained())]
    processes = max(rollout.processes for rollout in rollouts)
    if processes > 1 and experiment.policy.engine == "vllm":
        raise UserError(
            f"config: rollout.processes is {processes}, but with policy.engine vllm one process samples all rollouts; "
            "set it to 1"
        )
    if processes > 1 and experiment.granularity != "stage" and experiment.gpus("rounds"):
        raise UserError(
            f"config: rollout.processes is {processes}, but with granularity {experiment.granularity} the job has used "
            "its GPU before, and then no process that it forks can; set it to 1, or granularity to stage"
        )


def _check_idle_gpus(experiment: Experiment) -> None:
    """Raise UserError where a job would leave GPUs idle.

    Training takes `policy.train_gpus`, sampling with vLLM `policy.sample_gpus`, and every other stage one. What samples
    with another engine is not checked: each of its `rollout.processes` takes one.
    """
    policy = experiment.policy
    if policy.sample_gpus > 1 and policy.engine != "vllm":
        raise UserError(
            f"config: policy.sample_gpus is {policy.sample_gpus}, but policy.engine {policy.engine} does not split a "
            "model; set it to 1, or engine to vllm"
        )
    for stage in policy_stages():
        given = experiment.resource(stage).gpu or 0
        if given <= 1:
            continue
        if stage in ("sft", "update"):
            user, key, used = "training", "policy.train_gpus", policy.train_gpus
        elif stage not in policy_stages("samples"):
            raise UserError(
                f"config: resources.{stage}.gpu is {given}, but the stage uses one GPU and leaves the others idle; "
                "set it to 1"
            )
        elif policy.engine == "vllm":
            user, key, used = "vLLM", "policy.sample_gpus", policy.sample_gpus
        else:
            continue
        if given > used:
            raise UserError(
                f"config: resources.{stage}.gpu is {given}, but {user} takes {key}, {used}, and leaves the others "
                "idle; set both to the same number"
            )


def _check_columns(experiment: Experiment, one: Credited) -> None:
    """Raise UserError if a method reads columns that neither the turns that it credits nor the measures have."""
    name, credited_table = one.name, "turns" if one.forks is None else "forks"
    for run in one.runs:
        agent, key = agents.load(experiment.agent_of(run).name), experiment.agent_key(run)
        written = {*tables.schema(credited_table).names, *tables.MEASURED, *agent.turn_columns}
        missing = [column for column in one.method.reads if column not in written]
        if not missing:
            continue
        # An audit of a run that plays with another agent than the method's own.
        other = experiment.start_of(run) != experiment.start_of(name)
        where = "methods" if name in experiment.methods and not other else "audit.methods"
        whose = f" of the audited run '{run}'" if other else ""
        its = f"'{agent.name}'" + ("" if key == "agent" else f" ({key})")
        raise UserError(
            f"config: {where}: '{name}' reads the columns {', '.join(missing)} of the turns{whose}, which the agent "
            f"{its} does not write; "
            + (
                "choose which methods to compare (audit.methods), or another run (audit.run)"
                if other
                else f"choose an agent that does ({key}.name), or another method"
            )
        )


def _check_forks(experiment: Experiment, one: Credited) -> None:
    """Raise UserError for a method that credits forks and reads what forks do not have, or that an audit compares."""
    if one.forks is None:
        return
    side = [*one.method.needs, *measures_read(one.method)]
    if side:
        raise UserError(
            f"config: methods: '{one.name}' credits forks, and its part that reads {side[0]} has none for their turns; "
            "take that part away"
        )
    if one.name in compared_methods(experiment):
        raise UserError(
            f"config: audit.methods: '{one.name}' credits forks of its own rollouts, which those of an audit do not "
            "have; name the methods to compare without it, or set audit.rounds to []"
        )


def _check_rule_judge(experiment: Experiment, one: Credited) -> None:
    """Raise UserError for a method that reads labels, where the rule judge does not know the environment's actions."""
    by_rule = "labels" in one.method.needs and experiment.judge.kind == "rule"
    if by_rule and not knows(envs.load(experiment.env.name).name):
        raise UserError(
            f"config: methods: '{one.name}' reads labels, and the rule judge does not know the actions of "
            f"'{experiment.env.name}'; set judge.kind to llm, or choose another method"
        )


def _check_owners(block: str, config: EnvConfig | AgentConfig) -> None:
    """Raise UserError for settings under a name that looks like the chosen one's; those of others are not read."""
    for name in config.owners():
        if name != config.owner and (hint := nearest(name, [config.owner])):
            raise UserError(f"config: unknown key '{block}.{name}'{hint}")


def _check_demos(experiment: Experiment, start: str) -> None:
    """Raise UserError for demonstrations that the agent of a warm start cannot learn from."""
    agent, key = agents.load(experiment.agent_of(start).name), experiment.agent_key(start)
    written = {*tables.schema("demos").names, *envs.load(experiment.env.name).expert_columns}
    missing = [column for column in agent.demo_columns if column not in written]
    if missing and experiment.sft.epochs:
        raise UserError(
            f"config: {key}: '{agent.name}' learns from the columns {', '.join(missing)} of the demonstrations, "
            f"which the expert of '{experiment.env.name}' does not write; take another agent, or no "
            "warm start (sft.epochs: 0)"
        )


def _check_thoughts(experiment: Experiment, start: str) -> None:
    """Raise UserError for a warm start on demonstrations without thoughts, with a prompt that asks for one."""
    agent, key = experiment.agent_of(start), experiment.agent_key(start)
    settings = agents.load(agent.name).Settings.model_validate(agent.chosen().settings)
    if experiment.sft.epochs and isinstance(settings, window.Settings) and settings.think:
        raise UserError(
            f"config: {key}.{agent.owner}.think is true, but the demonstrations of a warm start have no thoughts, and "
            "a policy that imitates them learns to ignore the request for one; set it to false, or sft.epochs to 0"
        )


def _check_context(experiment: Experiment, agent: AgentConfig, key: str, prompt: int | None) -> None:
    """Raise UserError if the contexts that the agent may make, with a response, are longer than the model can read."""
    longest, response = positions(experiment), agent.max_response_tokens
    if prompt is None or longest is None or prompt + response <= longest:
        return
    raise UserError(
        f"config: {key}.{agent.owner}.max_prompt_tokens is {prompt} and {key}.max_response_tokens {response}, but the "
        f"model has {longest} positions; lower one of them, or take a model with more"
    )


def _check_turns(experiment: Experiment, one: Credited) -> None:
    """Raise UserError if a rollout can be longer than the method's credit model can read."""
    if "values" not in one.method.needs:
        return
    environment = envs.load(experiment.env.name)
    horizon = getattr(environment.Settings.model_validate(experiment.env.chosen().settings), "horizon", None)
    kind, settings = model_settings(experiment, one.name)
    longest = getattr(settings, "max_turns", None)
    if longest is None or horizon is None:
        return
    tries = max(trials(experiment, run) for run in one.runs)
    needed = horizon * tries + tries - 1  # a lesson between two trials
    if longest < needed:
        played = f" and a rollout has up to {needed} turns in {tries} trials" if tries > 1 else ""
        raise UserError(
            f"config: methods: '{one.name}' reads at most {longest} turns (max_turns of its model {kind}), but "
            f"env.{experiment.env.owner}.horizon is {horizon}{played}; set define.{one.name}.model.max_turns"
        )
