"""A page of the roles of turns by environment, method and round, from all labels in a results folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from jinja2 import Environment, PackageLoader

from turncredit.config.layout import Layout, Located
from turncredit.data import tables
from turncredit.data.files import write_text
from turncredit.data.turns import SideTable, Turns
from turncredit.judges.rubric import ROLE_NAMES, ROLES

_BY = ["experiment", "env", "judge", "policy", "round", "outcome"]
# Okabe-Ito colours, which colour-blind readers can tell apart; the letters are in the bars as well.
_COLOURS = {"D": "#009E73", "E": "#56B4E9", "N": "#BBBBBB", "R": "#D55E00", "-": "#F0E442"}


def role_shares(layouts: Sequence[Layout]) -> pa.Table:
    """Share of each role (columns D, E, N, R and `-` for missing labels) and the number of turns, one row for each
    experiment, environment, judge, policy, round and outcome (`success`, `failure`, and `all`), over all seeds.

    No rows, and no columns, without role labels.
    """
    files = ((layout, labels) for layout in layouts for labels in layout.find("labels", question="role"))
    parts = [part for layout, labels in files if (part := _labelled(layout, labels)) is not None]
    if not parts:
        return pa.table({})
    rows = pd.concat(parts, ignore_index=True)
    both = pd.concat([rows, rows.assign(outcome="all")], ignore_index=True)
    counts = both.groupby([*_BY, "role"]).size().unstack(fill_value=0).reindex(columns=[*ROLES, "-"], fill_value=0)
    turns = counts.sum(axis=1)
    shares = counts.div(turns, axis=0).assign(turns=turns).reset_index()
    return pa.Table.from_pandas(shares, preserve_index=False)


def write_page(shares: pa.Table, out: str | Path) -> None:
    """Write `role_shares` as a page, one HTML file."""
    sections: dict[tuple[str, str, str], list[dict]] = {}
    for row in shares.to_pylist():
        sections.setdefault((row["experiment"], row["env"], row["judge"]), []).append(row)
    names = {**ROLE_NAMES, "-": "no label"}
    environment = Environment(loader=PackageLoader("turncredit.views.report"), autoescape=True)
    page = environment.get_template("roles.html.j2")
    write_text(out, page.render(sections=sections.items(), names=names, colours=_COLOURS, order=[*ROLES, "-"]))


def _labelled(layout: Layout, located: Located) -> pd.DataFrame | None:
    """A file of roles with its keys and columns of the turns; None for labels without any role."""
    labels = tables.read(located.path, "labels", columns=[*tables.KEYS, "role"])
    if labels.column("role").null_count == labels.num_rows:
        return None
    columns = [*tables.KEYS, "reward", "env", "success"]
    turns = Turns(tables.read(layout.path("turns", located.keys), "turns", columns=columns))
    side = SideTable(turns, labels, str(located.path), partial=True)
    success_N, role_N = turns.truths("success"), side.column("role", nulls=True)
    return pd.DataFrame(
        {
            "experiment": layout.root.name,
            "env": turns.column("env")[side.has_N],
            **{key: located.keys[key] for key in ("judge", "policy", "round")},
            "outcome": np.where(success_N, "success", "failure")[side.has_N],
            "role": [role or "-" for role in role_N[side.has_N]],
        }
    )
