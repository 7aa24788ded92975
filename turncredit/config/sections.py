"""The experiment's configuration: typed, closed (a misspelt key is an error), and checked before any job starts.

`load` reads one or more YAML files (later ones override), resolves them to an `Experiment`, and turns every
mistake into one line that names the key and the nearest valid one. `schemas/config.schema.json` is this model
as JSON schema (`python -m turncredit.config > schemas/config.schema.json`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from turncredit.bounds import RAILS
from turncredit.closed import Closed
from turncredit.errors import UserError, nearest
from turncredit.judges.config import JudgeConfig
from turncredit.plugins import own_file
from turncredit.starts import SFT, agent_name, is_start, start_name
from turncredit.yaml_files import read_mapping

Model = TypeVar("Model", bound=BaseModel)

#: A seed. Generators take any; tables and tools that read them hold at most this.
Seed = Annotated[int, Field(ge=0, lt=2**31)]
#: A decay rate of an optimiser's moments.
Beta = Annotated[float, Field(ge=0, lt=1)]
#: Kinds of MLflow stores: servers, databases, and folders (`./mlruns`, file:///...).
STORES = (
    "http", "https", "file", "sqlite", "postgresql", "mysql", "mssql", "databricks", "databricks-uc", "uc",
)  # fmt: skip


class _SettingsByName(Closed):
    """A block about something chosen by `name`. Settings are under the name of what they belong to.

    So a file laid over this one can choose another: settings of what is not chosen are kept and not read.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, dict[str, Any]]

    @model_validator(mode="before")
    @classmethod
    def _settings_have_an_owner(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        name = str(data.get("name", cls.model_fields["name"].default))
        owner = f"the name that {name} declares" if own_file(name) else f"'{name}'"
        for key, value in data.items():
            if key == "settings":
                raise ValueError(f"settings are now under the name of their owner: write {owner} instead of 'settings'")
            if key not in cls.model_fields and not isinstance(value, Mapping):
                hint = nearest(str(key), cls.model_fields) or f"; if it is a setting, write it under {owner}"
                raise ValueError(f"unknown key '{key}'{hint}")
        return data

    def settings_of(self, owner: str) -> dict[str, Any]:
        """The settings under the name `owner`; none if there is no such block."""
        return dict((self.__pydantic_extra__ or {}).get(owner, {}))

    def owners(self) -> list[str]:
        """The names that settings are given for."""
        return list(self.__pydantic_extra__ or {})


class EnvSlice(Closed):
    """The environment that is played and its own settings: what of `env` decides a job's result."""

    name: str
    settings: dict[str, Any] = Field(default_factory=dict)


class EnvConfig(_SettingsByName):
    """The environment; its settings, which it validates, are under its name: `household: {horizon: 30}`."""

    name: str = Field("household", description="a built-in or installed environment, or a path: my_env.py")
    timeout: float | None = Field(
        60.0, gt=0, description="time limit in seconds for a call of an environment that is not built in; null: none"
    )

    @property
    def owner(self) -> str:
        """The name that the settings are under: that of a file's environment is the one that the file declares."""
        from turncredit import envs

        return envs.load(self.name).name if own_file(self.name) else self.name

    def chosen(self) -> EnvSlice:
        """The environment that is played, with its own settings. Raises UserError for a file that has none."""
        return EnvSlice(name=self.name, settings=self.settings_of(self.owner))


class TasksConfig(Closed):
    """The number of games, and the environment's splits that they come from."""

    train_split: str = "train"
    eval_split: str = "eval"
    train: int = Field(4096, ge=1, description="games for demonstrations and rollouts")
    eval: int = Field(4096, ge=1, description="held-out games")
    seed: Seed = 0


class AgentSlice(Closed):
    """The agent that plays and its own settings."""

    name: str = "transcript"
    max_response_tokens: int = 16
    settings: dict[str, Any] = Field(default_factory=dict)


class AgentConfig(_SettingsByName):
    """What the model sees and how its text becomes an action. Settings are under the agent's name, as with `env`."""

    name: str = Field(
        "transcript",
        min_length=1,
        description="transcript, window, react, reflexion, hipif, an installed agent, or path.py",
    )
    max_response_tokens: int = Field(16, ge=2)

    @model_validator(mode="before")
    @classmethod
    def _no_old_keys(cls, data: Any) -> Any:
        for key in ("history", "show_admissible"):
            if isinstance(data, Mapping) and key in data:
                raise ValueError(f"{key} is now a setting of the window agent: write agent.window.{key}")
        return data

    @property
    def owner(self) -> str:
        """The name that the settings are under: that of a file's agent is the one that the file declares."""
        from turncredit import agents

        return agents.load(self.name).name if own_file(self.name) else self.name

    def chosen(self) -> AgentSlice:
        """The agent that plays, with its own settings. Raises UserError for a file that has none."""
        return AgentSlice(
            name=self.name, max_response_tokens=self.max_response_tokens, settings=self.settings_of(self.owner)
        )


class LoraConfig(Closed):
    """Low-rank adapters (Hu et al. 2021); the defaults are the HAS recipe."""

    rank: int = Field(32, ge=1)
    alpha: int = Field(64, ge=1)
    dropout: float = Field(0.0, ge=0, lt=1)
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class ScratchConfig(Closed):
    """A model with Qwen2's architecture, built from scratch, with a tokenizer trained on the environment's text."""

    hidden: int = Field(64, ge=8)
    layers: int = Field(2, ge=1)
    heads: int = Field(2, ge=1)
    kv_heads: int = Field(2, ge=1)
    mlp: int = Field(192, ge=8)
    vocab: int = Field(1024, ge=300)
    max_positions: int = Field(2048, ge=64)
    initializer_range: float = Field(0.08, gt=0)
    seed: Seed = 0

    @model_validator(mode="after")
    def _heads_fit(self) -> ScratchConfig:
        if self.hidden % self.heads:
            raise ValueError(f"heads ({self.heads}) must divide hidden ({self.hidden})")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads ({self.kv_heads}) must divide heads ({self.heads})")
        if self.hidden // self.heads % 2:
            raise ValueError(
                f"a head has hidden / heads = {self.hidden // self.heads} dimensions; rotary positions need an even "
                "number, so change hidden or heads"
            )
        return self


Dtype = Literal["float32", "bfloat16"]


class PolicyConfig(Closed):
    """The language model. `source` is `scratch`, a folder, or a hub name such as Qwen/Qwen2.5-1.5B-Instruct."""

    source: str = "scratch"
    revision: str | None = None
    scratch: ScratchConfig = ScratchConfig()
    lora: LoraConfig | None = None
    dtype: Dtype = Field("float32", description="type that a policy samples and computes in, also in training")
    train_dtype: Dtype = Field(
        "float32",
        description="type in which whole weights are trained and saved; bfloat16: with stochastic rounding, to save "
        "memory. Adapters are always float32",
    )
    moments_dtype: Dtype = Field(
        "float32", description="type of the optimiser's moments between steps; bfloat16: with stochastic rounding"
    )
    train_gpus: int = Field(
        1,
        ge=1,
        description="GPUs that SFT and updates spread the model over (FSDP2), each with one shard of every minibatch; "
        "their jobs ask for as many",
    )
    engine: Literal["lockstep", "transformers", "vllm"] = "lockstep"

    @model_validator(mode="after")
    def _trained_no_coarser_than_computed(self) -> PolicyConfig:
        if self.dtype == "float32" and self.train_dtype != "float32":
            raise ValueError(
                f"train_dtype is {self.train_dtype}, but dtype float32: weights are trained at least as finely as they "
                "are computed with; set dtype to bfloat16 too, or leave train_dtype out"
            )
        return self


class DemosConfig(Closed):
    """Expert demonstrations with deliberate mistakes.

    Noise is never imitated: it shows the policy states after mistakes, and how to recover. Slips and forgotten steps
    are imitated: they are the mistakes that reinforcement learning then has to correct.
    """

    count: int = Field(2000, ge=1)
    noise: float = Field(0.1, ge=0, lt=1, description="fraction of turns that act at random, masked in the loss")
    slips: float = Field(0.0, ge=0, lt=1, description="fraction of turns with a random admissible action, imitated")
    skip: float = Field(0.0, ge=0, lt=1, description="fraction of demonstrations that forget to clean, heat or cool")
    seed: Seed = 0


class SftConfig(Closed):
    """The supervised warm start."""

    epochs: float = Field(1.5, ge=0, description="0: no warm start, the base model is the policy")
    successful_only: bool = Field(True, description="drop demonstrations that did not reach their goal")
    batch: int = Field(8, ge=1, description="contexts per step; a demonstration has one, or one a turn if rebuilt")
    optimizer: Literal["adamw", "muon"] = Field("adamw", description="muon learns from scratch in half the time")
    lr: float = Field(8e-3, gt=0, description="for AdamW; with muon, for parameters other than the blocks' matrices")
    muon_lr: float = Field(0.02, gt=0)
    warmup_steps: int = Field(20, ge=0)
    final_lr: float = Field(0.05, ge=0, le=1, description="fraction of the learning rate at the end")
    weight_decay: float = Field(0.01, ge=0)
    betas: tuple[Beta, Beta] = (0.9, 0.98)
    max_grad_norm: float = Field(1.0, gt=0)
    shards: int = Field(1, ge=1, description="parts of a batch, computed in parallel if the job has the cores")
    seed: Seed = 0


class RolloutConfig(Closed):
    """Sampling for training: `tasks` groups of `group_size` rollouts each."""

    tasks: int = Field(32, ge=1)
    group_size: int = Field(8, ge=1)
    temperature: float = Field(1.0, gt=0)
    slots: int = Field(512, ge=1, description="rollouts that run at the same time, over all processes")
    processes: int = Field(
        1,
        ge=1,
        description="processes that share the rollouts of a job (also for eval and branch), each with one thread and "
        "its own copy of the policy (on its own GPU, if there are any); the samples are the same. "
        "Give these jobs as many threads (resources)",
    )


class LossConfig(Closed):
    """The settings that determine the policy gradient for given advantages at the policy that sampled."""

    minibatch: int = Field(16, ge=1, description="rollouts per optimiser step")
    kl: Literal["none", "k1", "k2", "k3"] = "none"
    loss_aggregation: Literal["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean"] = "token-mean"
    advantage_scale: Literal["none", "rms"] = "rms"
    skip_dead_groups: bool = Field(
        False,
        description="leave out groups whose returns are all equal (HAS, appendix C); methods then take unequal steps",
    )


class UpdateConfig(LossConfig):
    """The clipped policy-gradient update that every method shares."""

    optimizer: Literal["adamw", "muon"] = "adamw"
    lr: float = Field(7e-4, gt=0, description="for AdamW; with muon, for parameters other than the blocks' matrices")
    muon_lr: float = Field(2e-3, gt=0)
    warmup_steps: int = Field(0, ge=0, description="optimiser steps of linear warm-up, counted over all rounds")
    final_lr: float = Field(
        1.0, ge=0, le=1, description="fraction of the learning rate in round decay_rounds and after; linear decay"
    )
    decay_rounds: int | None = Field(
        None,
        ge=1,
        le=999,
        description="the round in which the learning rate has fallen to final_lr; null: the last of `rounds`, so that "
        "another number of rounds repeats every update",
    )
    epochs: int = Field(1, ge=1)
    tokens_per_pass: int = Field(
        16384, ge=1, description="padded tokens per forward pass; larger minibatches accumulate gradients"
    )
    clip_low: float = Field(0.2, gt=0, le=1)
    clip_high: float = Field(0.28, gt=0)
    old_logprobs: Literal["sampled", "recomputed"] = Field(
        "sampled",
        description="the ratio's denominator: what the engine recorded, or what training computes before a round's "
        "first step",
    )
    importance_cap: float | None = Field(
        None,
        gt=0,
        description="weigh each token by min(p_train / p_engine, cap), truncated importance sampling; null: do not. "
        "Needs old_logprobs: recomputed",
    )
    kl_coefficient: float = Field(0.0, ge=0)
    kl_target: float | None = Field(None, gt=0, description="adapts the coefficient towards this KL, if given")
    weight_decay: float = Field(0.0, ge=0)
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    max_grad_norm: float = Field(1.0, gt=0)
    keep_optimizer: bool = Field(True, description="carry the optimiser's moments from round to round")
    gradient_checkpointing: bool = False
    shards: int = Field(1, ge=1, description="parts of a minibatch, computed in parallel if the job has the cores")

    @model_validator(mode="after")
    def _kl_named(self) -> UpdateConfig:
        if (self.kl == "none") != (self.kl_coefficient == 0.0):
            raise ValueError(
                "kl and kl_coefficient belong together: name an estimator (k1, k2, k3) and give it a weight"
            )
        return self

    @model_validator(mode="after")
    def _corrects_what_is_recomputed(self) -> UpdateConfig:
        if self.importance_cap is not None and self.old_logprobs == "sampled":
            raise ValueError(
                "importance_cap weighs recomputed log-probabilities by sampled ones; set old_logprobs to recomputed"
            )
        return self


class EvalMode(Closed):
    """One way to sample at evaluation; temperature 0 is greedy."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    temperature: float = Field(ge=0)


class EvalConfig(Closed):
    """Held-out evaluation. With `fresh`, each evaluated round has its own games (the same for all methods)."""

    games: int = Field(256, ge=1)
    fresh: bool = True
    every: int = Field(1, ge=1, description="evaluate every n-th round, and always the last three")
    rounds: tuple[Annotated[int, Field(ge=1, le=999)], ...] | None = Field(
        None,
        min_length=1,
        description="evaluate these rounds instead; fresh games are dealt in this order, so rounds that are added at "
        "the end leave the games of the others as they are",
    )
    modes: tuple[EvalMode, ...] = (EvalMode(name="sampled", temperature=1.0),)
    primary: str = Field("sampled", description="the mode that the report's headline numbers use")

    @model_validator(mode="after")
    def _primary_is_a_mode(self) -> EvalConfig:
        names = [mode.name for mode in self.modes]
        if self.primary not in names:
            raise ValueError(f"primary '{self.primary}' is not one of the modes {names}")
        if len(set(names)) < len(names):
            raise ValueError(f"two of the modes have the same name: {names}")
        if self.rounds is not None and len(set(self.rounds)) < len(self.rounds):
            raise ValueError("rounds must not repeat")
        return self


class ContinuationsConfig(Closed):
    """Continuations of the acting policy from every state of the training rollouts (docs/methods/vineppo.md)."""

    per_state: int | None = Field(None, ge=1, description="from each state; null: the method's own number")
    budget_turns: int | None = Field(
        None, ge=1, description="about this many continuation turns a round: every state gets fewer; null: no limit"
    )


class ForksConfig(Closed):
    """Rollouts that fork from states of the training rollouts, for a tree of each task (docs/methods/carl.md)."""

    per_task: int | None = Field(None, ge=1, description="forks of each task; null: the method's own number")


class MethodConfig(Closed):
    """Your own method, or a built-in one with other parameters.

    `base` is a built-in method's name; `credit` a file `path.py:function` (or `path.py`, for the function of the
    file's name); `params` its keyword arguments; `rollout` and `update` override those sections for this method;
    `model` has the settings of its learned credit model, if it has one (turncredit/credit_models); `continuations`
    and `forks` how many there are, if it reads any; `agent` is one of `agents`, if not the experiment's own.
    """

    base: str | None = None
    credit: str | None = None
    agent: str | None = Field(None, description="the name of one of `agents`; null: the experiment's own agent")
    params: dict[str, Any] = Field(default_factory=dict)
    model: dict[str, Any] = Field(default_factory=dict)
    continuations: ContinuationsConfig | None = None
    forks: ForksConfig | None = None
    rollout: dict[str, Any] = Field(default_factory=dict)
    update: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_source(self) -> MethodConfig:
        if (self.base is None) == (self.credit is None):
            raise ValueError("give either base (a built-in method) or credit (your own file), not both")
        return self


class BranchConfig(Closed):
    """Ground truth by branching: how many turns, and how many continuations of each (docs/branching.md)."""

    turns: int = Field(96, ge=1, description="sampled turns of one round's rollouts")
    min_continuations: int = Field(16, ge=2, description="from each state, before its uncertainty is looked at")
    max_continuations: int = Field(64, ge=2)
    target_se: float = Field(0.1, gt=0, description="the standard error of an advantage to aim for")
    budget_turns: int = Field(200_000, ge=1, description="continuation turns after which no continuation is started")
    reference_noise: float = Field(
        0.2, ge=0, le=1, description="fraction of turns with random actions of the reference"
    )
    reference_continuations: int = Field(16, ge=0, description="by the reference policy, from each state; 0: none")

    @model_validator(mode="after")
    def _in_order(self) -> BranchConfig:
        if self.min_continuations > self.max_continuations:
            raise ValueError(
                f"min_continuations ({self.min_continuations}) must not be above max_continuations "
                f"({self.max_continuations})"
            )
        return self


class AuditConfig(Closed):
    """Audits: the rounds of one run, or of several, whose rollouts get ground truth and every method's credit."""

    run: str | tuple[str, ...] | None = Field(
        None, description="the method, or methods, whose rollouts are audited; null: the first of `methods`"
    )
    rounds: tuple[int | Literal["last"], ...] = Field((), description="which rounds, or 'last'; none: no audit")
    seeds: tuple[Seed, ...] | None = Field(None, description="which seeds; null: all of the experiment's")
    methods: tuple[str, ...] | None = Field(
        None, description="methods to compare; null: the experiment's, flat_grpo, random_credit and oracle_progress"
    )
    branch: BranchConfig = BranchConfig()
    pages: int = Field(12, ge=0, description="rollouts that get a credit page")

    @property
    def runs(self) -> tuple[str, ...]:
        """The methods whose rollouts are audited."""
        return () if self.run is None else (self.run,) if isinstance(self.run, str) else self.run


class TrackingConfig(Closed):
    """MLflow. `uri` null means SQLite in the results folder; on a cluster, give the address of a server."""

    enabled: bool = True
    uri: str | None = None

    @model_validator(mode="after")
    def _known_store(self) -> TrackingConfig:
        kind, mark, _ = (self.uri or "").partition(":")
        if self.uri is not None and (not self.uri.strip() or (mark and kind.partition("+")[0].lower() not in STORES)):
            hint = nearest(kind, STORES)
            raise ValueError(f"uri is of no kind that MLflow knows{hint}; it begins with one of {', '.join(STORES)}")
        return self


class ResourceConfig(Closed):
    """The resources that one job of a stage requests."""

    mem_mb: int | None = Field(
        None, ge=100, description="main memory; null: what the model's size takes, as `turncredit plan` shows it"
    )
    runtime: int = Field(60, ge=1, description="minutes")
    gpu: int | None = Field(
        None,
        ge=0,
        description="null: 1 for stages that load the policy, if policy.engine is vllm or another stage asks for GPUs, "
        "and for labels of a served judge; else 0",
    )
    threads: int = Field(1, ge=1)


#: The valid keys of `resources`: the stages, and `rounds`, a job of several of them (granularity round and run).
Stage = Literal[
    "tasks", "demos", "base", "sft", "rollout", "measures", "continuations", "forks", "label", "hiddens",
    "implicit_model", "logprobs", "credit_model", "values", "credit", "update", "eval", "branch", "fidelity",
    "gradients", "leaks", "rollout_invariants", "invariants", "pages", "report", "rounds",
]  # fmt: skip


#: The stages that load a policy's weights.
POLICY_STAGES = (
    "sft", "rollout", "continuations", "forks", "hiddens", "implicit_model", "logprobs", "update", "eval", "branch",
    "gradients", "invariants",
)  # fmt: skip


#: sections that a method may override
_Section = Literal["rollout", "update"]


class Experiment(Closed):
    """The whole configuration of an experiment."""

    experiment: str = Field("household", pattern=r"^[A-Za-z0-9_-]+$", description="the folder under results/")
    seeds: tuple[Seed, ...] = Field((0,), min_length=1)
    rounds: int = Field(12, ge=1, le=999)
    methods: tuple[str, ...] = Field(("flat_grpo",), min_length=1, description="the methods to train, by name")
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
    resources: dict[Stage, ResourceConfig] = Field(default_factory=dict)
    keep_policies: Literal["all", "last"] = Field(
        "all", description="'last' deletes a round's policy once the next round and its evaluation have read it"
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

    @field_validator("resources", mode="before")
    @classmethod
    def _stages_that_there_are(cls, resources: Any) -> Any:
        stages = get_args(Stage)
        for name in resources if isinstance(resources, Mapping) else ():
            if name == "audit_model":
                raise ValueError("audit_model is now the stage credit_model: write resources.credit_model")
            if name not in stages:
                raise ValueError(f"unknown stage '{name}'{nearest(name, stages)}")
        return resources

    @model_validator(mode="after")
    def _evaluated_rounds(self) -> Experiment:
        late = [round for round in self.eval.rounds or () if round > self.rounds]
        if late:
            raise ValueError(f"eval.rounds names {late[0]}, but there are only {self.rounds} rounds")
        return self

    @model_validator(mode="after")
    def _enough_games(self) -> Experiment:
        if self.rollout.tasks > self.tasks.train:
            raise ValueError(
                f"rollout.tasks is {self.rollout.tasks}, but tasks.train has only {self.tasks.train} games for a round"
            )
        need = self.eval.games * (len(self.eval_rounds()) if self.eval.fresh else 1)
        if need > self.tasks.eval:
            raise ValueError(
                f"eval needs {need} held-out games (eval.games x evaluated rounds), but tasks.eval is {self.tasks.eval}"
            )
        if len(set(self.methods)) < len(self.methods) or len(set(self.seeds)) < len(self.seeds):
            raise ValueError("methods and seeds must not repeat")
        return self

    @model_validator(mode="after")
    def _rounds_of_a_job(self) -> Experiment:
        if self.granularity != "round" and self.rounds_per_job != 1:
            raise ValueError(f"rounds_per_job belongs to granularity round; granularity is {self.granularity}")
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
        for run in audited:
            if run not in runs:
                raise ValueError(f"audit.run is '{run}', which is not one of methods{nearest(run, runs)}")
        for name, wanted, there in (
            ("run", audited, runs),
            ("rounds", rounds, range(1, self.rounds + 1)),
            ("seeds", audit.seeds or (), self.seeds),
        ):
            missing = [number for number in wanted if number not in there]
            if missing:
                raise ValueError(f"audit.{name} names {missing[0]}, which is not one of the experiment's {name}")
            if len(set(wanted)) < len(wanted):
                raise ValueError(f"audit.{name} must not repeat")
        filled = {"run": audited[0] if len(audited) == 1 else tuple(audited), "rounds": tuple(rounds)}
        return self.model_copy(update={"audit": audit.model_copy(update=filled)})

    def blocks(self) -> list[range]:
        """The rounds of each job, as blocks; with granularity `stage` each round is a block."""
        size = {"stage": 1, "round": self.rounds_per_job, "run": self.rounds}[self.granularity]
        return [range(first, min(first + size, self.rounds + 1)) for first in range(1, self.rounds + 1, size)]

    def audited(self) -> list[tuple[int, int]]:
        """Every (seed, round) of the runs `audit.run` that is audited."""
        seeds = self.seeds if self.audit.seeds is None else self.audit.seeds
        return [(seed, round) for seed in seeds for round in self.audit.rounds if round != "last"]  # a number by now

    def audit_methods(self) -> tuple[str, ...]:
        """The methods that are compared on the audited rollouts, each once."""
        if self.audit.methods is not None:
            return tuple(dict.fromkeys(self.audit.methods))
        return tuple(dict.fromkeys([*self.trained(), *RAILS]))

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
        """The resources of a job of `stage`, as given; `stages/needs.py` fills in what is not."""
        return self.resources.get(cast(Stage, stage), ResourceConfig())

    def gpus(self, stage: str) -> int:
        """The number of GPUs of a job of `stage`: as given, or one for what loads a policy where policies need them.

        A job that trains gets at least as many as the model is spread over (`policy.train_gpus`).
        """
        trains = stage in ("update", "rounds") or (stage == "sft" and self.sft.epochs > 0)
        spread = self.policy.train_gpus if trains else 1
        given = self.resource(stage).gpu
        if given is not None or spread > 1:
            return max(given or 0, spread if spread > 1 else 0)
        if stage == "label":
            return int(self.judge.serve is not None)
        on_gpus = self.policy.engine == "vllm" or any(wanted.gpu for wanted in self.resources.values())
        return int(on_gpus and stage in (*POLICY_STAGES, "rounds"))

    def trained(self) -> list[str]:
        """The methods that are trained; `sft` among `methods` means its evaluation, and no run."""
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
        found = dict.fromkeys(map(self.start_of, self.methods))
        return sorted(found, key=lambda start: start != SFT)

    def agent_of(self, who: str) -> AgentConfig:
        """The agent that plays for `who` (see `start_of`). Raises UserError for a name that no agent has."""
        name = agent_name(self.start_of(who))
        if name is not None and name not in self.agents:
            raise UserError(f"no agent is called '{name}'{nearest(name, self.agents)}; add it to `agents`")
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

    def section_for(self, method: str, section: _Section) -> RolloutConfig | UpdateConfig:
        """`rollout` or `update` for `method`: the experiment's, with the method's own overrides."""
        base: RolloutConfig | UpdateConfig = getattr(self, section)
        entry = self.define.get(method)
        changes = getattr(entry, section) if entry else {}
        return base.model_validate({**base.model_dump(), **changes}) if changes else base


def merge(base: Mapping[str, Any], *others: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings merged key by key; later ones win, lists are replaced whole."""
    out = dict(base)
    for other in others:
        for key, value in other.items():
            both = isinstance(value, Mapping) and isinstance(out.get(key), Mapping)
            out[key] = merge(out[key], value) if both else value
    return out


def from_mapping(data: Mapping[str, Any], where: str = "config") -> Experiment:
    """An `Experiment` from plain data. Raises UserError with one line for each mistake (the first, as a rule)."""
    _check_numbers(data, where)
    try:
        experiment = Experiment.model_validate(dict(data))
        _check_agents(experiment, where)
        for name, entry in experiment.define.items():
            if not name.replace("_", "").isalnum():
                raise UserError(f"{where}: define.{name}: a method's name has letters, digits and underscores only")
            if is_start(name):
                raise UserError(
                    f"{where}: define.{name}: '{SFT}' and names that begin with '{SFT}_' are those of warm starts; "
                    "give the method another name"
                )
            for section in get_args(_Section):
                if getattr(entry, section):
                    _checked_override(experiment, name, section, where)
    except ValidationError as error:
        raise UserError(_one_line(error, Experiment, where)) from None
    return experiment


def load(paths: Iterable[str | Path]) -> Experiment:
    """Read YAML files, later ones overriding earlier ones, into an `Experiment`."""
    paths = list(paths)
    data: dict[str, Any] = {}
    for path in paths:
        data = merge(data, read_mapping(path))
    return from_mapping(data, ", ".join(str(path) for path in paths))


def validated(model: type[Model], data: Mapping[str, Any], key: str, where: str = "config") -> Model:
    """`data`, found at `key` of the configuration, as a `model`. Raises UserError with one line."""
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        raise UserError(_one_line(error, model, where, prefix=f"{key}.")) from None


def _check_numbers(value: Any, where: str, key: str = "") -> None:
    """Raise UserError for a number that is infinite or NaN, wherever it is: nothing can be computed with it."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{where}: {key} is {value}; give a finite number")
    if isinstance(value, Mapping):
        for name, part in value.items():
            _check_numbers(part, where, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            _check_numbers(part, where, f"{key}.{number}")


def _check_agents(experiment: Experiment, where: str) -> None:
    """Raise UserError for a name that an agent cannot have, and for an agent or warm start that there is none of."""
    agents = experiment.agents
    for name in agents:
        if not re.fullmatch("[A-Za-z0-9_]+", name):
            raise UserError(f"{where}: agents.{name}: an agent's name has letters, digits and underscores only")
    for method, entry in experiment.define.items():
        if entry.agent is not None and entry.agent not in agents:
            raise UserError(
                f"{where}: define.{method}.agent is '{entry.agent}', which is not one of agents"
                f"{nearest(entry.agent, agents)}; leave it out for the experiment's own agent"
            )
    for method in experiment.methods:
        starts = [SFT, *map(start_name, agents)]
        if is_start(method) and method not in starts:
            raise UserError(
                f"{where}: methods: '{method}' is the name of an agent's warm start, and there is no such agent"
                f"{nearest(method, starts)}; name one of agents, or a method"
            )


def _checked_override(experiment: Experiment, name: str, section: _Section, where: str) -> None:
    try:
        experiment.section_for(name, section)
    except ValidationError as error:
        model = type(getattr(experiment, section))
        raise UserError(_one_line(error, model, where, prefix=f"define.{name}.{section}.")) from None


#: The name of an alternative that pydantic puts into the place of an error: `audit.run.str` is `audit.run`.
_BRANCH = re.compile(r"(str|int|literal\[.*\]|tuple\[.*\])$")


def _one_line(error: ValidationError, model: type[BaseModel], where: str, prefix: str = "") -> str:
    first = error.errors(include_url=False)[0]
    path = [str(part) for part in first["loc"] if not _BRANCH.match(str(part))]
    key = (prefix + ".".join(path)).rstrip(".")
    more = error.error_count() - 1
    tail = f" (and {more} more)" if more else ""
    if first["type"] == "extra_forbidden" and "." in path[-1]:
        block, _, rest = path[-1].partition(".")
        given = f"{block}={{{rest.replace('.', ': {')}: ...{'}' * rest.count('.')}}}"
        return (
            f"{where}: unknown key '{key}': a key of a block is written inside its block; in a file as {block}: and, "
            f"indented, {rest.split('.')[0]}:, on the command line as --config '{given}'{tail}"
        )
    if first["type"] == "extra_forbidden":
        return f"{where}: unknown key '{key}'{nearest(path[-1], _keys_at(model, path[:-1]))}{tail}"
    message = first["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    message = message.replace("valid tuple", "list").replace("tuple should", "list should")
    message = re.sub(r"valid dictionary( or instance of \w+)?", "mapping of keys to values", message)
    if not key:
        return f"{where}: {message}{tail}"
    if isinstance(first["input"], (dict, BaseModel)):
        return f"{where}: {key}: {message}{tail}"
    return f"{where}: {key}: {message}, got {_shortened(repr(first['input']))}{tail}"


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


def _keys_at(model: type[BaseModel], path: list[str]) -> list[str]:
    """The keys that are valid below `path` (list positions and method names are stepped over)."""
    current: Any = model
    for part in path:
        if not (isinstance(current, type) and issubclass(current, BaseModel)) or part not in current.model_fields:
            continue
        current = _model_in(current.model_fields[part].annotation)
    return list(current.model_fields) if isinstance(current, type) and issubclass(current, BaseModel) else []


def _model_in(annotation: Any) -> Any:
    """The model inside an annotation such as `dict[str, Model]`, `Model | None` or `tuple[Model, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        found = _model_in(part)
        if found is not None:
            return found
    return None


if __name__ == "__main__":
    print(json.dumps(Experiment.model_json_schema(), indent=2, sort_keys=True))
