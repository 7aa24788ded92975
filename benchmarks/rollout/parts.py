"""The time of a round of rollouts by part. Each part's time excludes that of nested parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from turncredit.agents.transcript import Transcript
from turncredit.envs.household.native import NativeEnv
from turncredit.policy.engines import lockstep, ragged
from turncredit.policy.engines.guesses import Guesses
from turncredit.policy.tokenizer import Tokenizer

READ, DECODE = "reading passes", "decoding passes"
#: Where a part begins: owner, name of the function.
PARTS: dict[str, list[tuple[Any, str]]] = {
    "drawing tokens": [(lockstep, "draw")],
    "gathering caches": [
        (ragged.Block, "__init__"),
        (ragged.Block, "copy"),
        (ragged.Block, "close"),
        (ragged.Ragged, "reserve"),
    ],
    "guessing": [(Guesses, "after"), (Guesses, "learn")],
    "the engine's Python": [(lockstep.Lockstep, "sample")],
    "environment": [(NativeEnv, name) for name in ("reset", "step", "admissible")],
    "agents and tokenizer": [*((Transcript, name) for name in ("open", "follow", "parse")), (Tokenizer, "decode")],
}


def measured(work: Callable[[], Any]) -> dict[str, float]:
    """Seconds by part while `work` runs; `rest` is everything else, including the table."""
    seconds = dict.fromkeys((READ, DECODE, *PARTS), 0.0)
    inside: list[float] = [0.0]

    @contextmanager
    def timed(part: str) -> Iterator[None]:
        began = time.perf_counter()
        inside.append(0.0)
        try:
            yield
        finally:
            took = time.perf_counter() - began
            seconds[part] += took - inside.pop()
            inside[-1] += took

    def wrapped(function: Callable, part: str | None) -> Callable:
        def call(*args: Any, **options: Any) -> Any:
            # A pass reads logits after `every` token when it decodes, and after the last one when it reads.
            with timed(part or (DECODE if options.get("every", args[-1]) else READ)):
                return function(*args, **options)

        return call

    with ExitStack() as stack:
        for part, places in [*PARTS.items(), (None, [(ragged.Block, "read")])]:
            for owner, name in places:
                stack.enter_context(mock.patch.object(owner, name, wrapped(getattr(owner, name), part)))
        began = time.perf_counter()
        work()
        whole = time.perf_counter() - began
    return {**seconds, "rest": whole - sum(seconds.values())}
