"""A stand-in for the package vllm, for engines in processes of their own: its answers follow from context and seed.

In the folder that ENGINES_LOG names, every engine leaves how it was started.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

from turncredit.errors import UserError


def said(context: list[int], seed: int, longest: int = 8) -> list[int]:
    """What an engine answers to this context with this seed, in up to `longest` tokens."""
    first = sum(context) * 31 + seed * 7
    return [(first + number) % 89 for number in range(1 + seed % longest)]


class SamplingParams(SimpleNamespace):
    """As vLLM's."""


class LLM:
    """Answers one request a step, the newest first."""

    def __init__(self, folder, **settings):
        started = {"sees": os.environ.get("CUDA_VISIBLE_DEVICES"), "slots": settings["max_num_seqs"]}
        (Path(os.environ["ENGINES_LOG"]) / f"{os.getpid()}.json").write_text(json.dumps(started))
        self._folder, self._waiting, self.llm_engine = Path(folder), [], self

    def add_request(self, name, prompt, sampling, *, lora_request):
        assert lora_request is None
        self._waiting.append((name, prompt["prompt_token_ids"], sampling))

    def abort_request(self, names):
        self._waiting = [one for one in self._waiting if one[0] not in names]

    def step(self):
        match (self._folder / "fault").read_text() if (self._folder / "fault").exists() else "":
            case "mistake":
                raise UserError("the weights are not good")
            case "failed":
                raise ValueError("a shape is wrong")
            case "killed":
                os._exit(9)
        name, context, sampling = self._waiting.pop()
        ids = said(context, sampling.seed, sampling.max_tokens)
        logprobs = [{token: SimpleNamespace(logprob=-token / 7)} for token in ids]
        return [SimpleNamespace(request_id=name, outputs=[SimpleNamespace(token_ids=ids, logprobs=logprobs)])]

    def sleep(self, level):
        assert not self._waiting
        assert level == 2

    def wake_up(self, tags): ...

    def collective_rpc(self, method, kwargs):
        if method == "update_config":
            return
        assert method == "reload_weights"
        self._folder = Path(kwargs["weights_path"])

    def reset_prefix_cache(self): ...
