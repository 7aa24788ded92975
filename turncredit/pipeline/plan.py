"""The inputs and outputs of every job of an experiment, from the configuration and the layout.

Rules, jobs of several stages, and `turncredit where` all use it, so that they cannot disagree. Nothing here imports
torch: planning tens of thousands of jobs takes seconds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from turncredit import envs
from turncredit.config import AgentSlice, EnvSlice, Experiment, RolloutConfig
from turncredit.config.judge import judge_name
from turncredit.config.layout import (
    IMPLICIT,
    METRICS,
    Layout,
    continuations_name,
    fill,
    forks_name,
    layout_of,
    of_sft,
    sampled_by,
    sampling_name,
)
from turncredit.config.warm_starts import SFT, start_name
from turncredit.credit import Method
from turncredit.credit.configured import ask_of, compared_methods, configured_method, continuations_of, forks_of
from turncredit.credit.models.protocol import ModelSettings
from turncredit.credit.models.settings import model_settings, replay_rounds
from turncredit.data import plugins
from turncredit.errors import UserError, nearest
from turncredit.pipeline import capabilities
from turncredit.pipeline.job import At, Inputs, Job, Slice

#: The stages, in the order in which a round runs them.
STAGES = (
    "config", "tasks", "demos", "base", "sft", "rollout", "measures", "continuations", "forks", "label", "hiddens",
    "implicit_model", "logprobs", "credit_model", "values", "credit", "update", "eval", "branch", "fidelity",
    "gradients", "leaks", "rollout_invariants", "pages", "invariants", "report", "track",
)  # fmt: skip

#: The keys that a stage's slice of the configuration may vary by, unless its module says otherwise.
VARIES_BY = ("policy", "method", "split", "start")


class Playing(NamedTuple):
    """The settings of a job that plays which are not in its slice, since they change no result.

    processes   how many processes share the rollouts
    timeout     seconds that a call of an environment may take; None: no limit
    gpus        how many GPUs vLLM splits the model over
    """

    processes: int
    timeout: float | None
    gpus: int


class Plan:
    """The plan of an experiment below the folder `results`."""

    def __init__(self, experiment: Experiment, results: str | Path = "results"):
        self.experiment = experiment
        self.results = Path(results)
        self.layout: Layout = layout_of(experiment, results)
        self._methods: dict[str, Method] = {}
        self._measured: dict[tuple[str, str], bool] = {}
        self._models: dict[str, tuple[str, ModelSettings]] = {}
        self._agents: dict[str, AgentSlice] = {}
        self._forks: dict[str, int | None] = {}
        self._stages: dict[str, tuple[str, ...]] = {}
        self._slices: dict[tuple[str, At], Slice] = {}

    # Methods ------------------------------------------------------------------------------------------------------

    def method(self, name: str) -> Method:
        """The method that the configuration calls `name`."""
        if name not in self._methods:
            self._methods[name] = configured_method(self.experiment, name)
        return self._methods[name]

    def model(self, name: str) -> tuple[str, ModelSettings]:
        """The learned credit model behind the method `name`, and its settings."""
        if name not in self._models:
            self._models[name] = model_settings(self.experiment, name)
        return self._models[name]

    def learns(self, name: str) -> bool:
        """Whether a learned credit model is behind the method `name`."""
        return "values" in self.method(name).needs

    def own_file(self, name: str) -> str | None:
        """The user's own file that defines the method, if there is one."""
        entry = self.experiment.define.get(name)
        own = plugins.own_file(entry.credit) if entry and entry.credit else None
        return str(own[0]) if own else None

    # Environment and agents ---------------------------------------------------------------------------------------

    @cached_property
    def env(self) -> EnvSlice:
        """The environment that is played, with its own settings."""
        return self.experiment.env.chosen()

    def playing(self, rollout: RolloutConfig | None = None) -> Playing:
        """How a job plays; as `rollout` says, if it is not the experiment's own."""
        experiment = self.experiment
        return Playing((rollout or experiment.rollout).processes, experiment.env.timeout, experiment.policy.sample_gpus)

    def start(self, at: At) -> str:
        """The warm start behind a job: the one that it makes, or that of its turns, or else that of its method.

        Agent, tokenizer and SFT policy of a job follow from it. A method that credits another run's turns, in an audit,
        reads them by that run's.
        """
        return at.start or self.experiment.start_of(at.policy or at.method)

    def agent(self, at: At) -> AgentSlice:
        """The agent that plays in a job, or that its turns were played with, with its own settings."""
        start = self.start(at)
        if start not in self._agents:
            self._agents[start] = self.experiment.agent_of(start).chosen()
        return self._agents[start]

    @cached_property
    def environment_file(self) -> dict[str, str]:
        """The user's own file that defines the environment as the input `environment`, if there is one."""
        own = plugins.own_file(self.experiment.env.name)
        return {"environment": str(own[0])} if own else {}

    def plugin_files(self, at: At) -> dict[str, str]:
        """The inputs of a job that samples rollouts: the files of the user's own agent and environment."""
        own = plugins.own_file(self.agent(at).name)
        return {**({"agent": str(own[0])} if own else {}), **self.environment_file}

    def measurable(self, at: At) -> bool:
        """Whether the rollouts of `at` have progress or distance, which an audit shows."""
        environment = envs.load(self.experiment.env.name)
        return capabilities.measurable(self.experiment, environment, at.policy)

    def credit_reads_measures(self, name: str) -> bool:
        """Whether the credit of the method `name` reads progress or distance."""
        if ("credit", name) not in self._measured:
            environment = envs.load(self.experiment.env.name)
            self._measured["credit", name] = capabilities.credit_reads_measures(
                self.experiment, environment, self.method(name)
            )
        return self._measured["credit", name]

    def model_reads_measures(self, name: str) -> bool:
        """Whether the learned credit model of the method `name`, if it has one, reads progress or distance."""
        if ("model", name) not in self._measured:
            self._measured["model", name] = capabilities.model_reads_measures(self.experiment, name)
        return self._measured["model", name]

    def side_tables(self, name: str) -> list[str]:
        """The side tables that the credit of the method `name` reads."""
        return [*self.method(name).needs, *(["measures"] if self.credit_reads_measures(name) else [])]

    def labels_at(self, at: At, name: str) -> At:
        """The keys of the labels, on the turns of `at`, that the method `name` reads."""
        judge, ask = judge_name(self.experiment.judge), ask_of(self.method(name))
        return At(policy=at.policy, seed=at.seed, round=at.round, judge=judge, ask=ask)

    def continuations_at(self, at: At, name: str) -> At:
        """The keys of the continuations, of the turns of `at`, that the method `name` reads."""
        settings = continuations_of(self.experiment, name)
        if settings is None:
            raise UserError(f"continuations: the method '{name}' reads no continuations")
        return At(policy=at.policy, seed=at.seed, round=at.round, continued=continuations_name(settings))

    def forks_at(self, at: At, name: str) -> At | None:
        """The keys of the forks, of the rollouts of `at`, that the method `name` credits; None where it has none."""
        if name not in self._forks:
            self._forks[name] = forks_of(self.experiment, name)
        per_task = self._forks[name]
        if per_task is None:
            return None
        return At(policy=at.policy, seed=at.seed, round=at.round, forked=forks_name(per_task))

    def forks_file(self, at: At, name: str) -> dict[str, str]:
        """The forks that the method `name` credits beside the turns of `at`, as the input `forks`, if it has any."""
        forks = self.forks_at(at, name)
        return {} if forks is None else {"forks": self.layout.path("forks", forks.keys)}

    def stages_of(self, name: str) -> tuple[str, ...]:
        """The stages of a round that the method `name` needs or that follow from its credit, in order."""
        if name not in self._stages:
            method = self.method(name)
            has = {
                "measures": self.credit_reads_measures(name) or self.model_reads_measures(name),
                "continuations": "continuations" in method.needs,
                "forks": forks_of(self.experiment, name) is not None,
                "label": "labels" in method.needs,
                "logprobs": "logprobs" in method.needs,
                "implicit_model": method.reader == "implicit",
                **dict.fromkeys(("hiddens", "credit_model", "values"), "values" in method.needs),
                **dict.fromkeys(("rollout", "credit", "update", "eval", "invariants"), True),
            }
            self._stages[name] = tuple(stage for stage in STAGES if has.get(stage))
        return self._stages[name]

    def keys_for(self, stage: str, turns: At, name: str) -> At | None:
        """The keys of the job of `stage`, in the round of `turns`, for the method `name` (see `stages_of`).

        None where there is no such job: another method's stage, a round that is not evaluated, invariants before the
        last round.
        """
        if stage not in self.stages_of(name):
            return None
        match stage:
            case "rollout" | "measures":
                return turns
            case "continuations":
                return self.continuations_at(turns, name)
            case "forks":
                return self.forks_at(turns, name)
            case "label":
                return self.labels_at(turns, name)
            case "hiddens":
                return self.hiddens_at(turns, name)
            case "logprobs":
                return self.logprobs_at(turns, name)
            case "update":
                return At(method=name, seed=turns.seed, round=turns.round)
            case "eval" if turns.round in self.experiment.eval_rounds():
                return At(method=name, seed=turns.seed, round=turns.round)
            case "invariants" if turns.round == self.experiment.rounds:
                return At(method=name, seed=turns.seed)
            case "implicit_model" | "credit_model" | "values" | "credit":
                return replace(turns, method=name)
        return None

    def side_at(self, at: At, name: str, side: str) -> At:
        """The keys of the side table `side`, of the turns of `at`, that the method `name` reads."""
        keyed = {"labels": self.labels_at, "logprobs": self.logprobs_at, "continuations": self.continuations_at}
        return keyed[side](at, name) if side in keyed else at

    def hiddens_at(self, at: At, name: str) -> At:
        """The keys of the hidden states, of the turns of `at`, that the method's credit model reads."""
        _, model = self.model(name)
        # In round 1 the SFT policy is the current one.
        read = SFT if at.round == 1 else model.read
        return At(policy=at.policy, seed=at.seed, round=at.round, read=read, point=model.point)

    def logprobs_at(self, at: At, name: str) -> At:
        """The keys of the second pass, over the turns of `at`, that the method `name` reads."""
        reader = self.method(name).reader or ""
        # Each such method has a model of its own.
        reader = f"{IMPLICIT}{name}" if reader == "implicit" else reader
        return At(policy=at.policy, seed=at.seed, round=at.round, reader=reader)

    # Policies -----------------------------------------------------------------------------------------------------

    @cached_property
    def samplings(self) -> dict[str, RolloutConfig]:
        """The sampling settings behind each `<start>-<sampling>`: the experiment's, and those that methods override."""
        experiment = self.experiment
        starts = map(start_name, (None, *experiment.agents))
        sections = {name: experiment.section_for(name, "rollout") for name in (*starts, *experiment.define)}
        return {f"{experiment.start_of(name)}-{sampling_name(section)}": section for name, section in sections.items()}

    def sampling(self, policy: str) -> RolloutConfig:
        """The sampling settings of the turns with the key `policy`."""
        if not of_sft(policy):
            return self.experiment.section_for(policy, "rollout")
        if policy not in self.samplings:
            raise UserError(
                f"no method samples as '{policy}' says{nearest(policy, self.samplings)}; there are "
                f"{', '.join(self.samplings)}"
            )
        return self.samplings[policy]

    def turns_at(self, method: str, seed: int, round: int) -> At:
        """The keys of the turns that the run of `method` learns from in `round`."""
        return At(policy=sampled_by(self.experiment, method, round), seed=seed, round=round)

    def sft_policy(self, at: At) -> str:
        """The SFT policy behind a job: of the agent of its turns, or of its method."""
        return self.layout.path("sft_policy", start=self.start(at))

    def policy_before(self, method: str, seed: int, round: int) -> str:
        """The policy that a run's round starts from: its SFT policy in round 1, the previous round's after that."""
        if round == 1:
            return self.sft_policy(At(method=method))
        return self.layout.path("policy", method=method, seed=seed, round=round - 1)

    def sampler(self, at: At) -> str:
        """The policy that sampled the turns of `at`. Raises UserError for turns that do not belong to any run."""
        shared = of_sft(at.policy)
        if shared != (at.round == 1):
            should = sampled_by(self.experiment, self.start(at) if shared else at.policy, 1)
            raise UserError(
                f"rollouts/{at.policy}/.../round{at.round:02d}: round 1 is sampled by the SFT policy ({should}), and "
                "later rounds by the run of a method"
            )
        return self.policy_before(at.policy, at.seed, at.round)

    def rounds_before(self, at: At) -> list[At]:
        """The keys of the rounds that the credit model of `at.method` learns from on these turns, oldest first."""
        kind, _ = self.model(at.method)
        return [self._round_of(at, round) for round in replay_rounds(kind, at.round)]

    def round_before(self, at: At) -> At | None:
        """The keys of the round before, on the same run's turns; None in round 1."""
        return None if at.round == 1 else self._round_of(at, at.round - 1)

    def _round_of(self, at: At, round: int) -> At:
        policy = sampled_by(self.experiment, at.policy, round)
        return At(policy=policy, method=at.method, seed=at.seed, round=round)

    # Audits -------------------------------------------------------------------------------------------------------

    @cached_property
    def audited(self) -> list[At]:
        """The keys of the audited turns, each once: runs that sample alike share those of round 1."""
        experiment = self.experiment
        turns = [
            self.turns_at(run, seed, round)
            for run in experiment.audit.runs
            for seed, round in experiment.audited_rounds()
        ]
        return list(dict.fromkeys(turns))

    @cached_property
    def audit_methods(self) -> list[str]:
        """The methods that the audit compares, in the order of its tables; none without an audit."""
        return compared_methods(self.experiment)

    @cached_property
    def audit_learned(self) -> list[str]:
        """Those of them that have a learned credit model."""
        return [name for name in self.audit_methods if self.learns(name)]

    def audit_outputs(self, at: At) -> list[str]:
        """The paths that the audit makes for the turns `at`."""
        names = ["branches", "fidelity", "gradients"]
        names += ["leaks"] if self.audit_learned else []
        names += ["pages"] if self.experiment.audit.pages else []
        credits = [self.layout.path("credits", at.keys, method=name) for name in self.audit_methods]
        return [*credits, *(self.layout.path(name, at.keys) for name in (*names, "rollout_invariants"))]

    # Jobs ---------------------------------------------------------------------------------------------------------

    def slice(self, stage: str, at: At) -> Slice:
        """The part of the configuration that determines a job's outputs."""
        keys = getattr(load(stage), "VARIES_BY", VARIES_BY)
        varied: dict[str, Any] = {key: value for key, value in at.keys.items() if key in keys}
        which = stage, At(**varied)
        if which not in self._slices:
            self._slices[which] = load(stage).config(self, at)
        return self._slices[which]

    def settings(self, stage: str, at: At) -> dict[str, Any]:
        """What determines a job's outputs besides its inputs: its keys and its slice, as its provenance has them."""
        return {**at.keys, **self.slice(stage, at).model_dump(mode="json")}

    def inputs(self, stage: str, at: At) -> Inputs:
        """The files and folders that a job reads, by name."""
        return load(stage).inputs(self, at)

    def outputs(self, stage: str, at: At) -> dict[str, str]:
        """The files and folders that a job makes, by name."""
        return {name: self.layout.path(kind, self.keys(at)) for name, kind in load(stage).OUTPUTS.items()}

    def metrics(self, stage: str, at: At) -> str:
        """The metrics file of a job."""
        return f"{self.layout.root}/{fill(METRICS[stage], self.keys(at))}"

    def keys(self, at: At) -> dict[str, str | int]:
        """The keys of a job for its paths: its own, and the warm start behind it."""
        return {**at.keys, "start": self.start(at)}

    def operation(self, stage: str, at: At) -> Any:
        """The settings of a job that cannot change its result; None for most stages."""
        find = getattr(load(stage), "operation", None)
        return find(self, at) if find else None

    def job(self, stage: str, at: At, **more: Any) -> Job:
        """The job of `stage` with the keys `at`."""
        return Job(
            stage=stage,
            at=at,
            config=self.slice(stage, at),
            input=self.inputs(stage, at),
            output=self.outputs(stage, at),
            outputs=load(stage).OUTPUTS,
            operation=self.operation(stage, at),
            **more,
        )


def load(stage: str) -> Any:
    """The module of a stage. Raises UserError with the nearest name."""
    if stage not in STAGES:
        raise UserError(f"unknown stage '{stage}'{nearest(stage, STAGES)}; there are {', '.join(STAGES)}")
    return import_module(f"turncredit.pipeline.stages.{stage}")
