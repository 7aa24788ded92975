"""HIPIF's four step penalties, as a step-reward shaper."""

from __future__ import annotations

import re

import numpy as np

from turncredit.credit.flat_grpo import FLAT_GRPO
from turncredit.credit.gigpo import GIGPO
from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Count, NonNegative, success_R
from turncredit.credit.parts.failed_turns import failed_N
from turncredit.data.turns import Turns

#: words of a subgoal that name no object or place
PLAIN = frozenset(
    re.findall(
        r"\w+",
        """
        all am an and another any are around as at back be been before by check clean close cool current do down each
        every examine find first for from get go goal grab has have he heat her his hold if in inside into is it its
        locate look make me move my near next no not of off on one open or other our out over pick place put reach room
        search second see slice so some step subgoal take task that the them then there these this to toggle turn two
        under until up us use using was wash we were which with you your
        """,
    )
)


def hipif(
    turns: Turns, *, penalty: NonNegative = 0.1, repeats: Count = 3, success_above: float | None = None
) -> dict[str, np.ndarray]:
    """r_t = r_gr + r_term + r_exec + r_fmt, each -penalty, added to the turn's own score and step return.

    r_gr     a new subgoal that names no object or place of the task, nor one seen so far in the rollout
    r_term   the last turn of a subgoal given up for another, if its action has `failed`; in successful rollouts only
    r_exec   the same action and observation for the `repeats`-th time (and after) within one subgoal
    r_fmt    a response without the required tags (`well_formed` false)

    With flat GRPO under `weighting="row"` this is S_t = R + r_t made relative to all decision steps of the group
    (eq. 8-9); with GiGPO it enters both terms. The penalty is in the reward's units: 0.1 goes with 10 for a success.

    Source: HIPIF, section 3.3, eq. 7-9, appendix B; its context starts with the task (section 3.1). Decided here: r_gr
    is charged where the subgoal starts and looks for any word of it, beyond function words and household verbs, among
    the words of the task and of the rollout's observations up to that turn; r_term is charged to the turn whose action
    drew the failure; the paper gives neither rule in full.

    Reads `subgoal` (text, empty for none), `subgoal_index` (its running number), `well_formed`, `action`,
    `observation`, `next_observation`, `failed` (`parts.failed_turns`); `success` (else a return above `success_above`)
    and `goal` (the task) where there are. Returns `r_grounding`, `r_termination`, `r_execution`, `r_format`,
    `score_bonus`, `step_bonus` (each N).
    """
    span_N = _span_N(turns)
    starts_N = np.diff(span_N, prepend=-1) != 0
    ends_N = turns.next_N(starts_N, False)
    won_N = success_R(turns, "hipif", success_above)[turns.rollout_N]
    subgoal_N, subgoals = turns.texts("subgoal", "hipif")
    has_subgoal_N = np.array([bool(text.strip()) for text in subgoals], dtype=bool)[subgoal_N]
    hits = {
        "r_grounding": _ungrounded_N(turns, starts_N, has_subgoal_N),
        "r_termination": failed_N(turns, "failed", "hipif") & ends_N & has_subgoal_N & won_N,
        "r_execution": _occurrences_N(turns, span_N) >= repeats,
        "r_format": ~turns.truths("well_formed", "hipif"),
    }
    columns = {name: np.where(hit_N, -penalty, 0.0) for name, hit_N in hits.items()}
    total_N = np.sum(list(columns.values()), axis=0)
    return {**columns, "score_bonus": total_N, "step_bonus": total_N.copy()}


def _span_N(turns: Turns) -> np.ndarray:
    """A number for each stretch of turns under one subgoal, rising with the rows."""
    index_N = turns.numbers("subgoal_index", "hipif")
    change_N = (turns.previous_N(index_N, 0) != index_N) | (turns.turn_N == 0)
    return np.cumsum(change_N) - 1


def _occurrences_N(turns: Turns, span_N: np.ndarray) -> np.ndarray:
    """How often the turn's action and observation have been seen in its span, this turn included."""
    action_N = turns.codes("action", "hipif")
    answer_N = turns.codes("next_observation", "hipif")
    pair_N = np.unique(action_N * (int(answer_N.max()) + 1) + answer_N, return_inverse=True)[1]
    key_N = span_N * (int(pair_N.max()) + 1) + pair_N
    by_key = np.argsort(key_N, kind="stable")
    starts = np.flatnonzero(np.diff(key_N[by_key], prepend=-1))
    count_N = np.empty(turns.n, dtype=np.int64)
    count_N[by_key] = np.arange(turns.n) - np.repeat(starts, np.diff(np.append(starts, turns.n))) + 1
    return count_N


def _ungrounded_N(turns: Turns, starts_N: np.ndarray, has_subgoal_N: np.ndarray) -> np.ndarray:
    subgoal_N, subgoals = turns.texts("subgoal", "hipif")
    named = [_words(text) - PLAIN for text in subgoals]
    observation_N, observations = turns.texts("observation", "hipif")
    relevant = set().union(*named)
    words_of = [_words(text) & relevant for text in observations]
    codes = observation_N.tolist()
    task_N, tasks = np.zeros(turns.n, dtype=np.int64), [""]
    if turns.has("goal"):
        task_N, tasks = turns.texts("goal", "hipif")
    asked_for = [_words(text) & relevant for text in tasks]
    out_N = np.zeros(turns.n, dtype=bool)
    observed: set[str] = set()
    before = 0
    for row in np.flatnonzero(starts_N).tolist():
        if turns.turn_N[row] == 0:
            observed, before = set(asked_for[task_N[row]]), row
        words = named[subgoal_N[row]]
        if not has_subgoal_N[row] or words & observed:
            continue
        for code in set(codes[before : row + 1]):
            observed |= words_of[code]
        before = row + 1
        out_N[row] = not words & observed
    return out_N


def _words(text: str) -> set[str]:
    """Words of two letters and more: a `cd` and a `tv` are objects. Numbers name no object by themselves."""
    return set(re.findall(r"[a-z]{2,}", text.lower()))


HIPIF = Part(
    "hipif",
    hipif,
    "shaper",
    reads=("subgoal", "subgoal_index", "well_formed", "observation", "action", "next_observation"),
    adds=("score_bonus", "step_bonus"),
)

PARTS = (HIPIF,)
METHODS = (
    Method(
        "hipif",
        "success plus HIPIF's penalties, over all turns of the group",
        FLAT_GRPO.with_params(weighting="row"),
        (HIPIF,),
    ),
    Method(
        "hipif_gigpo",
        "HIPIF's penalties in GiGPO's two terms",
        GIGPO.with_params(weighting="row"),
        (HIPIF,),
        family="hipif",
    ),
)
