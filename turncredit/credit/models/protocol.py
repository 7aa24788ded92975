"""The interface of learned credit models, which share one training loop (`train.py`).

A kind of model is one file, `turncredit/credit/models/<kind>.py`: the class of its settings, a subclass of `ModelKind`
with what is particular to it, and an instance of that, `KIND`. A method names it in `Part.model`; there is no other
list. The model of another package is named by its module, `my_package.my_model`, and that of a user's own file by the
file: `model=__file__` beside the method.

Such a file imports torch only inside its functions: settings are read while the workflow is planned, which should not
wait for torch. Networks are in `networks.py`, or inside `network`.

Names of tensors end with their dimensions: B rollouts of a minibatch, T turns, D numbers of a hidden state; R rollouts
and N turns of a table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import model_validator

from turncredit.data import plugins
from turncredit.data.strict_model import Closed
from turncredit.errors import UserError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from turncredit.credit.models.replay import Rollouts
    from turncredit.data.turns import Turns


#: Names before version 0.4. Records on disk keep them, so that older results stay valid.
OLD_NAMES = {"read": "hidden_policy", "point": "hidden_position"}


class ModelSettings(Closed):
    """Settings of every model: which policy's hidden states it reads, and where.

    A kind adds its own: `lr`, and `epochs` and `batch` unless it has `minibatches` of its own.

    hidden_policy    the frozen SFT policy's, or the current one's (the policy that sampled the rollout)
    hidden_position  after the observation, before the action; or over the action, with the state before it
                     (`hiddens.py`)
    """

    hidden_policy: Literal["sft", "current"] = "sft"
    hidden_position: Literal["observation", "action"] = "observation"

    @model_validator(mode="before")
    @classmethod
    def _no_old_keys(cls, data: Any) -> Any:
        for old, new in OLD_NAMES.items():
            if isinstance(data, Mapping) and old in data:
                raise ValueError(f"{old} is now {new}: write model.{new}")
        return data

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for old, new in OLD_NAMES.items():
            if old in cls.model_fields:
                raise UserError(f"{cls.__name__}: the setting {old} of credit models is now {new}")

    def recorded(self) -> dict[str, Any]:
        """The settings as plain data, under the names that records on disk have (`OLD_NAMES`)."""
        old_of = {new: old for old, new in OLD_NAMES.items()}
        return {old_of.get(name, name): value for name, value in self.model_dump(mode="json").items()}


class ModelKind(ABC):
    """A kind of learned credit model. Only `network` and `losses` have no default.

    It has no state: weights are in the network, and each function is given the settings of the run. `settings` are the
    defaults, for a method that sets none.
    """

    #: whether it trains on the last round alone (its targets belong to the policy that played it), or on all so far
    last_round_only: ClassVar[bool] = False
    #: whether it reads the credits of the rounds that it learns from: `Rollouts.old` and `Rollouts.target`
    learns_from_credits: ClassVar[bool] = False
    #: whether it learns from what turns of different rollouts have in common: `Rollouts.pair`
    reads_pairs: ClassVar[bool] = False

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings

    def settings_from(self, data: Mapping[str, Any]) -> ModelSettings:
        """Settings of this kind from plain data. Raises pydantic's ValidationError."""
        return type(self.settings).model_validate(data)

    def recorded_settings(self, data: Mapping[str, Any]) -> ModelSettings:
        """Settings of this kind from a record on disk (`ModelSettings.recorded`). Raises pydantic's ValidationError."""
        return self.settings_from({OLD_NAMES.get(name, name): value for name, value in data.items()})

    @abstractmethod
    def network(self, width: int, settings: Any) -> nn.Module:
        """An untrained network for hidden states of `width` numbers; the random state is set by the caller."""

    @abstractmethod
    def losses(self, network: Any, batch: Rollouts, settings: Any) -> dict[str, torch.Tensor]:
        """The weighted parts of the loss of one minibatch, by name; their sum is what is minimised."""

    def requires(self, settings: Any) -> tuple[str, ...]:
        """Capabilities that the environment must have for these settings, such as `progress`."""
        return ()

    def ready(self, steps: int, settings: Any) -> bool:
        """Whether the values of a model that has been trained for `steps` optimiser steps may be used.

        Until then all values are null. By default it has been trained at all, which that of round 1 has not.
        """
        return steps > 0

    def before_training(self, network: Any, replay: Rollouts, settings: Any) -> Rollouts:
        """All rollouts of the replay as the round trains on them, for example with targets, before its first step.

        What depends on several rollouts is computed here; the network may be prepared too.
        """
        return replay

    def minibatches(
        self,
        sizes: Sequence[int],
        settings: Any,
        steps: int,
        rng: np.random.Generator,
    ) -> Iterator[np.ndarray]:
        """The rollouts (indices) of each optimiser step of a round.

        By default `epochs` passes in minibatches of `batch`, as the settings of these names say.

        sizes   numbers of rollouts of the rounds in the replay, oldest first; steps   optimiser steps done before
        """
        from turncredit.credit.models import replay

        return replay.epochs(np.ones(sum(sizes)), settings.epochs, settings.batch, rng)

    def transform(self, batch: Rollouts, settings: Any, rng: np.random.Generator) -> Rollouts:
        """A minibatch as the network sees it; `rng` is the one that `minibatches` drew from."""
        return batch

    def after_step(self, network: Any, settings: Any) -> None:
        """Change the network after an optimiser step."""

    def outputs(self, network: Any, batch: Rollouts) -> tuple[torch.Tensor, torch.Tensor | None]:
        """V_t (B, T) and, for a model with attention over turns, the weights w_t (B, T)."""
        return network(batch), None

    def measures(
        self,
        network: Any,
        view: Turns,
        rollouts: Rollouts,
        value_N: np.ndarray,
        weight_N: np.ndarray,
        rng: np.random.Generator,
    ) -> dict[str, float]:
        """Its own metrics on unseen rollouts, in addition to those of all models (`train.measures`)."""
        return {}


def load_kind(name: str) -> ModelKind:
    """The kind of model that a method calls `name`: a built-in one, a module's (`my_package.my_model`), or that of a
    user's file (`path.py`, or `path.py:NAME` where it is not called KIND). Raises UserError, one line, where there is
    none."""
    own = plugins.own_file(name)
    if own is None:
        return _kind_of_module(name)
    path, attribute = own[0], own[1] or "KIND"
    kind = getattr(plugins.from_file("a credit model", path), attribute, None)
    if not isinstance(kind, ModelKind):
        raise UserError(f"{path}: has no ModelKind called {attribute}; declare it as {attribute} = ...")
    return _with_settings(kind, str(path))


@cache
def _kind_of_module(name: str) -> ModelKind:
    module_name = name if "." in name else f"turncredit.credit.models.{name}"
    try:
        exists = find_spec(module_name) is not None
        module = import_module(module_name) if exists else None
    except Exception as error:  # anything may go wrong in somebody else's file
        raise UserError(f"the credit model '{name}' cannot be imported: {plugins.shortened(error)}") from error
    kind = getattr(module, "KIND", None)
    if not isinstance(kind, ModelKind):
        lack = "there is no such module" if module is None else "it has no ModelKind called KIND"
        raise UserError(f"unknown credit model '{name}': {module_name}: {lack}")
    return _with_settings(kind, f"the credit model '{name}'")


def _with_settings(kind: ModelKind, where: str) -> ModelKind:
    """`kind`, if its settings have what the training reads. Otherwise raises UserError, which begins with `where`."""
    read = ["lr", *(("epochs", "batch") if type(kind).minibatches is ModelKind.minibatches else ())]
    if lacking := [name for name in read if not hasattr(kind.settings, name)]:
        raise UserError(
            f"{where}: {type(kind.settings).__name__} has no {lacking[0]}, which the training reads; add it"
        )
    return kind
