"""A GGUF file's model as an ordinary folder: float32 weights, configuration, tokenizer, chat template.

    python -m benchmarks.real.weights FILE.gguf FOLDER

`make real` calls it. transformers dequantises the weights, for which it needs the package `gguf`. They are the numbers
that the quantised file stands for, not those from before its quantisation.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from turncredit.data.files import new_folder
from turncredit.errors import UserError


def load_gguf(file: Path) -> tuple[Any, Any]:
    """The model, in float32, and the tokenizer of a GGUF file. Raises UserError without the file or the package."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import is_gguf_available

    if not file.is_file():
        raise UserError(f"{file}: there is no such file; `make real` fetches one")
    if not is_gguf_available():
        raise UserError("a GGUF file is read with the package gguf, which is missing; `make real` brings it along")
    source = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(**source)


def convert(file: Path, folder: Path) -> None:
    """Write the model of a GGUF file to `folder`, which appears when it is complete."""
    model, tokenizer = load_gguf(file)
    # The weights are plain numbers by now. transformers still takes the model for a quantised one, and saves none.
    del model.config.quantization_config
    model.is_quantized, model.hf_quantizer = False, None
    with new_folder(folder) as part:
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)


if __name__ == "__main__":
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except UserError as error:
        sys.exit(f"{error}")
