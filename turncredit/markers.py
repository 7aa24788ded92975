"""Marks between the parts of a transcript. Agents write them; a tokenizer made from scratch has one token for each."""

from __future__ import annotations

TASK, OBSERVATION, ACTION = "<|task|>", "<|obs|>", "<|act|>"
MARKERS = (TASK, OBSERVATION, ACTION)
