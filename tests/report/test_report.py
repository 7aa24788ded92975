from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from benchmarks.methods import pairs as results_pairs
from benchmarks.methods import predictors as results_predictors
from benchmarks.methods import table as results_table
from tests.helpers import nonempty
from tests.report.answers import answers
from tests.results import synthetic
from turncredit.config.layout import Layout
from turncredit.config.stages import stages
from turncredit.credit import METHODS
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.stats import intervals
from turncredit.views.collect import collect, in_memory, read_config
from turncredit.views.report import audited_turns, figures
from turncredit.views.report import report as module
from turncredit.views.report.grid import Number, summary_table
from turncredit.views.report.ordering import Corrected, corrected, group_of
from turncredit.views.report.selection import paired, paired_differences, sampler
from turncredit.views.report.summary import _missing, summarise

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(finished, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    metrics = module.report(experiment=read_config(finished), results=finished, out=out)
    return out, metrics


@pytest.fixture(scope="module")
def summary(finished):
    return summarise(collect(finished))


def cell(summary, grid: str, row: str, column: str):
    return next(found for found in summary.grids if found.name == grid).rows[row].get(column)


def test_every_query_gives_the_number_that_it_is_printed_under(finished, page):
    """As `turncredit sql` runs it, over the files."""
    rows = pq.read_table(page[0] / "summary.parquet").to_pylist()
    assert len(rows) > 60
    for row, value in nonempty(answers(rows, finished.parent)):
        assert value == pytest.approx(row["value"], abs=1e-12), (row["table"], row["row"], row["column"])


def test_names_with_an_apostrophe_are_quoted_in_sql(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "FAMILIES", ("it's", "look", "clean", "heat", "cool", "pick2"))
    config = synthetic.experiment(methods=["flat_grpo", "random_credit"], seeds=[0, 1], rounds=2, games=6)
    folder = synthetic.make(tmp_path, config)
    synthetic.audit(folder, config, rounds=(1,))
    folder = folder.rename(tmp_path / "o'brien's")
    rows = summary_table(summarise(collect(folder)).grids).to_pylist()
    assert {"families", "judged", "costs", "spending", "invariants"} <= {row["table"] for row in rows}
    given = [row["value"] for row in rows]
    assert [value for _, value in answers(rows, tmp_path)] == pytest.approx(given, abs=1e-12, nan_ok=True)


def test_success_on_each_of_several_splits_is_a_table_and_of_one_split_it_is_not(tmp_path, summary):
    assert "splits" not in [grid.name for grid in summary.grids]
    splits = {"train": 64, "eval": 24, "eval_split": ["valid_seen", "valid_unseen"]}
    config = synthetic.experiment(methods=["flat_grpo"], seeds=[0, 1], rounds=4, games=6, tasks=splits)
    found = summarise(collect(synthetic.make(tmp_path, config)))
    assert [grid.name for grid in found.grids].count("splits") == 1
    seen, unseen = (cell(found, "splits", "flat_grpo", split) for split in splits["eval_split"])
    assert (seen.value + unseen.value) / 2 == pytest.approx(cell(found, "final", "flat_grpo", "final").value)
    assert seen.value != unseen.value
    assert "split IN ('valid_seen')" in seen.sql


def test_a_seed_whose_measure_is_undefined_is_neither_counted_nor_the_end_of_the_interval(summary):
    columns = {"policy": "p", "round": 1, "method": "m", "measure": "regression_auc", "subset": "all", "groups": 20}
    seeds = {"seed": [0, 1, 2], "value": [0.6, None, 0.7], "low": [0.5, None, 0.6], "high": [0.7, None, 0.8]}
    rows = pd.DataFrame({"experiment": "synthetic", **seeds, **columns, "turns": [40, 0, 50]})
    connection = in_memory({"fidelity": pa.Table.from_pandas(rows)})
    results = replace(summary.results, connection=connection, analysis={"fidelity": rows})
    keys = {"method": "m", "measure": "regression_auc", "subset": "all"}
    found = audited_turns.measure(audited_turns.Audited(results, "p", 1), "fidelity", **keys)
    assert (found.value, found.n, found.note) == (pytest.approx(0.65), 90, "2 of 3 seeds")
    assert found.low < 0.65 < found.high


def test_a_ratio_of_nothing_is_no_number(summary):
    for query in ("SELECT sum(turns) / 0 FROM evals", "SELECT avg(turns) FROM evals WHERE false"):
        assert np.isnan(summary.results.value(query))


def test_every_number_names_files_that_exist(finished, page):
    rows = pq.read_table(page[0] / "summary.parquet").to_pylist()
    patterns = " ".join(nonempty({pattern for row in rows for pattern in row["path"].split()}))
    # Patterns are for the reader's shell: seed{0,1}, and ** for any depth.
    shell = ["bash", "-O", "globstar", "-c", f"ls -d {patterns}"]
    listed = subprocess.run(shell, cwd=finished, capture_output=True, text=True, check=False)
    assert listed.returncode == 0, listed.stderr


def test_the_summary_says_what_made_it(finished, page):
    made_by = tables.metadata(page[0] / "summary.parquet")
    assert (made_by["schema"], made_by["stage"]) == ("summary", "report")
    assert made_by["config"]["rollout"] == json.loads((finished / "config.json").read_text())["rollout"]


def test_the_csv_holds_the_same_rows_as_the_parquet(page):
    with (page[0] / "summary.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    table = pq.read_table(page[0] / "summary.parquet").to_pylist()
    assert [float(row["value"]) for row in rows] == pytest.approx([row["value"] for row in table])
    assert [row["sql"] for row in rows] == [row["sql"] for row in table]


def test_the_page_says_the_numbers_of_the_table(page):
    html = (page[0] / "index.html").read_text()
    shown = json.loads(re.search(r'id="numbers">(.*?)</script>', html, re.DOTALL)[1])
    assert len(shown) == pq.read_metadata(page[0] / "summary.parquet").num_rows
    for number in nonempty(shown):
        assert f">{number['value']}</button>" in html


def test_the_page_needs_no_network(page):
    html = re.sub(r"<pre>.*?</pre>", "", (page[0] / "index.html").read_text(), flags=re.DOTALL)  # the configuration
    links = set(re.findall(r"(?:https?:)?//[\w.-]+", html)) - {"http://www.w3.org"}
    assert not links
    assert not re.search(r"<(?:link|img|iframe|script[^>]*src)", html)


def test_secrets_of_the_configuration_are_not_on_the_page(tmp_path):
    secrets = {"url": "https://user:hunter2@host/x", "api_key": "hunter2", "nested": [{"hub_token": "hunter2"}]}
    more = {"env": {"household": secrets}}
    config = synthetic.experiment(methods=["flat_grpo"], seeds=[0], rounds=1, games=6, **more)
    folder = synthetic.make(tmp_path, config, turns=False)
    module.report(experiment=config, results=folder, out=tmp_path / "out")
    assert "https://host/x" in (tmp_path / "out/index.html").read_text()
    for path in nonempty((tmp_path / "out").iterdir()):
        assert b"hunter2" not in path.read_bytes(), path.name


def test_ids_on_the_page_are_unique(page):
    ids = re.findall(r'\bid="([^"]+)"', (page[0] / "index.html").read_text())
    assert len(ids) == len(set(ids))


def test_two_reports_of_the_same_results_are_the_same_bytes(finished, page, tmp_path):
    module.report(experiment=read_config(finished), results=finished, out=tmp_path)
    one, two = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in (page[0], tmp_path))
    assert sorted(one) == sorted(two)
    assert [name for name in one if one[name] != two[name]] == []


def test_pictures_for_the_readme_are_whole_and_on_white(page):
    root = ET.parse(page[0] / "learning_curves.svg").getroot()
    texts = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any(text.startswith("oracle_progress ") for text in texts)
    assert (page[0] / "learning_curves.png").read_bytes().startswith(b"\x89PNG")


def test_final_is_the_mean_of_the_last_three_rounds_over_finished_seeds(summary):
    evals = summary.results.evals
    frame = evals[(evals["method"] == "flat_grpo") & evals["round"].isin([3, 4, 5])]
    expected = frame.groupby(["seed", "round"])["success"].mean().mean()
    assert cell(summary, "final", "flat_grpo", "final").value == pytest.approx(expected)


def test_every_method_has_final_last_and_best_sizes_before_p_and_best_says_that_it_is_optimistic(summary):
    grid = summary.sections["final"][0]
    for method in synthetic.CEILINGS:
        for key in ("final", "last", "best"):
            number = grid.rows[method][key]
            assert number.low <= number.value <= number.high, (method, key)
        assert grid.rows[method]["best"].value >= grid.rows[method]["last"].value
    columns = {column.key: column for column in grid.columns}
    keys = list(columns)
    assert (keys[:2], keys[-1]) == (["final", "minus_baseline"], "holm")
    assert keys.index("best") > keys.index("minus_baseline")
    assert "selected on these games" in columns["best"].heading
    assert "optimistic" in columns["best"].meaning


def test_best_is_each_seeds_best_round_with_an_interval_over_seeds(summary):
    evals = summary.results.evals[summary.results.evals["method"] == "flat_grpo"]
    by_seed = evals.groupby(["seed", "round"])["success"].mean().groupby("seed").max()
    best = cell(summary, "final", "flat_grpo", "best")
    assert best.value == pytest.approx(by_seed.mean())
    half = stats.t.ppf(0.975, 1) * by_seed.std() / np.sqrt(2)
    assert (best.low, best.high) == pytest.approx((max(best.value - half, 0), min(best.value + half, 1)))
    assert "over seeds only" in best.note


def test_a_best_checkpoint_of_one_seed_has_no_interval(tmp_path):
    config = synthetic.experiment(methods=["flat_grpo"], seeds=[3], rounds=4, games=12)
    folder = synthetic.make(tmp_path, config, turns=False)
    best = cell(summarise(collect(folder)), "final", "flat_grpo", "best")
    assert (best.low, best.high, best.interval) == (None, None, "")


def test_best_checkpoints_that_are_equally_good_in_all_seeds_have_no_interval(tmp_path):
    config = synthetic.experiment(methods=["flat_grpo"], seeds=[0, 1], rounds=3, games=12)
    folder = synthetic.make(tmp_path, config, turns=False)
    for found in Layout(folder).find("evals", method="flat_grpo"):
        table = tables.read(found.path, "evals")
        won = pa.array([number % 2 == 0 for number in range(len(table))])
        table = table.set_column(table.column_names.index("success"), "success", won)
        tables.write(table, found.path, "evals", tables.metadata(found.path))
    best = cell(summarise(collect(folder)), "final", "flat_grpo", "best")
    assert (best.value, best.low, best.high) == (0.5, None, None)
    assert best.note.endswith("interval over nothing (the seeds agree)")


def test_a_column_for_variants_is_there_where_there_are_any(tmp_path):
    config = synthetic.experiment(methods=["flat_grpo", "triage", "triage_scalar"], seeds=[0, 1], rounds=1, games=8)
    keys = [column.key for column in summarise(collect(synthetic.make(tmp_path, config))).sections["final"][0].columns]
    assert keys[-2:] == ["holm", "holm_variants"]


def test_a_family_counts_as_one_comparison_and_its_variants_are_corrected_among_themselves():
    methods = ["flat_grpo", "triage_scalar", "triage", "has_judge", "mine", "gigpo", "mgr_no_gate", "oracle_progress"]
    config = synthetic.experiment(methods=methods, define={"mine": {"base": "triage", "params": {"lam": 0.4}}})
    p = {"triage_scalar": 0.001, "triage": 0.01, "has_judge": 0.02, "mine": 0.03, "gigpo": 0.02, "mgr_no_gate": 0.04}
    found = corrected(config, "flat_grpo", {**p, "oracle_progress": 1e-9})
    # triage stands for its four; mgr_no_gate for a family without mgr; the bound is left out.
    assert found.families == pytest.approx({"triage": 0.03, "gigpo": 0.04, "mgr_no_gate": 0.04})
    assert found.variants == pytest.approx({"triage_scalar": 0.003, "has_judge": 0.04, "mine": 0.04})
    assert found.family_of["mine"] == "triage"


def test_settings_of_one_function_of_ones_own_are_one_family():
    settings = {f"mine_{number}": {"credit": "a.py:f", "params": {"scale": number}} for number in (1, 2, 3)}
    define = {**settings, "other": {"credit": "a.py:g"}}
    config = synthetic.experiment(methods=["flat_grpo", "mine_2", "mine_1", "mine_3", "other"], define=define)
    found = corrected(config, "flat_grpo", {"mine_1": 0.02, "mine_2": 0.01, "mine_3": 0.03, "other": 0.03})
    assert found.families == pytest.approx({"mine_1": 0.04, "other": 0.04})
    assert found.variants == pytest.approx({"mine_2": 0.02, "mine_3": 0.03})
    groups = {name: group_of(config, name) for name in define}
    assert groups == {"mine_1": "methods", "mine_2": "variants", "mine_3": "variants", "other": "methods"}


def test_a_warm_start_that_is_only_evaluated_is_no_comparison():
    config = synthetic.experiment(methods=["sft", "flat_grpo", "gigpo"])
    assert corrected(config, "flat_grpo", {"gigpo": 0.03}).all == {"gigpo": 0.03}


def test_who_stands_for_a_family_does_not_depend_on_the_results():
    methods = ["flat_grpo", "scpo_shortest", "scpo_repeat", "gigpo"]
    config = synthetic.experiment(methods=methods)
    for p in ({"scpo_shortest": 0.9, "scpo_repeat": 0.001}, {"scpo_shortest": 0.001, "scpo_repeat": 0.9}):
        assert set(corrected(config, "flat_grpo", p).families) == {"scpo_shortest", "gigpo"}


@pytest.mark.parametrize(
    ("p", "families", "variants"),
    [
        ({"triage_scalar": 0.01}, {"triage": np.nan, "gigpo": np.nan}, {"triage_scalar": 0.01}),
        ({"triage": 0.01}, {"triage": 0.02, "gigpo": np.nan}, {"triage_scalar": np.nan}),
        (
            {"triage": 0.01, "has_judge": 0.02},
            {"triage": 0.02, "gigpo": np.nan},
            {"triage_scalar": np.nan, "has_judge": 0.04},
        ),
        ({"scpo": 0.01}, {"triage": np.nan, "gigpo": np.nan, "scpo": 0.03}, {"triage_scalar": np.nan}),
    ],
    ids=["variant", "head", "unconfigured variant", "unconfigured family"],
)
def test_families_and_their_number_do_not_depend_on_what_has_finished(p, families, variants):
    methods = ["flat_grpo", "triage_scalar", "triage", "gigpo", "oracle_progress"]
    found = corrected(synthetic.experiment(methods=methods), "flat_grpo", p)
    assert found.families == pytest.approx(families, nan_ok=True)
    assert found.variants == pytest.approx(variants, nan_ok=True)


def test_a_difference_of_one_seed_has_no_p_and_is_one_of_the_comparisons(tmp_path):
    config = synthetic.experiment(methods=["flat_grpo", "gigpo", "scpo", "triage"], seeds=[0, 1], rounds=3, games=8)
    done = {("scpo", 1): 1, ("triage", 0): 0, ("triage", 1): 1}
    summary = summarise(collect(synthetic.make(tmp_path, config, rounds_done=done, turns=False)))
    raw = dict(summary.differences)["gigpo"].p
    assert cell(summary, "final", "scpo", "holm") == "none"
    assert float(cell(summary, "final", "gigpo", "holm")) == pytest.approx(min(1, 3 * raw), abs=1e-3)
    assert summary.comparisons.startswith("3 families of methods compared with flat_grpo")
    assert "each by one method; 2 of 3 families have results: " in summary.comparisons


def test_the_baselines_own_variants_are_no_families():
    penalised = {"base": "flat_grpo", "params": {"shapers": ["invalid_penalty"]}}
    config = synthetic.experiment(methods=["flat_grpo", "penalised", "gigpo"], define={"penalised": penalised})
    found = corrected(config, "flat_grpo", {"penalised": 0.01, "gigpo": 0.02})
    assert (found.families, found.variants) == ({"gigpo": 0.02}, {"penalised": 0.01})


def test_a_variant_belongs_to_a_family_which_is_named_after_one_of_its_methods():
    assert [name for name, method in METHODS.items() if method.role == "variant" and not method.family] == []
    for name, method in METHODS.items():
        assert METHODS[method.family or name].family is None, name


def test_the_training_curve_begins_with_the_shared_rollouts(summary):
    training = summary.results.training
    first = training[training["round"] == 1]
    assert first.groupby("seed")["successes"].nunique().eq(1).all()
    assert set(first["method"]) == set(synthetic.CEILINGS)
    assert first["policy"].str.startswith("sft-").all()


def test_an_unfinished_run_is_missing_and_not_zero(tmp_path):
    config = synthetic.experiment(games=12, rounds=4)
    done = {("oracle_progress", 0): 2, ("oracle_progress", 1): 0, ("random_credit", 1): 3}
    folder = synthetic.make(tmp_path, config, rounds_done=done, turns=False)
    summary = summarise(collect(folder))
    assert cell(summary, "final", "oracle_progress", "final") is None
    assert cell(summary, "final", "oracle_progress", "seeds") == "unfinished: 2 of 8 evaluations"
    assert cell(summary, "families", "oracle_progress", "pick") is None
    assert cell(summary, "final", "random_credit", "seeds") == "1"
    assert summary.verdict.state == "open"
    assert "oracle_progress has no finished run" in summary.verdict.words
    assert summary.verdict.next == "Next, the same command: it finishes the runs."
    assert "oracle_progress, seed 0: rounds 3-4 not evaluated yet" in summary.missing
    metrics = module.report(experiment=config, results=folder, out=tmp_path / "out")
    assert (metrics["runs"], metrics["finished"]) == (8, 5)
    rows = pq.read_table(tmp_path / "out/summary.parquet").to_pylist()
    assert not [
        row for row in rows if row["row"] == "oracle_progress" and row["table"] in ("final", "families", "costs")
    ]


def test_a_difference_uses_only_seeds_that_both_methods_have_finished(tmp_path):
    config = synthetic.experiment(games=12, rounds=3, seeds=(0, 1, 2))
    folder = synthetic.make(tmp_path, config, rounds_done={("flat_grpo", 2): 1}, turns=False)
    summary = summarise(collect(folder))
    difference = cell(summary, "final", "oracle_progress", "minus_baseline")
    assert "2 seeds" in difference.note
    assert "seed IN (0, 1)" in difference.sql
    assert "3 seeds" in cell(summary, "final", "oracle_progress", "minus_sft").note


def test_truth_is_the_reference_where_the_oracle_is_not_among_the_methods(tmp_path):
    names = ["flat_grpo", "gigpo", "random_credit", "truth"]
    measured = {"truth": {"base": "truth", "continuations": {"per_state": 8}}}
    config = synthetic.experiment(methods=names, seeds=[0], rounds=4, games=24, define=measured)
    summary = summarise(collect(synthetic.make(tmp_path, config, turns=False)))
    assert "truth is +" in summary.verdict.words
    assert "oracle_progress" not in summary.verdict.words


def test_without_the_sft_policys_last_rounds_there_is_no_difference_to_it(tmp_path):
    config = synthetic.experiment(methods=["flat_grpo"], seeds=[0], rounds=4, games=6)
    folder = synthetic.make(tmp_path, config, turns=False)
    (folder / "runs/sft/seed0/round04/evals.parquet").unlink()
    summary = summarise(collect(folder))
    assert cell(summary, "final", "sft", "final") is None
    assert cell(summary, "final", "flat_grpo", "minus_sft") is None
    assert isinstance(cell(summary, "final", "flat_grpo", "final"), Number)
    assert re.match(
        r"flat_grpo reaches \d+%; the SFT policy is not evaluated in these rounds, so its gain is not known\. ",
        summary.headline,
    )


def test_a_score_stands_beside_success_where_the_environment_has_one(tmp_path):
    folder = synthetic.make(tmp_path, synthetic.experiment(rounds=3, games=8))
    assert "score" not in summarise(collect(folder)).sections["final"][0].rows["flat_grpo"]
    for found in Layout(folder).find("evals"):
        table = tables.read(found.path, "evals")
        scores = [0.5 + 0.5 * won for won in table.column("success").to_pylist()]
        whole = table.append_column("task_score", pa.array(scores)).replace_schema_metadata(table.schema.metadata)
        pq.write_table(whole, found.path)
    row = summarise(collect(folder)).sections["final"][0].rows["flat_grpo"]
    assert row["score"].value == pytest.approx(0.5 + 0.5 * row["final"].value)


@pytest.fixture(scope="module")
def agents(tmp_path_factory):
    """SYNTHETIC: two methods, the second with an agent whose SFT policy wins 20 points less."""
    config = synthetic.experiment(
        methods=["flat_grpo", "brief"],
        agent={"name": "transcript"},
        agents={"plain": {"name": "window"}, "spare": {"name": "window"}},
        define={"brief": {"base": "flat_grpo", "agent": "plain"}},
        seeds=[0, 1],
        rounds=3,
        games=40,
    )
    return synthetic.make(tmp_path_factory.mktemp("agents"), config)


def test_a_methods_gain_is_over_the_sft_policy_of_its_own_agent(agents):
    summary = summarise(collect(agents))
    final = {name: cell(summary, "final", name, "final").value for name in ("sft", "sft_plain", "flat_grpo", "brief")}
    assert final["sft"] > final["sft_plain"] + 0.1
    for method, start in (("flat_grpo", "sft"), ("brief", "sft_plain")):
        gain = cell(summary, "final", method, "minus_sft")
        assert gain.value == pytest.approx(final[method] - final[start])
        assert f"method = '{start}'" in gain.sql


def test_methods_with_different_agents_are_paired_by_seed_and_game(agents):
    found = cell(summarise(collect(agents)), "final", "brief", "minus_baseline")
    assert found.note.startswith("2 seeds, 120 games")


def test_tables_name_the_agents_where_there_are_several(agents, finished, tmp_path):
    summary = summarise(collect(agents))
    for grid in ("final", "curve", "families", "costs"):
        named = {name: cell(summary, grid, name, "agent") for name in ("sft", "flat_grpo", "sft_plain", "brief")}
        assert list(named.values()) == ["transcript", "transcript", "plain (window)", "plain (window)"], grid
    assert all(column.key != "agent" for grid in summarise(collect(finished)).grids for column in grid.columns)
    assert summary.order["start"] == ["sft", "sft_plain"]
    module.report(experiment=read_config(agents), results=agents, out=tmp_path)
    assert "the start of a method's line: each agent has its own" in (tmp_path / "index.html").read_text()


def test_what_methods_learn_is_predicted_only_for_those_that_play_with_the_audited_runs_agent(tmp_path):
    own = {"has_progressive": {"base": "has_progressive", "agent": "plain"}}
    agents = {"agents": {"plain": {"name": "window"}}}
    methods = (*synthetic.CEILINGS, "turn_value", "has_turnrd")
    config = synthetic.experiment(methods, define=own, seeds=[0], rounds=3, games=12, **agents)
    folder = synthetic.make(tmp_path, config)
    synthetic.audit(folder, config)
    for prediction in nonempty(summarise(collect(folder)).predictions):
        methods = {point.method for point in prediction.points}
        assert "oracle_progress" in methods
        assert "has_progressive" not in methods


def test_one_method_one_seed_one_round_is_enough_for_a_report(tmp_path):
    config = synthetic.experiment(methods=["has_progressive"], seeds=[3], rounds=1, games=6)
    folder = synthetic.make(tmp_path, config, turns=False)
    module.report(experiment=config, results=folder, out=tmp_path / "out")
    summary = summarise(collect(folder))
    assert summary.baseline == "has_progressive"
    assert summary.verdict.state == "open"
    assert "games only (one seed)" in cell(summary, "final", "has_progressive", "final").note


@pytest.mark.parametrize("last", [0, 1])
def test_a_report_can_be_made_from_the_first_evaluation_on(tmp_path, last):
    config = synthetic.experiment(methods=["flat_grpo"], seeds=[0], rounds=5, games=6)
    folder = synthetic.make(tmp_path, config, rounds_done={("flat_grpo", 0): last}, turns=False)
    metrics = module.report(experiment=config, results=folder, out=tmp_path / "out")
    assert metrics["finished"] == 0
    assert (tmp_path / "out/learning_curves.svg").exists() == (last == 1)


def test_an_experiment_of_the_sft_policy_alone_has_a_report(tmp_path):
    config = synthetic.experiment(methods=["sft"], seeds=[0], rounds=3, games=6)
    folder = synthetic.make(tmp_path, config, turns=False)
    module.report(experiment=config, results=folder, out=tmp_path / "out")
    assert isinstance(cell(summarise(collect(folder, config)), "final", "sft", "final"), Number)
    assert "SFT policy" in (tmp_path / "out/learning_curves.svg").read_text(), "the stage's output, a level alone"


def test_runs_that_the_configuration_does_not_name_are_shown_and_said(tmp_path):
    config = synthetic.experiment(games=6, rounds=1, seeds=[0])
    folder = synthetic.make(tmp_path, config, turns=False)
    fewer = synthetic.experiment(methods=["flat_grpo"], games=6, rounds=1, seeds=[0])
    summary = summarise(collect(folder, fewer))
    assert isinstance(cell(summary, "final", "oracle_progress", "final"), Number)
    assert "oracle_progress, seed 0: on disk, but not in the configuration" in summary.missing


def test_more_methods_than_one_picture_holds_get_a_panel_each():
    names = ["flat_grpo", *(f"method_{number}" for number in range(9))]
    rows = [(name, round_, 0.4, 0.3, 0.5) for name in names for round_ in (1, 2)]
    curves = pd.DataFrame(rows, columns=["method", "round", "success", "low", "high"])
    seeds = curves.assign(seed=0)
    picture = figures.learning_curves(curves, seeds, None, methods=names, ylabel="success")
    titles = [ax.get_title(loc="left") for ax in picture.axes if ax.get_visible()]
    assert titles == names[1:]


@pytest.mark.parametrize("count", [4, 9])
def test_names_in_pictures_are_in_a_colour_that_can_be_read(count):
    """At least 4.5 to 1 on white, as WCAG asks of text; the lines' orange and light blue have 2.3."""
    names = [f"method_{number}" for number in range(count)]
    rows = [(name, round_, 0.4, 0.3, 0.5) for name in names for round_ in (1, 2)]
    curves = pd.DataFrame(rows, columns=["method", "round", "success", "low", "high"])
    start = {"success": 0.3, "low": 0.2, "high": 0.4}
    picture = figures.learning_curves(curves, curves.assign(seed=0), start, methods=names, ylabel="success")
    fills = re.findall(r"fill: (#\w{6})[^>]*>[^<]*method_", figures.standalone_svg(picture, "curves"))
    assert len(fills) == count
    for fill in fills:
        red, green, blue = (int(fill[at : at + 2], 16) / 255 for at in (1, 3, 5))
        light = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
        assert 1.05 / (light + 0.05) >= 4.5


@pytest.mark.parametrize(
    ("low", "high", "unit", "said"),
    [
        (0.0002, 0.112, "points", "+0.02 to +11.2"),
        (-0.112, -0.00003, "points", "-11.2 to -0.003"),
        (-0.0002, 0.112, "points", "+0.0 to +11.2"),
        (0.0, 0.112, "points", "+0.0 to +11.2"),
        (0.004, 0.5, "correlation", "+0.004 to +0.50"),
    ],
)
def test_an_interval_that_excludes_zero_does_not_end_in_a_rounded_zero(low, high, unit, said):
    assert Number(0.1, unit, "", "", low, high).interval == said


def test_no_two_methods_of_one_picture_look_the_same():
    names = ["flat_grpo", "oracle_progress", "random_credit", *(f"method_{number}" for number in range(4))]
    looks = figures.looks(names)
    assert len({look.marker for look in looks.values()}) == len(names)
    assert len({look.colour for look in looks.values()}) == len(names)


def test_results_without_evaluations_and_folders_without_results_are_one_line(tmp_path):
    with pytest.raises(UserError, match=r"no config\.json"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(synthetic.experiment().model_dump(mode="json")))
    with pytest.raises(UserError, match="no evaluation yet"):
        collect(tmp_path)


def test_a_damaged_table_stops_the_report_by_name(tmp_path):
    config = synthetic.experiment(games=6, rounds=1, seeds=[0])
    folder = synthetic.make(tmp_path, config, turns=False)
    path = folder / "runs/flat_grpo/seed0/round01/evals.parquet"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(tables.TableError, match=r"flat_grpo/seed0/round01/evals\.parquet: not a readable Parquet"):
        module.report(experiment=config, results=folder, out=tmp_path / "out")
    assert not (tmp_path / "out/index.html").exists()


def test_an_evaluation_in_another_runs_folder_is_refused(tmp_path):
    config = synthetic.experiment(games=6, rounds=1, seeds=[0])
    folder = synthetic.make(tmp_path, config, turns=False)
    shutil.copy(
        folder / "runs/oracle_progress/seed0/round01/evals.parquet",
        folder / "runs/flat_grpo/seed0/round01/evals.parquet",
    )
    with pytest.raises(UserError, match="column 'method' is 'oracle_progress'"):
        collect(folder)


def test_the_terminal_table_is_plain_text_when_nobody_looks(finished, summary, capsys):
    module.print_table(finished)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    lines = out.splitlines()
    row = next(line for line in lines if line.strip().startswith("oracle_progress"))
    number = cell(summary, "final", "oracle_progress", "final")
    assert f"{number.text} [{number.interval.replace(' to ', ', ')}]" in row
    assert any("tells methods apart" in line for line in lines)


def test_samplings_of_the_sft_policy_are_told_apart_in_words():
    assert sampler("sft-t4k4T1.0") == "the SFT policy (4 tasks x 4 rollouts, temperature 1.0)"
    assert sampler("sft_plain-t4k4T1.0") == "the SFT policy of plain (4 tasks x 4 rollouts, temperature 1.0)"
    assert sampler("gigpo") == "gigpo"


def test_the_table_for_results_pages_says_sizes_and_intervals_before_p(finished, summary, capsys):
    results_table.main(str(finished), "final")
    words, _, title, _, heads, _, *rows = capsys.readouterr().out.strip().split("\n")
    assert words == summary.comparisons
    assert title == "**Final success**"
    assert heads.index("above flat_grpo") < heads.index("best checkpoint") < heads.index("p, families")
    row = next(row for row in rows if row.startswith("| `has_progressive` |"))
    assert re.search(r"\| [+-][\d.]+ \([+-][\d.]+ to [+-][\d.]+\) \|.*\| (< )?[\d.]+ \|$", row)


def test_pairs_of_methods_are_compared_as_the_table_compares_with_flat_grpo(finished, capsys):
    results_table.main(str(finished), "final")
    row = next(row for row in capsys.readouterr().out.split("\n") if row.startswith("| `has_progressive` |"))
    results_pairs.main([str(finished), "has_progressive:flat_grpo", "flat_grpo:has_progressive", "has_progressive"])
    there, back, alone = capsys.readouterr().out.strip().split("\n")
    assert there.split(": ")[1].split(";")[0] == row.split("|")[3].strip()
    seeds = [
        [float(number) for number in re.findall(r"[+-][\d.]+", said.split("by seed")[1])] for said in (there, back)
    ]
    assert seeds[0] == [-value for value in seeds[1]]
    assert alone.split(": ")[1].split()[0] == row.split("|")[2].split()[0]
    with pytest.raises(SystemExit, match="no seed that both have finished"):
        results_pairs.main([str(finished), "flat_grpo:gigpo"])


def test_the_table_of_pairs_has_the_report_s_p(finished, capsys):
    results_table.main(str(finished), "final")
    cells = [cell.strip() for cell in _row_of("has_progressive", capsys.readouterr().out)]
    results_pairs.main([str(finished)])
    out = capsys.readouterr().out
    of_pairs = [cell.strip() for cell in _row_of("has_progressive", out)]
    assert out.startswith("| | final success | above flat_grpo | p | by seed |")
    assert of_pairs[1:4] == cells[1:4]
    assert of_pairs[4] in [one for one in cells[-3:-1] if one]
    results_pairs.main(["--rounds", "2", str(finished)])
    assert capsys.readouterr().out.startswith("| | final success | above flat_grpo | by seed |")


def test_pairs_are_of_the_seeds_that_one_gives(finished, capsys):
    results_pairs.main([str(finished), "has_progressive:flat_grpo", "has_progressive"])
    both, alone = capsys.readouterr().out.strip().split("\n")
    by_seed = re.findall(r"[+-][\d.]+", both.split("by seed")[1])
    assert len(by_seed) > 1
    for seed, difference in enumerate(by_seed):
        results_pairs.main([str(finished), "--seeds", str(seed), "has_progressive:flat_grpo", "has_progressive"])
        pair, success = capsys.readouterr().out.strip().split("\n")
        assert pair.endswith(f"by seed {difference}")
        assert success != alone
    with pytest.raises(SystemExit, match="no seed that both have finished"):
        results_pairs.main([str(finished), "--seeds", "99", "has_progressive:flat_grpo"])


def _row_of(method, out):
    return next(row for row in out.split("\n") if row.startswith(f"| `{method}` |")).split("|")


def test_a_round_that_was_not_evaluated_is_no_part_of_a_final_figure(finished):
    with pytest.raises(SystemExit, match="a round was not evaluated"):
        results_pairs.main(["--rounds", "2,99", str(finished), "flat_grpo"])
    with pytest.raises(SystemExit, match="a round was not evaluated"):
        results_pairs.main(["--rounds", "2,99", str(finished), "has_progressive:flat_grpo"])


def test_gains_are_of_every_trained_method_but_the_baseline(finished):
    results = collect(finished)
    found = results_predictors.gains(results)
    assert found["has_progressive"].value == paired(results, "has_progressive", "flat_grpo").value
    assert set(found) == set(results.methods) - {"flat_grpo"}


def test_seeds_that_lack_the_same_rounds_are_one_line():
    runs = [SimpleNamespace(method="a", seed=seed, wanted=[5, 6], evaluated=done, configured=True)
            for seed, done in ((0, [5, 6]), (1, [5]), (2, []), (3, []), (5, []))]  # fmt: skip
    results = SimpleNamespace(runs=SimpleNamespace(itertuples=lambda: iter(runs)))
    assert _missing(results) == [
        "a, seed 1: round 6 not evaluated yet",
        "a, seeds 2-3, 5: rounds 5-6 not evaluated yet",
    ]


def test_a_warm_start_on_the_left_is_paired_with_every_seed(finished):
    results = collect(finished)
    gain, loss = paired_differences(results, "flat_grpo", "sft"), paired_differences(results, "sft", "flat_grpo")
    assert len(set(loss["seed"])) == len(results.experiment.seeds) > 1
    np.testing.assert_allclose(loss["value"], -gain["value"])


def test_comparisons_are_worded_for_their_number():
    found = intervals.Estimate(0.1, 0.05, 0.15, 0.02, 10, 3, 10, "seeds and games")
    from turncredit.views.report.summary import _comparisons

    both = {"a": found, "b": replace(found, value=0.2, low=0.1, high=0.3)}

    def said(families: dict[str, float], variants: dict[str, float]) -> str:
        return _comparisons("flat_grpo", both, Corrected(families, variants, {}))

    assert said({"a": 0.2}, {}) == "Compared with flat_grpo: none differs at the 5% level; do not rank them."
    assert said({"a": 0.2, "b": 0.3}, {}).startswith("2 families of methods compared with flat_grpo (no references), ")
    size = "a +10.0 points [+5.0, +15.0]"
    assert f"{size} differs; the other is not" in said({"a": 0.04, "b": 0.5}, {})
    assert said({"a": 0.04}, {}) == f"Compared with flat_grpo: at the 5% level, {size} differs."
    assert f"b +20.0 points [+10.0, +30.0], {size} differ." in said({"a": 0.04, "b": 0.03}, {})
    assert "1 variant, corrected among themselves: none differs" in said({"a": 0.04}, {"b": 0.9})
    assert said({}, {}) == ""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser (chromium) to run the page's script")
def test_the_page_runs_in_a_browser_and_a_number_shows_its_source(page, tmp_path):
    html = (page[0] / "index.html").read_text()
    probe = """<script>
      window.addEventListener("error", (event) => { document.title = "error: " + event.message; });
      window.addEventListener("load", () => {
        document.querySelector("button.n").click();
        const box = document.getElementById("source");
        if (document.title.startsWith("error")) return;
        document.title = [box.open, document.getElementById("source-sql").textContent].join("|");
      });</script></body>"""
    path = tmp_path / "probe.html"
    path.write_text(html.replace("</body>", probe))
    assert title_in_browser(path, tmp_path).startswith("true|SELECT avg(success)")


def title_in_browser(path, tmp_path):
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom", f"--user-data-dir={tmp_path / 'profile'}"]
    run = subprocess.run(
        ["chromium", *flags, f"file://{path}"], capture_output=True, text=True, timeout=120, check=True
    )
    return re.search(r"<title>(.*?)</title>", run.stdout, re.DOTALL)[1]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser (chromium) to run the page's script")
def test_inside_another_page_no_link_leads_to_what_is_not_there(page, tmp_path):
    """Snakemake's report shows the page in a frame, without the files that lie beside it."""
    html = (page[0] / "index.html").read_text()
    probe = """<script>addEventListener("load", () => {
        const links = document.querySelectorAll("a:not([href^='#'])").length;
        const said = `${links} links, ${document.body.innerText.includes("summary.parquet")}`;
        document.title = said;
        parent.postMessage(said, "*");
      });</script></body>"""
    path = tmp_path / "inner.html"
    path.write_text(html.replace("</body>", probe))
    outer = tmp_path / "outer.html"
    hear = "<script>addEventListener('message', (event) => { document.title = event.data; });</script>"
    outer.write_text(f"<title>nothing</title>{hear}<iframe src='inner.html'></iframe>")
    assert not title_in_browser(path, tmp_path).startswith("0 links")
    assert title_in_browser(outer, tmp_path) == "0 links, true"


def test_environment_turns_of_a_run_are_its_rollouts_the_shared_ones_and_its_continuations(tmp_path):
    config = synthetic.experiment(methods=("flat_grpo", "vineppo"), seeds=(0,), rounds=3, games=8)
    folder = synthetic.make(tmp_path, config)
    for method in config.methods:
        for round_ in (1, 2, 3):
            keys = synthetic.sampled(config, method, 0, round_)
            synthetic.metrics(Layout(folder), "rollout", keys, seconds=1.0, turns=100 * round_)
            synthetic.metrics(Layout(folder), "continuations", {**keys, "continuations": "k9"}, seconds=1.0, turns=1000)
    summary = summarise(collect(folder))
    found = {name: cell(summary, "spending", name, "environment") for name in config.methods}
    assert {name: number.value for name, number in found.items()} == {"flat_grpo": 600, "vineppo": 3600}
    # Beside flat GRPO's later rounds they are an audit's, and no run's.
    assert cell(summary, "spending", "vineppo", "continuations").value == 3000
    assert cell(summary, "spending", "flat_grpo", "continuations") == ""
    assert cell(summary, "spending", "audit", "continuations").value == 2000


def test_the_columns_of_the_time_by_stage_say_what_each_stage_does(summary):
    meanings = {
        column.key: column.meaning for found in summary.grids if found.name == "time" for column in found.columns
    }
    assert meanings["rollout"] == "groups of rollouts of one policy, as a table of turns"
    for name, stage in nonempty(stages().items()):
        assert len(stage.about) > 20, name


def test_rounds_without_credit_are_said_on_the_page_and_in_the_terminal(tmp_path, capsys):
    config = synthetic.experiment(games=12, rounds=3)
    folder = synthetic.make(tmp_path, config)
    run = {"method": "flat_grpo", "seed": 0}
    for round_, numbers in ((2, {"steps": 0.0}), (3, {"steps": 1.0, "turns_with_advantage": 0.0})):
        keys = {**run, **synthetic.sampled(config, "flat_grpo", 0, round_), "round": round_}
        synthetic.metrics(Layout(folder), "update", keys, seconds=1.0, **numbers)
    module.report(experiment=config, results=folder, out=tmp_path / "out")
    page = (tmp_path / "out" / "index.html").read_text()
    assert "Some rounds had no credit to learn from" in page
    assert "flat_grpo, seed 0: rounds 2-3" in page
    module.print_table(folder)
    assert "No credit to learn from: flat_grpo, seed 0: rounds 2-3." in capsys.readouterr().out
