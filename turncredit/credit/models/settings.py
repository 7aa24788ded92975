"""The settings of a learned credit model: `define.<method>.model` in the configuration, typed and closed.

Which kind of model a method needs follows from the method (`Method.model`). Its settings are the kind's defaults,
overridden by the method's own (`Method.model_settings`), and these by its entry in the configuration. It does not
import torch: the workflow reads this before any job starts.
"""

from __future__ import annotations

from turncredit.config import Experiment, validated
from turncredit.credit import METHODS, resolve
from turncredit.credit.models.protocol import ModelKind, ModelSettings, load_kind
from turncredit.credit.parts.configured import configured_method
from turncredit.errors import UserError


def kinds() -> dict[str, ModelKind]:
    """The kinds of model behind the built-in methods, by name."""
    return {name: load_kind(name) for name in sorted({method.model for method in METHODS.values() if method.model})}


def model_settings(experiment: Experiment, method: str) -> tuple[str, ModelSettings]:
    """(model, settings) of the method that the configuration calls `method`. Raises UserError, one line.

    The mistakes are: no learned model behind the method, an unknown setting, a value that a setting can't have.
    """
    entry = experiment.define.get(method)
    resolved = resolve(experiment.definition(method), method)
    kind = resolved.model
    if kind is None:
        raise UserError(f"config: define.{method}.model: this method has no learned credit model; remove `model`")
    default = load_kind(kind).settings
    given = {**default.model_dump(), **resolved.model_settings, **(entry.model if entry else {})}
    return kind, validated(type(default), given, f"define.{method}.model")


def replay_rounds(kind: str, round: int) -> list[int]:
    """The rounds that the model of `round` is trained on: never `round` itself, and none in round 1."""
    first = max(1, round - 1) if load_kind(kind).last_round_only else 1
    return list(range(first, round))


def learns_from_credits(kind: str) -> bool:
    """Whether the model is trained on the credits of these rounds too."""
    return load_kind(kind).learns_from_credits


def model_capabilities(experiment: Experiment, method: str) -> tuple[str, ...]:
    """The capabilities of the environment that the method's credit model needs, as it is configured."""
    kind = configured_method(experiment, method).model
    return load_kind(kind).requires(model_settings(experiment, method)[1]) if kind else ()


def required_capabilities(experiment: Experiment, method: str) -> tuple[str, ...]:
    """The capabilities of the environment that the method and its credit model need, as configured."""
    own = configured_method(experiment, method).requires
    return tuple(dict.fromkeys([*own, *model_capabilities(experiment, method)]))
