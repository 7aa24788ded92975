"""Prompts in full, one for each response, -> the tokens that entered the context since the response before."""

from __future__ import annotations

from collections.abc import Sequence

from turncredit.bridges.importers.base import Report, Turn

COLUMNS = ("prompt_ids", "response_ids", "response_logprobs")
SOME = "some turns have no tokens: those of the rollout are left out"


def from_full_prompts(turns: Sequence[Turn], report: Report, where: str) -> None:
    """Make `prompt_ids` of turns what their context gained, and set `context_reset` where it starts over.

    Before, `prompt_ids` is the whole prompt. Where a turn of the rollout has no tokens, none keeps them.
    """
    if not any(turn.get("response_ids") for turn in turns):
        for turn in turns:
            _forget(turn)
        return
    if not all(turn.get("prompt_ids") and turn.get("response_ids") for turn in turns):
        report.note(SOME)
        for turn in turns:
            _forget(turn)
        return
    context: list[int] = []
    for turn in turns:
        whole = turn["prompt_ids"]
        goes_on = bool(context) and whole[: len(context)] == context
        turn["context_reset"] = not goes_on
        turn["prompt_ids"] = whole[len(context) :] if goes_on else whole
        context = [*whole, *turn["response_ids"]]
        logprobs = turn.get("response_logprobs")
        if logprobs and len(logprobs) != len(turn["response_ids"]):
            report.flaw(where, "as many log-probabilities as sampled tokens are needed; these are left out")
            turn["response_logprobs"] = None


def _forget(turn: Turn) -> None:
    for name in COLUMNS:
        turn.pop(name, None)
