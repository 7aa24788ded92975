"""GiGPO: the rollout's advantage plus that of each turn among the turns that saw the same state."""

from __future__ import annotations

from difflib import SequenceMatcher
from itertools import pairwise
from typing import Literal

import numpy as np

from turncredit.credit.conventions import (
    Ddof,
    NonNegative,
    Norm,
    Share,
    Singleton,
    Weighting,
    group_relative_N,
    standardise,
)
from turncredit.turns import Turns


def exact_anchors_N(turns: Turns, method: str) -> np.ndarray:
    """Anchor number of each turn: equal in the same group for the same observation text."""
    codes_N = turns.codes("observation", method)
    return np.unique(turns.group_N * (int(codes_N.max()) + 1) + codes_N, return_inverse=True)[1]


def similar_anchors_N(turns: Turns, threshold: float) -> np.ndarray:
    """Anchor numbers by first fit: a text joins the first cluster of its group whose first member is similar.

    Similar is difflib's ratio >= threshold. Like the reference this depends on the order in which texts come; here
    that is rollout by rollout, turn by turn, in the order of their ids.
    """
    codes_N, values = turns.texts("observation", "gigpo")
    alike = _Alike(values.to_pylist(), threshold)
    anchor_N = np.empty(turns.n, dtype=np.int64)
    made = 0
    for start, end in pairwise(np.append(turns.first_R[turns.first_G], turns.n)):
        codes, first_at, place = np.unique(codes_N[start:end], return_index=True, return_inverse=True)
        by_time = np.argsort(first_at)
        cluster = np.empty(len(codes), dtype=np.int64)
        cluster[by_time] = alike.first_fit(codes[by_time].tolist())
        anchor_N[start:end] = made + cluster[place]
        made += int(cluster.max()) + 1
    return anchor_N


def gigpo(
    turns: Turns,
    *,
    score_bonus_N: np.ndarray | None = None,
    step_bonus_N: np.ndarray | None = None,
    omega: NonNegative = 1.0,
    gamma: Share = 0.95,
    anchors: Literal["exact", "similar"] = "exact",
    similarity: Share = 0.95,
    norm: Norm = "mean_std",
    weighting: Weighting = "rollout",
    ddof: Ddof = 1,
    eps: NonNegative = 1e-6,
    singleton: Singleton = "zero",
) -> dict[str, np.ndarray]:
    """A = A_E + omega A_S, with G_t = r_t + gamma G_{t+1} and A_S normalised among the turns of an anchor.

    A_E is the rollout's return relative to its group (`weighting`, `singleton` as in flat GRPO). An anchor is all
    turns of the group with the same observation, repeats inside a rollout included; A_S makes G_t + step bonus
    relative to its anchor, over turns; an anchor of one gives 0. `norm` is for both (ALFWorld `mean_std`, WebShop
    `mean`). omega = 0 is flat GRPO exactly.

    Source: Feng et al. 2025 (SCPO, eq. 1-3); numbers agree with verl-agent's `core_gigpo` under `weighting="row"`,
    `singleton="raw"`, which is its default. Departures: the group's statistics count each rollout once (the paper's
    equation); a bonus changes a turn's own score and step return only, as verl-agent's invalid-action penalty.

    Returns `advantage_episode`, `step_return` (with bonus), `advantage_step`, `anchor_size`, `advantage` (each N).
    """
    episode_N = group_relative_N(
        turns, score_bonus_N, norm=norm, weighting=weighting, ddof=ddof, eps=eps, singleton=singleton
    )
    return_N = turns.step_return_N(gamma)
    if step_bonus_N is not None:
        return_N = return_N + step_bonus_N
    anchor_N = exact_anchors_N(turns, "gigpo") if anchors == "exact" else similar_anchors_N(turns, similarity)
    size_A = np.bincount(anchor_N)
    step_N = standardise(return_N, anchor_N, len(size_A), norm=norm, ddof=ddof, eps=eps, singleton="zero")
    return {
        "advantage_episode": episode_N,
        "step_return": return_N,
        "advantage_step": step_N,
        "anchor_size": size_A[anchor_N],
        "advantage": episode_N.copy() if omega == 0 else episode_N + omega * step_N,
    }


class _Alike:
    """Which texts are similar, each pair compared once.

    difflib's ratio is only computed where its upper bound, the letters the two texts share, allows the threshold.
    """

    def __init__(self, texts: list[str], threshold: float) -> None:
        self.texts, self.threshold = texts, threshold
        letters = {letter: place for place, letter in enumerate(sorted(set("".join(texts))))}
        self.count = np.zeros((len(texts), len(letters)), dtype=np.int32)
        for row, text in enumerate(texts):
            np.add.at(self.count[row], [letters[letter] for letter in text], 1)
        self.length = self.count.sum(axis=1)
        self.known: dict[tuple[int, int], bool] = {}
        self.matcher = SequenceMatcher(None)

    def first_fit(self, codes: list[int]) -> list[int]:
        """The cluster of each of these texts, which come in this order."""
        clusters: list[int] = []
        firsts: list[int] = []
        for code in codes:
            shared = np.minimum(self.count[firsts], self.count[code]).sum(axis=1)
            possible = 2.0 * shared >= self.threshold * (self.length[firsts] + self.length[code]) - 1e-9
            found = next((c for c in np.flatnonzero(possible).tolist() if self._similar(firsts[c], code)), len(firsts))
            if found == len(firsts):
                firsts.append(code)
            clusters.append(found)
        return clusters

    def _similar(self, first: int, code: int) -> bool:
        if (first, code) not in self.known:
            self.matcher.set_seqs(self.texts[first], self.texts[code])
            self.known[first, code] = self.matcher.ratio() >= self.threshold
        return self.known[first, code]
