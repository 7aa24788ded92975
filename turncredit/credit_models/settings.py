"""The settings of a learned credit model: `define.<method>.model` in the configuration, typed and closed.

Which kind of model a method needs follows from the method (`Method.model`). Its settings are the kind's defaults,
overridden by the method's own (`Method.model_settings`), and these by its entry in the configuration. It does not
import torch: the workflow reads this before any job starts.
"""

from __future__ import annotations

from pydantic import ValidationError

from turncredit.config import Experiment
from turncredit.credit import METHODS, Method, resolve
from turncredit.credit.configured import configured_method
from turncredit.credit_models.protocol import ModelKind, ModelSettings, load_kind
from turncredit.errors import UserError, nearest


def kinds() -> dict[str, ModelKind]:
    """The kinds of model behind the built-in methods, by name."""
    return {name: load_kind(name) for name in sorted({method.model for method in METHODS.values() if method.model})}


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
        raise UserError(f"config: define.{method}.model: this method has no learned credit model; remove `model`")
    default = load_kind(kind).settings
    overrides = entry.model if entry else {}
    try:
        return kind, load_kind(kind).settings_from({**default.model_dump(), **resolved.model_settings, **overrides})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = f"config: define.{method}.model"
        if first["type"] == "extra_forbidden":
            key = str(first["loc"][0])
            hint = nearest(key, type(default).model_fields)
            raise UserError(f"{where}: unknown key '{key}' of the model {kind}{hint}") from None
        key = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise UserError(f"{where}{'.' if key else ''}{key}: {message[:1].lower()}{message[1:]}") from None


def replay_rounds(kind: str, round: int) -> list[int]:
    """The rounds that the model of `round` is trained on: never `round` itself, and none in round 1."""
    first = max(1, round - 1) if load_kind(kind).last_round_only else 1
    return list(range(first, round))


def learns_from_credits(kind: str) -> bool:
    """Whether the model is trained on the credits of these rounds too."""
    return load_kind(kind).learns_from_credits


def model_capabilities(experiment: Experiment, method: str) -> tuple[str, ...]:
    """The capabilities of the environment that the method's credit model needs, as it is configured."""
    kind = kind_of(configured_method(experiment, method))
    return load_kind(kind).requires(model_settings(experiment, method)[1]) if kind else ()


def required_capabilities(experiment: Experiment, method: str) -> tuple[str, ...]:
    """The capabilities of the environment that the method and its credit model need, as configured."""
    own = configured_method(experiment, method).requires
    return tuple(dict.fromkeys([*own, *model_capabilities(experiment, method)]))
