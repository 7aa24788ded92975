"""The inputs and outputs of every job of an experiment, from the configuration and the layout.

Rules, jobs of several stages, and `turncredit where` all use it, so that they cannot disagree. Nothing here imports
torch: planning tens of thousands of jobs takes seconds.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from turncredit import envs
from turncredit.config import AgentSlice, EnvSlice, Experiment, RolloutConfig, stages
from turncredit.config.layout import Layout, fill, layout_of, of_sft, sampled_by, sampling_name
from turncredit.config.stages import stage as load  # noqa: F401
from turncredit.config.warm_starts import start_name
from turncredit.credit import Method
from turncredit.credit.models.protocol import ModelSettings
from turncredit.credit.models.settings import model_settings, replay_rounds
from turncredit.credit.parts.configured import compared_methods, configured_method, forks_of
from turncredit.data import plugins
from turncredit.data.own_imports import own_imports
from turncredit.errors import UserError, nearest
from turncredit.pipeline import capabilities
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.own_code import code_of_method, own_files


class Playing(NamedTuple):
    """Execution settings of a sampling job. They do not affect results.

    processes   that share its rollouts
    timeout     seconds that a call of an environment may take
    gpus        that an engine of vLLM splits the model over
    engines     of vLLM that share its rollouts
    """

    processes: int
    timeout: float | None
    gpus: int
    engines: int


class Plan:
    """The plan of an experiment below the folder `results`."""

    def __init__(self, experiment: Experiment, results: str | Path = "results"):
        self.experiment = experiment
        self.results = Path(results)
        self.layout: Layout = layout_of(experiment, results)
        self._methods: dict[str, Method] = {}
        self._codes: dict[str, str | None] = {}
        self._imports: dict[str, list[str]] = {}
        self._measured: dict[tuple[str, str], bool] = {}
        self._models: dict[str, tuple[str, ModelSettings]] = {}
        self._agents: dict[str, AgentSlice] = {}
        self._forks: dict[str, int | None] = {}
        self._slices: dict[tuple[str, JobKeys], Slice] = {}

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

    def own_files(self, name: str) -> Inputs:
        """The user's own files that define the method as inputs: `method`, and `parts` of further ones."""
        files = own_files(self.experiment.definition(name))
        further = {"parts": files[1:], "method_imports": self.imports(*files)}
        return {**({"method": files[0]} if files else {}), **{key: paths for key, paths in further.items() if paths}}

    def model_file(self, name: str) -> Inputs:
        """The user's own file that defines the method's learned credit model as the input `kind`, if there is one."""
        return self._own_file("kind", self.model(name)[0])

    def _own_file(self, key: str, name: str) -> Inputs:
        """The user's own file that `name` refers to as the input `key`, and what it imports as `key_imports`."""
        if (own := plugins.own_file(name)) is None:
            return {}
        imports = self.imports(str(own[0]))
        return {key: str(own[0]), **({f"{key}_imports": imports} if imports else {})}

    def imports(self, *files: str) -> list[str]:
        """What the user's own files import from their folders, each once."""
        for file in files:
            if file not in self._imports:
                self._imports[file] = own_imports(file)
        return sorted({one for file in files for one in self._imports[file]} - set(files))

    def code(self, name: str) -> str | None:
        """What identifies the code of the method, where it is not this package's."""
        if name not in self._codes:
            self._codes[name] = code_of_method(self.experiment.definition(name), self.method(name))
        return self._codes[name]

    # Environment and agents ---------------------------------------------------------------------------------------

    @cached_property
    def env(self) -> EnvSlice:
        """The environment that is played, with its own settings."""
        return self.experiment.env.chosen()

    @property
    def demonstrated(self) -> str:
        """Which table of games is demonstrated: the training games, unless demonstrations have a split of their own."""
        return "demos" if self.experiment.tasks.demo_split else "train"

    def playing(self, rollout: RolloutConfig | None = None) -> Playing:
        """How a job plays; as `rollout` says, if it is not the experiment's own."""
        experiment, policy = self.experiment, self.experiment.policy
        processes = (rollout or experiment.rollout).processes
        return Playing(processes, experiment.env.timeout, policy.sample_gpus, policy.sample_engines)

    def warm_start(self, at: JobKeys) -> str:
        """The warm start behind a job, with its agent and tokenizer: the one it makes, its turns' or its method's."""
        return at.warm_start or self.experiment.start_of(at.policy or at.method)

    def agent(self, at: JobKeys) -> AgentSlice:
        """The agent that plays in a job, or that its turns were played with, with its own settings."""
        start = self.warm_start(at)
        if start not in self._agents:
            self._agents[start] = self.experiment.agent_of(start).chosen()
        return self._agents[start]

    @cached_property
    def environment_file(self) -> Inputs:
        """The user's own file that defines the environment as the input `environment`, if there is one."""
        return self._own_file("environment", self.experiment.env.name)

    def plugin_files(self, at: JobKeys) -> Inputs:
        """The inputs of a job that samples rollouts: the files of the user's own agent and environment."""
        return {**self._own_file("agent", self.agent(at).name), **self.environment_file}

    def measurable(self, at: JobKeys) -> bool:
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

    def beside(self, turns: JobKeys, **more: str) -> JobKeys:
        """Keys of an artifact derived from `turns`, with `more` keys."""
        return JobKeys(policy=turns.policy, seed=turns.seed, round=turns.round, **more)

    def run_at(self, method: str, turns: JobKeys) -> JobKeys:
        """Keys of the run's round that trains on `turns`."""
        return JobKeys(method=method, seed=turns.seed, round=turns.round)

    def keys_of(self, artifact: str, turns: JobKeys, method: str) -> JobKeys | None:
        """The keys of the artifact about the turns `turns` that the method `method` reads; None where it has none."""
        keys: JobKeys | None = stages.stage(stages.made_by()[artifact]).keys(self, turns, method)
        return keys

    def read_by(self, artifact: str, turns: JobKeys, method: str) -> str:
        """The path of the artifact about the turns `turns` that the method `method` reads."""
        keys = self.keys_of(artifact, turns, method)
        assert keys is not None, f"{method} reads no {artifact} of {turns}"
        return self.layout.path(artifact, keys.keys)

    def forks_per_task(self, name: str) -> int | None:
        """How many forks of each task the method `name` credits; None where it credits rollouts alone."""
        if name not in self._forks:
            self._forks[name] = forks_of(self.experiment, name)
        return self._forks[name]

    def forks_file(self, at: JobKeys, name: str) -> dict[str, str]:
        """The forks that the method `name` credits beside the turns of `at`, as the input `forks`, if it has any."""
        forks = self.keys_of("forks", at, name)
        return {} if forks is None else {"forks": self.layout.path("forks", forks.keys)}

    def keys_for(self, stage: str, turns: JobKeys, method: str) -> JobKeys | None:
        """The keys of the job of `stage`, in the round of `turns`, for the method `method`; None without such a job."""
        record = stages.stage(stage)
        keys: JobKeys | None = record.keys(self, turns, method) if record.needed(self, method) else None
        return keys

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
                f"unknown sampling '{policy}'{nearest(policy, self.samplings)}; choose one of "
                f"{', '.join(self.samplings)}"
            )
        return self.samplings[policy]

    def turns_at(self, method: str, seed: int, round: int) -> JobKeys:
        """The keys of the turns that the run of `method` learns from in `round`."""
        return JobKeys(policy=sampled_by(self.experiment, method, round), seed=seed, round=round)

    def sft_policy(self, at: JobKeys) -> str:
        """The SFT policy behind a job: of the agent of its turns, or of its method."""
        return self.layout.path("sft_policy", warm_start=self.warm_start(at))

    def policy_before(self, method: str, seed: int, round: int) -> str:
        """The policy that a run's round starts from: its SFT policy in round 1, the previous round's after that."""
        if round == 1:
            return self.sft_policy(JobKeys(method=method))
        return self.layout.path("policy", method=method, seed=seed, round=round - 1)

    def sampler(self, at: JobKeys) -> str:
        """The policy that sampled the turns of `at`. Raises UserError for turns that do not belong to any run."""
        shared = of_sft(at.policy)
        if shared != (at.round == 1):
            should = sampled_by(self.experiment, self.warm_start(at) if shared else at.policy, 1)
            raise UserError(
                f"rollouts/{at.policy}/.../round{at.round:02d}: round 1 is sampled by the SFT policy ({should}), and "
                "later rounds by the run of a method"
            )
        return self.policy_before(at.policy, at.seed, at.round)

    def rounds_before(self, at: JobKeys) -> list[JobKeys]:
        """The keys of the rounds that the credit model of `at.method` learns from on these turns, oldest first."""
        kind, _ = self.model(at.method)
        return [self._round_of(at, round) for round in replay_rounds(kind, at.round)]

    def round_before(self, at: JobKeys) -> JobKeys | None:
        """The keys of the round before, on the same run's turns; None in round 1."""
        return None if at.round == 1 else self._round_of(at, at.round - 1)

    def _round_of(self, at: JobKeys, round: int) -> JobKeys:
        policy = sampled_by(self.experiment, at.policy, round)
        return JobKeys(policy=policy, method=at.method, seed=at.seed, round=round)

    # Audits -------------------------------------------------------------------------------------------------------

    @cached_property
    def audited(self) -> list[JobKeys]:
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

    def audit_outputs(self, at: JobKeys) -> list[str]:
        """The paths that the audit makes for the turns `at`."""
        credits = [self.layout.path("credits", at.keys, method=name) for name in self.audit_methods]
        audits = [one for one in stages.stages_in("audit") if one.needed(self, at.policy)]
        return [*credits, *(self.layout.path(next(iter(one.makes.values())).name, at.keys) for one in audits)]

    # Jobs ---------------------------------------------------------------------------------------------------------

    def slice(self, stage: str, at: JobKeys) -> Slice:
        """The part of the configuration that determines a job's outputs."""
        record = stages.stage(stage)
        varied: dict[str, Any] = {key: value for key, value in at.keys.items() if key in record.varies_by}
        which = stage, JobKeys(**varied)
        if which not in self._slices:
            self._slices[which] = record.slice(self, at)
        return self._slices[which]

    def settings(self, stage: str, at: JobKeys) -> dict[str, Any]:
        """What determines a job's outputs besides its inputs: its keys and its slice, as its provenance has them."""
        return {**at.recorded, **self.slice(stage, at).model_dump(mode="json")}

    def inputs(self, stage: str, at: JobKeys) -> Inputs:
        """The files and folders that a job reads, by name."""
        files: Inputs = stages.stage(stage).inputs(self, at)
        return files

    def outputs(self, stage: str, at: JobKeys) -> dict[str, str]:
        """The files and folders that a job makes, by name."""
        keys = self.keys(at)
        return {name: self.layout.path(kind.name, keys) for name, kind in stages.stage(stage).makes.items()}

    def metrics(self, stage: str, at: JobKeys) -> str:
        """The metrics file of a job."""
        return fill(self.layout.metrics(stage), self.keys(at))

    def log(self, stage: str, at: JobKeys) -> str:
        """The log of a job."""
        return fill(self.layout.log(stage), self.keys(at))

    def keys(self, at: JobKeys) -> dict[str, str | int]:
        """The keys of a job for its paths: its own, and the warm start behind it."""
        return {**at.keys, "warm_start": self.warm_start(at)}

    def runtime_options(self, stage: str, at: JobKeys) -> Any:
        """The settings of a job that cannot affect its result; None for most stages."""
        find = stages.stage(stage).runtime_options
        return find(self, at) if find else None

    def job(self, stage: str, at: JobKeys, **more: Any) -> Job:
        """The job of `stage` with the keys `at`."""
        return Job(
            stage=stage,
            at=at,
            config=self.slice(stage, at),
            input=self.inputs(stage, at),
            output=self.outputs(stage, at),
            makes=stages.stage(stage).makes,
            runtime_options=self.runtime_options(stage, at),
            **more,
        )
