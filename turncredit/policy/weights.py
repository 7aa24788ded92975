"""Read a Hugging Face folder's configuration and weights without transformers, LoRA adapters merged.

Sampling needs only arithmetic on plain tensors; a folder holds either a whole model or an adapter, whose
`policy.json` names the base it belongs to.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from turncredit.errors import UserError
from turncredit.policy import node_copies

POLICY_FILE, ADAPTER_FILE = "policy.json", "adapter_model.safetensors"
#: An optimiser's state, which only the next update reads.
MOMENTS_FILE = "optimizer.safetensors"


def read_config(folder: str | Path) -> dict[str, Any]:
    """The model's `config.json`; that of the base if the folder holds an adapter."""
    file = base_folder(folder) / "config.json"
    if not file.exists():
        raise UserError(f"{folder}: not a model folder (config.json is missing)")
    return json.loads(file.read_text(encoding="utf-8"))


def base_folder(folder: str | Path) -> Path:
    """The folder that holds the whole model: the folder itself, or the base its adapter belongs to."""
    folder = Path(folder)
    if not (folder / "adapter_config.json").exists():
        return folder
    record = folder / POLICY_FILE
    if not record.exists():
        raise UserError(f"{folder}: the adapter lacks {POLICY_FILE}, which names its base model; save it again")
    return (folder / json.loads(record.read_text(encoding="utf-8"))["base"]).resolve()


def weights_folder(folder: str | Path) -> Path:
    """The folder from which the whole model's weights are read: `base_folder`, or its copy on this node."""
    folder = Path(folder)
    base = base_folder(folder)
    return base if base == folder else node_copies.of(base)


def read_weights(folder: str | Path) -> dict[str, torch.Tensor]:
    """All weights by name, with a LoRA adapter's `scale * B @ A` added to the layers it adapts (Hu et al. 2021).

    Adapted weights are float32, whatever the base's type, which could not hold most of what is added.
    """
    weights = _read_whole(weights_folder(folder))
    for name, (down, up, scale) in read_adapter(folder).items():
        weights[name] = weights[name].float() + scale * (up @ down)
    return weights


def read_adapter(folder: str | Path) -> dict[str, tuple[torch.Tensor, torch.Tensor, float]]:
    """A LoRA adapter's A (rank, inputs), B (outputs, rank), both float32, and scale, by the weight that they add to.

    Empty for a folder with a whole model.
    """
    folder = Path(folder)
    if base_folder(folder) == folder:
        return {}
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    scale = config["lora_alpha"] / config["r"]
    with safe_open(folder / ADAPTER_FILE, "pt") as file:
        names = [name for name in file.keys() if name.endswith("lora_A.weight")]  # noqa: SIM118 (not a mapping)
        return {
            name.removeprefix("base_model.model.").replace("lora_A.weight", "weight"): (
                file.get_tensor(name).float(),
                file.get_tensor(name.replace("lora_A", "lora_B")).float(),
                scale,
            )
            for name in names
        }


def _read_whole(folder: Path) -> dict[str, torch.Tensor]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        files = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    else:
        files = ["model.safetensors"]
    weights: dict[str, torch.Tensor] = {}
    for name in files:
        if not (folder / name).exists():
            raise UserError(f"{folder}: the weights file {name} is missing")
        weights.update(load_file(folder / name))
    return weights
