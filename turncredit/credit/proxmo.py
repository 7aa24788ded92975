"""ProxMO: outcomes weighted by how hard their task is, and step returns against those from similar states."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import numpy as np

from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Count, NonNegative, Positive, Share, Singleton, add, success_R
from turncredit.data.turns import Turns


def proxmo(
    turns: Turns,
    *,
    step_bonus_N: np.ndarray | None = None,
    omega: NonNegative = 1.0,
    beta: NonNegative = 0.1,
    alpha: Positive = 4.0,
    tau: Positive = 0.1,
    gamma: Share = 0.95,
    max_words: Count = 1024,
    success_above: float | None = None,
    singleton: Singleton = "zero",
) -> dict[str, np.ndarray]:
    """A_t = w (R - mean_g R) + omega (G_t - sum over u of softmax_u(cos(t, u) / tau) G_u).

    w    1 + beta (sigma((1 - p)^alpha) - 1/2) in a success, 1 + beta (sigma(-p^alpha) - 1/2) in a failure, with p the
         share of successes in the group: a rare success counts more, a rare failure less
    G_t  r_t + gamma G_{t+1} + the turn's bonus; u are all turns of the group, t among them
    cos  of the two observations' TF-IDF vectors over the batch's observations: lower-case words of two letters or more,
         the `max_words` most frequent, idf = ln((1 + n) / (1 + df)) + 1

    Source: ProxMO (arXiv 2602.19225) and its code (FlyTune/ProxMO-RL); alpha, beta, tau, gamma and omega are the
    paper's, where a script of the code comes to a beta of 0.22. Words of equal frequency at the limit of `max_words`
    are kept in alphabetical order. Without any word in the batch the second term is 0. A group of one has the first
    term 0 (`singleton="raw"`: w R). Departures: the group's mean and p count each rollout once, where the code counts
    each of its turns; a penalty for an invalid action is taken from G alone, where verl-agent, which the code builds
    on, takes it from R as well.

    Reads `observation`, and `success` where there is one (else a return above `success_above` is a success). Returns
    `weight` (w), `advantage_rollout`, `step_return`, `advantage_step`, `advantage` (each N).
    """
    won_R = success_R(turns, "proxmo", success_above)
    share_R = turns.stats_G(won_R.astype(np.float64)).mean_C[turns.group_R]
    weight_R = 1.0 + beta * (_sigmoid(np.where(won_R, (1.0 - share_R) ** alpha, -(share_R**alpha))) - 0.5)
    stats = turns.stats_G(turns.return_R)
    base_R = turns.return_R - stats.mean_C[turns.group_R]
    alone_R = stats.count_C[turns.group_R] == 1
    base_R[alone_R] = turns.return_R[alone_R] if singleton == "raw" else 0.0
    base_N = (weight_R * base_R)[turns.rollout_N]
    return_N = turns.step_return_N(gamma)
    if step_bonus_N is not None:
        return_N = return_N + step_bonus_N
    step_N = return_N - _near_N(turns, return_N, tau, max_words)
    return {
        "weight": weight_R[turns.rollout_N],
        "advantage_rollout": base_N,
        "step_return": return_N,
        "advantage_step": step_N,
        "advantage": add(base_N, step_N, omega),
    }


def _sigmoid(x_M: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x_M))


def _near_N(turns: Turns, return_N: np.ndarray, tau: float, max_words: int) -> np.ndarray:
    """The mean of the group's step returns, each with the weight of its observation's likeness to the turn's (N)."""
    codes_N, texts = turns.texts("observation", "proxmo")
    order = sorted(range(len(texts)), key=texts.__getitem__)  # no sum may depend on the order of the input's rows
    codes_N, texts = np.argsort(order)[codes_N], [texts[code] for code in order]
    vectors = _tf_idf(texts, np.bincount(codes_N, minlength=len(texts)), max_words)
    if vectors is None:
        return return_N.copy()
    near_N = np.empty(turns.n)
    for start, end in zip(
        turns.first_R[turns.first_G], np.append(turns.first_R[turns.first_G][1:], turns.n), strict=True
    ):
        # Turns with one observation have one baseline: the sums run over the group's distinct texts.
        code_U, place_M = np.unique(codes_N[start:end], return_inverse=True)
        own = vectors(code_U)
        scaled = own @ own.T / tau
        weight = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        many_U = np.bincount(place_M)
        sum_U = np.bincount(place_M, return_N[start:end])
        near_N[start:end] = (weight @ sum_U / (weight @ many_U))[place_M]
    return near_N


def _tf_idf(texts: list[str], times: np.ndarray, max_words: int) -> Callable[[np.ndarray], np.ndarray] | None:
    """TF-IDF vectors of unit length of the texts, which the batch has `times` times; None: there are no words.

    Returns a function from numbers of texts to their vectors, a row each: all of them at once can take much memory.
    """
    counts = [Counter(re.findall(r"\b\w\w+\b", text.lower())) for text in texts]
    frequency: Counter[str] = Counter()
    for count, many in zip(counts, times.tolist(), strict=True):
        for word, here in count.items():
            frequency[word] += here * many
    kept = sorted(frequency, key=lambda word: (-frequency[word], word))[:max_words]
    if not kept:
        return None
    column = {word: number for number, word in enumerate(sorted(kept))}
    cells = [
        (row, column[word], here) for row, count in enumerate(counts) for word, here in count.items() if word in column
    ]
    if not cells:
        return None
    row_E, column_E, count_E = (np.array(part) for part in zip(*cells, strict=True))
    documents = np.bincount(column_E, times[row_E], len(kept))
    value_E = count_E * (np.log((1 + times.sum()) / (1 + documents)) + 1)[column_E]
    length = np.sqrt(np.bincount(row_E, value_E**2, len(texts)))
    unit_E = value_E / length[row_E]
    first = np.searchsorted(row_E, np.arange(len(texts) + 1))  # cells stand in the order of texts

    def rows(code_U: np.ndarray) -> np.ndarray:
        found = np.zeros((len(code_U), len(kept)))
        for place, code in enumerate(code_U):
            cells = slice(first[code], first[code + 1])
            found[place, column_E[cells]] = unit_E[cells]
        return found

    return rows


PROXMO = Part("proxmo", proxmo, "estimator", reads=("observation",))

PARTS = (PROXMO,)
METHODS = (
    Method("proxmo", "outcomes weighted by their task's difficulty, plus returns against similar states", PROXMO),
)
