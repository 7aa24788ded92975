"""In which order and in which groups the report's tables name the methods: the largest effect first, rails apart."""

from __future__ import annotations

from collections.abc import Mapping

from turncredit.config import Experiment
from turncredit.layout import SFT
from turncredit.results.collect import Results
from turncredit.stats.intervals import LOWER, UPPER, Estimate

#: group -> its heading where a table has several
GROUPS = {
    "start": "",
    "methods": "methods",
    "variants": "variants and ablations",
    "rails": "rails: not methods, they test the set-up",
}
#: Built-in methods that a paper, or this project, made to take another method apart.
VARIANTS = frozenset(
    {
        "gigpo_similar",
        "scpo_grpo",
        "scpo_chronological",
        "scpo_repeat",
        "scpo_shortest",
        "triage_scalar",
        "triage_no_regression",
        "triage_no_exploration",
        "mgr_no_gate",
        "mgr_no_repetition",
        "mgr_no_critic",
    }
)


def group_of(experiment: Experiment, name: str) -> str:
    """The group that the method `name` is shown in: a definition under another name than its base is its variant."""
    if name == SFT:
        return "start"
    entry = experiment.define.get(name)
    base = name if entry is None or entry.base is None else entry.base
    if base in (UPPER, LOWER):
        return "rails"
    return "variants" if base != name or base in VARIANTS else "methods"


def ordered(results: Results, effect: Mapping[str, Estimate], names: list[str]) -> dict[str, list[str]]:
    """`names` by group, the largest effect first; without an effect (the baseline's is 0), in their own order, last."""
    out: dict[str, list[str]] = {}
    for group in GROUPS:
        mine = [name for name in names if group_of(results.experiment, name) == group]
        if mine:
            out[group] = sorted(mine, key=lambda name: -effect[name].value if name in effect else float("inf"))
    return out
