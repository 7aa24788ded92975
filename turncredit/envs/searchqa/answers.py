"""Whether an answer is right: exact match and F1 after SQuAD's normalisation.

Source: the evaluation of SQuAD (Rajpurkar et al. 2016), which HotpotQA and Search-R1 also use.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation and English articles, white space squeezed."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, gold: Sequence[str]) -> bool:
    """Whether an answer equals any of the gold answers, both normalised.

    A gold answer with nothing left of it ("!!!", "A") takes the same text, in lower case, white space squeezed. SQuAD's
    metric would take any other text with nothing left of it, such as "the", as well.
    """
    return any(_same(answer, one) for one in gold)


def _same(answer: str, gold: str) -> bool:
    wanted = normalise(gold)
    return normalise(answer) == wanted if wanted else _squeezed(answer) == _squeezed(gold) != ""


def _squeezed(text: str) -> str:
    return " ".join(text.lower().split())


def f1(answer: str, gold: Sequence[str]) -> float:
    """The best F1 over the gold answers: of the words of both, normalised, with counts. 0 without a common one.

    1 for an exact match.
    """
    if exact_match(answer, gold):
        return 1.0
    return max((_f1(normalise(answer).split(), normalise(one).split()) for one in gold), default=0.0)


def _f1(answer: list[str], gold: list[str]) -> float:
    common = sum((Counter(answer) & Counter(gold)).values())
    return 2 * common / (len(answer) + len(gold)) if common else 0.0


def contains(text: str, gold: Sequence[str]) -> bool:
    """Whether a text has one of the gold answers in it, as whole words, both normalised."""
    padded = f" {normalise(text)} "
    return any(f" {wanted} " in padded for one in gold if (wanted := normalise(one)))
