"""The order and the groups of methods in the report's tables: the largest effect first, bounds separate."""

from __future__ import annotations

from collections.abc import Mapping

from turncredit.config import Experiment
from turncredit.credit.catalogue import find
from turncredit.credit.compose import Role
from turncredit.errors import UserError
from turncredit.layout import SFT
from turncredit.results.collect import Results
from turncredit.stats.intervals import Estimate

#: group -> its heading, if a table has several
GROUPS = {
    "start": "",
    "methods": "methods",
    "variants": "variants and ablations",
    "rails": "lower and upper bounds, to test the set-up",
}
_GROUP_OF_ROLE: dict[Role, str] = {"method": "methods", "variant": "variants", "bound": "rails"}


def group_of(experiment: Experiment, name: str) -> str:
    """The group of the method `name`: a definition with another name than its base is a variant of it."""
    if name == SFT:
        return "start"
    entry = experiment.define.get(name)
    if entry is None or entry.base is None:
        return "methods" if entry else _GROUP_OF_ROLE[_role(name)]
    role = _role(entry.base)
    return "variants" if role == "method" and entry.base != name else _GROUP_OF_ROLE[role]


def ordered(results: Results, effect: Mapping[str, Estimate], names: list[str]) -> dict[str, list[str]]:
    """`names` by group, the largest effect first; without an effect (the baseline's is 0), in their own order, last."""
    out: dict[str, list[str]] = {}
    for group in GROUPS:
        mine = [name for name in names if group_of(results.experiment, name) == group]
        if mine:
            out[group] = sorted(mine, key=lambda name: -effect[name].value if name in effect else float("inf"))
    return out


def _role(name: str) -> Role:
    """The role of a method; one whose package is no longer installed counts as `method`."""
    try:
        return find(name).role
    except UserError:
        return "method"
