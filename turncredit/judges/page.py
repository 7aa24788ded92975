"""One page: which roles turns play, per environment, method and round, from all labels in a results folder."""

from __future__ import annotations

import re
from pathlib import Path

import jinja2
import pandas as pd
import pyarrow as pa

from turncredit import tables
from turncredit.errors import UserError
from turncredit.judges.rubric import ROLE_NAMES, ROLES

#: of a labels file in a results folder, from the experiment's name on
_PLACE = re.compile(
    r"(?P<experiment>[^/]+)/(?:sft/rollouts/[^/]+/seed\d+|runs/(?P<method>[^/]+)/seed\d+/round(?P<round>\d\d)/rollouts)"
    r"/labels/[^/]+\.parquet$"
)
_BY = ["experiment", "env", "judge", "method", "round", "outcome"]
# Okabe-Ito, which colour-blind readers can tell apart; the letters stand in the bars as well.
_COLOURS = {"D": "#009E73", "E": "#56B4E9", "N": "#BBBBBB", "R": "#D55E00", "-": "#FFFFFF"}

_PAGE = jinja2.Template(
    """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Roles of turns</title>
<style>
  body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222;
         background: #fff }
  table { border-collapse: collapse; width: 100% }
  td, th { padding: .2rem .6rem; text-align: left; border-bottom: 1px solid #e5e5e5; white-space: nowrap }
  td.bar { width: 55% }
  .bar div { display: flex; height: 1.3rem; border: 1px solid #888 }
  .bar span { overflow: hidden; text-align: center; font-size: .8rem; line-height: 1.3rem; color: #000 }
  .key span { padding: 0 .5rem; margin-right: .8rem; border: 1px solid #888; color: #000 }
  .number { text-align: right }
</style>
<h1>Roles of turns</h1>
<p class="key">{% for role, name in names.items() %}
<span style="background:{{ colours[role] }}">{{ role }}</span>{{ name }} &ensp;{% endfor %}
<span>-</span>no label</p>
<p>Round 1 of all methods reads the rollouts of the SFT policy, shown as <i>sft</i>. Rollouts of all seeds together;
  the outcome is the rollout's.</p>
{% for (experiment, env, judge), rows in sections %}
<h2>{{ env }} <small>({{ experiment }}, judge {{ judge }})</small></h2>
<table><tr><th>method<th>round<th>outcome<th class="number">turns<th>share of each role</tr>
{% for row in rows %}<tr><td>{{ row.method }}<td>{{ row.round }}<td>{{ row.outcome }}<td class="number">{{ row.turns }}
<td class="bar"><div>{% for role in order %}{% if row[role] > 0 %}<span title="{{ names.get(role, 'no label') }}
 {{ '%.1f' % (100 * row[role]) }}%" style="width:{{ 100 * row[role] }}%;background:{{ colours[role] }}">{{ role
 }}{% if row[role] >= 0.08 %} {{ '%.0f' % (100 * row[role]) }}%{% endif %}</span>{% endif %}{% endfor %}</div></tr>
{% endfor %}</table>
{% endfor %}
</html>
""",
    autoescape=True,
)


def role_shares(results: str | Path) -> pa.Table:
    """Share of each role (columns D, E, N, R and `-` for missing labels) and the number of turns, one row for each
    experiment, environment, judge, method, round and outcome (`success`, `failure`, and `all`), over all seeds.

    Raises UserError where there are no role labels.
    """
    parts = [part for path in sorted(Path(results).rglob("labels/*.parquet")) if (part := _labelled(path)) is not None]
    if not parts:
        raise UserError(f"{results}: no role labels there; run a method that reads labels, or label with --ask role")
    rows = pd.concat(parts, ignore_index=True)
    both = pd.concat([rows, rows.assign(outcome="all")], ignore_index=True)
    counts = both.groupby([*_BY, "role"]).size().unstack(fill_value=0).reindex(columns=[*ROLES, "-"], fill_value=0)
    turns = counts.sum(axis=1)
    shares = counts.div(turns, axis=0).assign(turns=turns).reset_index()
    return pa.Table.from_pandas(shares, preserve_index=False)


def write_page(results: str | Path, out: str | Path) -> pa.Table:
    """Write the page of `role_shares` as one HTML file, and return them."""
    shares = role_shares(results)
    sections: dict[tuple[str, str, str], list[dict]] = {}
    for row in shares.to_pylist():
        sections.setdefault((row["experiment"], row["env"], row["judge"]), []).append(row)
    page = _PAGE.render(sections=sections.items(), names=ROLE_NAMES, colours=_COLOURS, order=[*ROLES, "-"])
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_text(page)
    return shares


def _labelled(path: Path) -> pd.DataFrame | None:
    """Roles with what the path and the turns beside them say; None for scores and for labels of something else."""
    found = _PLACE.search(path.resolve().as_posix())
    turns = path.parent.parent / "turns.parquet"
    if found is None or not turns.exists():
        return None
    labels = tables.read(path, "labels", columns=[*tables.KEYS, "judge", "role"]).to_pandas()
    if labels["role"].isna().all():
        return None
    told = tables.read(turns, "turns", columns=[*tables.KEYS, "env", "success"]).to_pandas()
    rows = labels.merge(told, on=list(tables.KEYS), how="inner", validate="one_to_one")
    return pd.DataFrame(
        {
            "experiment": found["experiment"],
            "env": rows["env"],
            "judge": rows["judge"],
            "method": found["method"] or "sft",
            "round": int(found["round"] or 1),
            "outcome": rows["success"].map({True: "success", False: "failure"}),
            "role": rows["role"].fillna("-"),
        }
    )
