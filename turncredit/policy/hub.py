"""The files of a model: which are fetched from a hub, and which a folder lacks.

Does not import torch: every start of the workflow reads this.
"""

from __future__ import annotations

import json
from pathlib import Path

#: The files of a policy: weights as safetensors only, since loading a pickle (`.bin`, `.pt`) can run any code.
MODEL_FILES = ("*.json", "*.safetensors", "*.txt", "*.jinja")
#: The files of any model that a stage reads: a judge's server may need a SentencePiece model, which no policy does.
FETCHED_FILES = (*MODEL_FILES, "*.model")

INDEX = "model.safetensors.index.json"
_WEIGHTS = ("model.safetensors", INDEX)
_TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "*.model", "*.tiktoken", "tekken.json")
#: By reader: a model's folder must have one file of each group. A judge's server (vLLM) also reads other formats.
NEEDED = {
    "policy": (("config.json",), _WEIGHTS, ("tokenizer.json",), ("tokenizer_config.json",)),
    "scorer": (("config.json",), _WEIGHTS, _TOKENIZERS),
    "judge": (("config.json", "params.json"), ("*.safetensors", "*.bin", "*.pt"), _TOKENIZERS),
}
#: What to do about such a folder.
SAVE_AGAIN = "copy the whole model, or save it and its tokenizer there with save_pretrained"


def lacking(folder: Path, reader: str) -> str | None:
    """The first missing or truncated file of a model that this `reader` needs; None if all are there."""
    for group in NEEDED[reader]:
        if not any(file.is_file() for pattern in group for file in folder.glob(pattern)):
            return " or ".join(group)
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8")) if (folder / INDEX).is_file() else {}
        parts = sorted(set(index.get("weight_map", {}).values()))
    except (ValueError, AttributeError):
        return f"whole {INDEX}"
    absent = [part for part in parts if not (folder / part).is_file()]
    if absent:
        return f"{absent[0]}, one of {len(absent)} missing parts of its weights"
    parts = parts or [name for name in ("model.safetensors",) if (folder / name).is_file()]
    damaged = [part for part in parts if not _is_whole(folder / part)]
    return f"whole {damaged[0]}" if damaged else None


def _is_whole(file: Path) -> bool:
    """Whether a file of weights is as long as its header says."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy"):
            return True
    except (OSError, SafetensorError):
        return False
