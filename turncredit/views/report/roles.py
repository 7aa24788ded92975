"""A page of the roles of turns by environment, method and round, from all labels in a results folder."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from jinja2 import Environment, PackageLoader

from turncredit.config.layout import Layout, Located
from turncredit.data import tables
from turncredit.data.files import write_text
from turncredit.data.turns import SideTable, Turns
from turncredit.judges.rubric import ROLE_NAMES, ROLES

# Okabe-Ito colours, which colour-blind readers can tell apart; the letters are in the bars as well.
_COLOURS = {"D": "#009E73", "E": "#56B4E9", "N": "#BBBBBB", "R": "#D55E00", "-": "#F0E442"}


class _Key(NamedTuple):
    experiment: str
    env: str
    judge: str
    policy: str
    round: int
    outcome: str


def role_shares(layouts: Sequence[Layout]) -> pa.Table:
    """Share of each role (columns D, E, N, R and `-` for missing labels) and the number of turns, one row for each
    experiment, environment, judge, policy, round and outcome (`success`, `failure`, and `all`), over all seeds.

    No rows, and no columns, without role labels.
    """
    counts: defaultdict[_Key, Counter[str]] = defaultdict(Counter)
    for layout in layouts:
        for labels in layout.find("labels", question="role"):
            for key, roles in _labelled(layout, labels).items():
                counts[key] += roles
                counts[key._replace(outcome="all")] += roles
    return pa.Table.from_pylist(
        [
            {**key._asdict(), **{role: of[role] / of.total() for role in _COLOURS}, "turns": of.total()}
            for key, of in sorted(counts.items())
        ]
    )


def write_page(shares: pa.Table, out: str | Path) -> None:
    """Write `role_shares` as a page, one HTML file."""
    sections: dict[tuple[str, str, str], list[dict]] = {}
    for row in shares.to_pylist():
        sections.setdefault((row["experiment"], row["env"], row["judge"]), []).append(row)
    names = {**ROLE_NAMES, "-": "no label"}
    environment = Environment(loader=PackageLoader("turncredit.views.report"), autoescape=True)
    page = environment.get_template("roles.html.j2")
    write_text(out, page.render(sections=sections.items(), names=names, colours=_COLOURS, order=[*ROLES, "-"]))


def _labelled(layout: Layout, located: Located) -> dict[_Key, Counter[str]]:
    """How often a file of labels has each role, by its keys and columns of the turns; empty without any role."""
    labels = tables.read(located.path, "labels", columns=[*tables.KEYS, "role"])
    counts: defaultdict[_Key, Counter[str]] = defaultdict(Counter)
    if labels.column("role").null_count == labels.num_rows:
        return counts
    columns = [*tables.KEYS, "reward", "env", "success"]
    turns = Turns(tables.read(layout.path("turns", located.keys), "turns", columns=columns))
    side = SideTable(turns, labels, str(located.path), partial=True)
    judge, policy, round = (located.keys[key] for key in ("judge", "policy", "round"))
    columns_N = (turns.column("env"), turns.truths("success"), side.column("role", nulls=True))
    for env, success, role in zip(*(column_N[side.has_N] for column_N in columns_N), strict=True):
        key = _Key(layout.root.name, env, str(judge), str(policy), int(round), "success" if success else "failure")
        counts[key][role or "-"] += 1
    return counts
