"""A model spread over processes, one a GPU, for training (FSDP2 of torch): weights, gradients, optimiser's moments.

Each process keeps its share of every parameter, cut along the first axis, and steps it. A layer's weights are gathered
only for its own passes. `turncredit.training.processes` starts the processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from turncredit.policy.masters import Masters
from turncredit.policy.models import is_adapted, trained_parameters
from turncredit.policy.sampling import device


class FsdpMasters(Masters):
    """Masters of which each process keeps its share.

    FSDP2 gathers a layer's weights for its passes, rounded to the type that the model computes in. The optimiser steps
    the shares, in the type in which `load` returns them.
    """

    def __init__(self, load: Callable[[], Any], dtype: str):
        """`load` returns the whole model, on the CPU."""
        self._load = load
        model = load()
        self.model = _spread(model, getattr(torch, dtype))
        self.parameters = trained_parameters(model)
        self._copies, self._hooks = [], []  # FSDP2 rounds the weights when it gathers them

    def stepped(self) -> None:
        """Let the next pass gather the weights as they are now.

        After a pass without a gradient FSDP2 keeps the parts outside of the layers gathered, and uses them again.
        """
        self.model.reshard()

    @contextmanager
    def in_model(self) -> Iterator[Any]:
        """The whole model at full precision, gathered on the CPU of the first process; None in the others."""
        whole = self._load() if dist.get_rank() == 0 else None
        into = trained_parameters(whole) if whole is not None else {}
        for name, parameter in self.parameters.items():
            full = parameter.detach().full_tensor()  # type: ignore[attr-defined]
            if name in into:
                into[name].data.copy_(full)
        yield whole


class FsdpModel(torch.nn.Module):
    """A model whose layers are spread. FSDP2 acts on calls of modules, so this one makes all calls."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """The tensors (or None) that `function(model, ...)` returns, with the parts outside of the layers gathered."""
        tensors = function(self.model, *arguments, **options)
        # FSDP2 hooks the gradient of what is returned, which it advises against for views.
        return tuple(None if part is None else part.clone() for part in tensors)


def _spread(model: torch.nn.Module, dtype: torch.dtype) -> FsdpModel:
    """Spread a model over the processes: each layer by itself, and the rest (embedding, head, norm) together."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    inner = model.get_base_model() if is_adapted(model) else model
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    mesh = init_device_mesh(device().type, (dist.get_world_size(),))
    for layer in inner.get_decoder().layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    whole = FsdpModel(model)
    fully_shard(whole, mesh=mesh, mp_policy=policy)
    for module in whole.modules():
        if isinstance(module, FSDPModule):  # the loss is a sum over shards, not a mean
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return whole


def bytes_on_each(model: torch.nn.Module, processes: int, dtype: str) -> dict[str, int]:
    """Bytes that a spread model takes on each GPU in an update, by part; activations and logits are not in it.

    The model may be on the meta device: only shapes and types are read.

    kept    all the time: shares of weights, gradients and two moments, the trained ones in float32
    passes  at its most: the parts outside of the layers, their gradient, and this in float32 for its sum; the same of
            one layer, and the next one's weights, which are fetched meanwhile
    step    what AdamW computes of all shares at once; never at the same time as a pass
    """
    inner = model.get_base_model() if is_adapted(model) else model
    layers = inner.get_decoder().layers
    layer = list(layers[0].parameters())
    inside = {id(parameter) for layer in layers for parameter in layer.parameters()}
    outside = [parameter for parameter in model.parameters() if id(parameter) not in inside]

    def share(parameter: torch.nn.Parameter) -> int:
        return -(-len(parameter) // processes) * parameter[:1].numel()

    def whole(parameter: torch.nn.Parameter) -> int:
        return parameter.numel() * getattr(torch, dtype).itemsize

    def gradient(parameter: torch.nn.Parameter) -> int:
        return (whole(parameter) + 4 * parameter.numel()) * parameter.requires_grad

    trained = sum(share(parameter) for parameter in model.parameters() if parameter.requires_grad)
    frozen = sum(
        share(parameter) * parameter.itemsize for parameter in model.parameters() if not parameter.requires_grad
    )
    return {
        "kept": 16 * trained + frozen,
        "passes": sum(map(whole, outside + 2 * layer)) + sum(map(gradient, outside + layer)),
        "step": 4 * trained,
    }
