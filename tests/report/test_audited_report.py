"""The report's sections about audits, on SYNTHETIC tables."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from html import escape, unescape
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from matplotlib.patches import StepPatch
from scipy.stats import t as student

from tests import presets
from tests.helpers import nonempty
from tests.pages.browser import Browser, find
from tests.report.answers import answers
from tests.results import synthetic
from turncredit.config.layout import Layout
from turncredit.config.stages import policy_stages
from turncredit.credit import METHODS
from turncredit.stats import intervals
from turncredit.views.collect import collect
from turncredit.views.report import fidelity_grids, figures, invariant_grids, judges, leak_grids, predictors
from turncredit.views.report import report as module
from turncredit.views.report.grid import Number
from turncredit.views.report.ordering import group_of
from turncredit.views.report.papers import published
from turncredit.views.report.summary import summarise
from turncredit.views.sql import answer

pytestmark = pytest.mark.slow

METHOD_NAMES = ("flat_grpo", "has_progressive", "oracle_progress", "random_credit", "turn_value", "mine")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    config = synthetic.experiment(
        methods=METHOD_NAMES,
        seeds=(0, 1),
        rounds=3,
        games=24,
        define={"mine": {"base": "turn_value"}},
        resources={**{stage: {"gpu": 0} for stage in policy_stages()}, "update": {"gpu": 2}},
    )
    folder = synthetic.make(tmp_path_factory.mktemp("audited"), config)
    synthetic.audit(folder, config)
    layout, keys = Layout(folder), {"policy": "flat_grpo", "seed": 0, "round": 2, "judge": "rule", "question": "role"}
    synthetic.metrics(layout, "label", keys, seconds=2.0, labels=100, tokens_in=5000, tokens_out=70)
    synthetic.metrics(layout, "rollout", keys, seconds=2.0, tokens=900)
    return folder


@pytest.fixture(scope="module")
def summary(folder):
    return summarise(collect(folder))


@pytest.fixture(scope="module")
def page(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    module.report(experiment=collect(folder).experiment, results=folder, out=out)
    return out


def grid(summary, name):
    return next(grid for grid in summary.grids if grid.name == name)


def test_every_query_about_an_audit_gives_the_number_that_it_is_printed_under(folder, page):
    rows = pq.read_table(page / "summary.parquet").to_pylist()
    tables = {row["table"].split("_")[0] for row in rows}
    assert {"fidelity", "gradients", "leaks", "invariants", "judged", "spending", "curve", "final"} <= tables
    few = nonempty(row for row in rows if row["table"] in ("judged", "spending", "invariants"))
    for row, value in nonempty(answers(rows[::3] + few, folder.parent)):
        assert float(value) == pytest.approx(row["value"], abs=1e-12), (row["table"], row["row"], row["column"])


def test_the_terminal_has_one_line_of_each_methods_agreement_with_ground_truth(summary):
    rows = grid(summary, "fidelity_sft-t4k4T1.0_01").rows
    line = module.agreement_line(summary)
    names = re.findall(
        r"(\w+)(?: \((?:noise|reference)\))? [+-]\d", line.partition("A* (docs/audit.md): ")[2].partition(";")[0]
    )
    assert set(names) == set(rows) - {fidelity_grids.CEILING}
    values = [rows[name]["rank_correlation"].value for name in names]
    assert values == sorted(values, reverse=True)
    assert line.endswith(f"; at most {rows[fidelity_grids.CEILING]['rank_correlation'].text} (noise ceiling).")
    assert "oracle_progress (reference) " in line
    assert module.agreement_line(replace(summary, sections={**summary.sections, "fidelity": []})) == ""


def test_the_first_screen_says_whose_credit_is_right_and_links_to_all_measures_and_pages(summary, page):
    html = (page / "index.html").read_text()
    top = html[html.index("<header>") : html.index("</header>")]
    assert escape(module.agreement_line(summary), quote=False) in unescape(top)
    assert [address.rpartition("/")[2] for address in re.findall('<a href="([^"]+)"', top)][:2] == [
        "#fidelity",
        "index.html",
    ]


def test_the_first_line_says_whether_the_invariants_hold(page, tmp_path):
    html = (page / "index.html").read_text()
    assert html.index("All invariants hold: 13 checks of 4 invariants in 4 rounds of all runs") < html.index(
        'class="facts"'
    )
    config = synthetic.experiment(methods=["flat_grpo"], seeds=[0], rounds=3, games=6)
    broken = synthetic.make(tmp_path, config)
    assert invariant_grids.holds(collect(broken)).all is None
    synthetic.audit(broken, config, broken=True)
    said = invariant_grids.holds(collect(broken))
    assert said.all is False
    assert "conservation in flat_grpo, seed 0, round 3: rollout 3 is off by 0.3" in said.words


def test_the_first_line_says_where_methods_took_unequal_steps(tmp_path):
    config = synthetic.experiment(methods=["flat_grpo", "gigpo"], seeds=[0], rounds=3, games=6)
    folder = synthetic.make(tmp_path, config)
    assert invariant_grids.holds(collect(folder)).all is None
    keys = {"method": "gigpo", "seed": 0, "round": 3}
    synthetic.metrics(Layout(folder), "update", keys, seconds=3.0, steps=2.0, sequences=16.0, tokens=200.0)
    said = invariant_grids.holds(collect(folder))
    assert said.all is False
    assert "unequal optimiser steps: seed 0, round 3: gigpo took 2 optimiser steps, but flat_grpo 1" in said.words


def test_spending_shows_the_steps_sequences_and_tokens_of_each_methods_updates(summary):
    row = grid(summary, "spending").rows["turn_value"]
    assert [row[name].value for name in ("steps", "sequences", "learned")] == [6, 48, 600]  # two seeds, three rounds


def test_a_report_without_an_audit_names_none_of_its_sections(finished, tmp_path):
    module.report(experiment=collect(finished).experiment, results=finished, out=tmp_path)
    html = (tmp_path / "index.html").read_text()
    for absent in ('id="fidelity"', 'id="gradients"', 'id="predicts"', 'id="leaks"', 'id="judges"', 'id="pages"'):
        assert absent not in html
    assert "Invariants: not checked here" in html
    assert not (tmp_path / "roles.html").exists()


def test_links_of_the_page_lead_somewhere(page):
    html = (page / "index.html").read_text()
    ids = set(re.findall(r'\bid="([^"]+)"', html))
    addresses = re.findall(r'<a href="([^"]+)"', html)
    assert len({address for address in addresses if address.endswith("pages/index.html")}) == 4
    within = {address for address in addresses if address.startswith("#")}
    assert within <= {f"#{name}" for name in ids}
    assert within
    for address in set(addresses) - within:
        assert (page / address).exists(), address


def test_fidelity_is_given_for_every_round_with_the_ceiling(summary):
    first = grid(summary, "fidelity_sft-t4k4T1.0_01")
    assert next(iter(first.rows)) == fidelity_grids.CEILING
    assert first.rows[fidelity_grids.CEILING]["rank_correlation"].value == pytest.approx(0.6)
    assert first.rows["turn_value"]["rank_correlation"].direction == "up"
    assert first.rows["has_turnrd"]["rank_correlation"].direction == "down"
    assert not first.closed
    assert grid(summary, "fidelity_flat_grpo_03").closed
    assert list(grid(summary, "fidelity_rounds").rows["turn_value"]) == ["sft-t4k4T1.0_01", "flat_grpo_03"]


def test_learned_methods_have_a_line_that_says_whether_they_leak(summary, page):
    assert {leak.method: leak.clear for leak in summary.leaks} == {"turn_value": True, "has_turnrd": False}
    assert summary.leaks_of == "round 3, rollouts of flat_grpo"
    html = (page / "index.html").read_text()
    assert "infers the outcome from the length: AUC .99 in full" in html


def test_the_interval_in_a_leak_line_ends_where_an_auc_does():
    """Student's t of two seeds reaches beyond 1."""
    rows = [
        {"policy": "sft-t4k4T1.0", "round": 1, "seed": seed, "method": "has_turnrd", "view": "full"}
        | {"measure": "outcome_auc", "value": value, "low": value - 0.1, "high": value + 0.1}
        for seed, value in enumerate((0.7, 0.6))
    ]
    lines, _ = leak_grids.leak_lines(SimpleNamespace(analysis={"leaks": pd.DataFrame(rows)}), ["has_turnrd"])
    assert [leak.words for leak in lines] == ["hardly predicts the outcome (AUC .65 [.01, 1.00])"]


def test_what_a_check_measured_is_no_declared_exception(folder):
    results = collect(folder)
    kept = results.analysis["invariants"]
    measured = kept.iloc[:2].assign(
        name=["states", "held_out"],
        detail=["AUC of a linear probe: sft: go 0.99", "the evaluated game '7' is the training game '3'"],
    )
    found = replace(results, analysis={**results.analysis, "invariants": pd.concat([kept, measured])})
    said = invariant_grids.holds(found)
    assert said.all
    assert said.words.endswith(" Declared exceptions: the evaluated game '7' is the training game '3'.")


def test_methods_are_grouped_and_the_largest_effect_comes_first(summary):
    assert list(summary.order) == ["start", "methods", "variants", "references"]
    assert summary.order["variants"] == ["mine"]
    assert set(summary.order["references"]) == {"oracle_progress", "random_credit"}
    effects = [dict(summary.differences).get(name) for name in summary.order["methods"] if name in METHOD_NAMES]
    values = [0.0 if effect is None else effect.value for effect in effects]
    assert values == sorted(values, reverse=True)
    # A method that only the audit compares stands where it belongs as well.
    assert "has_turnrd" in summary.order["methods"]
    assert list(grid(summary, "final").rows) == [
        name for names in summary.order.values() for name in names if name != "has_turnrd"
    ]


def test_a_methods_group_follows_from_its_role_and_a_definition_is_a_variant_of_its_base():
    said = {name for name, method in METHODS.items() if "ablation" in method.summary or "without" in method.summary}
    assert said
    bases = {"a": "oracle_progress", "b": "gigpo", "hgpo": "hgpo"}
    define = {**{name: {"base": base} for name, base in bases.items()}, "c": {"credit": "c.py"}}
    config = synthetic.experiment(methods=[*define, "flat_grpo"], define=define)
    assert {group_of(config, name) for name in said} == {"variants"}
    groups = {name: group_of(config, name) for name in ("a", "b", "hgpo", "c", "flat_grpo", "random_credit", "gone")}
    assert groups == {
        "a": "references",
        "b": "variants",
        "hgpo": "methods",
        "c": "methods",
        "flat_grpo": "methods",
        "random_credit": "references",
        "gone": "methods",
    }


def test_the_page_heads_each_group_once_per_table(page):
    html = (page / "index.html").read_text()
    final = html[html.index('id="final"') : html.index("<figure>", html.index('id="final"'))]
    assert [
        final.count(words)
        for words in ("variants and ablations", "noise and the privileged reference, to test the set-up")
    ] == [1, 1]


def test_the_curves_begin_with_the_sft_policy_at_round_zero(summary):
    first = summary.points[summary.points["round"] == 0]
    assert first["method"].tolist() == ["sft"]
    evals = summary.results.evals
    assert first["success"].iloc[0] == pytest.approx(evals[evals["method"] == "sft"]["success"].mean())
    assert grid(summary, "curve").rows["sft"]["round00"].value == pytest.approx(first["success"].iloc[0])
    assert set(summary.points[summary.points["method"] != "sft"]["covers"]) == {"seeds and games"}


def test_the_sft_policy_has_a_level_on_each_rounds_own_games_and_the_pictures_say_how_to_read_them(summary, page):
    evals, points = summary.results.evals, summary.points
    of_sft = points[(points["method"] == "sft") & (points["round"] > 0)].set_index("round")["success"]
    means = evals[evals["method"] == "sft"].groupby("round")["success"].mean()
    assert of_sft.to_dict() == pytest.approx(means.to_dict())
    assert means.nunique() > 1
    row = grid(summary, "curve").rows["sft"]
    assert [row[f"round{round_:02d}"].value for round_ in means.index] == pytest.approx(means.tolist())
    drawn = [patch for patch in module._curves(summary).axes[0].patches if isinstance(patch, StepPatch)]
    assert drawn[-1].get_data().values.tolist() == pytest.approx(means.tolist())
    html = (page / "index.html").read_text()
    assert html.count("compare methods within a round, not rounds along a line.") == 2


def test_with_the_same_games_in_every_round_the_sft_policy_has_one_level(tmp_path):
    config = synthetic.experiment(
        methods=["flat_grpo"], seeds=[0, 1], rounds=3, games=6, eval={"games": 6, "fresh": False}
    )
    found = summarise(collect(synthetic.make(tmp_path, config, turns=False)))
    assert found.points[found.points["method"] == "sft"]["round"].tolist() == [0]
    assert "not rounds along a line" not in grid(found, "curve").caption
    assert not [patch for patch in module._curves(found).axes[0].patches if isinstance(patch, StepPatch)]


def test_spending_counts_accelerators_judges_and_the_audit_apart(summary):
    rows = grid(summary, "spending").rows
    assert rows["flat_grpo"]["judge_in"].value == 5000
    assert rows["flat_grpo"]["tokens"].value == 900
    # An update takes 3 seconds and asks for two accelerators: 2 seeds x 3 rounds.
    assert rows["turn_value"]["gpu"].value == pytest.approx(3.0 * 2 * 2 * 3)
    assert rows["audit"]["wall"].value == pytest.approx(9.0 * 4)
    total = sum(row["wall"].value for row in rows.values())
    metrics = summary.results.metrics
    assert total == pytest.approx(metrics[metrics["name"] == "wall_s"]["value"].sum())


def test_a_judges_scores_are_no_roles(folder, tmp_path):
    """The rule judge gives a turn's role beside its score, too."""
    part = Path(shutil.copytree(folder, tmp_path / "part"))
    for found in list(Layout(part).find("labels", question="role")):
        found.path.rename(found.path.with_name("rule-score.parquet"))
    assert "judged" not in {grid.name for grid in summarise(collect(part)).grids}


def test_roles_are_held_against_the_truth(folder, summary):
    cells = grid(summary, "judged").rows["rule: regression"]
    query = """SELECT avg(b.advantage_true) AS mean, count(*) AS n FROM branches b
        JOIN labels l USING (experiment, seed, round, group_id, rollout_id, turn)
        JOIN turns t USING (experiment, seed, round, group_id, rollout_id, turn)
        WHERE l.role = 'R' AND t.success AND t.policy = b.policy AND l.policy = b.policy"""
    found = answer(query, folder).to_pylist()[0]
    assert (cells["success"].value, cells["success_turns"].value) == pytest.approx((found["mean"], found["n"]))
    assert cells["success"].low < cells["success"].value < cells["success"].high


def test_the_interval_of_a_roles_worth_is_students_t_over_groups():
    # One turn a group: the t interval of eight numbers.
    x = np.array([0.3, -0.1, 0.0, 0.2, 0.5, -0.3, 0.1, 0.1])
    found = judges.interval(pd.DataFrame({"total": x, "turns": 1}), x.mean())
    assert found == pytest.approx(student.interval(0.95, 7, x.mean(), x.std(ddof=1) / np.sqrt(8)))


def test_every_table_of_fidelity_says_how_many_turns_rollouts_and_groups_it_rests_on(folder, summary):
    _, by_round, last = summary.sections["fidelity"]
    branches = answer(
        "SELECT count(*) AS n FROM (SELECT DISTINCT seed, rollout_id FROM branches WHERE policy = 'flat_grpo')", folder
    )
    rollouts = branches.column("n")[0].as_py()
    assert f"All rest on 120 turns of {rollouts} rollouts in 24 groups;" in last.caption
    assert "n_turns" not in [column.key for column in last.columns]
    said = f"round 3 of flat_grpo: 120 turns of {rollouts} rollouts in 24 groups"
    assert said in by_round.caption
    judged = nonempty(grid(summary, "judged").rows.values())
    assert {"success_turns", "success_rollouts", "success_groups"} <= set(judged[0])


def test_methods_that_rest_on_different_turns_have_them_in_columns_and_a_smaller_measure_says_so(folder):
    results = collect(folder)
    results.connection.execute("UPDATE fidelity SET turns = 9 WHERE method = 'turn_value'")
    results.connection.execute("UPDATE fidelity SET turns = 3, groups = 2 WHERE measure = 'sign_agreement'")
    found = fidelity_grids.fidelity(results, METHOD_NAMES)[0]
    assert "All rest on" not in found.caption
    assert [column.key for column in found.columns][-3:] == ["n_turns", "n_rollouts", "n_groups"]
    seeds = len(results.experiment.seeds)
    assert found.rows["turn_value"]["n_turns"].value == 9 * seeds
    assert found.rows["turn_value"]["n_turns"].value < found.rows["flat_grpo"]["n_turns"].value
    assert found.rows["flat_grpo"]["sign_agreement"].beside == f"{3 * seeds} turns, 2 groups"
    assert found.rows["flat_grpo"]["rank_correlation"].beside == ""


def test_a_dash_is_for_what_is_missing_and_never_for_what_does_not_apply(summary):
    for found in nonempty(summary.grids):
        for name, row in found.rows.items():
            assert [column.key for column in found.columns if row.get(column.key) is None] == [], (found.name, name)
    curve = grid(summary, "curve")
    assert curve.rows["flat_grpo"]["round00"] == ""


@pytest.mark.skipif(find() is None, reason="needs a browser (chromium)")
def test_on_paper_no_column_is_cut_off_and_the_columns_meanings_are_unfolded(page):
    with Browser(find()) as browser:
        browser.look(width=718, media="print")  # A4, with a browser's margins
        browser.open(page / "index.html")
        browser.js("dispatchEvent(new Event('beforeprint'))")
        places = "[...document.querySelectorAll('table')].map((one) => one.getBoundingClientRect().right)"
        assert max(nonempty(browser.js(places))) <= 718
        assert browser.js("[...document.querySelectorAll('.meanings')].every((one) => one.open)")
        browser.js("dispatchEvent(new Event('afterprint'))")
        assert not browser.js("[...document.querySelectorAll('.meanings')].some((one) => one.open)")


def test_a_gradients_cosine_with_itself_is_no_finding(summary):
    rows = grid(summary, "gradients_sft-t4k4T1.0_01").rows
    assert rows["flat_grpo"]["cosine_flat"] == "itself"
    assert isinstance(rows["turn_value"]["cosine_flat"], Number)


@pytest.mark.parametrize(("groups", "shown"), [(7, False), (8, True)])
def test_fidelity_has_neither_interval_nor_mark_below_eight_groups_of_a_seed(folder, groups, shown):
    results = collect(folder)
    results.connection.execute(f"UPDATE fidelity SET groups = {groups}")
    cell = fidelity_grids.fidelity(results, METHOD_NAMES)[0].rows["turn_value"]["rank_correlation"]
    assert (bool(cell.interval), cell.direction == "up") == (shown, shown)
    assert ("no interval with 7 groups" in cell.note) != shown


def test_of_a_few_methods_no_prediction_is_shown(folder):
    results = collect(folder)
    few = "('flat_grpo', 'turn_value', 'oracle_progress')"
    results.connection.execute(f"DELETE FROM fidelity WHERE method NOT IN {few}")
    assert [found.name for found in summarise(results).predictions] == ["snr"]


def test_a_correlation_of_a_few_methods_or_with_a_wide_interval_is_not_stated():
    def points(*gains: float) -> list[predictors.Point]:
        estimates = (intervals.Estimate(gain, gain, gain, 0.5, 1, 1, 1, "") for gain in gains)
        numbers = (Number(float(at), "correlation", "", "") for at in range(len(gains)))
        return [predictors.Point("m", "methods", x, gain) for x, gain in zip(numbers, estimates, strict=True)]

    assert predictors._correlation(points(1, 2, 3, 4)) == "4 are too few to say anything"
    assert predictors._correlation(points(2, 1, 4, 3, 5)).startswith("anything from -")
    assert predictors._correlation(points(1, 2, 3, 4, 5, 6)).startswith("+1.00 (95%")


@pytest.mark.parametrize(
    ("seeds", "ceiling", "said"),
    [
        ((0,), 0.7, r"Training works: flat_grpo, \d+% -> \d+%\. No difference .* can be shown with one seed\."),
        ((0, 1), 0.35, r"It is not clear whether training works: flat_grpo, \d+% -> \d+%, .* points .*two seeds\."),
        ((0, 1), 0.1, r"Training makes the policy worse: flat_grpo, "),
    ],
)
def test_the_report_begins_with_the_result_in_plain_words(tmp_path, monkeypatch, seeds, ceiling, said):
    for method in ("flat_grpo", "gigpo"):
        monkeypatch.setitem(synthetic.CEILINGS, method, ceiling)
    config = synthetic.experiment(methods=["flat_grpo", "gigpo"], seeds=seeds, rounds=9, games=96)
    folder = synthetic.make(tmp_path, config, turns=False)
    summary = summarise(collect(folder))
    assert re.match(said, summary.headline), summary.headline
    module.report(experiment=config, results=folder, out=tmp_path / "report")
    html = (tmp_path / "report" / "index.html").read_text()
    assert html.index(escape(summary.headline)) < html.index("Can this experiment tell methods apart?")


def test_before_a_run_is_finished_there_is_no_result_in_words(tmp_path):
    config = synthetic.experiment(methods=["flat_grpo"], seeds=[0], rounds=9, games=6)
    folder = synthetic.make(tmp_path, config, rounds_done={("flat_grpo", 0): 2}, turns=False)
    assert summarise(collect(folder)).headline == "No result yet: flat_grpo has no finished run."


# Does it predict learning? -------------------------------------------------------------------------------------------


def test_predictions_have_a_point_for_every_method_that_was_audited_and_trained(summary):
    assert [found.name for found in summary.predictions] == ["fidelity", "snr"]
    for found in summary.predictions:
        assert {point.method for point in found.points} == set(METHOD_NAMES) - {"mine"}
        assert "over all 5" in found.words
        assert "over the 3 without references and noise 3 are too few to say anything" in found.words


def test_the_measures_of_every_audited_round_are_compared_with_the_gains_one_method_a_family(
    folder, summary, monkeypatch
):
    """`mine` is of turn_value's family, the references are left out: three families of six methods."""
    assert not summary.sections["predicts"], "no correlation of three points"
    monkeypatch.setattr(predictors, "FEWEST_FAMILIES", 3)
    (grid,) = summarise(collect(folder)).sections["predicts"]
    assert [column.key for column in grid.columns] == ["sft-t4k4T1.0_01", "flat_grpo_03"]
    assert set(grid.rows) == {predictors.PREDICTORS[name][2] for name in ("fidelity", "sign", "snr", "direction")}
    assert all(text.endswith("3 families") for row in grid.rows.values() for text in row.values())


def test_a_method_that_the_configuration_no_longer_has_is_named_as_left_out(folder, summary, monkeypatch):
    monkeypatch.setattr(predictors, "FEWEST_FAMILIES", 2)
    results = collect(folder)
    without = results.experiment.model_copy(update={"methods": [*METHOD_NAMES[:4]]})
    differences = dict(summary.differences)
    (whole,) = predictors.prediction_grid(results, METHOD_NAMES, "flat_grpo", differences)
    (part,) = predictors.prediction_grid(replace(results, experiment=without), METHOD_NAMES, "flat_grpo", differences)
    assert "Left out" not in whole.caption
    assert part.caption.endswith("own errors. Left out, since they are not in the configuration: turn_value.")


def test_names_in_a_scatter_do_not_cover_each_other(summary):
    found = summary.predictions[0]
    same = [replace(point, x=found.points[0].x, gain=None) for point in found.points]
    picture = figures.scatter(same, label="x", against="flat_grpo", methods=METHOD_NAMES)
    heights = sorted(text.xy[1] for text in picture.axes[0].texts)
    assert len(heights) == len(same)
    assert min(np.diff(heights)) > 0


# The papers' numbers -------------------------------------------------------------------------------------------------


def test_published_numbers_belong_to_presets_and_their_methods():
    for name, paper in published().items():
        assert name in presets.PAPERS, name
        assert set(paper.numbers) <= {"sft", *presets.experiment(name).methods}, name
        assert paper.source
        assert paper.compare


def test_a_paper_that_reports_its_best_checkpoint_has_ours_unfolded_below_the_headline(tmp_path):
    methods = ["flat_grpo", "has_turnrd", "has_turnrd_film"]
    config = synthetic.experiment(methods=methods, seeds=[0, 1], rounds=4, games=12, experiment="has_table2")
    found = summarise(collect(synthetic.make(tmp_path, config, turns=False)))
    tables = {table.name: table for table in found.sections["paper"]}
    assert list(tables) == ["paper", "paper_last", "paper_best"]
    assert [table.closed for table in tables.values()] == [False, True, False]
    for method in methods:
        for table in tables.values():
            number = table.rows[method]["success"]
            assert number.interval or "the seeds agree" in number.note, (method, table.name)
    assert len({table.rows["sft"]["success"].value for table in tables.values()}) == 1


def test_every_preset_but_those_whose_numbers_are_lost_has_its_papers():
    lost = {name for name in presets.PAPERS if name.startswith(("hipif_", "triage_webshop_"))} - {
        "triage_webshop_table3",
        "triage_webshop_table3_64_tasks",
    }
    lost |= {"triage_table10", "triage_sensitivity"}
    assert set(presets.PAPERS) - set(published()) == lost


def test_a_papers_preset_shows_the_papers_numbers_beside_ours(tmp_path):
    config = synthetic.experiment(
        methods=["flat_grpo", "gigpo", "mgr"], seeds=[0], rounds=3, games=24, experiment="mgr_table1"
    )
    folder = synthetic.make(tmp_path, config, turns=False)
    summary = summarise(collect(folder))
    row = grid(summary, "paper").rows["flat_grpo"]
    assert row["paper_L2"] == "52.3"
    evals = summary.results.evals
    hard = evals[(evals["method"] == "flat_grpo") & evals["family"].isin(["cool", "pick2"])]
    assert row["L2"].value == pytest.approx(hard["success"].mean())
    # The same by the last round and by the best, which is chosen by the success on all games, not on these.
    last = grid(summary, "paper_last").rows["flat_grpo"]["L2"]
    assert last.value == pytest.approx(hard[hard["round"] == 3]["success"].mean())
    mine = evals[evals["method"] == "flat_grpo"]
    best_round = mine.groupby("round")["success"].mean().idxmax()
    best = grid(summary, "paper_best").rows["flat_grpo"]["L2"]
    assert best.value == pytest.approx(hard[hard["round"] == best_round]["success"].mean())
    assert "selected on these same games" in grid(summary, "paper_best").caption
    module.report(experiment=config, results=folder, out=tmp_path / "out")
    assert "MGR, table 1 (ALFWorld, Qwen2.5-7B)" in (tmp_path / "out/index.html").read_text()


@pytest.mark.parametrize("gone", ["fidelity", "gradients", "leaks"])
def test_an_audit_that_is_half_done_is_reported_as_far_as_it_went(folder, tmp_path, gone):
    """As after a kill, or while the audit runs: one of its tables is not there yet."""
    part = Path(shutil.copytree(folder, tmp_path / "part"))
    for found in Layout(part).find(gone):
        found.path.unlink()
    grids = {grid.name.split("_")[0] for grid in summarise(collect(part)).grids}
    there = {"fidelity", "gradients", "leaks"} & grids
    assert there == {"fidelity", "gradients", "leaks"} - {gone}


def test_the_tables_of_invariants_and_the_first_line_count_the_same_ones(summary):
    [grid] = summary.sections["invariants"]
    assert f" checks of {len(grid.rows)} invariants in " in summary.holds.words


@pytest.mark.parametrize(
    ("without", "said"),
    [
        (None, ()),
        ("cosine_flat", ("signal of either gradient",)),
        ("cosine_truth", ("signal of either gradient", "raise audit.branch.turns", "Ground truth: round ")),
    ],
)
def test_a_cosine_that_is_missing_has_its_reason_and_what_measures_it(folder, without, said):
    results = collect(folder)
    rows = results.analysis["gradients"]
    assert without in {None, *rows["measure"]}
    rows.loc[rows["measure"] == without, "value"] = float("nan")
    for found in nonempty(fidelity_grids.gradients(results, METHOD_NAMES)):
        words = ("signal of either gradient", "raise audit.branch.turns", "Ground truth: round ")
        assert [part in found.caption for part in words] == [part in said for part in words]


def test_a_cosine_that_noise_has_put_beyond_1_is_given_in_words(folder):
    results = collect(folder)
    results.connection.execute(
        "UPDATE gradients SET value = 1.5 WHERE measure = 'cosine_truth' AND method = 'turn_value'"
    )
    for found in nonempty(fidelity_grids.gradients(results, METHOD_NAMES)):
        assert found.rows["turn_value"]["cosine_truth"] == "too few turns"
        assert (
            "It says 'too few turns' where noise has put the estimate beyond 1. That of A* needs more" in found.caption
        )


def test_a_space_follows_each_sentence_of_the_page(page):
    html = (page / "index.html").read_text(encoding="utf-8")
    shown = re.sub(r"<(script|style).*?</\1>", "", html, flags=re.DOTALL)
    assert "on training games. The SFT policy was demonstrated these very games" in shown
    assert re.findall(r"\w+[a-z][.;:][A-Z][a-z]+ ", shown) == []


def test_audit_yaml_has_as_many_turns_as_the_report_says():
    text = (Path(__file__).parents[2] / "config" / "audit.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text)["audit"]["branch"]["turns"] == 500


def test_no_method_scores_above_a_noise_ceiling_that_is_shown(summary):
    ceilings = 0
    for grid in summary.sections["fidelity"]:
        row = grid.rows.get(fidelity_grids.CEILING, {})
        shown = {name: cell for name, cell in row.items() if isinstance(cell, Number)}
        ceilings += len(shown)
        for name, ceiling in shown.items():
            scores = [cells[name].value for cells in grid.rows.values() if isinstance(cells.get(name), Number)]
            assert max(scores) <= ceiling.value
    assert ceilings > 0
