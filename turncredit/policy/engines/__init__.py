"""Sampling engines: lockstep (ours), transformers' generate, vLLM; `sampler` opens one by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from turncredit.errors import UserError, nearest
from turncredit.policy.sampling import Sampler

if TYPE_CHECKING:
    import torch


def sampler(
    engine: str,
    folder: str,
    *,
    slots: int,
    dtype: str,
    eos_id: int,
    model: Any = None,
    longest: int | None = None,
    running: Any = None,
    gpus: int = 1,
    engines: int = 1,
) -> Sampler:
    """The engine called `lockstep`, `transformers` or `vllm` on a policy folder, for `slots` rollouts at a time.

    `lockstep` keeps each rollout's key-value cache across turns (Qwen2 and Llama); `transformers` reads
    the whole context every turn and supports any causal language model; `vllm` needs the vllm package and a GPU.

    `model` is the policy's model, adapters merged, if it is in memory already: an engine that reads a model's weights
    then takes them from there instead of the folder. `longest` is the largest number of tokens that a context with its
    response can have, where the agent limits it: vLLM then sets aside memory for no more.
    `running` are the vLLM engines (`vllm.Engine` or `several.Engines`) that stages of this process share; None: ones of
    the sampler's own. `gpus` is the number of GPUs that vLLM splits the model over, and `engines` the number of vLLM
    engines, each on as many GPUs, that share the rollouts; the other engines take one.
    """
    if engine == "lockstep":
        from turncredit.policy.engines.lockstep import Lockstep

        return Lockstep(folder, slots=slots, dtype=dtype, eos_id=eos_id, weights=_weights(model))
    if engine == "transformers":
        from turncredit.policy.engines.transformers import Generate

        return Generate(folder, slots=slots, dtype=dtype, eos_id=eos_id, model=model)
    if engine == "vllm" and engines > 1:
        from turncredit.policy.engines.several import Engines, Several

        fleet = running or Engines(engines, keep=False)
        return Several(folder, slots=slots, engines=fleet, dtype=dtype, eos_id=eos_id, longest=longest, gpus=gpus)
    if engine == "vllm":
        from turncredit.policy.engines.vllm import Vllm

        return Vllm(folder, slots=slots, dtype=dtype, eos_id=eos_id, longest=longest, engine=running, gpus=gpus)
    raise UserError(f"unknown sampling engine '{engine}'{nearest(engine, ['lockstep', 'transformers', 'vllm'])}")


def _weights(model: Any) -> Mapping[str, torch.Tensor] | None:
    return None if model is None else {name: tensor.detach() for name, tensor in model.state_dict().items()}
