"""Prompts and responses of a rollout as tokens, with the log-probabilities that were recorded when it was sampled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from turncredit.views.pages.data import Book
from turncredit.views.pages.formats import plain
from turncredit.views.terminal import visible

#: Tokens of a turn that are shown, and of a whole page.
OF_A_TURN, OF_A_PAGE = 400, 6000


class Token(NamedTuple):
    """A token: its text, its log-probability in words, and how surprising it was from 0 to 9."""

    text: str
    title: str
    level: int


@dataclass(frozen=True)
class TurnTokens:
    """What the model read and wrote at a turn; the numbers are of tokens, `more` those that are not shown."""

    prompt: str
    prompt_count: int
    resets: bool
    response: list[Token]
    response_count: int
    more: int
    logprob: str


def tokens_of(book: Book, rollout: int, tokenizer: Path | None) -> dict[int, TurnTokens]:
    """The tokens of each turn by number; none where the table has no tokens. `tokenizer`: the folder that has it."""
    if not (book.turns.has("response_ids") or book.turns.has("prompt_ids")):
        return {}
    decode = _decoder(str(tokenizer)) if tokenizer is not None else _numbered
    left, found = OF_A_PAGE, {}
    for row in book.rows(rollout).tolist():
        prompt, response = book.cell("prompt_ids", row) or [], book.cell("response_ids", row) or []
        if not prompt and not response:
            continue
        logprobs = book.cell("response_logprobs", row) or []
        shown = response[: min(OF_A_TURN, left)]
        left -= len(shown)
        read = prompt[-min(OF_A_TURN, left) :] if left else []
        left -= len(read)
        scored = [x for x in logprobs if x is not None and math.isfinite(x)]
        found[int(book.turns.turn_N[row])] = TurnTokens(
            prompt=("… " if len(read) < len(prompt) else "") + visible("".join(decode(one) for one in read)),
            prompt_count=len(prompt),
            resets=bool(book.cell("context_reset", row)),
            response=[
                _token(decode(one), logprobs[place] if place < len(logprobs) else None)
                for place, one in enumerate(shown)
            ],
            response_count=len(response),
            more=len(response) - len(shown),
            logprob=plain(sum(scored)) if scored else "",
        )
    return found


def _token(text: str, logprob: float | None) -> Token:
    if logprob is None or not math.isfinite(logprob):
        return Token(visible(text), "no log-probability", 0)
    share = math.exp(min(logprob, 0.0))
    title = f"log-probability {plain(logprob, 3)}, probability {share:.3g}"
    return Token(visible(text), title, min(9, int(10 * (1 - share))))


def _numbered(token: int) -> str:
    return f"⟨{token}⟩"


@lru_cache(maxsize=2)
def _decoder(folder: str) -> Callable[[int], str]:
    """From a token to its text; to its number where the tokenizer cannot be read."""
    try:
        from turncredit.policy import tokenizer

        loaded = tokenizer.load(folder)
    except Exception:  # whatever is wrong with it, the page goes without
        return _numbered

    def text(token: int) -> str:
        return loaded.eos_text if token == loaded.eos_id else loaded.decode([token]) or _numbered(token)

    return lru_cache(maxsize=100_000)(text)
