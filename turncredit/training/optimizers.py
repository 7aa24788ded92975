"""Optimisers by name: AdamW, or Muon for the matrices of the blocks with AdamW for everything else.

Muon (Jordan et al. 2024; `torch.optim.Muon`) orthogonalises the momentum of a matrix. Embeddings, norms and biases
are not such matrices and stay with AdamW, as its authors advise.

A step is always computed in float32. What is kept in bfloat16, parameters or moments, is rounded stochastically after
it (Gupta et al. 2015): up or down with the probability that makes the mean exact, so that steps far below its
resolution add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import torch

from turncredit.policy.masters import Masters
from turncredit.policy.spread import SpreadMasters


class Optimizers:
    """Optimisers that step together; each group keeps its peak learning rate beside the current one.

    masters   whose parameters they step, to be rounded into the model afterwards; None for parameters of no model
    moments   the type of the moments between steps
    seed      of stochastic rounding; without it, every parameter and moment is float32, and nothing is rounded.
              Each part must have one parameter alone then, as steps in float32 are computed one by one.
    """

    def __init__(
        self,
        parts: Sequence[torch.optim.Optimizer],
        *,
        masters: Masters | SpreadMasters | None = None,
        moments: torch.dtype = torch.float32,
        seed: int | None = None,
    ):
        self._parts = list(parts)
        self._peaks = [(group, group["lr"]) for part in parts for group in part.param_groups]
        self._masters, self._moments = masters, moments
        self._random: torch.Generator | None = None
        if seed is not None:
            self._random = torch.Generator(self.parameters[0].device).manual_seed(seed)

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """All parameters that step."""
        return [parameter for group, _ in self._peaks for parameter in group["params"]]

    def set_rate(self, share: float) -> None:
        """Set every learning rate to `share` of its peak."""
        for group, peak in self._peaks:
            group["lr"] = peak * share

    def step(self, max_grad_norm: float) -> float:
        """Clip the gradient to `max_grad_norm` over all parameters, step, forget it. Returns its norm.

        A parameter without a gradient steps with gradient 0: momentum and weight decay act on it as in any other step.
        """
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        norm = float(_whole(torch.nn.utils.clip_grad_norm_(self.parameters, max_grad_norm)))
        for part in self._parts:
            if self._random is None:
                part.step()
            else:
                with self._in_float32(part, self._random):
                    part.step()
            part.zero_grad(set_to_none=True)
        if self._masters is not None:
            self._masters.stepped()
        return norm

    @contextmanager
    def _in_float32(self, part: torch.optim.Optimizer, random: torch.Generator) -> Iterator[None]:
        """The parameter of `part`, its gradient and its moments in float32; rounded to their own types at the end."""
        (parameter,) = part.param_groups[0]["params"]
        kept, gradient = parameter.data, parameter.grad
        parameter.grad = None  # a gradient has its parameter's type
        parameter.data = kept.float()
        parameter.grad = gradient.float()
        part.state[parameter] = {key: value.float() for key, value in part.state.get(parameter, {}).items()}
        yield
        kept.copy_(rounded(parameter.data, kept.dtype, random))
        parameter.grad = None
        parameter.data = kept
        part.state[parameter] = {
            key: value if key == "step" else rounded(value, self._moments, random)
            for key, value in part.state[parameter].items()
        }

    def state(self, *, keep: bool = True) -> dict[str, torch.Tensor]:
        """The moments as flat named tensors, for safetensors. Empty before the first step.

        Moments that are spread over processes are brought together in all of them, and kept where `keep` says so.
        """
        kept = {}
        for number, parameter in enumerate(self.parameters):
            for part in self._parts:
                for key, value in part.state.get(parameter, {}).items():
                    whole = _whole(value.detach())
                    if keep:
                        kept[f"{number}.{key}"] = whole.cpu().contiguous()
        return kept

    def load_state(self, kept: Mapping[str, torch.Tensor]) -> None:
        """Take over the moments of `state`, made for the same parameters in the same order."""
        for number, parameter in enumerate(self.parameters):
            part = next(p for p in self._parts if any(parameter is q for g in p.param_groups for q in g["params"]))
            prefix = f"{number}."
            moments = {key.removeprefix(prefix): value for key, value in kept.items() if key.startswith(prefix)}
            if moments:
                part.state[parameter] = {
                    key: value.clone() if key == "step" else _like(value.to(parameter.device, self._moments), parameter)
                    for key, value in moments.items()
                }


def _whole(value: torch.Tensor) -> torch.Tensor:
    """A tensor that may be spread over processes, all of it."""
    return value.full_tensor() if _is_spread(value) else value  # type: ignore[attr-defined]


def _like(whole: torch.Tensor, parameter: torch.nn.Parameter) -> torch.Tensor:
    """Of a whole tensor, which every process has, the share of this one if the parameter is spread."""
    if not _is_spread(parameter):
        return whole
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)


def _is_spread(value: torch.Tensor) -> bool:
    """Whether it is a DTensor (turncredit.policy.spread), whose class takes half a second to import."""
    return hasattr(value, "full_tensor")


def rounded(exact: torch.Tensor, dtype: torch.dtype, random: torch.Generator) -> torch.Tensor:
    """`exact` in `dtype`. To bfloat16 up or down at random, so that its mean is the exact number.

    bfloat16 is the upper half of a float32's bits: a random lower half is added and cut off.
    """
    if dtype == torch.float32:
        return exact
    noise = torch.randint(0, 1 << 16, exact.shape, dtype=torch.int32, device=exact.device, generator=random)
    bits = exact.contiguous().view(torch.int32) + noise
    return (bits & -(1 << 16)).view(torch.float32).to(dtype)


def make_optimizer(
    named: Mapping[str, torch.nn.Parameter],
    kind: Literal["adamw", "muon"],
    *,
    lr: float,
    muon_lr: float,
    betas: tuple[float, float],
    weight_decay: float,
    masters: Masters | SpreadMasters | None = None,
    moments_dtype: str = "float32",
    rounding_seed: int = 0,
) -> Optimizers:
    """The optimiser called `kind` for parameters by name. `lr` is AdamW's, `muon_lr` that of Muon's matrices.

    Parameters or moments in bfloat16 are rounded stochastically, with random numbers from `rounding_seed`.
    """
    matrices = {
        name: parameter
        for name, parameter in named.items()
        if kind == "muon" and parameter.ndim == 2 and "embed" not in name and "lm_head" not in name
    }
    rest = [parameter for name, parameter in named.items() if name not in matrices]
    exact = moments_dtype == "float32" and all(parameter.dtype == torch.float32 for parameter in named.values())

    def groups(parameters: Sequence[torch.nn.Parameter]) -> list[list[torch.nn.Parameter]]:
        return ([list(parameters)] if exact else [[one] for one in parameters]) if parameters else []

    parts: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(group, lr=lr, betas=betas, weight_decay=weight_decay) for group in groups(rest)
    ]
    parts += [
        torch.optim.Muon(group, lr=muon_lr, weight_decay=weight_decay) for group in groups(list(matrices.values()))
    ]
    moments = getattr(torch, moments_dtype)
    return Optimizers(parts, masters=masters, moments=moments, seed=None if exact else rounding_seed)
