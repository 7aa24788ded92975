"""The whole configuration of an experiment, and what follows from it: runs, rounds, warm starts, agents, GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal, overload

from pydantic import Field, field_validator, model_validator

from turncredit.config import stages, sweep
from turncredit.config.grid import expanded
from turncredit.config.judge import JudgeConfig
from turncredit.config.sections import (
    SLURM_KEYS,
    AgentConfig,
    AuditConfig,
    DemosConfig,
    EnvConfig,
    EvalConfig,
    MethodConfig,
    PolicyConfig,
    ResourceConfig,
    RolloutConfig,
    Section,
    Seed,
    SftConfig,
    SweepConfig,
    TasksConfig,
    TrackingConfig,
    UpdateConfig,
)
from turncredit.config.warm_starts import SFT, agent_name, is_start, start_name
from turncredit.data.strict_model import Closed
from turncredit.errors import UserError, nearest

#: In `resources`: a job of all stages of several rounds (granularity round and run); every job that asks for a GPU.
ROUNDS, GPU_JOBS = "rounds", "gpu_jobs"
#: The name of an experiment without one.
_NAME = "household"


def _names_of_resources(schema: dict[str, Any]) -> None:
    schema["propertyNames"] = {"enum": [*stages.stages(), ROUNDS, GPU_JOBS]}


class Experiment(Closed):
    """The whole configuration of an experiment."""

    experiment: str = Field(_NAME, pattern=r"^[A-Za-z0-9_-]+$", description="the folder under results/")
    seeds: tuple[Seed, ...] = Field((0,), min_length=1)
    rounds: int = Field(12, ge=1, le=999)
    methods: tuple[str, ...] = Field(("flat_grpo",), min_length=1, description="the methods to train, by name")
    sweep: SweepConfig | None = Field(None, description="keys whose values each give an experiment of their own")
    define: dict[str, MethodConfig] = Field(default_factory=dict, description="methods besides the built-in ones")
    env: EnvConfig = EnvConfig()
    tasks: TasksConfig = TasksConfig()
    agent: AgentConfig = AgentConfig()
    agents: dict[str, AgentConfig] = Field(
        default_factory=dict, description="further agents by name, for methods that play with another (define.*.agent)"
    )
    policy: PolicyConfig = PolicyConfig()
    demos: DemosConfig = DemosConfig()
    sft: SftConfig = SftConfig()
    rollout: RolloutConfig = RolloutConfig()
    update: UpdateConfig = UpdateConfig()
    eval: EvalConfig = EvalConfig()
    judge: JudgeConfig = JudgeConfig()
    audit: AuditConfig = AuditConfig()
    tracking: TrackingConfig = TrackingConfig()
    resources: dict[str, ResourceConfig] = Field(default_factory=dict, json_schema_extra=_names_of_resources)
    keep_policies: Literal["all", "last"] = Field(
        "all",
        description="'last' deletes a round's policy once the next round and its evaluation have read it; the last "
        "policy of a job of several rounds stays",
    )
    granularity: Literal["stage", "round", "run"] = Field(
        "stage",
        description="what one job runs: one stage; all stages of rounds_per_job rounds of a run; or a whole run. "
        "The artifacts are the same",
    )
    rounds_per_job: int = Field(1, ge=1, description="with granularity round: the number of rounds per job")
    launcher: Literal["warm", "plain"] = Field(
        "warm", description="how local jobs start: forked from a warm process, or as plain processes"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_sweeps_and_grids(cls, data: Any) -> Any:
        return expanded(sweep.chosen(data, cls.model_fields, _NAME)) if isinstance(data, Mapping) else data

    @field_validator("resources", mode="before")
    @classmethod
    def _stages_that_there_are(cls, resources: Any) -> Any:
        names = (*stages.stages(), ROUNDS, GPU_JOBS) if resources else ()
        for name in resources if isinstance(resources, Mapping) else ():
            if name == "audit_model":
                raise ValueError("the stage audit_model is now called credit_model; write resources.credit_model")
            if name not in names:
                raise ValueError(f"unknown stage '{name}'{nearest(name, names)}; choose one of {', '.join(names)}")
        return resources

    @field_validator("resources")
    @classmethod
    def _gpu_jobs_differ_in_size(cls, resources: dict[str, ResourceConfig]) -> dict[str, ResourceConfig]:
        given = resources[GPU_JOBS].model_fields_set if GPU_JOBS in resources else set()
        if other := sorted(given - SLURM_KEYS.keys()):
            raise ValueError(f"{GPU_JOBS} takes only keys that begin with slurm_; give {other[0]} to single stages")
        return resources

    @model_validator(mode="after")
    def _evaluated_rounds(self) -> Experiment:
        late = [round for round in self.eval.rounds or () if round > self.rounds]
        if late:
            raise ValueError(
                f"eval.rounds has {late[0]}, but there are only {self.rounds} rounds; remove it, or set rounds to "
                f"{late[0]}"
            )
        return self

    @model_validator(mode="after")
    def _enough_games(self) -> Experiment:
        if self.rollout.tasks > self.tasks.train:
            raise ValueError(
                f"rollout.tasks is {self.rollout.tasks}, but there are only {self.tasks.train} training games; lower "
                f"rollout.tasks, or set tasks.train to {self.rollout.tasks} or more"
            )
        rounds = self.eval_rounds()
        need = self.eval.games * (len(rounds) if self.eval.fresh else 1)
        if need > self.tasks.eval:
            each = f", {self.eval.games} in each of the rounds {', '.join(map(str, rounds))}" if self.eval.fresh else ""
            raise ValueError(
                f"evaluations need {need} held-out games{each}, but tasks.eval is {self.tasks.eval}; raise it to "
                f"{need} or lower eval.games"
            )
        for key in ("methods", "seeds"):
            if twice := [one for one, count in Counter(getattr(self, key)).items() if count > 1]:
                raise ValueError(f"{key} has {twice[0]!r} twice; remove one of them")
        return self

    @model_validator(mode="after")
    def _rounds_of_a_job(self) -> Experiment:
        if self.granularity != "round" and self.rounds_per_job != 1:
            raise ValueError(
                f"rounds_per_job is {self.rounds_per_job}, but granularity is {self.granularity}; set granularity to "
                "round, or remove rounds_per_job"
            )
        return self

    @model_validator(mode="after")
    def _audit_of_a_run(self) -> Experiment:
        """The audit with its run and rounds filled in."""
        runs = self.trained()
        audit = self.audit
        if not audit.rounds or audit.run == () or (audit.run is None and not runs):
            return self.model_copy(update={"audit": audit.model_copy(update={"rounds": ()})})
        audited = audit.runs or runs[:1]
        rounds = sorted({self.rounds if round == "last" else round for round in audit.rounds})
        seeds = None if audit.seeds is None else tuple(self.seeds[0] if s == "first" else s for s in audit.seeds)
        for run in audited:
            if run not in runs:
                raise ValueError(
                    f"audit.run is '{run}', which is not one of methods{nearest(run, runs)}; choose a run that is "
                    f"trained, as in 'audit={{run: {runs[0] if runs else 'METHOD'}}}'"
                )
        for name, chosen, choices in (
            ("run", audited, runs),
            ("rounds", rounds, range(1, self.rounds + 1)),
            ("seeds", seeds or (), self.seeds),
        ):
            missing = [number for number in chosen if number not in choices]
            if missing:
                allowed = f"1 to {self.rounds}" if name == "rounds" else ", ".join(map(str, choices))
                raise ValueError(
                    f"audit.{name} has {missing[0]}, but the experiment's {name} are {allowed}; choose from these"
                )
            if len(set(chosen)) < len(chosen):
                raise ValueError(f"audit.{name} has a value twice; remove one of them")
        filled = {"run": audited[0] if len(audited) == 1 else tuple(audited), "rounds": tuple(rounds), "seeds": seeds}
        return self.model_copy(update={"audit": audit.model_copy(update=filled)})

    def blocks(self) -> list[range]:
        """The rounds of each job, as blocks; with granularity `stage` each round is a block."""
        size = {"stage": 1, "round": self.rounds_per_job, "run": self.rounds}[self.granularity]
        return [range(first, min(first + size, self.rounds + 1)) for first in range(1, self.rounds + 1, size)]

    def audited_rounds(self) -> list[tuple[int, int]]:
        """Every (seed, round) of the runs `audit.run` that is audited."""
        seeds = self.seeds if self.audit.seeds is None else self.audit.seeds
        rounds = [round for round in self.audit.rounds if round != "last"]  # numbers by now, as seeds are
        return [(seed, round) for seed in seeds if seed != "first" for round in rounds]

    def eval_rounds(self) -> list[int]:
        """The rounds that are evaluated: `eval.rounds`, or every `eval.every`-th and always the last three."""
        if self.eval.rounds is not None:
            return sorted(self.eval.rounds)
        last = range(max(1, self.rounds - 2), self.rounds + 1)
        return sorted({r for r in range(1, self.rounds + 1) if r % self.eval.every == 0} | set(last))

    def eval_part(self, round: int) -> int:
        """Which part of the held-out games an evaluated round is played on, counted from 0."""
        return list(self.eval.rounds or self.eval_rounds()).index(round) if self.eval.fresh else 0

    def resource(self, stage: str) -> ResourceConfig:
        """The resources of a job of `stage`, as given; `turncredit.pipeline.resources` fills in what is not."""
        return self.resources.get(stage, ResourceConfig())

    def slurm(self, job: str) -> dict[str, str]:
        """What jobs of a stage, or of `rounds`, ask of Slurm alone, by the names of Snakemake's plugin.

        `resources.gpu_jobs` holds for those that ask for a GPU; what a stage has itself wins.
        """
        of_all = self.resource(GPU_JOBS).slurm if self.gpus(job) else {}
        return {**of_all, **self.resource(job).slurm}

    def gpus(self, stage: str) -> int:
        """The GPUs of each node of a job of `stage`: as given, else 1 if it loads a policy, and policies run on GPUs.

        A job asks for at least as many as training spreads the model over (`policy.train_gpus`, on `train_nodes`), or
        as vLLM's engines take (`policy.sample_engines`, each on `policy.sample_gpus`).
        """
        record = stages.stage("update" if stage == ROUNDS else stage)
        trains = self.policy.train_gpus // self.policy.train_nodes if self._spreads(stage) else 0
        samples = record.policy == "samples" or stage == ROUNDS
        spread = max(trains, self.policy.sampling_gpus if samples and self.policy.sampling_gpus > 1 else 0)
        given = self.resource(stage).gpu
        if given is not None or spread:
            return max(given or 0, spread)
        if stage == "label":
            return int(self.serves(stage))
        on_gpus = self.policy.engine == "vllm" or any(resource.gpu for resource in self.resources.values())
        return int(on_gpus and record.policy is not None)

    def threads(self, stage: str) -> int:
        """The cores of a job of `stage`: as given, else 1, or with GPUs 2 and 2 more for each.

        Beside each GPU a process feeds it, and an engine of vLLM's has a process of its own.
        """
        gpus = self.gpus(stage)
        return self.resource(stage).threads or (2 + 2 * gpus if gpus else 1)

    def nodes(self, stage: str) -> int:
        """The nodes of a job of `stage`, or of `rounds`: several only if it trains on several."""
        return self.policy.train_nodes if self._spreads(stage) else 1

    def all_gpus(self, stage: str) -> int:
        """The GPUs of a job of `stage`, of all of its nodes."""
        return self.nodes(stage) * self.gpus(stage)

    def _spreads(self, stage: str) -> bool:
        """Whether a job of `stage` spreads a model over several GPUs, to train it."""
        record = stages.stage("update" if stage == ROUNDS else stage)
        trains = "train_gpus" in record.part.model_fields and (stage != "sft" or self.sft.epochs > 0)
        return trains and self.policy.train_gpus > 1

    def serves(self, stage: str) -> bool:
        """Whether a job of `stage` starts a judge's server of its own."""
        return stage == "label" and self.judge.serve is not None

    def trained(self) -> list[str]:
        """The methods that are trained; `sft` among `methods` is only evaluated."""
        return [name for name in self.methods if not is_start(name)]

    def runs(self) -> list[tuple[str, int]]:
        """Every (method, seed)."""
        return [(method, seed) for method in self.trained() for seed in self.seeds]

    def start_of(self, who: str) -> str:
        """The warm start behind `who`: a method, turns by their key `policy`, or a warm start itself."""
        name = who.partition("-")[0]  # what a warm start sampled is called <start>-<sampling>
        if is_start(name):
            return name
        entry = self.define.get(name)
        return start_name(entry.agent if entry else None)

    def starts(self) -> list[str]:
        """The warm starts of the methods, and those among `methods` themselves; each once, the own agent's first."""
        return sorted(dict.fromkeys(map(self.start_of, self.methods)), key=lambda start: start != SFT)

    def agent_of(self, who: str) -> AgentConfig:
        """The agent that plays for `who` (see `start_of`). Raises UserError for a name that no agent has."""
        name = agent_name(self.start_of(who))
        if name is not None and name not in self.agents:
            raise UserError(f"unknown agent '{name}'{nearest(name, self.agents)}; add it to `agents`")
        return self.agent if name is None else self.agents[name]

    def agent_key(self, who: str) -> str:
        """The key of the configuration that `agent_of(who)` is at: `agent`, or `agents.<name>`."""
        name = agent_name(self.start_of(who))
        return "agent" if name is None else f"agents.{name}"

    def definition(self, method: str) -> dict[str, Any] | str:
        """The definition of `method` for `turncredit.credit.resolve`: its entry, or a built-in's name."""
        entry = self.define.get(method)
        return entry.model_dump(include={"base", "credit", "params"}) if entry else method

    @overload
    def section_for(self, method: str, section: Literal["rollout"]) -> RolloutConfig: ...
    @overload
    def section_for(self, method: str, section: Literal["update"]) -> UpdateConfig: ...

    def section_for(self, method: str, section: Section) -> RolloutConfig | UpdateConfig:
        """`rollout` or `update` for `method`: the experiment's, with the method's own overrides."""
        base: RolloutConfig | UpdateConfig = getattr(self, section)
        entry = self.define.get(method)
        changes = getattr(entry, section) if entry else {}
        return base.model_validate({**base.model_dump(), **changes}) if changes else base
