"""What can be read off the hidden states that learned credit models read? A linear probe, by its AUC.

A model cannot credit what its input does not carry. So a probe asks of each table of hidden states:

action       which action was it: one question for each first word of an action (`go`, `take`, ...)
observation  what had the turn seen: was the action before refused, as the observation says
refused      was the action itself refused: this needs action and state together

The probe is ridge regression on standardised states, fitted to one half of the task groups and scored on the other,
both ways. Suffixes: `_N` turns, `_D` numbers of a state, `_K` questions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from turncredit.stats.rank_correlation import auc

#: the ridge's penalty, in shares of the number of turns; standardised states have unit variance
RIDGE = 1e-3
#: a question is asked if both halves have this many turns with either answer
FEWEST = 50
#: the columns of the turns that are read
COLUMNS = ("group_id", "rollout_id", "turn", "action", "valid")
_WORD = re.compile(r"[^\W_]+")


class Question(NamedTuple):
    """A question about each turn: what it asks for (`action`, `observation`, `refused`), its name, the answers (N)."""

    about: str
    name: str
    yes_N: np.ndarray


class Answer(NamedTuple):
    """A question's `about` and `name`, and the probe's AUC on task groups that it was not fitted to."""

    about: str
    name: str
    auc: float


#: states (M, D) and answers (M, K) to fit, and states (N, D) to score: the scores (N, K)
Predict = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def ridge(x_MD: np.ndarray, yes_MK: np.ndarray, new_ND: np.ndarray) -> np.ndarray:
    """Scores (N, K) of new states by ridge regression of the answers (M, K) on states (M, D)."""
    x_MD = x_MD.astype(np.float64)
    mean_D, scale_D = x_MD.mean(0), x_MD.std(0) + 1e-9
    z_MD = (x_MD - mean_D) / scale_D
    gram_DD = z_MD.T @ z_MD + RIDGE * len(z_MD) * np.eye(z_MD.shape[1])
    weight_DK = np.linalg.solve(gram_DD, z_MD.T @ (yes_MK - yes_MK.mean(0)))
    scores_NK: np.ndarray = ((new_ND - mean_D) / scale_D) @ weight_DK
    return scores_NK


def probe(hidden_ND: np.ndarray, turns: pa.Table, predict: Predict = ridge) -> list[Answer]:
    """The answers to all questions that the turns have enough examples of; none for a handful of rollouts.

    `hidden_ND` are the states of the turns, in their order, which is that of their rollouts.
    """
    half_N = _halves(turns.column("group_id").to_numpy(zero_copy_only=False))
    asked = [one for one in questions(turns) if _enough(one.yes_N, half_N)]
    if not asked:
        return []
    yes_NK = np.stack([one.yes_N for one in asked], axis=1)
    score_NK = np.empty(yes_NK.shape)
    for half in (False, True):
        fitted, scored = half_N == half, half_N != half
        score_NK[scored] = predict(hidden_ND[fitted], yes_NK[fitted], hidden_ND[scored])
    found_K = [
        np.mean([auc(score_NK[half_N == half, k], yes_NK[half_N == half, k]) for half in (False, True)])
        for k in range(len(asked))
    ]
    return [Answer(one.about, one.name, float(found)) for one, found in zip(asked, found_K, strict=True)]


def weakest(answers: list[Answer]) -> dict[str, Answer]:
    """The answer with the lowest AUC about each thing."""
    return {one.about: one for one in sorted(answers, key=lambda answer: -answer.auc)}


def questions(turns: pa.Table) -> list[Question]:
    """The questions about these turns, whatever the number of examples."""
    refused_N = ~turns.column("valid").to_numpy(zero_copy_only=False).astype(bool)
    later_N = turns.column("turn").to_numpy() > 0
    before_N = np.append(False, refused_N[:-1]) & later_N
    words = [_WORD.search(action) for action in turns.column("action").to_pylist()]
    word_N = np.array(["" if word is None else word[0].lower() for word in words])
    verbs = [Question("action", word, word_N == word) for word in np.unique(word_N) if word]
    return [*verbs, Question("observation", "refused before", before_N), Question("refused", "refused", refused_N)]


def _halves(group_N: np.ndarray) -> np.ndarray:
    """Whether a turn's task group is in the second half: every other group."""
    _, number_N = np.unique(group_N, return_inverse=True)
    return number_N % 2 == 1


def _enough(yes_N: np.ndarray, half_N: np.ndarray) -> bool:
    counts = [np.bincount(yes_N[half_N == half].astype(int), minlength=2).min() for half in (False, True)]
    return min(counts) >= FEWEST
