"""The order and the groups of methods in the report's tables: the largest effect first, references separate; and the
families of methods that are counted as one comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turncredit.config import Experiment
from turncredit.config.warm_starts import is_start
from turncredit.credit.parts.compose import Role
from turncredit.credit.parts.lookup import find
from turncredit.errors import UserError
from turncredit.stats.intervals import Estimate
from turncredit.stats.levels import holm
from turncredit.views.collect import Results

#: group -> its heading, if a table has several
GROUPS = {
    "start": "",
    "methods": "methods",
    "variants": "variants and ablations",
    "references": "noise and the privileged reference, to test the set-up",
}
_GROUP_OF_ROLE: dict[Role, str] = {"method": "methods", "variant": "variants", "reference": "references"}


def group_of(experiment: Experiment, name: str) -> str:
    """The group of the method `name`: a definition with another name than its base is a variant of it, and so are
    further settings of a function of one's own."""
    if is_start(name):
        return "start"
    entry = experiment.define.get(name)
    if entry is None:
        return _GROUP_OF_ROLE[_role(name)]
    if entry.base is None:
        return "methods" if family_of(experiment, name) == name else "variants"
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


def family_of(experiment: Experiment, name: str) -> str:
    """The method that stands for `name` where variants are counted once.

    A definition belongs to its base's family; settings of one function of one's own are one family, named after the
    first of them.
    """
    entry = experiment.define.get(name)
    if entry is not None and entry.credit is not None:
        return next(first for first, other in experiment.define.items() if other.credit == entry.credit)
    base = name if entry is None or entry.base is None else entry.base
    try:
        return find(base).family or base
    except UserError:
        return base


def standing_for(experiment: Experiment, names: Sequence[str]) -> dict[str, str]:
    """The method of `names` that stands for each family: the one with the family's name, or else the first."""
    out: dict[str, str] = {}
    for name in names:
        family = family_of(experiment, name)
        if name == family or family not in out:
            out[family] = name
    return out


@dataclass(frozen=True)
class Corrected:
    """Corrected p-values of the differences to the baseline, NaN where there is none yet; the references are not in it.

    families    for the method that stands for its family: Holm over the families, each counted once
    variants    for the other methods of families: Holm among all of these, apart from the families
    family_of   the family of each of these methods
    """

    families: dict[str, float]
    variants: dict[str, float]
    family_of: dict[str, str]

    @property
    def all(self) -> dict[str, float]:
        """The p-values of families and variants together."""
        return {**self.families, **self.variants}


def corrected(experiment: Experiment, baseline: str, p_values: Mapping[str, float]) -> Corrected:
    """The p-values of methods against `baseline`, in the configuration's order, corrected by family. No references.

    One method stands for its family, and is fixed in advance: a family then costs one comparison however many variants
    it has, and a lucky or harmful variant does not count for the family. The other variants are a question of their
    own, such as which part of a method matters, and are corrected together, with the variants of the baseline.

    All trained methods of the configuration count, also those without a p-value: neither who stands for a family nor
    the number of comparisons depends on which runs have finished. A method beyond the configuration stands for its
    family only if that has no other.
    """
    tested, further = (
        [name for name in names if name != baseline and group_of(experiment, name) != "references"]
        for names in (experiment.trained(), [name for name in p_values if name not in experiment.methods])
    )
    standing = {**standing_for(experiment, further), **standing_for(experiment, tested)}
    heads = {name for family, name in standing.items() if family != family_of(experiment, baseline)}
    tested += further
    p_of = {name: p_values.get(name, float("nan")) for name in tested}
    return Corrected(
        holm({name: p for name, p in p_of.items() if name in heads}),
        holm({name: p for name, p in p_of.items() if name not in heads}),
        {name: family_of(experiment, name) for name in tested},
    )


def _role(name: str) -> Role:
    """The role of a method; one whose package is no longer installed counts as `method`."""
    try:
        return find(name).role
    except UserError:
        return "method"
