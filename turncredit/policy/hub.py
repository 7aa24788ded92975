"""The files of a model that are fetched from a hub. Does not import torch: every start of the workflow reads this."""

from __future__ import annotations

#: The files of a policy: weights as safetensors only, since loading a pickle (`.bin`, `.pt`) can run any code.
MODEL_FILES = ("*.json", "*.safetensors", "*.txt", "*.jinja")
#: The files of any model that a stage reads: a judge's server may need a SentencePiece model, which no policy does.
FETCHED_FILES = (*MODEL_FILES, "*.model")
