"""The parts and the named methods. A new method is a file with its function, a part, and an entry here."""

from __future__ import annotations

from turncredit.credit.compose import Method, Part
from turncredit.credit.empg import empg
from turncredit.credit.flat_grpo import flat_grpo
from turncredit.credit.gigpo import gigpo
from turncredit.credit.has import judged, progressive
from turncredit.credit.hgpo import hgpo
from turncredit.credit.hipif import hipif
from turncredit.credit.invalid_penalty import invalid_penalty
from turncredit.credit.mgr import mgr, mgr_reward
from turncredit.credit.ppo import ppo
from turncredit.credit.rails import oracle_progress, random_credit
from turncredit.credit.reinforce_pp import reinforce_pp
from turncredit.credit.rloo import rloo
from turncredit.credit.scpo import scpo
from turncredit.credit.step_grpo import step_grpo
from turncredit.credit.triage import triage, triage_scalar
from turncredit.credit.turn_value import turn_value
from turncredit.credit.turnrd import turnrd
from turncredit.credit.value_baseline import value_baseline
from turncredit.credit.whiten import rms, whiten

_step_texts = ("action", "next_observation")
_subgoals = ("subgoal", "subgoal_index", "well_formed", "observation", *_step_texts)

SHAPERS: dict[str, Part] = {
    "invalid_penalty": Part(
        "invalid_penalty", invalid_penalty, "shaper", reads=("valid",), adds=("score_bonus", "step_bonus")
    ),
    "scpo": Part("scpo", scpo, "shaper", reads=_step_texts, adds=("step_bonus",)),
    "hipif": Part("hipif", hipif, "shaper", reads=_subgoals, adds=("score_bonus", "step_bonus")),
}

ESTIMATORS: dict[str, Part] = {
    "flat_grpo": Part("flat_grpo", flat_grpo, "estimator"),
    "rloo": Part("rloo", rloo, "estimator"),
    "reinforce_pp": Part("reinforce_pp", reinforce_pp, "estimator"),
    "ppo": Part("ppo", ppo, "estimator", needs=("values",), model="critic"),
    "gigpo": Part("gigpo", gigpo, "estimator", reads=("observation",)),
    "hgpo": Part("hgpo", hgpo, "estimator", reads=("observation",)),
    "step_grpo": Part("step_grpo", step_grpo, "estimator"),
    "mgr": Part("mgr", mgr, "estimator", reads=_step_texts, needs=("values",), model="critic"),
    "mgr_reward": Part("mgr_reward", mgr_reward, "estimator", reads=_step_texts),
    "turn_value": Part("turn_value", turn_value, "estimator", needs=("values",), model="turn_value"),
}

TURN_TERMS: dict[str, Part] = {
    "has_progressive": Part(
        "has_progressive",
        progressive,
        "turn_term",
        reads=("progress_before", "progress"),
        requires=("progress",),
    ),
    "has_judge": Part("has_judge", judged, "turn_term", needs=("labels",)),
    "has_turnrd": Part("has_turnrd", turnrd, "turn_term", needs=("values",), model="turnrd"),
    "has_turnrd_film": Part("has_turnrd_film", turnrd, "turn_term", needs=("values",), model="turnrd_film"),
    "triage": Part("triage", triage, "turn_term", needs=("labels",)),
    "triage_scalar": Part("triage_scalar", triage_scalar, "turn_term", needs=("labels",)),
    "value_baseline": Part("value_baseline", value_baseline, "turn_term", needs=("values",), model="value_head"),
    "empg": Part("empg", empg, "turn_term", reads=("response_logprobs",)),
    "random_credit": Part("random_credit", random_credit, "turn_term"),
    "oracle_progress": Part(
        "oracle_progress",
        oracle_progress,
        "turn_term",
        reads=("distance_before", "distance"),
        requires=("distance",),
    ),
}

NORMALISERS: dict[str, Part] = {
    "whiten": Part("whiten", whiten, "normaliser"),
    "rms": Part("rms", rms, "normaliser"),
}


def _method(
    name: str,
    summary: str,
    *,
    shapers: tuple[Part, ...] = (),
    estimator: str = "flat_grpo",
    turn_term: Part | str | None = None,
    normaliser: str | None = None,
    **params: object,
) -> Method:
    """A composition by the names of its parts; `params` are set in its estimator."""
    return Method(
        name,
        summary,
        ESTIMATORS[estimator].with_params(**params),
        shapers,
        TURN_TERMS[turn_term] if isinstance(turn_term, str) else turn_term,
        NORMALISERS[normaliser] if normaliser else None,
    )


_scpo, _hipif, _triage = SHAPERS["scpo"], SHAPERS["hipif"], TURN_TERMS["triage"]

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        _method("flat_grpo", "the rollout's return relative to its group, on every turn"),
        _method("rloo", "the rollout's return minus the mean of its siblings, on every turn", estimator="rloo"),
        _method("reinforce_pp", "centred in the group, whitened over the batch", estimator="reinforce_pp"),
        _method("ppo", "GAE on a critic's value of each turn", estimator="ppo", normaliser="whiten"),
        _method("gigpo", "flat GRPO plus a comparison of turns that saw the same state", estimator="gigpo"),
        _method(
            "gigpo_similar",
            "GiGPO with states that are nearly the same text counted as one",
            estimator="gigpo",
            anchors="similar",
        ),
        _method("hgpo", "turns compared at equal last one, two and three observations", estimator="hgpo"),
        _method("step_grpo", "each turn's return to go relative to all turns of its group", estimator="step_grpo"),
        _method("empg", "flat GRPO scaled by the policy's certainty", turn_term="empg"),
        _method(
            "has_progressive", "flat GRPO blended with the environment's own progress", turn_term="has_progressive"
        ),
        _method("has_judge", "flat GRPO blended with a judge's score of each turn", turn_term="has_judge"),
        _method("has_turnrd", "flat GRPO blended with TurnRD's learned credit", turn_term="has_turnrd"),
        _method(
            "has_turnrd_film",
            "the same with TurnRD conditioned on the goal (FiLM)",
            turn_term="has_turnrd_film",
        ),
        _method(
            "scpo",
            "GiGPO, with failed turns credited for a successful sibling's progress",
            estimator="gigpo",
            shapers=(_scpo,),
        ),
        _method("scpo_grpo", "the same credit on step-level GRPO", estimator="step_grpo", shapers=(_scpo,)),
        _method(
            "scpo_chronological",
            "SCPO's ablation: turns matched in their order in time",
            estimator="gigpo",
            shapers=(_scpo.with_params(order="chronological"),),
        ),
        _method(
            "scpo_repeat",
            "SCPO's ablation: a reference position may be credited again",
            estimator="gigpo",
            shapers=(_scpo.with_params(repeat=True),),
        ),
        _method(
            "scpo_shortest",
            "SCPO's ablation: the shortest success as reference",
            estimator="gigpo",
            shapers=(_scpo.with_params(reference="shortest"),),
        ),
        _method("triage", "flat GRPO plus a credit for each turn's role", turn_term="triage", normaliser="whiten"),
        _method(
            "triage_scalar",
            "TRIAGE's comparator: a judge's progress score, no roles",
            turn_term="triage_scalar",
            normaliser="whiten",
        ),
        _method(
            "triage_no_regression",
            "TRIAGE without its penalty for regressions",
            turn_term=_triage.with_params(regression=0.0),
            normaliser="whiten",
        ),
        _method(
            "triage_no_exploration",
            "TRIAGE without its bonus for exploration",
            turn_term=_triage.with_params(exploration=0.0),
            normaliser="whiten",
        ),
        _method(
            "value_baseline",
            "TRIAGE's comparator: flat GRPO plus increments of a value head",
            turn_term="value_baseline",
            normaliser="whiten",
        ),
        _method(
            "mgr", "validity's sign times the outcome's size, with critic and GAE", estimator="mgr", normaliser="whiten"
        ),
        _method(
            "mgr_no_gate",
            "MGR's ablation: valid turns of failed rollouts always keep their sign",
            estimator="mgr",
            normaliser="whiten",
            gate="keep",
        ),
        _method(
            "mgr_no_repetition",
            "MGR's ablation: no penalty for repeating an action",
            estimator="mgr",
            normaliser="whiten",
            repetition=0.0,
        ),
        _method("mgr_no_critic", "MGR's ablation: its reward is the advantage", estimator="mgr_reward"),
        _method(
            "turn_value", "GAE on a causal value of the policy's hidden state", estimator="turn_value", normaliser="rms"
        ),
        _method(
            "hipif", "success plus HIPIF's penalties, over all turns of the group", shapers=(_hipif,), weighting="row"
        ),
        _method("hipif_gigpo", "HIPIF's penalties in GiGPO's two terms", estimator="gigpo", shapers=(_hipif,)),
        _method("random_credit", "lower rail: flat GRPO blended with noise", turn_term="random_credit"),
        _method(
            "oracle_progress",
            "upper rail: the decrease of the simulator's exact distance to the goal",
            turn_term="oracle_progress",
        ),
    )
}
