"""The blocks of the configuration, in the order of `Experiment`: each a closed model with its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, field_validator, model_validator

from turncredit.data import plugins
from turncredit.data.plugins import own_file
from turncredit.data.strict_model import Closed, TemplateSetting
from turncredit.errors import nearest

#: A seed. Generators take any; tables and tools that read them hold at most this.
Seed = Annotated[int, Field(ge=0, lt=2**31)]
#: A decay rate of an optimiser's moments.
Beta = Annotated[float, Field(ge=0, lt=1)]
#: Kinds of MLflow stores: servers, databases, and folders (`./mlruns`, file:///...).
STORES = (
    "http", "https", "file", "sqlite", "postgresql", "mysql", "mssql", "databricks", "databricks-uc", "uc",
)  # fmt: skip


class _SettingsByName(Closed):
    """A block about something chosen by `name`, whose settings are under that name.

    So a file merged over this one can choose another: the settings of what is not chosen are kept, but not read.
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
                raise ValueError(f"settings are now under their owner's name; write {owner} instead of 'settings'")
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
        return plugins.declared_name("an environment", self.name, "ENVIRONMENT")

    def chosen(self) -> EnvSlice:
        """The environment that is played, with its own settings. Raises UserError for a file that has none."""
        return EnvSlice(name=self.name, settings=self.settings_of(self.owner))


class TasksConfig(Closed):
    """The number of games, and the environment's splits that they come from."""

    train_split: str = "train"
    eval_split: str | list[str] = Field(
        "eval", description="one split, or several: [valid_seen, valid_unseen]; the report has success on each"
    )
    demo_split: str | None = Field(
        None, description="split of the games that are demonstrated; null: they are the training games"
    )
    train: int = Field(
        4096, ge=1, description="games for rollouts, and for demonstrations without a split of their own"
    )
    eval: int = Field(4096, ge=1, description="held-out games, from all splits in turn")
    demos: int | None = Field(
        None, ge=1, description="demonstrated games, with a split of their own; null: as many as there are for training"
    )
    shared: int = Field(
        0, ge=0, description="evaluated games that may be training games, too, at most; the report names them"
    )
    seed: Seed = 0

    @field_validator("eval_split")
    @classmethod
    def _several_different(cls, value: str | list[str]) -> str | list[str]:
        if isinstance(value, list) and (len(value) < 2 or len(set(value)) < len(value)):
            raise ValueError("a list of splits needs two or more different ones; write a single split without brackets")
        return value

    @model_validator(mode="after")
    def _demos_have_a_split(self) -> TasksConfig:
        if self.demos is not None and self.demo_split is None:
            raise ValueError("demos counts the games of demo_split, which is not set; set demo_split, or remove demos")
        return self


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
        description="a built-in agent (docs/agents.md), an installed one, or a path: my_agent.py",
    )
    max_response_tokens: int = Field(16, ge=2)

    @model_validator(mode="before")
    @classmethod
    def _no_old_keys(cls, data: Any) -> Any:
        for key in ("history", "show_admissible"):
            if isinstance(data, Mapping) and key in data:
                raise ValueError(f"{key} is now a setting of the window agent; write agent.window.{key}")
        return data

    @property
    def owner(self) -> str:
        """The name that the settings are under: that of a file's agent is the one that the file declares."""
        return plugins.declared_name("an agent", self.name, "AGENT")

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
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of heads ({self.heads}); change one")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads}); change one")
        if self.hidden // self.heads % 2:
            raise ValueError(
                f"a head has hidden / heads = {self.hidden // self.heads} dimensions; rotary positions need an even "
                "number, so change hidden or heads"
            )
        return self


Dtype = Literal["float32", "bfloat16"]
#: What a caller of a chat template gives it, which no setting may be called.
_GIVEN = frozenset({"add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents"})
_GIVEN_TO_TEMPLATES = _GIVEN | {"messages", "return_dict", "tokenize", "tools"}


class PolicyConfig(Closed):
    """The language model. `source` is `scratch`, a folder, or a hub name such as Qwen/Qwen2.5-1.5B-Instruct."""

    source: str = "scratch"
    revision: str | None = None
    scratch: ScratchConfig = ScratchConfig()
    chat_template: dict[str, TemplateSetting] = Field(
        default_factory=dict,
        exclude_if=lambda settings: not settings,
        description="settings that the model's chat template takes: {enable_thinking: false} for Qwen3, which else "
        "thinks before it answers",
    )
    lora: LoraConfig | None = None
    dtype: Dtype = Field(
        "float32",
        description="type that a policy samples and computes in, also in training",
    )
    train_dtype: Dtype = Field(
        "float32",
        description="type in which whole weights are trained and saved; bfloat16: with stochastic rounding, to save "
        "memory. Adapters are always trained and saved in float32",
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
    train_nodes: int = Field(
        1,
        ge=1,
        description="nodes of a Slurm cluster that train_gpus are divided over evenly; SFT and updates, or jobs of "
        "rounds, ask for as many. The result is the same",
    )
    sample_gpus: int = Field(
        1,
        ge=1,
        description="GPUs that vLLM splits the model over where a policy samples (tensor parallelism); jobs that "
        "sample ask for as many",
    )
    sample_engines: int = Field(
        1,
        ge=1,
        description="vLLM engines that share the rollouts of a job, each on sample_gpus GPUs of its own; jobs that "
        "sample ask for as many as all take. The samples are the same, but for rounding",
    )
    engine: Literal["lockstep", "transformers", "vllm"] = "lockstep"

    @property
    def sampling_gpus(self) -> int:
        """The GPUs of a job that samples with vLLM: those of all its engines."""
        return self.sample_engines * self.sample_gpus

    @model_validator(mode="after")
    def _settings_of_a_template(self) -> PolicyConfig:
        if taken := sorted(self.chat_template.keys() & _GIVEN_TO_TEMPLATES):
            raise ValueError(f"chat_template: '{taken[0]}' is given by the agent and is not a setting")
        return self

    @model_validator(mode="after")
    def _trained_no_coarser_than_computed(self) -> PolicyConfig:
        if self.dtype == "float32" and self.train_dtype != "float32":
            raise ValueError(
                f"train_dtype must not be less precise than dtype, but it is {self.train_dtype} and dtype float32; set "
                "dtype to bfloat16 too, or leave train_dtype out"
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

    epochs: float = Field(
        1.5,
        ge=0,
        description="passes over the demonstrations, in whole steps; 0: no warm start, the base model is the policy",
    )
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
    """The settings that determine the policy gradient, given the advantages and the policy that sampled."""

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
    entropy_coefficient: float = Field(
        0.0, ge=0, description="weight of an entropy bonus; .001 in verl-agent's recipes (verl's entropy_coeff)"
    )
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
        if self.kl_target is not None and self.kl == "none":
            raise ValueError("kl_target adapts kl_coefficient: name an estimator in kl and give it a weight")
        return self

    @model_validator(mode="after")
    def _corrects_what_is_recomputed(self) -> UpdateConfig:
        if self.importance_cap is not None and self.old_logprobs == "sampled":
            raise ValueError(
                "importance_cap weighs recomputed log-probabilities by sampled ones; set old_logprobs to recomputed"
            )
        return self

    def rate_in(self, round: int) -> float:
        """The share of the learning rate in `round`: 1 in the first, `final_lr` from `decay_rounds` on, linear between.

        1 where `decay_rounds` is not set, which is the whole run's to say.
        """
        if self.decay_rounds is None:
            return 1.0
        last = max(2, self.decay_rounds)
        return 1 - (1 - self.final_lr) * (min(round, last) - 1) / (last - 1)


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
            raise ValueError(f"primary is '{self.primary}', which is not a mode; choose one of {', '.join(names)}")
        if len(set(names)) < len(names):
            raise ValueError(f"two modes have the same name ({', '.join(names)}); rename one of them")
        if self.rounds is not None and len(set(self.rounds)) < len(self.rounds):
            raise ValueError("rounds has a value twice; remove one of them")
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

    `base` is a built-in method's name; `credit` a function, Part or Method in a file, `path.py:NAME` (or `path.py`, for
    the one of the file's name); `params` its parameters; `rollout` and `update` override those sections for it;
    `model` has the settings of its learned credit model, if it has one (turncredit/credit/models); `continuations`
    and `forks` how many there are, if it reads any; `agent` is one of `agents`, if not the experiment's own. With a
    `grid` it stands for several methods.
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
    grid: dict[str, Any] = Field(
        default_factory=dict,
        description="keys of a method and their values, update.lr: [1.0e-4, 3.0e-4]: one method for every combination "
        "(turncredit/config/grid.py); none is left in the resolved configuration",
    )

    @model_validator(mode="after")
    def _one_source(self) -> MethodConfig:
        if (self.base is None) == (self.credit is None):
            which = "; neither is given" if self.base is None else ", not both"
            raise ValueError(f"give either base (a built-in method) or credit (your own file){which}")
        return self


class SweepConfig(Closed):
    """Several experiments in one configuration: a list of them by name, a grid over any keys, or every pair of both."""

    experiments: dict[str, dict[str, Any] | None] = Field(
        default_factory=dict,
        description="experiments by name, each with the keys that it sets, wide: {policy: {scratch: {hidden: 128}}}; "
        "none is left in the resolved configuration",
    )

    grid: dict[str, Any] = Field(
        default_factory=dict,
        description="keys and their values, policy.scratch.hidden: [64, 128] (turncredit/config/sweep.py); none is "
        "left in the resolved configuration",
    )
    only: str | None = Field(None, description="the name of the one experiment that is meant")


class BranchConfig(Closed):
    """Ground truth by branching: how many turns, and how many continuations of each (docs/audit.md)."""

    turns: int = Field(96, ge=1, description="sampled turns of one round's rollouts")
    min_continuations: int = Field(16, ge=2, description="from each state, before its uncertainty is looked at")
    max_continuations: int = Field(64, ge=2)
    target_se: float = Field(0.1, gt=0, description="the standard error of an advantage to aim for")
    budget_turns: int = Field(
        200_000, ge=1, description="continuation turns that only the first min_continuations of each state may exceed"
    )
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
    seeds: tuple[Seed | Literal["first"], ...] | None = Field(
        None, description="which seeds, or 'first', the experiment's first one; null: all of the experiment's"
    )
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
            raise ValueError(f"uri is not a store that MLflow knows{hint}; begin it with one of {', '.join(STORES)}")
        if "@" in urlsplit(self.uri or "").netloc:
            raise ValueError(
                "uri must not contain a name or a password: jobs write their configuration to files; set "
                "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or the whole address as MLFLOW_TRACKING_URI"
            )
        return self


#: The keys of `resources` that Slurm alone reads, by the name that Snakemake's plugin has for each.
SLURM_KEYS = {
    "slurm_partition": "slurm_partition",
    "slurm_account": "slurm_account",
    "slurm_qos": "qos",
    "slurm_gres": "gres",
    "slurm_constraint": "constraint",
    "slurm_gpu_model": "gpu_model",
    "slurm_extra": "slurm_extra",
}


class ResourceConfig(Closed):
    """The resources that one job of a stage requests. The keys that begin with `slurm_` are read on Slurm alone."""

    mem_mb: int | None = Field(
        None, ge=100, description="main memory; null: what the model's size takes, as `turncredit plan` shows it"
    )
    runtime: int | None = Field(
        None,
        ge=1,
        description="minutes; null: 60, or three times the estimated time of a stage on a GPU, if that is longer",
    )
    gpu: int | None = Field(
        None,
        ge=0,
        description="of each node; null: 1 for stages that load the policy, if policy.engine is vllm or another stage "
        "asks for GPUs, and for labels of a served judge; else 0",
    )
    threads: int | None = Field(
        None, ge=1, description="cores; null: for a job that asks for GPUs 2, and 2 more for each of them; else 1"
    )
    slurm_partition: str | None = Field(None, min_length=1, description="several: Slurm takes the first that is free")
    slurm_account: str | None = Field(None, min_length=1)
    slurm_qos: str | None = Field(None, min_length=1)
    slurm_gres: str | None = Field(
        None,
        pattern=r"^[a-zA-Z0-9_]+(:[a-zA-Z0-9_.]+)?(:\d+[TGM]?)?$",
        description="gpu:a100, where a cluster takes GPUs by --gres alone; the number of GPUs is added",
    )
    slurm_constraint: str | None = Field(None, min_length=1, description="a feature of nodes, such as a100")
    slurm_gpu_model: str | None = Field(None, pattern=r"^[a-zA-Z0-9_.]+$", description="a100: asks for --gpus=a100:N")
    slurm_extra: str | None = Field(None, min_length=1, description="further options of sbatch")

    @property
    def slurm(self) -> dict[str, str]:
        """What it gives of Slurm's alone, by the names of Snakemake's plugin."""
        given = {name: getattr(self, key) for key, name in SLURM_KEYS.items()}
        return {name: value for name, value in given.items() if value is not None}


#: The sections that a method may override.
Section = Literal["rollout", "update"]
