"""Master weights: the float32 weights that an optimiser steps for a model that computes in bfloat16.

bfloat16 has eight significant bits. A step of AdamW at a learning rate of 1e-6 changes a weight of .02 by 1/60 of the
distance to its neighbour, and rounding to the nearest undoes it. So the optimiser steps masters (Micikevicius et al.
2018); the model computes with copies of them, rounded after every step, which are also what an engine samples with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from turncredit.policy.models import trained_parameters


class Masters:
    """A model, and the parameters that an optimiser steps for it. `policy.fsdp` spreads both over processes.

    model       computes in `dtype`
    parameters  by name: the model's own; if it was given with those in another type (whole weights, or an adapter),
                masters in that type

    A master's gradient is the sum, in its own type, of those of all passes: the gradient of a pass is moved to it as
    soon as it is complete, so that a large minibatch loses nothing and no gradient is in memory twice.
    """

    def __init__(self, model: Any, dtype: str):
        self.model = model
        self.parameters = trained_parameters(model)
        self._copies: list[tuple[torch.nn.Parameter, torch.nn.Parameter]] = []
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        torch_dtype = getattr(torch, dtype)
        if all(parameter.dtype == torch_dtype for parameter in self.parameters.values()):
            return
        for name, copy in self.parameters.items():
            master = torch.nn.Parameter(copy.data)
            copy.data = copy.data.to(torch_dtype)
            self._hooks.append(copy.register_post_accumulate_grad_hook(_moves_gradient(master)))
            self._copies.append((master, copy))
            self.parameters[name] = master

    def stepped(self) -> None:
        """Round the masters, which were stepped, into the model."""
        with torch.no_grad():
            for master, copy in self._copies:
                copy.copy_(master)

    def weights(self, *, keep: bool = True) -> dict[str, torch.Tensor]:
        """The parameters that are stepped, by name, on the CPU, as the optimiser has them now.

        Parameters that are spread are gathered by all processes together; those with `keep` false return nothing.
        """
        kept = {}
        for name, parameter in self.parameters.items():
            tensor = whole(parameter.detach())
            if keep:
                kept[name] = tensor.cpu().contiguous()
        return kept

    def load_weights(self, kept: Mapping[str, torch.Tensor]) -> None:
        """Load what `weights` returned, of the same model."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(share_of(kept[name].to(parameter.device, parameter.dtype), parameter))
        self.stepped()

    @contextmanager
    def in_model(self) -> Iterator[Any]:
        """The model with the masters in place of their copies, to be saved at full precision.

        Every process of the team must call this. Where the model is spread, only the first gets it; the others None.
        """
        rounded = [copy.data for _, copy in self._copies]
        for master, copy in self._copies:
            copy.data = master.data
        try:
            yield self.model
        finally:
            for (_, copy), data in zip(self._copies, rounded, strict=True):
                copy.data = data

    def release(self) -> None:
        """Free the masters: only the weights that the model computes with stay in memory."""
        for hook in self._hooks:
            hook.remove()
        self._copies, self._hooks, self.parameters = [], [], {}


def whole(value: torch.Tensor) -> torch.Tensor:
    """The whole of a tensor that may be spread over processes."""
    return value.full_tensor() if _is_spread(value) else value  # type: ignore[attr-defined]


def share_of(tensor: torch.Tensor, parameter: torch.nn.Parameter) -> torch.Tensor:
    """This process's share of a whole tensor, if the parameter is spread; else the tensor."""
    if not _is_spread(parameter):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, parameter.device_mesh, parameter.placements, src_data_rank=None)


def _is_spread(value: torch.Tensor) -> bool:
    """Whether it is a DTensor (`turncredit.policy.fsdp`), whose class takes half a second to import."""
    return hasattr(value, "full_tensor")


def _moves_gradient(master: torch.nn.Parameter):
    def move(copy: torch.nn.Parameter) -> None:
        assert copy.grad is not None
        if master.grad is None:
            master.grad = copy.grad.to(master.dtype)
        else:
            master.grad += copy.grad
        copy.grad = None

    return move
