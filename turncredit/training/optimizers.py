"""Optimisers by name: AdamW, or Muon for the matrices of the blocks with AdamW for everything else.

Muon (Jordan et al. 2024; `torch.optim.Muon`) orthogonalises the momentum of a matrix. Embeddings, norms and biases
stay with AdamW, as its authors advise.

A step is always computed in float32. Parameters and moments kept in bfloat16 are then rounded stochastically (Gupta et
al. 2015): up or down with the probability that makes the mean exact, so that steps far below its resolution add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from turncredit.config import SftConfig, UpdateConfig
from turncredit.errors import UserError
from turncredit.policy.masters import Masters, share_of, whole


class Optimizers:
    """Optimisers that step together; each group keeps its peak learning rate beside the current one.

    masters   whose parameters they step; rounded into the model after each step
    moments   the type in which moments are kept between steps
    seed      of stochastic rounding; None: every parameter and moment is float32, and nothing is rounded.
              Each part must have one parameter alone then, as steps in float32 are computed one by one.
    """

    def __init__(
        self,
        parts: Sequence[torch.optim.Optimizer],
        *,
        masters: Masters,
        moments: torch.dtype,
        seed: int | None,
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

    @property
    def rounding(self) -> torch.Tensor | None:
        """The state of the random numbers by which parameters and moments are rounded; None if nothing is rounded."""
        return None if self._random is None else self._random.get_state()

    @rounding.setter
    def rounding(self, state: torch.Tensor) -> None:
        assert self._random is not None, "nothing is rounded"
        self._random.set_state(state)

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
        norm = float(whole(torch.nn.utils.clip_grad_norm_(self.parameters, max_grad_norm)))
        for part in self._parts:
            if self._random is None:
                part.step()
            else:
                with self._in_float32(part, self._random):
                    part.step()
            part.zero_grad(set_to_none=True)
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
        """The moments by the parameters' names, for safetensors: `NAME.exp_avg`. Empty before the first step.

        Moments that are spread are gathered by all processes together; those with `keep` false return nothing.
        """
        kept = {}
        for name, parameter in self._masters.parameters.items():
            for part in self._parts:
                for key, value in part.state.get(parameter, {}).items():
                    tensor = whole(value.detach())
                    if keep:
                        kept[f"{name}.{key}"] = tensor.cpu().contiguous()
        return kept

    def load_state(self, kept: Mapping[str, torch.Tensor]) -> None:
        """Load the moments of `state`. Raises UserError for those of a parameter that the model does not have."""
        moments = self._by_parameter(kept)
        for name, parameter in self._masters.parameters.items():
            part = next(p for p in self._parts if any(parameter is q for g in p.param_groups for q in g["params"]))
            if name in moments:
                part.state[parameter] = {
                    key: value.clone()
                    if key == "step"
                    else share_of(value.to(parameter.device, self._moments), parameter)
                    for key, value in moments[name].items()
                }

    def _by_parameter(self, kept: Mapping[str, torch.Tensor]) -> dict[str, dict[str, torch.Tensor]]:
        """The moments of each parameter. Up to 0.4.0 they were kept by the parameters' places in `parameters`."""
        names = {id(parameter): name for name, parameter in self._masters.parameters.items()}
        old = {str(place): names[id(parameter)] for place, parameter in enumerate(self.parameters)}
        moments: dict[str, dict[str, torch.Tensor]] = {}
        for said, value in kept.items():
            name, _, key = said.rpartition(".")
            moments.setdefault(old.get(name, name), {})[key] = value
        if unknown := sorted(moments.keys() - names.values()):
            raise UserError(
                f"the optimiser's moments are of another model: this one has no parameter {unknown[0]}; start the run "
                "again from its first round, or set update.keep_optimizer to false"
            )
        return moments


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
    masters: Masters, settings: SftConfig | UpdateConfig, *, moments_dtype: str = "float32", rounding_seed: int = 0
) -> Optimizers:
    """The optimiser that `settings` name. `lr` is AdamW's, `muon_lr` that of Muon's matrices.

    Parameters or moments in bfloat16 are rounded stochastically, with random numbers from `rounding_seed`.
    """
    matrices, rest = [], []
    for name, parameter in masters.parameters.items():
        orthogonal = settings.optimizer == "muon" and parameter.ndim == 2
        (matrices if orthogonal and "embed" not in name and "lm_head" not in name else rest).append(parameter)
    exact = moments_dtype == "float32" and all(parameter.dtype == torch.float32 for parameter in (*matrices, *rest))

    def groups(parameters: list[torch.nn.Parameter]) -> list[list[torch.nn.Parameter]]:
        return ([parameters] if exact else [[one] for one in parameters]) if parameters else []

    decay = settings.weight_decay
    parts: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(group, lr=settings.lr, betas=settings.betas, weight_decay=decay) for group in groups(rest)
    ]
    parts += [torch.optim.Muon(group, lr=settings.muon_lr, weight_decay=decay) for group in groups(matrices)]
    moments = getattr(torch, moments_dtype)
    return Optimizers(parts, masters=masters, moments=moments, seed=None if exact else rounding_seed)


def check_step(numbers: Mapping[str, float | None], *, training: str, step: int, instead: str) -> None:
    """Raise UserError for the first of a step's `numbers` (loss, grad_norm, ...) that is infinite or NaN.

    training   what is trained, for the message; step   from 1, in this job; instead   what to change
    """
    for name, value in numbers.items():
        if value is not None and not math.isfinite(value):
            raise UserError(f"{training}: step {step}: {name} is {value}, so training has diverged; {instead}")
