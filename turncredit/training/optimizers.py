"""Optimisers by name: AdamW, or Muon for the matrices of the blocks with AdamW for everything else.

Muon (Jordan et al. 2024; `torch.optim.Muon`) orthogonalises the momentum of a matrix. Embeddings, norms and biases
are not such matrices and stay with AdamW, as its authors advise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch


class Optimizers:
    """One or two optimisers that step together; each group keeps its peak learning rate beside the current one."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]):
        self._parts = list(parts)
        self._peaks = [(group, group["lr"]) for part in parts for group in part.param_groups]

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
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, max_grad_norm))
        for part in self._parts:
            part.step()
            part.zero_grad(set_to_none=True)
        return norm

    def state(self) -> dict[str, torch.Tensor]:
        """The moments as flat named tensors, for safetensors. Empty before the first step."""
        kept = {}
        for number, parameter in enumerate(self.parameters):
            for part in self._parts:
                for key, value in part.state.get(parameter, {}).items():
                    kept[f"{number}.{key}"] = value.detach().cpu().contiguous()
        return kept

    def load_state(self, kept: Mapping[str, torch.Tensor]) -> None:
        """Take over the moments of `state`, made for the same parameters in the same order."""
        for number, parameter in enumerate(self.parameters):
            part = next(p for p in self._parts if any(parameter is q for g in p.param_groups for q in g["params"]))
            prefix = f"{number}."
            found = {key.removeprefix(prefix): value for key, value in kept.items() if key.startswith(prefix)}
            if found:
                part.state[parameter] = {
                    key: value.clone() if key == "step" else value.to(parameter.device) for key, value in found.items()
                }


def make_optimizer(
    named: Mapping[str, torch.nn.Parameter],
    kind: Literal["adamw", "muon"],
    *,
    lr: float,
    muon_lr: float,
    betas: tuple[float, float],
    weight_decay: float,
) -> Optimizers:
    """The optimiser called `kind` for parameters by name. `lr` is AdamW's, `muon_lr` that of Muon's matrices."""
    matrices = {
        name: parameter
        for name, parameter in named.items()
        if kind == "muon" and parameter.ndim == 2 and "embed" not in name and "lm_head" not in name
    }
    rest = [parameter for name, parameter in named.items() if name not in matrices]
    parts: list[torch.optim.Optimizer] = []
    if rest:
        parts.append(torch.optim.AdamW(rest, lr=lr, betas=betas, weight_decay=weight_decay))
    if matrices:
        parts.append(torch.optim.Muon(list(matrices.values()), lr=muon_lr, weight_decay=weight_decay))
    return Optimizers(parts)
