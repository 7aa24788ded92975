"""Models with gradients: built from scratch, loaded by path or hub name, adapted with LoRA, saved as folders."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from turncredit.config import LoraConfig, ScratchConfig
from turncredit.errors import UserError
from turncredit.policy.shapes import scratch_config
from turncredit.policy.weights import ADAPTER_FILE, MOMENTS_FILE, POLICY_FILE, base_folder, weights_folder


def new_model(settings: ScratchConfig, vocab: int, *, pad_id: int, eos_id: int, bos_id: int) -> torch.nn.Module:
    """An untrained Qwen2-architecture model; the same seed gives the same weights."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        **scratch_config(settings, vocab),
        initializer_range=settings.initializer_range,
        pad_token_id=pad_id,
        eos_token_id=eos_id,
        bos_token_id=bos_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        return Qwen2ForCausalLM(config)


def load_model(folder: str | Path, *, dtype: str, trainable: bool = False) -> torch.nn.Module:
    """A causal language model from a folder, with its adapter merged in (or separate and trainable).

    Merged in float32 only: in bfloat16 most of what an adapter adds to a weight would be rounded away. There it stays
    separate, as in training, and is rounded like all else. Only safetensors are read: loading a pickle can run any
    code.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    folder = Path(folder)
    base = weights_folder(folder)
    if not (base / "config.json").exists():
        raise UserError(f"{base}: not a model folder (config.json is missing)")
    if not any(base.glob("*.safetensors")):
        raise UserError(f"{base}: the model has no weights as safetensors; save it again, with save_pretrained")
    if base != folder and not (folder / ADAPTER_FILE).exists():  # PEFT would go on to a pickle beside it
        raise UserError(f"{folder}: the adapter has no {ADAPTER_FILE}")
    try:
        model = AutoModelForCausalLM.from_pretrained(
            base, dtype=getattr(torch, dtype), local_files_only=True, use_safetensors=True
        )
        if base != folder:
            from peft import PeftModel

            # PEFT would read the adapter onto the first GPU, and each process that shares a model open a context there.
            model = PeftModel.from_pretrained(
                model, folder, is_trainable=trainable, autocast_adapter_dtype=False, torch_device="cpu"
            )
    except SafetensorError as error:
        raise UserError(f"{folder}: its weights cannot be read ({error}); turncredit check says what to do") from None
    if base != folder and not trainable and dtype == "float32":
        model = model.merge_and_unload()
    return model


def unround_adapter(model: torch.nn.Module, folder: str | Path) -> torch.nn.Module:
    """`model` with its trainable adapter in float32, as `folder` has it."""
    kept = load_file(Path(folder) / ADAPTER_FILE)
    for name, parameter in trained_parameters(model).items():
        parameter.data = kept[name.replace(".default.", ".")].to(parameter.device)
    return model


def checkpoint_gradients(model: Any) -> None:
    """Let `model` compute its layers' activations again for the gradient."""
    # The transformers that vLLM goes with (below 5.20) has only the old name: jobs of several stages train there.
    name = "activation_checkpointing_enable"
    enable = getattr(model, name if hasattr(model, name) else "gradient_checkpointing_enable")
    enable({"use_reentrant": False})
    if hasattr(model, "enable_input_require_grads"):
        model.enable_input_require_grads()


def is_adapted(model: torch.nn.Module) -> bool:
    """Whether the model has an adapter beside its weights."""
    return hasattr(model, "peft_config")


def add_lora(model: torch.nn.Module, settings: LoraConfig, seed: int) -> torch.nn.Module:
    """`model` with fresh low-rank adapters, of which only these train."""
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model

    config = PeftConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.targets),
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return get_peft_model(model, config)


def save_model(
    model: torch.nn.Module,
    folder: str | Path,
    *,
    base: str | Path,
    final: str | Path,
    moments: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Save weights, tokenizer and any optimiser's `moments` to `folder`.

    An adapter is saved alone, with the relative path from `final` to its base. `final` is the name the folder will be
    renamed to; the tokenizer's files are copied from `base`. Raises UserError for trained weights that are not finite.
    """
    folder, base = Path(folder), Path(base)
    for name, parameter in trained_parameters(model).items():
        if not bool(torch.isfinite(parameter).all()):
            raise UserError(
                f"{final}: not saved, because its weights are not finite ({name}): training has diverged; lower the "
                "learning rate"
            )
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    for file in base.iterdir():
        if file.name.startswith(("tokenizer", "special_tokens", "chat_template", "vocab", "merges")):
            (folder / file.name).write_bytes(file.read_bytes())
    if (folder / "adapter_config.json").exists():
        whole = base_folder(base).resolve()
        record: dict[str, Any] = {"base": os.path.relpath(whole, Path(final).resolve())}
        (folder / POLICY_FILE).write_text(json.dumps(record), encoding="utf-8")
        (folder / "README.md").unlink(missing_ok=True)  # PEFT's empty model card
    if moments:
        save_file(dict(moments), folder / MOMENTS_FILE)


def trained_parameters(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The parameters that the optimiser changes, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
