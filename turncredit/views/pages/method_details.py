"""Details of single methods: SCPO's matcher, MGR's gate, the outputs of learned credit models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from turncredit.credit import Method
from turncredit.credit.scpo import similarities
from turncredit.data.turns import Turns
from turncredit.views.pages.data import Book

#: names of the measures that the stage `values` gives for TurnRD+FiLM (credit_models/turnrd.py: probes), in words
PROBES = {
    "film_value_change": "change of V when FiLM is taken out, relative to |V|",
    "film_shuffled_return": "growth of the return's squared error under another goal",
    "film_shuffled_worse": "share of rollouts whose return is predicted worse under another goal",
    "film_shuffled_value": "growth of V's squared error under another goal",
    "film_gamma": "mean size of γ − 1",
    "film_beta": "mean size of β",
}


@dataclass(frozen=True)
class Step:
    """One visited turn of the failed rollout: the reference's turn (-1: none), the similarity, and the credit."""

    row: int
    visit: int
    place: int
    similarity: float
    credit: float


@dataclass(frozen=True)
class Walk:
    """SCPO on one failed rollout: the reference's rows (m), the failed rollout's rows (V), M (m x V) and the walk.

    `place` of a step counts the rows of the reference; steps come in the order in which SCPO visited them.
    """

    method: str
    reference: np.ndarray
    failed: np.ndarray
    score_mV: np.ndarray
    theta: float
    steps: list[Step]


def walk(book: Book, method: str, credit_method: Method, rollout: int) -> Walk | None:
    """SCPO's walk through a failed rollout; None if it had no reference, or no turn to visit.

    The similarities are recomputed with the method's own scorer; positions and credits are those of the table.
    """
    part = next((part for part in credit_method.shapers if part.name == "scpo"), None)
    components = book.credits[method].components
    if part is None or not {"scpo_credit", "scpo_reference", "scpo_order"} <= set(components):
        return None
    settings = part.settable()
    rows = book.siblings(rollout)
    low, high = int(book.turns.first_R[rows[0]]), int(book.turns.last_R[rows[-1]]) + 1
    group = Turns(book.turns.table.take(pa.array(book.turns.order_N[low:high])), where=book.turns.where)
    keys = ("reference", "success_above", "scorer", "cache")
    for alike in similarities(group, **{key: settings[key] for key in keys}):
        failed = alike.failed + low
        mine = book.turns.rollout_N[failed] == rollout
        if not mine.any():
            continue
        at, score_mV = failed[mine], alike.score_mV[:, mine]
        steps = []
        for column, row in enumerate(at.tolist()):
            place, visit = int(components["scpo_reference"][row]), int(components["scpo_order"][row])
            alike_here = float(score_mV[place, column]) if place >= 0 else float("nan")
            steps.append(Step(row, visit, place, alike_here, float(components["scpo_credit"][row])))
        steps.sort(key=lambda step: step.visit)
        return Walk(method, alike.reference + low, at, score_mV, float(settings["theta"]), steps)
    return None


def gate_words(components: Mapping[str, np.ndarray], row: int) -> str | None:
    """MGR's fusion (eq. 7) at a turn, in words; None for credits that are not MGR's."""
    if not {"validity", "local", "outcome", "gate", "reward_mgr"} <= set(components):
        return None
    local, outcome, gate = (float(components[name][row]) for name in ("local", "outcome", "gate"))
    if outcome == 0:
        return "all rollouts of the group ended alike: the outcome factor is 0"
    if local == 0:
        return "the local reward is 0"
    if (local > 0) == (outcome > 0):
        return "local reward and outcome agree: kept" if outcome > 0 else "failure and a bad turn: kept"
    if outcome > 0:
        return "success, but a bad turn: kept negative"
    return f"failure, but a good turn: the gate {'kept it positive' if gate > 0 else 'turned it negative'}"


def model_strips(book: Book, rollout: int) -> list[tuple[str, str, np.ndarray, str]]:
    """(method, what, numbers of the rollout's turns, the model's kind) for each output of each learned credit model."""
    rows = book.rows(rollout)
    out = []
    for method, outputs in book.values.items():
        for what, numbers_N in (("V", outputs.value_N), ("attention", outputs.weight_N)):
            if np.isfinite(numbers_N[rows]).any():
                out.append((method, what, numbers_N[rows], outputs.kind))
    return out
