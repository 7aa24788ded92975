"""Markers between the parts of a transcript. Agents write them; a tokenizer built from scratch has a token for each."""

from __future__ import annotations

TASK, OBSERVATION, ACTION = "<|task|>", "<|obs|>", "<|act|>"
MARKERS = (TASK, OBSERVATION, ACTION)

#: How the last observation of a failed trial ends, where a rollout has several (turncredit/envs/trials.py).
FAILED = " [trial failed]"
