"""Guesses of how a response continues: they save passes through the model and never change a sample.

A token is a function of the logits and of the rollout's own random number. Tokens that will probably follow are
therefore read together with the last one, and those that the draws confirm are kept (speculative decoding, Leviathan et
al. 2023; here the random numbers are fixed in advance, so a guess is either right or wrong). Guesses come from the
responses seen so far: many actions begin alike, "go to", "take ... from".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

#: A guess depends on this many last tokens of the response.
LAST = 3
#: The least probability, estimated from past responses, that a guessed token will be drawn.
LEAST = 0.4
#: The most tokens guessed at once.
MOST = 8
#: The most contexts remembered, so that long free text does not fill the memory.
CONTEXTS = 200_000


class Guesses:
    """Counts of the tokens that followed the same last `LAST` tokens (fewer at a response's start)."""

    def __init__(self, eos_id: int):
        self._eos = eos_id
        self._counts: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        self._guesses: dict[tuple[int, ...], list[int]] = {}

    def learn(self, responses: Iterable[Sequence[int]]) -> None:
        """Count which tokens followed which contexts in these responses."""
        self._guesses.clear()
        for ids, times in Counter(map(tuple, responses)).items():
            for at, token in enumerate(ids):
                key = ids[max(0, at - LAST) : at]
                if key in self._counts or len(self._counts) < CONTEXTS:
                    self._counts[key][token] += times

    def after(self, ids: Sequence[int]) -> list[int]:
        """The tokens that probably follow `ids`, without the end of the response; often none."""
        key = tuple(ids[-LAST:])
        guess = self._guesses.get(key)
        if guess is None:
            guess = self._guesses[key] = self._follow(key)
        return guess

    def _follow(self, key: tuple[int, ...]) -> list[int]:
        guess: list[int] = []
        probability = 1.0
        while len(guess) < MOST and key in self._counts:
            counts = self._counts[key]
            token, times = counts.most_common(1)[0]
            probability *= times / counts.total()
            if probability < LEAST or token == self._eos:
                break
            guess.append(token)
            key = (*key, token)[-LAST:]
        return guess
