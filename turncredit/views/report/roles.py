"""A page of the roles of turns by environment, method and round, from all labels in a results folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2
import pandas as pd
import pyarrow as pa

from turncredit.config.layout import Layout, Located
from turncredit.data import tables
from turncredit.data.files import write_text
from turncredit.judges.rubric import ROLE_NAMES, ROLES

_BY = ["experiment", "env", "judge", "policy", "round", "outcome"]
# Okabe-Ito colours, which colour-blind readers can tell apart; the letters are in the bars as well.
_COLOURS = {"D": "#009E73", "E": "#56B4E9", "N": "#BBBBBB", "R": "#D55E00", "-": "#F0E442"}

_PAGE = jinja2.Template(
    """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Roles of turns</title>
<style>
  :root { color-scheme: light dark; --paper: #fff; --ink: #1f2328; --muted: #59636e; --rule: #d8dee4 }
  @media (prefers-color-scheme: dark) {
    :root { --paper: #12161b; --ink: #e6e9ec; --muted: #9aa5b1; --rule: #303842 }
  }
  body { font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; max-width: 66rem; margin: 0 auto;
         padding: 2rem 1.4rem 4rem; color: var(--ink); background: var(--paper) }
  h2 { font-size: 1.15rem; margin: 2.4rem 0 .5rem }
  small, p { color: var(--muted) }
  .scroll { overflow-x: auto }
  table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .93rem }
  td, th { padding: .25rem .7rem; text-align: left; border-bottom: 1px solid var(--rule); white-space: nowrap }
  td.number, th.number { text-align: right }
  td.bar { width: 60%; min-width: 20rem }
  td.bar div { display: flex; height: 1.3rem }
  td.bar span { overflow: hidden; text-align: center; font-size: .8rem; line-height: 1.3rem; color: #000 }
  .key span { color: #000; padding: 0 .5rem; margin-right: .4rem }
</style>
<h1>Roles of turns</h1>
<p class="key">{% for role in order %}
<span style="background:{{ colours[role] }}">{{ role }}</span>{{ names[role] }} &ensp;
{% endfor %}</p>
<p>Shares over the rollouts of all seeds; the outcome is the rollout's, which the judge did not see. Round 1 is sampled
by the SFT policy, as <i>sft-(sampling settings)</i>, and shared by all methods with these settings.</p>
{% for (experiment, env, judge), rows in sections %}
<h2>{{ env }} <small>{{ experiment }}, judge {{ judge }}</small></h2>
<div class="scroll"><table>
<tr><th>policy<th>round<th>outcome<th class="number">turns<th>share of each role</tr>
{% for row in rows -%}
<tr><td>{{ row.policy }}<td>{{ row.round }}<td>{{ row.outcome }}<td class="number">{{ row.turns }}<td class="bar"><div>
{%- for role in order if row[role] > 0 -%}
<span title="{{ names[role] }}: {{ '%.1f' % (100 * row[role]) }}%"
 style="width:{{ 100 * row[role] }}%;background:{{ colours[role] }}">
{%- if row[role] >= 0.06 %}{{ role }} {{ '%.0f' % (100 * row[role]) }}%{% endif %}</span>
{%- endfor %}</div></tr>
{% endfor %}</table></div>
{% endfor %}
</html>
""",
    autoescape=True,
)


def role_shares(layouts: Sequence[Layout]) -> pa.Table:
    """Share of each role (columns D, E, N, R and `-` for missing labels) and the number of turns, one row for each
    experiment, environment, judge, policy, round and outcome (`success`, `failure`, and `all`), over all seeds.

    No rows, and no columns, without role labels.
    """
    files = ((layout, labels) for layout in layouts for labels in layout.find("labels", ask="role"))
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
    page = _PAGE.render(sections=sections.items(), names=names, colours=_COLOURS, order=[*ROLES, "-"])
    write_text(out, page)


def _labelled(layout: Layout, located: Located) -> pd.DataFrame | None:
    """A file of roles with its keys and columns of the turns; None for labels without any role."""
    labels = tables.read(located.path, "labels", columns=[*tables.KEYS, "role"]).to_pandas()
    if labels["role"].isna().all():
        return None
    turns = tables.read(layout.path("turns", located.keys), "turns", columns=[*tables.KEYS, "env", "success"])
    rows = labels.merge(turns.to_pandas(), on=list(tables.KEYS), how="inner", validate="one_to_one")
    return pd.DataFrame(
        {
            "experiment": layout.root.name,
            "env": rows["env"],
            "judge": located.keys["judge"],
            "policy": located.keys["policy"],
            "round": located.keys["round"],
            "outcome": rows["success"].map({True: "success", False: "failure"}),
            "role": rows["role"].fillna("-"),
        }
    )
