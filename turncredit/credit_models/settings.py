"""What a learned credit model can be told: `define.<method>.model` in the configuration, typed and closed.

Which model a method needs follows from the method (`Method.model`); its settings are the defaults below, overridden by
the method's own entry. Free of torch: the workflow reads this before any job starts.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from turncredit.config import Experiment
from turncredit.credit import Method, resolve
from turncredit.errors import UserError, nearest


def _check_heads(hidden: int, heads: int) -> None:
    if hidden % heads:
        raise ValueError(f"hidden ({hidden}) must be a multiple of heads ({heads})")


class ModelSettings(BaseModel):
    """Shared by all models: whose hidden state is read, and where.

    read    the frozen SFT policy's, or the current one's (the policy that sampled the rollout)
    point   after the observation, before the action; or after the action's last token
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    read: Literal["sft", "current"] = "sft"
    point: Literal["observation", "action"] = "observation"


class TurnRDSettings(ModelSettings):
    """TurnRD (HAS, section 3.3, tables 4-6). `batch`, and the losses on progress being off, are ours.

    film            condition on the goal
    causal          a turn attends to the past only, and the return is predicted from every prefix
    equal_length    each minibatch is cut to its first m turns (m drawn), rollouts shorter than m left out
    mask_last_turn  the last turn's hidden state is replaced by a learned vector
    lambda_value    weight of the loss of V against the turn's change of progress (the paper: .5 WebShop, 1 ALFWorld)
    lambda_progress weight of the prior of the attention on turns where progress changes (the paper: .01)
    """

    hidden: int = Field(128, ge=4)
    layers: int = Field(2, ge=1)
    heads: int = Field(4, ge=1)
    dropout: float = Field(0.1, ge=0, lt=1)
    max_turns: int = Field(50, ge=1)
    film: bool = False
    causal: bool = False
    equal_length: bool = False
    mask_last_turn: bool = False
    lambda_rank: float = Field(0.1, ge=0)
    rank_margin: float = Field(0.1, ge=0)
    lambda_value: float = Field(0.0, ge=0)
    lambda_progress: float = Field(0.0, ge=0)
    lr: float = Field(5e-4, gt=0)
    epochs: int = Field(5, ge=1)
    batch: int = Field(32, ge=1, description="rollouts per optimiser step")
    half_life: float = Field(4.0, gt=0, description="rounds after which a rollout counts half")

    @model_validator(mode="after")
    def _heads_divide(self) -> TurnRDSettings:
        _check_heads(self.hidden, self.heads)
        return self


class TurnValueSettings(ModelSettings):
    """The causal value of a turn. `first_steps` is for the first training, which starts from nothing."""

    head: Literal["linear", "mlp", "causal_transformer"] = "mlp"
    hidden: int = Field(64, ge=4)
    layers: int = Field(1, ge=1, description="of the causal transformer")
    heads: int = Field(4, ge=1, description="of the causal transformer")
    dropout: float = Field(0.1, ge=0, lt=1)
    max_turns: int = Field(50, ge=1)
    film: bool = False
    ensemble: int = Field(1, ge=1, description="networks whose predictions are averaged")
    lr: float = Field(2e-3, gt=0)
    steps: int = Field(60, ge=1)
    first_steps: int = Field(120, ge=1)
    batch: int = Field(64, ge=1, description="rollouts per optimiser step")
    half_life: float = Field(4.0, gt=0, description="rounds after which a rollout counts half")

    @model_validator(mode="after")
    def _heads_divide(self) -> TurnValueSettings:
        _check_heads(self.hidden, self.heads)
        return self


class CriticSettings(ModelSettings):
    """The critic of PPO and MGR: a value head trained on the last round only. `value_clip` is verl's cliprange."""

    head: Literal["linear", "mlp"] = "mlp"
    hidden: int = Field(64, ge=4)
    max_turns: int = Field(50, ge=1)
    lr: float = Field(2e-3, gt=0)
    epochs: int = Field(5, ge=1)
    batch: int = Field(16, ge=1, description="rollouts per optimiser step")
    value_clip: float = Field(0.5, gt=0)


class ValueHeadSettings(ModelSettings):
    """TRIAGE's linear value head (appendix D). Only gamma and the warm-up are in the paper's text; the rest is ours."""

    gamma: float = Field(0.99, ge=0, le=1)
    lr: float = Field(1e-3, gt=0)
    epochs: int = Field(5, ge=1)
    batch: int = Field(16, ge=1, description="rollouts per optimiser step")
    ema: float = Field(0.05, gt=0, le=1, description="share of the way that the target copy moves at each step")
    warmup_steps: int = Field(10, ge=0, description="optimiser steps before the head is used")


#: the models by name, with their settings where a method says nothing
KINDS: dict[str, ModelSettings] = {
    "turnrd": TurnRDSettings(),
    "turnrd_film": TurnRDSettings(film=True),
    "turn_value": TurnValueSettings(),
    "critic": CriticSettings(),
    "value_head": ValueHeadSettings(),
}
#: these train on the last round alone (they belong to the policy that played it), the others on all rounds so far
LAST_ROUND_ONLY = ("critic", "value_head")


def kind_of(method: Method) -> str | None:
    """The learned model behind the method's side table `values`; None where it reads none.

    Raises UserError for a composition whose parts read the values of two different models: there is one table.
    """
    kinds = sorted({part.model for part in method.parts if part.model})
    if len(kinds) > 1:
        raise UserError(
            f"{method.name}: its parts read the values of two models, {kinds[0]} and {kinds[1]}; a method has one"
        )
    return kinds[0] if kinds else None


def model_settings(experiment: Experiment, method: str) -> tuple[str, ModelSettings]:
    """(model, settings) of the method that the configuration calls `method`. Raises UserError, one line.

    The mistakes are: no learned model behind the method, an unknown setting, a value that a setting can't have.
    """
    entry = experiment.define.get(method)
    resolved = resolve(experiment.definition(method), method)
    kind = kind_of(resolved)
    if kind is None:
        raise UserError(f"define.{method}.model: this method has no learned credit model; take `model` away")
    default = KINDS[kind]
    wanted = entry.model if entry else {}
    try:
        return kind, type(default).model_validate({**default.model_dump(), **wanted})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = f"define.{method}.model"
        if first["type"] == "extra_forbidden":
            key = str(first["loc"][0])
            hint = nearest(key, type(default).model_fields)
            raise UserError(f"{where}: unknown key '{key}' of the model {kind}{hint}") from None
        key = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise UserError(f"{where}{'.' if key else ''}{key}: {message[:1].lower()}{message[1:]}") from None


def replay_rounds(kind: str, round: int) -> list[int]:
    """The rounds that the model of `round` is trained on: never `round` itself, and none in round 1."""
    first = max(1, round - 1) if kind in LAST_ROUND_ONLY else 1
    return list(range(first, round))
