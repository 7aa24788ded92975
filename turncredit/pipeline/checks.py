"""Checks of a configuration before any job runs: each yields its mistakes, and the first one is raised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turncredit import agents, envs
from turncredit.agents import window
from turncredit.config import AgentConfig, EnvConfig, Experiment, MethodConfig, validated
from turncredit.config.experiment import ROUNDS
from turncredit.config.stages import policy_stages
from turncredit.config.warm_starts import SFT
from turncredit.credit import METHODS
from turncredit.credit.models.settings import model_capabilities, model_settings
from turncredit.credit.parts.configured import compared_methods, configured_method, continuations_of, forks_of
from turncredit.credit.parts.trial_tables import check_result, needs_a_group
from turncredit.data import tables
from turncredit.data.tables import MEASURES
from turncredit.envs.environment import Environment
from turncredit.envs.protocol import CAPABILITIES
from turncredit.errors import UserError, nearest
from turncredit.judges.rule import knows
from turncredit.pipeline.capabilities import Credited, credited, measures_read, needed, trials
from turncredit.pipeline.learned_models import positions
from turncredit.pipeline.stages import implicit_model


def check(experiment: Experiment, *, installed: bool = True) -> None:
    """Raise UserError, one line, for mistakes that a job would run into.

    Without `installed` the environment need not be, as for a plan on a machine that runs no jobs.
    """
    _refuse_first(_mistakes(experiment, installed=installed))


def check_prompt(experiment: Experiment) -> None:
    """Raise UserError, one line, if the experiment's own agent cannot be shown a task of its environment here."""
    _refuse_first(_prompt(experiment))


def check_capabilities(experiment: Experiment, environment: Environment) -> None:
    """Raise UserError, one line, if the experiment needs something that the environment does not provide."""
    _refuse_first(_capabilities(experiment, environment, credited(experiment)))


def _refuse_first(mistakes: Iterator[str]) -> None:
    for mistake in mistakes:
        raise UserError(f"config: {mistake}")


def check_installed(experiment: Experiment) -> str | None:
    """A line about what playing needs, if there is one. Raises UserError if it is not installed on this machine."""
    look = envs.load(experiment.env.name).check_installed
    return None if look is None else look(_env_settings(experiment))


def _env_settings(experiment: Experiment) -> Any:
    """The environment's settings. Raises UserError for those that it does not take."""
    taken = envs.load(experiment.env.name).Settings
    return validated(taken, experiment.env.chosen().settings, f"env.{experiment.env.owner}")


def _mistakes(experiment: Experiment, *, installed: bool) -> Iterator[str]:
    yield from _environment(experiment, installed=installed)
    yield from _agent(experiment, "agent", experiment.agent)
    for name, agent in experiment.agents.items():
        yield from _agent(experiment, f"agents.{name}", agent)
    environment = _configured(experiment)
    yield from _out_of_reach(experiment, environment)
    tasks = experiment.tasks
    held_out = [tasks.eval_split] if isinstance(tasks.eval_split, str) else tasks.eval_split
    for key in ("train_split", "demo_split"):
        if getattr(tasks, key) in held_out and not tasks.shared:
            also, split = "" if len(held_out) == 1 else "also ", getattr(tasks, key)
            yield (
                f"tasks.eval_split is {also}tasks.{key}, '{split}': the policy would be evaluated on games that it "
                "learns from; choose another split, or declare in tasks.shared how many games may be shared"
            )
    for start in experiment.starts():
        yield from _plays(experiment, environment, start)
        yield from _warm_start(experiment, environment, start)
    for name, entry in experiment.define.items():
        yield from _definition(experiment, name, entry)
    if experiment.policy.chat_template and experiment.policy.source == "scratch":
        yield "policy.chat_template: a model from scratch has no chat template; leave it out, or set policy.source"
    methods = credited(experiment)
    yield from _capabilities(experiment, environment, methods)
    yield from _processes(experiment)
    yield from _gpus(experiment)
    for one in methods:
        if one.name in experiment.methods:
            yield from _round(experiment, one)
        yield from _columns(experiment, one)
        yield from _forks(experiment, one)


def _prompt(experiment: Experiment) -> Iterator[str]:
    yield from _environment(experiment, installed=True)
    yield from _agent(experiment, "agent", experiment.agent)
    environment = _configured(experiment)
    yield from _plays(experiment, environment, SFT)
    yield from _shown(experiment, environment, SFT)


def _environment(experiment: Experiment, *, installed: bool) -> Iterator[str]:
    envs.load(experiment.env.name)  # a misspelt name, before the settings that do not go with it
    yield from _owners("env", experiment.env)
    _env_settings(experiment)
    if installed:
        check_installed(experiment)


def _configured(experiment: Experiment) -> Environment:
    return envs.load(experiment.env.name).with_settings(experiment.env.chosen().settings)


def _out_of_reach(experiment: Experiment, environment: Environment) -> Iterator[str]:
    """Kinds of tasks of which not even an optimal plan fits into a rollout."""
    settings = _env_settings(experiment)
    horizon = getattr(settings, "horizon", None)
    if environment.least_actions is None or horizon is None:
        return
    least = environment.least_actions(settings)
    for kind, actions in least.items():
        if actions > horizon:
            where = f"env.{experiment.env.owner}"
            yield (
                f"{where}.horizon is {horizon}, and every task of the kind '{kind}' takes at least {actions} actions, "
                f"so none can be solved; set it to {max(least.values())} or more, or leave such tasks out ({where})"
            )


def _capabilities(experiment: Experiment, environment: Environment, methods: list[Credited]) -> Iterator[str]:
    for one in methods:
        yield from _lacking(experiment, environment, one)
    yield from _audit(experiment, environment)
    for one in methods:
        yield from _turns(experiment, one)
    for start in experiment.starts():
        yield from _shown(experiment, environment, start)
    yield from _demonstrations(experiment, environment)


def _owners(block: str, config: EnvConfig | AgentConfig) -> Iterator[str]:
    """Settings under a name that looks like the chosen one's; those of others are not read."""
    for name in config.owners():
        if name != config.owner and (hint := nearest(name, [config.owner])):
            yield f"unknown key '{block}.{name}'{hint}"


def _agent(experiment: Experiment, key: str, config: AgentConfig) -> Iterator[str]:
    """Settings that the agent at `key` does not take, and contexts that the model cannot read."""
    yield from _owners(key, config)
    own = validated(agents.load(config.name).Settings, config.chosen().settings, f"{key}.{config.owner}")
    prompt, response = getattr(own, "max_prompt_tokens", None), config.max_response_tokens
    longest = positions(experiment)
    if prompt is not None and longest is not None and prompt + response > longest:
        yield (
            f"{key}.{config.owner}.max_prompt_tokens is {prompt} and {key}.max_response_tokens {response}, but the "
            f"model has {longest} positions; lower one of them, or use a model with more"
        )


def _plays(experiment: Experiment, environment: Environment, start: str) -> Iterator[str]:
    """An environment in which the agent of a warm start cannot play."""
    config, key = experiment.agent_of(start), experiment.agent_key(start)
    agent = agents.load(config.name)
    agent.check_actions(environment.multiline, environment.name, key)
    if agent.plays is not None and not agent.plays(environment.words):
        yield (
            f"{key}: '{agent.name}' cannot play in '{environment.name}'; choose another agent ({key}.name), such as "
            "window"
        )


def _warm_start(experiment: Experiment, environment: Environment, start: str) -> Iterator[str]:
    """What the agent of a warm start cannot learn from its demonstrations."""
    config, key = experiment.agent_of(start), experiment.agent_key(start)
    agent, learns = agents.load(config.name), experiment.sft.epochs > 0
    written = {*tables.schema("demos").names, *environment.expert_columns}
    missing = [column for column in agent.demo_columns if column not in written]
    if missing and learns:
        yield (
            f"{key}: '{agent.name}' learns from the columns {', '.join(missing)} of the demonstrations, which the "
            f"expert of '{experiment.env.name}' does not write; choose another agent, or no warm start (sft.epochs: 0)"
        )
    settings = agent.Settings.model_validate(config.chosen().settings)
    if learns and isinstance(settings, window.Settings) and settings.think:
        yield (
            f"{key}.{config.owner}.think is true, but the demonstrations of a warm start have no thoughts, and a "
            "policy that imitates them learns to ignore the request for one; set it to false, or sft.epochs to 0"
        )


def _shown(experiment: Experiment, environment: Environment, start: str) -> Iterator[str]:
    """An agent that shows the possible actions of an environment that does not list them."""
    config, key = experiment.agent_of(start), experiment.agent_key(start)
    agent = agents.load(config.name)
    if (
        agent.lists_admissible(config.chosen().settings, environment.words)
        and "admissible" not in environment.capabilities
    ):
        setting = f"{key}.{config.owner}.show_admissible"
        yield f"{key}: '{agent.name}' shows {_lacks(environment, 'admissible')}; set {setting} to false"


def _lacks(environment: Environment, capability: str) -> str:
    return f"the environment's {CAPABILITIES[capability]}, which '{environment.name}' does not have"


def _definition(experiment: Experiment, name: str, entry: MethodConfig) -> Iterator[str]:
    """A definition that takes a built-in method's name, is broken, or has settings of what the method lacks."""
    if name in METHODS and entry.base != name:
        other = f"the file {entry.credit}" if entry.base is None else f"'{entry.base}'"
        yield (
            f"define.{name}: '{name}' is a built-in method, and this definition makes {other} of it, which every "
            f"table and figure would call '{name}'; give the definition another name"
        )
    method = configured_method(experiment, name)
    if entry.credit is not None:
        try:
            check_result(method)
        except UserError as error:
            raise UserError(f"config: define.{name}: {error} (tried on a small table)") from error
    if method.scorer == "implicit":
        implicit_model.settings(experiment, name)
    elif "values" in method.needs or entry.model:
        model_settings(experiment, name)
    continuations_of(experiment, name)
    forks_of(experiment, name)


def _lacking(experiment: Experiment, environment: Environment, one: Credited) -> Iterator[str]:
    """What a method, or its credit model, needs and the environment does not provide."""
    missing = [
        capability for capability in needed(experiment, one.method) if capability not in environment.capabilities
    ]
    listed = "" if experiment.audit.methods else " (the audit compares it unless audit.methods names others)"
    for capability in missing:
        lacks = f"'{one.name}' needs {_lacks(environment, capability)}"
        yield f"methods: {lacks}" if one.name in experiment.methods else f"audit.methods: {lacks}{listed}"


def _audit(experiment: Experiment, environment: Environment) -> Iterator[str]:
    """An audit where states cannot be restored, or of an agent that plays several trials in a rollout."""
    for capability in ("snapshot", "replay") if experiment.audit.rounds else ():
        if capability not in environment.capabilities:
            yield f"audit.rounds: branching needs {_lacks(environment, capability)}; set audit.rounds to []"
    for run in experiment.audit.runs if experiment.audit.rounds else ():
        if trials(experiment, run) > 1:
            agent, instead = _agent_and_change(experiment, run)
            yield f"audit.rounds: '{agent}' plays several trials, but an audit reads one; set it to [] or {instead}"


def _agent_and_change(experiment: Experiment, run: str) -> tuple[str, str]:
    agent = agents.load(experiment.agent_of(run).name)
    return agent.name, f"choose another agent ({experiment.agent_key(run)}.name)"


def _turns(experiment: Experiment, one: Credited) -> Iterator[str]:
    """Turns that a method cannot credit: of several trials, an agent not made for it, unknown actions, or too many."""
    name, method, judged = one.name, one.method, experiment.judge.kind == "rule" and "labels" in one.method.needs
    if name in experiment.methods and trials(experiment, name) > 1:
        measured = [*measures_read(method), *model_capabilities(experiment, name)]
        reads = [*(measure for measure in MEASURES if measure in measured), *(["labels of the rule judge"] * judged)]
        agent, instead = _agent_and_change(experiment, name)
        for what in reads:
            yield (
                f"methods: '{name}' reads {what} of a single trial, but '{agent}' plays several; {instead}, or another "
                "method"
            )
    for run in one.runs if method.scorer == "hindsight" else ():
        player, key = agents.load(experiment.agent_of(run).name), experiment.agent_key(run)
        if not player.looks_back(envs.load(experiment.env.name).words):
            whose = "" if run == name or run not in experiment.methods else f" of '{run}'"
            yield f"methods: '{name}' reads turns{whose} in hindsight, and {player.cannot_look_back(key)}"
    for run in one.runs if method.scorer == "gold_deleted" else ():
        player, key = agents.load(experiment.agent_of(run).name), experiment.agent_key(run)
        if not player.append_only:
            yield (
                f"methods: '{name}' deletes turns from a context that grows, and that of the agent '{player.name}' is "
                f"made anew; choose an append-only agent ({key}.name), or another method"
            )
    if judged and not knows(envs.load(experiment.env.name).name):
        yield (
            f"methods: '{name}' reads labels, and the rule judge does not know the actions of "
            f"'{experiment.env.name}'; set judge.kind to llm, or choose another method"
        )
    if "values" not in method.needs:
        return
    horizon = getattr(_env_settings(experiment), "horizon", None)
    kind, settings = model_settings(experiment, name)
    longest, tries = getattr(settings, "max_turns", None), max(trials(experiment, run) for run in one.runs)
    if longest is not None and horizon is not None and longest < (turns := horizon * tries + tries - 1):
        # Between two trials there is a turn with a lesson.
        played = f" and a rollout has up to {turns} turns in {tries} trials" if tries > 1 else ""
        yield (
            f"methods: '{name}' reads at most {longest} turns (max_turns of its model {kind}), but "
            f"env.{experiment.env.owner}.horizon is {horizon}{played}; set define.{name}.model.max_turns"
        )


def _demonstrations(experiment: Experiment, environment: Environment) -> Iterator[str]:
    """Demonstrations that the environment has no expert for, or whose mistakes it cannot make."""
    demos, have = experiment.demos, environment.capabilities
    if "expert" not in have:
        if experiment.sft.epochs or experiment.policy.source == "scratch":
            yield (
                f"demos: demonstrations need {_lacks(environment, 'expert')}; without any, use a pretrained model "
                "(policy.source) and set sft.epochs to 0"
            )
        return
    for key, share, possible, command in (
        ("noise", demos.noise, environment.acts_at_random, "random_command"),
        ("slips", demos.slips, environment.slip_command is not None or "admissible" in have, "slip_command"),
    ):
        if share and not possible:
            yield f"demos.{key}: needs {_lacks(environment, 'admissible')}, nor a {command}; set it to 0"
    if demos.skip and not environment.takes_skip():
        yield f"demos.skip: the expert of '{environment.name}' cannot skip steps; set it to 0"


def _processes(experiment: Experiment) -> Iterator[str]:
    """Training that cannot be spread over GPUs (only AdamW in float32 can), and rollouts over processes.

    Processes are forks (`data.workers.gathered`): a process that has used a GPU cannot fork one that uses it, and vLLM,
    with a process of its own on the first GPU, cannot start in one.
    """
    policy, sft = experiment.policy, experiment.sft
    updates = [experiment.section_for(name, "update") for name in experiment.trained()]
    wrong = {
        f"policy.train_dtype: {policy.train_dtype}": policy.train_dtype != "float32",
        f"policy.moments_dtype: {policy.moments_dtype}": policy.moments_dtype != "float32",
        "sft.optimizer: muon": sft.epochs > 0 and sft.optimizer == "muon",
        f"sft.shards: {sft.shards}": sft.epochs > 0 and sft.shards > 1,
        "update.optimizer: muon": any(update.optimizer == "muon" for update in updates),
        "update.shards above 1": any(update.shards > 1 for update in updates),
    }
    for conflict in (name for name, present in wrong.items() if present and policy.train_gpus > 1):
        yield (
            f"policy.train_gpus is {policy.train_gpus}, which needs AdamW in float32 and one shard a GPU, but "
            f"the configuration has {conflict}; change it, or set train_gpus to 1"
        )
    rollouts = [experiment.rollout, *(experiment.section_for(name, "rollout") for name in experiment.trained())]
    processes = max(rollout.processes for rollout in rollouts)
    if processes > 1 and policy.engine == "vllm":
        yield (
            f"rollout.processes is {processes}, but with policy.engine vllm one process samples all rollouts; set it "
            "to 1, and policy.sample_engines to the number of engines"
        )
    if processes > 1 and experiment.granularity != "stage" and experiment.gpus("rounds"):
        yield (
            f"rollout.processes is {processes}, but with granularity {experiment.granularity} the job has used its "
            "GPU before, and then no process that it forks can; set it to 1, or granularity to stage"
        )


def _gpus(experiment: Experiment) -> Iterator[str]:
    """GPUs that a job would leave idle.

    Training takes `policy.train_gpus`, sampling with vLLM `policy.sample_gpus` for each of `policy.sample_engines`, and
    every other stage one. What samples with another engine is not checked: each of its `rollout.processes` takes one.
    """
    policy = experiment.policy
    if policy.lora and policy.engine == "vllm" and policy.dtype == "float32" and experiment.gpus("rollout"):
        yield (
            "policy.dtype is float32, but on GPUs vLLM computes adapters (policy.lora) in bfloat16 alone; set dtype to "
            "bfloat16, or engine to transformers or lockstep"
        )
    if policy.sample_gpus > 1 and policy.engine != "vllm":
        yield (
            f"policy.sample_gpus is {policy.sample_gpus}, but policy.engine {policy.engine} does not split a model; "
            "set it to 1, or engine to vllm"
        )
    if policy.sample_engines > 1 and policy.engine != "vllm":
        yield (
            f"policy.sample_engines is {policy.sample_engines}, but rollouts with policy.engine {policy.engine} are "
            "shared by rollout.processes; set it to 1, or engine to vllm"
        )
    if policy.train_gpus % policy.train_nodes:
        yield (
            f"policy.train_gpus is {policy.train_gpus}, which {policy.train_nodes} nodes cannot share evenly "
            "(train_nodes); make it a multiple"
        )
    for job in (*policy_stages("trains"), ROUNDS) if policy.train_nodes > 1 else ():
        if not experiment.slurm(job).get("gres", "gpu").startswith("gpu"):
            yield (
                f"jobs of {job} run on several nodes (policy.train_nodes), and then slurm_gres asks for their GPUs; it "
                f"is {experiment.slurm(job)['gres']}: leave it out of resources, or set train_nodes to 1"
            )
            break
    for stage in policy_stages():
        given = experiment.resource(stage).gpu or 0
        if stage in policy_stages("samples"):
            user, key, used = "vLLM", "policy.sample_gpus", policy.sampling_gpus
            if policy.sample_engines > 1:
                key = "policy.sample_engines x sample_gpus"
            used = used if policy.engine == "vllm" else given
        elif stage in ("sft", "update"):
            user, key, used = "training", "policy.train_gpus", policy.train_gpus // policy.train_nodes
            key = key if policy.train_nodes == 1 else "policy.train_gpus / train_nodes"
        elif given > 1:
            yield (
                f"resources.{stage}.gpu is {given}, but the stage uses one GPU and leaves the others idle; set it to 1"
            )
            continue
        else:
            continue
        if given > max(used, 1):
            yield (
                f"resources.{stage}.gpu is {given}, but {user} takes {key}, {used}, and leaves the others idle; set "
                "both to the same number"
            )


def _round(experiment: Experiment, one: Credited) -> Iterator[str]:
    """A round of a trained method with too few rollouts for a minibatch, or for a comparison within a group."""
    entry = experiment.define.get(one.name)

    def key(section: str, setting: str) -> str:
        own = entry is not None and setting in getattr(entry, section)
        return f"define.{one.name}.{section}.{setting}" if own else f"{section}.{setting}"

    rollout, update = experiment.section_for(one.name, "rollout"), experiment.section_for(one.name, "update")
    games = experiment.tasks.train
    if rollout.tasks > games:  # the experiment's own is checked with `tasks`
        yield (
            f"{key('rollout', 'tasks')} is {rollout.tasks}, but there are only {games} training games; lower it, or "
            f"set tasks.train to {rollout.tasks} or more"
        )
    total = rollout.tasks * (rollout.group_size + (one.forks or 0))
    if update.minibatch > total:
        yield (
            f"{key('update', 'minibatch')} is {update.minibatch}, but a round of '{one.name}' has only {total} "
            f"rollouts (tasks x group_size{' and forks' if one.forks else ''}); set it to {total} or fewer"
        )
    if rollout.group_size == 1 and not one.forks and needs_a_group(one.method):
        yield (
            f"{key('rollout', 'group_size')} is 1, and '{one.name}' compares a rollout with the others of its group: "
            "every advantage would be 0; set it to 2 or more"
        )


def _columns(experiment: Experiment, one: Credited) -> Iterator[str]:
    """Columns that a method reads and that neither the turns that it credits nor the measures have."""
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
        instead = f"choose an agent that does ({key}.name), or another method"
        if other:
            instead = "choose which methods to compare (audit.methods), or another run (audit.run)"
        yield (
            f"{where}: '{name}' reads the columns {', '.join(missing)} of the turns{whose}, which the agent {its} does "
            f"not write; {instead}"
        )


def _forks(experiment: Experiment, one: Credited) -> Iterator[str]:
    """A method that credits forks and reads what forks do not have, or that an audit compares."""
    side = [*one.method.needs, *measures_read(one.method)] if one.forks is not None else []
    if side:
        yield (
            f"methods: '{one.name}' credits forks, whose turns have no {side[0]}; remove the part that reads {side[0]}"
        )
    if one.forks is not None and one.name in compared_methods(experiment):
        yield (
            f"audit.methods: '{one.name}' credits forks of its own rollouts, which those of an audit do not have; name "
            "the methods to compare without it, or set audit.rounds to []"
        )
