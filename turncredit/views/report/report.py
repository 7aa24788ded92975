"""The report of an experiment: one self-contained HTML page, and its numbers as a table.

Every number on the page has the SQL and the files that it comes from; `summary.parquet` contains them all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.table import Table

from turncredit.config import Experiment
from turncredit.config.layout import Layout
from turncredit.config.warm_starts import is_start
from turncredit.credit.parts.baselines import BASELINE, NOT_COMPARED
from turncredit.data import provenance, tables
from turncredit.data.files import new_file, write_text
from turncredit.stats import intervals
from turncredit.views.collect import Results, collect
from turncredit.views.redact import redacted
from turncredit.views.report import figures
from turncredit.views.report.contexts import READ, context_curves
from turncredit.views.report.fidelity_grids import CEILING
from turncredit.views.report.grid import Grid, Number, summary_table
from turncredit.views.report.ordering import GROUPS
from turncredit.views.report.outcomes import own_games
from turncredit.views.report.roles import role_shares, write_page
from turncredit.views.report.selection import sampler
from turncredit.views.report.summary import Summary, summarise
from turncredit.views.sql import write_csv

#: Methods whose agreement with ground truth the terminal names.
NAMED = 6
#: What `report` may write into its folder.
FILES = ("index.html", "summary.parquet", "summary.csv", "learning_curves.svg", "learning_curves.png", "roles.html")


def report(
    *, experiment: Experiment, results: str | Path, out: str | Path, make_layout: Callable[[Path], Layout] = Layout
) -> dict[str, float]:
    """Write `index.html`, `summary.parquet`, `summary.csv`; once a run is evaluated, or where there is none to train,
    `learning_curves.svg/.png`; and `roles.html` if a judge assigned roles.

    `results` is the folder results/<experiment>. All existing runs are reported, and missing ones are listed. Raises
    UserError if there is no evaluation at all, TableError for a damaged table. `make_layout` makes the folder's layout,
    which says which artifacts are looked at.
    """
    out = Path(out)
    summary = summarise(collect(results, experiment, make_layout))
    table = summary_table(summary.grids)
    pictures = _pictures(summary)
    shares = role_shares([summary.results.layout])
    roles = "roles.html" if shares.num_rows else None
    page = render(summary, pictures, links(summary.results, out), roles)

    if roles:
        write_page(shares, out / roles)
    write_text(out / "index.html", page)
    made_by = provenance.record("report", config=redacted(experiment.model_dump(mode="json")))
    tables.write(table, out / "summary.parquet", "summary", made_by)
    with new_file(out / "summary.csv") as part, part.open("w", encoding="utf-8", newline="") as handle:
        write_csv(table, handle)
    if "curves" in pictures or not experiment.runs():
        curves = _curves(summary, title="Success on held-out games", ylabel=_bands(summary.results))
        write_text(out / "learning_curves.svg", figures.standalone_svg(curves, "curves"))
        with new_file(out / "learning_curves.png") as part:
            curves.savefig(part, format="png", dpi=160, facecolor=figures.PAPER)
    apart = {"apart": 1.0, "cannot": 0.0}.get(summary.verdict.state)
    return {
        "numbers": float(table.num_rows),
        "runs": float(len(summary.results.runs)),
        "finished": float(summary.results.runs["finished"].sum()),
        **({} if apart is None else {"tells_apart": apart}),
        **({} if summary.holds.all is None else {"invariants_hold": float(summary.holds.all)}),
    }


def links(results: Results, out: Path) -> list[tuple[str, str]]:
    """(words, address from `out`) of the credit pages' indexes."""
    addresses = []
    for page in sorted(results.pages, key=lambda page: (page.keys["round"], page.keys["policy"], page.keys["seed"])):
        policy, seed, round_ = (page.keys[key] for key in ("policy", "seed", "round"))
        words = f"rollouts of {sampler(str(policy))}, seed {seed}, round {round_}"
        addresses.append((words, os.path.relpath(page.path, out.resolve())))
    return addresses


def _bands(results: Results) -> str:
    """The meaning of bands and lines, for the figure without the page's caption."""
    own = "; each round has its own games" if results.experiment.eval.fresh else ""
    if results.runs["seed"].nunique() > 1:
        return f"bands: 95%, over seeds and games; thin lines: single seeds{own}"
    return f"bands: 95%, over games (one seed){own}"


def _is_start(rows: pd.DataFrame) -> pd.Series:
    """Which rows are about a warm start."""
    return rows["method"].map(is_start).astype(bool)


def _curves(summary: Summary, *, title: str | None = None, ylabel: str = "success on held-out games") -> figures.Figure:
    """Held-out success by round."""
    results, points = summary.results, summary.points
    primary = results.evals[results.evals["mode"] == results.experiment.eval.primary]
    of_start, at_zero = _is_start(points), points["round"] == 0
    base, levels, trained = points[of_start & at_zero], points[of_start & ~at_zero], points[~of_start]
    if len(base) > 1 and len(trained):  # several agents: no level for all, but every line begins with its own
        starts = {method: results.experiment.start_of(method) for method in trained["method"].unique()}
        begun = [base[base["method"] == start].assign(method=method) for method, start in starts.items()]
        trained, base, levels = pd.concat([*begun, trained], ignore_index=True), base.iloc[:0], None
    return figures.learning_curves(
        base if trained.empty else trained,
        intervals.rates(primary[~_is_start(primary)], ["method", "seed", "round"]),
        None if base.empty else base.iloc[0].to_dict(),
        methods=[method for method in results.methods if method in set(points["method"])],
        ylabel=ylabel,
        title=title,
        levels=None if trained.empty else levels,
    )


def _training_curves(results: Results) -> figures.Figure:
    """Training success by round; round 1 is the SFT policy, shared by all methods with the same sampling settings."""
    frame = results.training
    pooled = frame.groupby(["method", "round"], as_index=False)[["rollouts", "successes"]].sum()
    pooled["success"] = pooled["successes"] / pooled["rollouts"]
    pooled["low"], pooled["high"] = intervals.wilson(pooled["successes"].to_numpy(), pooled["rollouts"].to_numpy())
    seeds = frame.assign(success=frame["successes"] / frame["rollouts"])
    return figures.learning_curves(
        pooled,
        seeds,
        None,
        methods=[method for method in results.methods if method in set(frame["method"])],
        ylabel="success of the training rollouts",
    )


def _pictures(summary: Summary) -> dict[str, str]:
    """The page's figures by name; empty ones are left out."""
    results, against = summary.results, summary.baseline
    everyone = list(dict.fromkeys([*results.methods, *(name for names in summary.order.values() for name in names)]))
    out: dict[str, str] = {}

    def draw(name: str, figure: figures.Figure, label: str) -> None:
        out[name.replace("-", "_")] = figures.page_svg(figure, name, label)

    if (~_is_start(summary.points)).any():
        draw("curves", _curves(summary), "Learning curves: held-out success by round and method")
    if summary.differences:
        forest = figures.differences(summary.differences, against=against, methods=everyone)
        draw("differences", forest, f"Paired differences to {against}")
    if len(results.training):
        draw("training", _training_curves(results), "Training success by round and method")
    out |= _context_pictures(summary)
    for grid in summary.sections["fidelity"][:1]:
        ranks, ceiling = rank_correlations(grid)
        shown = [(name, cell) for name, cell in ranks if not np.isnan(cell.value)]
        if shown:
            dots = figures.fidelity(shown, ceiling, methods=everyone)
            draw("fidelity", dots, "Rank correlation of each method's credit with the truth")
    for prediction in summary.predictions:
        points = figures.scatter(prediction.points, label=prediction.label, against=against, methods=everyone)
        draw(f"predicts-{prediction.name}", points, f"Gain after training against {prediction.label} in round 1")
    return out


def rank_correlations(grid: Grid) -> tuple[list[tuple[str, Number]], Number | None]:
    """The methods' rank correlations with A*, the largest first, and the noise ceiling."""
    cells = {name: cell for name, row in grid.rows.items() if isinstance(cell := row.get("rank_correlation"), Number)}
    ceiling = cells.pop(CEILING, None)
    return sorted(cells.items(), key=lambda row: -np.nan_to_num(row[1].value, nan=-2.0)), ceiling


def _context_pictures(summary: Summary) -> dict[str, str]:
    """Turns and input tokens of a rollout, and context tokens turn by turn, of the methods with finished seeds."""
    results, contexts = summary.results, summary.contexts
    rows = next((grid.rows for grid in summary.sections["contexts"] if grid.name == "contexts"), {})
    if contexts is None or not rows:
        return {}
    panels = [
        (
            column.heading,
            [(name, cell) for name, row in rows.items() if isinstance(cell := row.get(column.key), Number)],
        )
        for column in (one.column for one in READ if one.column.key in ("turns", "context", "prefilled"))
    ]
    shown = [method for method in results.methods if method in rows]
    lines = context_curves(contexts, {method: results.finished_seeds(method) for method in shown})
    rollout = figures.per_rollout(panels, methods=results.methods)
    turns = figures.context_tokens(lines, methods=shown)
    return {
        "rollout": figures.page_svg(rollout, "rollout", "Turns, context tokens and new tokens of a rollout, by method"),
        "context": figures.page_svg(turns, "context", "Context tokens turn by turn, by method"),
    }


def _grouped(summary: Summary, grid: Grid) -> list[tuple[str, list[str]]]:
    """A grid's rows under the headings of their groups; without headings if there is only one group of methods."""
    of = {name: group for group, names in summary.order.items() for name in names}
    groups: dict[str, list[str]] = {}
    for name in grid.rows:
        groups.setdefault(of.get(name, "start"), []).append(name)
    several = len(set(groups) - {"start"}) > 1
    return [(GROUPS[group] if several else "", names) for group, names in groups.items()]


def render(
    summary: Summary, pictures: dict[str, str], pages: Sequence[tuple[str, str]] = (), roles: str | None = None
) -> str:
    """The page as HTML. `pages`: words and addresses of credit pages; `roles`: the page of a judge's roles."""
    environment = Environment(
        loader=PackageLoader("turncredit.views.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    numbers: list[dict] = []

    def cite(grid: Grid, row: str, column: str, number: Number) -> int:
        """Record the source of a number; returns its index in the page's list."""
        facts = {"value": number.text, "interval": number.interval, "n": number.n, "note": number.note}
        numbers.append({"name": f"{grid.title} / {row} / {column}", **facts, "path": number.path, "sql": number.sql})
        return len(numbers) - 1

    return environment.get_template("report.html.j2").render(
        summary=summary,
        experiment=summary.results.experiment,
        configuration=redacted(summary.results.experiment.model_dump(mode="json")),
        facts=_facts(summary.results),
        own_games=own_games(summary.results),
        agreement=agreement_line(summary),
        pictures=pictures,
        panels=BASELINE in summary.results.methods and len(summary.results.methods) > figures.MOST_IN_ONE,
        is_number=lambda cell: isinstance(cell, Number),
        grouped=lambda grid: _grouped(summary, grid),
        cite=cite,
        pages=pages,
        roles=roles,
        numbers=numbers,
        code=provenance.code_version(),
    )


def _facts(results: Results) -> list[tuple[str, str]]:
    """A short description of the experiment, for the head of the page."""
    experiment, rollout = results.experiment, results.experiment.rollout
    new = ", new ones every round" if experiment.eval.fresh else ""
    return [
        ("environment", experiment.env.name),
        ("policy", experiment.policy.source),
        ("seeds", ", ".join(str(seed) for seed in experiment.seeds)),
        ("rounds", f"{experiment.rounds}, of {rollout.tasks} groups x {rollout.group_size} rollouts"),
        ("held-out games", f"{experiment.eval.games} a round{new}"),
    ]


def print_table(results: str | Path, make_layout: Callable[[Path], Layout] = Layout) -> None:
    """Print the result in words, the final table and the verdict to the terminal (plain text if it is not one)."""
    from turncredit.views import terminal

    summary = summarise(collect(results, make_layout=make_layout))
    without, missing = (f"{'; '.join(lines)}." if lines else "" for lines in (summary.without_credit, summary.missing))
    lines = [
        summary.headline,
        final_table(summary),
        *(summary.comparisons, summary.verdict.words, summary.verdict.next, summary.holds.words),
        agreement_line(summary),
        without and f"No credit to learn from: {without}",
        missing and f"Missing: {missing}",
        summary.left_out and f"Left out: {summary.left_out}.",
    ]
    screen = terminal.console()
    for line in filter(None, lines):
        if isinstance(line, Table):
            terminal.print_table(line, screen)
        else:
            screen.print(line)


def agreement_line(summary: Summary) -> str:
    """How well methods' credit agrees with ground truth, of the first audited round; empty without an audit.

    Methods are sorted by their rank correlation, and the first `NAMED` are named: the page has all.
    """
    for grid in summary.sections["fidelity"][:1]:
        ranks, ceiling = rank_correlations(grid)
        if ranks:
            named = [f"{name}{_kind(name)} {_plain(cell)}" for name, cell in ranks[:NAMED]]
            more = [f"and {len(ranks) - NAMED} more methods"] if len(ranks) > NAMED else []
            top = f"; at most {ceiling.text} (noise ceiling)" if ceiling is not None else ""
            what = "rank correlation with the true advantages A*"
            return f"{grid.title}, {what} (docs/audit.md): {', '.join([*named, *more])}{top}."
    return ""


def _kind(method: str) -> str:
    """` (noise)` or ` (reference)` for those that are no methods to compare."""
    return f" ({NOT_COMPARED[method]})" if method in NOT_COMPARED and method != BASELINE else ""


def final_table(summary: Summary) -> Table:
    """Final success and its paired differences, for 80 columns: the page has the rest.

    With several agents their names take the place of the differences to the SFT policies, of which each has its own.
    """
    from turncredit.views.terminal import plain_table

    grid = summary.sections["final"][0]
    keys = ["agent" if grid.columns[0].key == "agent" else "minus_sft", "minus_baseline"]
    columns = [column for key in ("final", *keys) for column in grid.columns if column.key == key]
    title = f"{grid.title}, {columns[0].meaning}, {_seeds(summary.results)}"
    shown = plain_table(["method", *(column.heading for column in columns)], [False, *[True] * len(columns)], title)
    for name, row in grid.rows.items():
        final = "unfinished" if row["final"] is None else _plain(row["final"])
        shown.add_row(name, final, *(_plain(row.get(column.key, "")) for column in columns[1:]))
    return shown


def _seeds(results: Results) -> str:
    """How many seeds have finished, which methods may differ in; of how many, if not all have."""
    wanted = len(results.experiment.seeds)
    finished = {len(results.finished_seeds(method)) for method in results.experiment.trained()} - {0} or {0}
    few, many = min(finished), max(finished)
    count = f"{few} to {many}" if few < many else f"{many}"
    of = "" if few == many == wanted else f" of {wanted}"
    return f"{count}{of} seed{'s' * (max(many, wanted) != 1)}"


def _plain(cell: Number | str | None) -> str:
    if isinstance(cell, Number):
        return f"{cell.text} [{cell.interval.replace(' to ', ', ')}]" if cell.interval else cell.text
    return cell or ""
