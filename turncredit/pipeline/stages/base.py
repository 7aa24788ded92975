"""Stage `base`: an agent's base model, built from scratch with its own tokenizer, or fetched by name."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from turncredit import agents, envs
from turncredit.config import ScratchConfig
from turncredit.config.stages import Artifact, Stage
from turncredit.data.strict_model import TemplateSetting
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan


class Config(Slice):
    """The model's source; `scratch` and the texts for its tokenizer only if it is built here."""

    source: str
    revision: str | None
    chat_template: dict[str, TemplateSetting] = Field(default_factory=dict, exclude_if=lambda settings: not settings)
    scratch: ScratchConfig | None
    own_columns: tuple[str, ...]
    vocabulary: tuple[str, ...]


def config(plan: Plan, at: JobKeys) -> Config:
    """The part of `policy` about the base model, and the agent's settings that affect its texts."""
    policy = plan.experiment.policy
    from_scratch = policy.source == "scratch"
    agent = agents.load(plan.agent(at).name)
    environment = envs.load(plan.experiment.env.name)
    return Config(
        source=policy.source,
        revision=policy.revision,
        chat_template=policy.chat_template,
        scratch=policy.scratch if from_scratch else None,
        own_columns=(*agent.demo_columns, *agent.optional_columns) if from_scratch else (),
        vocabulary=agent.vocabulary_in(environment.words) if from_scratch else (),
    )


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """The demonstrations: a tokenizer built from scratch is trained on their text."""
    return {"demos": plan.layout.path("demos")}


def run(job: Job) -> dict[str, float]:
    """Write the base model's folder (weights and tokenizer); returns its size in parameters and tokens."""
    from turncredit.policy.base import fetch_base, new_base

    config: Config = job.config
    with job.folder("model") as folder:
        if config.scratch is None:
            return fetch_base(config.source, config.revision, folder, chat_template=config.chat_template)
        return new_base(
            job.table("demos", "demos"),
            config.scratch,
            folder,
            own_columns=config.own_columns,
            vocabulary=config.vocabulary,
        )


def warning(metrics: Mapping[str, float]) -> str | None:
    """Lines about a model that thinks unasked, and about one that ends its replies with another token than expected."""
    lines = []
    if metrics.get("thinks"):
        lines.append(
            "the model's chat template has the switch enable_thinking, which the model thinks by if it is not set: its "
            "thoughts count as its response. Set policy.chat_template to {enable_thinking: false}, or to true if that "
            "is meant"
        )
    if metrics.get("other_end"):
        lines.append(
            "the model's chat template does not end a reply with the tokenizer's eos_token, where sampling stops: "
            "without a warm start every response has agent.max_response_tokens tokens. Train one (sft.epochs), or set "
            "eos_token in tokenizer_config.json of a copy of the model to the token with which its replies end"
        )
    return "; ".join(lines) or None


STAGE = Stage(
    name="base",
    after="demos",
    phase="start",
    message="Tokenizer and untrained policy ({warm_start})",
    makes={"model": Artifact("base", "{warm_start}/base", folder=True)},
    folder="{warm_start}",
    file="base",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    warning=warning,
)
