from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import tiny
from tests.results import synthetic
from turncredit.config.layout import Layout
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.stats import intervals
from turncredit.views import sql, sql_views
from turncredit.views.collect import collect
from turncredit.views.experiments import RunRound, paid_by, played_for
from turncredit.views.sql_columns import MEANINGS, meaning


def rows(query, results):
    return sql.answer(query, results).to_pylist()


def test_the_path_gives_experiment_policy_method_seed_and_round(finished):
    query = "SELECT DISTINCT experiment, policy, method, seed, round FROM credits ORDER BY ALL"
    found = rows(query, finished.parent)
    first = {"experiment": "synthetic", "policy": "flat_grpo", "method": "flat_grpo", "seed": 0, "round": 2}
    assert found[0] == first
    assert len(found) == 4 * 2 * 5


def test_a_path_outside_the_results_is_answered_with_the_option_that_opens_it(finished, tmp_path):
    path = tmp_path / "mine.parquet"
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(UserError) as caught:
        rows(f"SELECT * FROM '{path}'", finished)
    assert str(caught.value) == (
        f"sql: {path}: a query reads the results only, or what --file gives; give this Parquet file so, and "
        "query it by its name (turns.parquet is the view turns)"
    )
    assert sql.answer("SELECT * FROM mine", finished, files=[path]).to_pylist() == [{"x": 1}]


def test_demonstrations_can_be_queried_though_no_policy_sampled_them(finished, world, tmp_path):
    folder = tmp_path / "results" / "synthetic"
    demos = Path(Layout(folder).path("demos"))
    demos.parent.mkdir(parents=True)
    shutil.copy(finished / "config.json", folder)
    shutil.copy(world.path("demos"), demos)
    assert rows("SELECT count(*) AS n FROM demos", folder) == [{"n": pq.read_metadata(demos).num_rows}]


def test_shared_rollouts_are_the_sft_policys_of_round_one(finished):
    found = rows("SELECT DISTINCT policy, seed, round FROM turns WHERE policy LIKE 'sft-%' ORDER BY ALL", finished)
    assert found == [{"policy": "sft-t4k4T1.0", "seed": seed, "round": 1} for seed in (0, 1)]


@pytest.mark.parametrize("view", ["turns", "evals", "updates", "credits", "labels", "fidelity", "invariants"])
def test_sql_and_python_place_a_file_the_same_way(view, audited):
    layout = Layout(audited)
    located = [found for name in sql_views.TABLES[view] for found in layout.find(name)]
    keys = sorted({key for found in located for key in found.keys})
    by_sql = {row.pop("path"): row for row in rows(f"SELECT DISTINCT path, {', '.join(keys)} FROM {view}", audited)}
    assert by_sql == {str(found.path): found.keys for found in located}


def test_a_runs_own_credit_is_that_of_the_turns_it_learned_from(audited):
    own = "SELECT DISTINCT method, seed, round, policy FROM run_credits ORDER BY ALL"
    found = [tuple(row.values()) for row in rows(own, audited)]
    assert found == [
        (method, seed, round_, "sft-t4k4T1.0" if round_ == 1 else method)
        for method in sorted(synthetic.CEILINGS)
        for seed in (0, 1)
        for round_ in (1, 2, 3)
    ]
    # The same rows as by the table of runs: `credits` has the credit of compared methods beside them.
    by_runs = """SELECT count(*) AS n, sum(advantage) AS s FROM credits
        JOIN runs USING (experiment, method, seed, round, policy)"""
    counted = rows("SELECT count(*) AS n, sum(advantage) AS s FROM run_credits", audited)
    assert counted == [row | {"s": pytest.approx(row["s"])} for row in rows(by_runs, audited)]
    assert counted[0]["n"] < rows("SELECT count(*) AS n FROM credits", audited)[0]["n"]


def test_methods_that_sample_otherwise_have_round_one_turns_of_their_own(tmp_path):
    hot = {"base": "flat_grpo", "rollout": {"temperature": 1.5}}
    config = synthetic.experiment(methods=["flat_grpo", "hot"], seeds=[0], games=6, rounds=2, define={"hot": hot})
    folder = synthetic.make(tmp_path, config)
    found = rows("SELECT method, round, policy FROM runs ORDER BY ALL", folder)
    assert [tuple(row.values()) for row in found] == [
        ("flat_grpo", 1, "sft-t4k4T1.0"),
        ("flat_grpo", 2, "flat_grpo"),
        ("hot", 1, "sft-t4k4T1.5"),
        ("hot", 2, "hot"),
    ]
    ids = rows("SELECT count(*) AS n, count(DISTINCT turn_id) AS d FROM turns WHERE round = 1", folder)[0]
    assert ids["n"] == ids["d"]


def test_a_results_folder_holds_all_its_experiments(tmp_path):
    for name in ("one", "two"):
        synthetic.make(tmp_path, synthetic.experiment(games=6, rounds=1, experiment=name), turns=False)
    assert [row["experiment"] for row in rows("SELECT DISTINCT experiment FROM evals ORDER BY 1", tmp_path)] == [
        "one",
        "two",
    ]
    assert [row["experiment"] for row in rows("SELECT DISTINCT experiment FROM evals", tmp_path / "two")] == ["two"]


def test_a_query_that_mixes_experiments_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results = tmp_path / "results"
    for name in ("one", "two"):
        synthetic.make(results, synthetic.experiment(games=6, rounds=1, experiment=name), turns=name == "one")

    def said(query, where=results):
        sql.run(query, results=where, format="csv", out=None)
        return capsys.readouterr().err

    line = "2 experiments: one, two; add experiment to the query or --results results/one\n"
    assert said("SELECT avg(success::INT) FROM evals") == line
    assert said("SELECT avg(success) FROM success") == line
    assert said("SELECT count(*) FROM metrics") == line
    assert said("SELECT experiment, avg(success::INT) FROM evals GROUP BY 1") == ""
    assert said("SELECT avg(success::INT) FROM evals WHERE experiment = 'one'") == ""
    assert said("SELECT * FROM evals") == ""
    assert said("SELECT avg(reward) FROM turns") == ""  # which only one has
    assert said("SELECT avg(success::INT) FROM evals", results / "one") == ""
    assert said("SELECT 1") == ""


def test_a_table_that_no_stage_has_written_is_empty_and_has_its_columns(finished):
    table = sql.answer("SELECT * FROM labels", finished)
    assert table.num_rows == 0
    assert {"experiment", "round", "judge", "role"} <= set(table.column_names)


@pytest.mark.parametrize("view", sorted(sql_views.VIEWS))
def test_every_view_can_be_asked_before_its_files_exist(view, tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.json").write_text("{}")
    assert sql.answer(f"SELECT * FROM {view}", tmp_path).num_rows == 0


@pytest.mark.parametrize("view", sorted(sql_views.VIEWS))
def test_every_column_of_every_view_is_described_with_its_meaning(view, finished):
    described = rows(f"DESCRIBE {view};", finished)
    assert list(described[0]) == ["column_name", "column_type", "meaning"]
    assert [one["column_name"] for one in described] == sql.answer(f"SELECT * FROM {view}", finished).column_names
    assert [one["column_name"] for one in described if not 0 < len(one["meaning"]) <= 80] == []  # wide as a cell


def test_every_column_of_a_schema_has_a_meaning_and_no_meaning_is_left_over():
    columns = {name: tables.schema(name).names for name in (*sql_views.TABLES, sql_views.CACHE)}
    assert [(view, one) for view, names in columns.items() for one in names if not meaning(view, one)] == []
    known = {one for names in columns.values() for one in names} | {*sql_views.PROVENANCE_SCHEMA.names}
    computed = {"turn_id", "paid_by", "rollouts", "successes"}
    beyond_the_schema = {"trained", "log_ratio", "log_ratio_max", "advantage_first_half", "advantage_second_half"}
    assert set(MEANINGS) - known == computed | beyond_the_schema


@pytest.mark.parametrize("query", ["show tables", "SHOW ALL TABLES;"])
def test_the_views_are_listed_with_what_a_row_of_each_is(query, finished):
    listed = {row["view"]: row["one row per"] for row in rows(query, finished)}
    assert sorted(listed) == sorted(sql_views.VIEWS)
    assert all(listed.values())


def test_files_are_listed_by_their_names(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "mine.parquet")
    listed = sql.answer("show tables", tmp_path, files=[tmp_path / "mine.parquet"])
    assert listed.to_pylist() == [{"name": "mine"}]


def test_the_queries_of_the_documentation_run(audited):
    text = (Path(__file__).parents[2] / "docs/sql.md").read_text()
    queries = [
        query
        for block in re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
        for query in block.split(";")
        if query.strip() and "FROM summary" not in query  # there is no report here
    ]
    assert len(queries) >= 4
    for query in queries:
        # These results have another method than the default experiment.
        asked = query.replace("household", "synthetic").replace("has_judge", "has_progressive")
        assert sql.answer(asked, audited).num_rows > 0, query


def test_tables_about_turns_join_on_one_number(audited):
    by_keys = """SELECT c.policy, c.method, c.seed, c.round, count(*) AS n, sum(c.advantage * t.turn) AS s
        FROM credits c JOIN turns t USING (experiment, policy, seed, round, group_id, rollout_id, turn)
        GROUP BY ALL ORDER BY ALL"""
    by_number = """SELECT c.policy, c.method, c.seed, c.round, count(*) AS n, sum(c.advantage * t.turn) AS s
        FROM credits c JOIN turns t USING (turn_id) GROUP BY ALL ORDER BY ALL"""
    found = rows(by_number, audited)
    assert [row | {"s": pytest.approx(row["s"])} for row in rows(by_keys, audited)] == found
    # Four methods' own rounds, and in the two audited ones the others of the comparison.
    assert len(found) == 4 * 2 * 3 + 2 * 2 + 2 * 5
    whole = rows("SELECT count(*) AS n, count(DISTINCT turn_id) AS d FROM turns", audited)[0]
    assert whole["n"] == whole["d"]


def test_turns_have_their_measures_where_a_query_asks_for_them(finished, tmp_path):
    folder = Path(shutil.copytree(finished, tmp_path / finished.name))
    Path(Layout(folder).path("measures", policy="flat_grpo", seed=0, round=2)).unlink()
    found = rows("SELECT turn_id, progress, distance_before, policy, seed, round FROM turns", folder)
    whole = sql.answer("SELECT * FROM turns", folder)
    assert len(found) == whole.num_rows == rows("SELECT count(*) AS n FROM turns", folder)[0]["n"]
    assert set(tables.MEASURED) <= set(whole.column_names)
    assert (whole.column_names[0], whole.column_names[-1]) == ("experiment", "path")
    measured = {
        row["turn_id"]: row for row in rows("SELECT turn_id, progress, distance_before FROM measures", finished)
    }
    assert measured
    for row in found:
        known = measured[row["turn_id"]]
        gone = (row["policy"], row["seed"], row["round"]) == ("flat_grpo", 0, 2)
        assert row["progress"] == (None if gone else known["progress"])
        assert row["distance_before"] == (None if gone else known["distance_before"])


def test_ground_truth_joins_the_turns_it_is_about(audited):
    found = rows("SELECT policy, seed, round, count(*) AS n FROM branches GROUP BY ALL ORDER BY ALL", audited)
    assert [(row["policy"], row["seed"], row["round"]) for row in found] == [
        (policy, seed, round_) for policy, round_ in (("flat_grpo", 3), ("sft-t4k4T1.0", 1)) for seed in (0, 1)
    ]
    joined = rows("SELECT count(*) AS n FROM branches JOIN turns USING (turn_id) JOIN labels USING (turn_id)", audited)
    assert joined[0]["n"] == sum(row["n"] for row in found)
    credited = rows("SELECT count(*) AS n FROM branches b JOIN credits c USING (turn_id)", audited)
    assert credited[0]["n"] == len(synthetic.FIDELITY) * joined[0]["n"]


@pytest.mark.parametrize("view", ["fidelity", "gradients", "leaks"])
def test_measures_name_their_method_and_whose_turns_they_are_of(view, audited):
    found = rows(f"SELECT DISTINCT method, policy, round FROM {view}", audited)
    places = {("flat_grpo", 3)} if view == "leaks" else {("flat_grpo", 3), ("sft-t4k4T1.0", 1)}
    assert {(row["policy"], row["round"]) for row in found} == places
    assert {row["method"] for row in found} == set(synthetic.LEARNED if view == "leaks" else synthetic.FIDELITY)


def test_columns_that_only_some_files_have_are_found_all_the_same(tmp_path):
    folder = synthetic.make(tmp_path, synthetic.experiment(games=6, rounds=1))
    shared = folder / "rollouts/sft-t4k4T1.0/seed0/round01"
    path = shared / "credits/oracle_progress.parquet"
    table = tables.read(path, "credits")
    distance = pa.array([1.5] * table.num_rows)
    tables.write(table.append_column("distance_term", distance), path, "credits", synthetic.MADE_BY)
    first = shared / "credits/flat_grpo.parquet"
    tables.write(tables.read(first, "credits").drop_columns(["turn_term"]), first, "credits", synthetic.MADE_BY)
    for query, expected in (
        ("SELECT avg(distance_term) AS x FROM credits", 1.5),
        ("SELECT count(distance_term) AS x FROM credits", table.num_rows),
        ("SELECT count(*) - count(turn_term) AS x FROM credits WHERE seed = 0", table.num_rows),
    ):
        assert rows(query, folder) == [{"x": expected}]
    for query in ("SELECT * FROM credits", "FROM credits", "SELECT c.* FROM credits c", "DESCRIBE credits"):
        text = str(sql.answer(query, folder).to_pydict())
        assert "distance_term" in text
        assert "turn_term" in text


@pytest.mark.parametrize("column", ["cost", "Cost of it"])
def test_a_further_column_that_is_whole_in_the_first_file_keeps_the_others_fractions(tmp_path, column):
    folder = synthetic.make(tmp_path, synthetic.experiment(methods=["flat_grpo"], seeds=[0], games=6, rounds=2))
    first, second = (file.path for file in Layout(folder).find("credits"))
    for path, value in ((first, 0), (second, 0.4)):
        table = tables.read(path, "credits")
        tables.write(
            table.append_column(column, pa.array([value] * table.num_rows)), path, "credits", synthetic.MADE_BY
        )
    for view in ("credits", "run_credits"):
        assert rows(f'SELECT max("{column.lower()}") AS most FROM {view}', folder) == [{"most": 0.4}]


def test_the_judges_cache_belongs_to_all_experiments(tmp_path):
    folder = synthetic.make(tmp_path, synthetic.experiment(games=6, rounds=1), turns=False)
    text = dict.fromkeys(("key", "model", "ask", "prompt_version", "prompt", "decoding", "answer"), "x")
    row = text | {"finish_reason": None, "tokens_in": 7, "tokens_out": 1, "seconds": 0.5}
    table = pa.Table.from_pylist([row], schema=tables.schema("judge_cache"))
    tables.write(table, tmp_path / "judge_cache/a.parquet", "judge_cache", synthetic.MADE_BY)
    for results in (tmp_path, folder):
        assert rows("SELECT sum(tokens_in)::INT AS n FROM judge_cache", results) == [{"n": 7}]


@pytest.mark.parametrize("source", ["judge_cache", "'{folder}/judge_cache/*.parquet'"])
def test_the_judges_cache_needs_no_experiment_beside_it(source, tmp_path):
    tables.write(tables.schema("judge_cache").empty_table(), tmp_path / "judge_cache/a.parquet", "judge_cache", {})
    assert rows(f"SELECT count(*) AS n FROM {source.format(folder=tmp_path)}", tmp_path) == [{"n": 0}]
    with pytest.raises(UserError, match="a query reads the results only"):
        sql.answer(f"SELECT * FROM '{tmp_path.parent}/*.parquet'", tmp_path)


@pytest.mark.parametrize("view", [view for view in sql_views.VIEWS if view != "judge_cache"])
def test_the_other_views_need_an_experiment(view, tmp_path):
    tables.write(tables.schema("judge_cache").empty_table(), tmp_path / "judge_cache/a.parquet", "judge_cache", {})
    for query in (f"SELECT count(*) FROM {view}", f"SELECT * FROM judge_cache, {view}"):
        with pytest.raises(UserError, match=f"no experiment here, only the judge's cache, and the view {view} needs"):
            rows(query, tmp_path)
    assert rows(f"SELECT '{view}' AS {view} FROM judge_cache", tmp_path) == []


def test_a_folder_above_the_results_may_have_any_name(tmp_path):
    place = tmp_path / "runs" / "rollouts" / "seed9" / "sft"
    place.mkdir(parents=True)
    synthetic.make(place, synthetic.experiment(methods=["flat_grpo"], seeds=[0], games=6, rounds=1))
    found = rows("SELECT DISTINCT experiment, method, seed, round FROM credits", place)
    assert found == [{"experiment": "synthetic", "method": "flat_grpo", "seed": 0, "round": 1}]


def test_a_name_with_wildcards_is_that_of_one_folder_or_file(tmp_path):
    """DuckDB would read the files of `runs1` for those of `runs[1]`."""
    config = synthetic.experiment(methods=["flat_grpo"], seeds=[0], games=6, rounds=1)
    synthetic.make(tmp_path / "runs[1]", config)
    synthetic.make(tmp_path / "runs1", synthetic.experiment(methods=["gigpo"], seeds=[0], games=6, rounds=1))
    assert rows("SELECT DISTINCT method FROM credits", tmp_path / "runs[1]") == [{"method": "flat_grpo"}]
    for name, value in (("x[1]", 7), ("x1", 8), ("x*", 9), ("x?", 10)):
        pq.write_table(pa.table({"x": [value]}), tmp_path / f"{name}.parquet")
        found = sql.answer(f'SELECT x FROM "{name}"', tmp_path, files=[tmp_path / f"{name}.parquet"])
        assert found.to_pylist() == [{"x": value}]


def test_rounds_may_have_three_digits(tmp_path):
    folder = synthetic.make(tmp_path, synthetic.experiment(methods=["flat_grpo"], seeds=[0], games=6, rounds=2))
    (folder / "rollouts/flat_grpo/seed0/round02").rename(folder / "rollouts/flat_grpo/seed0/round123")
    assert rows("SELECT DISTINCT round FROM credits ORDER BY 1", folder) == [{"round": 1}, {"round": 123}]


def test_the_mean_of_a_boolean_is_refused_with_what_to_write(finished):
    with pytest.raises(UserError, match=r"write avg\(success::INT\)"):
        rows("SELECT avg(success) FROM evals", finished)


def test_metrics_are_a_table_too(finished):
    found = rows("SELECT sum(value) AS s FROM metrics WHERE name = 'wall_s' AND stage = 'update'", finished)
    assert found[0]["s"] == pytest.approx(3.0 * 4 * 2 * 5)


def test_metrics_say_who_pays(audited):
    query = "SELECT DISTINCT paid_by, stage, method, policy FROM metrics WHERE seed = 0 AND round IN (1, 3)"
    found = {tuple(row.values()) for row in rows(query, audited)}
    shared = "sft-t4k4T1.0"
    assert {row for row in found if row[0] in ("shared", "audit")} == {
        ("shared", "rollout", None, shared),
        ("audit", "branch", None, shared),
        ("audit", "branch", None, "flat_grpo"),
    }
    assert {row for row in found if row[0] == "flat_grpo"} == {
        ("flat_grpo", "rollout", None, "flat_grpo"),
        ("flat_grpo", "credit", "flat_grpo", shared),
        ("flat_grpo", "credit", "flat_grpo", "flat_grpo"),
        ("flat_grpo", "update", "flat_grpo", None),
        ("flat_grpo", "eval", "flat_grpo", None),
    }


@pytest.mark.parametrize(
    ("stage", "keys", "payer"),
    [
        ("credit", {"policy": "sft-t4k4T1.0", "method": "rloo", "round": 1}, "audit"),
        ("credit", {"policy": "flat_grpo", "method": "rloo", "round": 2}, "audit"),
        ("credit_model", {"policy": "flat_grpo", "method": "flat_grpo", "round": 2}, "flat_grpo"),
        ("logprobs", {"policy": "sft-t4k4T1.0", "scorer": "hindsight", "round": 1}, "shared"),
        ("logprobs", {"policy": "gigpo", "scorer": "sft", "round": 2}, "gigpo"),
        ("logprobs", {"policy": "gigpo", "scorer": "implicit-istar", "round": 2}, "audit"),
        (
            "hiddens",
            {"policy": "sft-t4k4T1.0", "hidden_policy": "sft", "hidden_position": "action", "round": 1},
            "shared",
        ),
        ("rollout_invariants", {"policy": "flat_grpo", "round": 2}, "audit"),
        ("eval", {"method": "sft", "round": 1}, "shared"),
        ("demos", {}, "shared"),
    ],
)
def test_a_compared_methods_credit_is_paid_by_the_audit(stage, keys, payer):
    rounds = {RunRound("flat_grpo", 0, 1, "sft-t4k4T1.0"), RunRound("flat_grpo", 0, 2, "flat_grpo")}
    assert paid_by(stage, {"seed": 0, **keys}, rounds) == payer


@pytest.mark.parametrize(
    ("keys", "payer"),
    [
        ({"policy": "vineppo", "round": 2, "continuations": "k9"}, "vineppo"),
        ({"policy": "sft-t4k4T1.0", "round": 1, "continuations": "k9"}, "vineppo"),
        ({"policy": "sft-t4k4T1.0", "round": 1, "continuations": "k32"}, "shared"),
        ({"policy": "flat_grpo", "round": 2, "continuations": "k9"}, "audit"),
        ({"policy": "vineppo", "round": 2, "continuations": "k32"}, "audit"),
    ],
)
def test_continuations_are_paid_by_the_runs_that_learn_from_them_and_elsewhere_by_the_audit(keys, payer):
    methods = ("flat_grpo", "vineppo", "truth", "more")
    define = {"more": {"base": "vineppo", "continuations": {"per_state": 32}}}
    played = played_for(tiny.experiment(methods=list(methods), define=define))
    rounds = {RunRound(name, 0, 1, "sft-t4k4T1.0") for name in methods}
    rounds |= {RunRound(name, 0, 2, name) for name in methods}
    assert paid_by("continuations", {"seed": 0, **keys}, rounds, played) == payer


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT * FROM turn", "no view 'turn' (did you mean 'turns'?)"),
        ("SELECT succes FROM evals", "succes"),
        ("SELEC 1", "Parser Error"),
        ("-- nothing", "the query is empty"),
        ("SELECT 1; SELECT 2", "2 statements, of which only the last is answered"),
    ],
)
def test_a_wrong_query_is_one_line(query, said, finished):
    with pytest.raises(UserError) as caught:
        sql.answer(query, finished)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "written",
    [
        "COPY (SELECT 1) TO '{path}'",
        "COPY (PIVOT evals ON method USING count(*)) TO '{path}'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{path}'",
        "EXPLAIN (ANALYZE, FORMAT json) COPY (SELECT 1) TO '{path}'",
        "EXPLAIN ANALYZE /* SELECT */ COPY (PIVOT evals ON method USING count(*)) TO '{path}'",
        "SELECT 1; COPY (SELECT 1) TO '{path}'",
    ],
)
def test_a_query_writes_nothing_although_duckdb_might_in_the_folder_that_it_reads(written, finished):
    path = finished / "written.csv"
    with pytest.raises(UserError, match="answers queries and changes nothing, so it runs no"):
        sql.answer(written.format(path=path), finished)
    assert not path.exists()


@pytest.mark.parametrize(
    "query",
    ["EXPLAIN SELECT 1", "EXPLAIN (ANALYZE) FROM evals", "(PIVOT evals ON method USING count(*))", "DESCRIBE evals"],
)
def test_whatever_only_reads_is_answered(query, finished):
    assert sql.answer(query, finished).num_rows > 0


def test_wrong_results_folders_are_named(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        sql.answer("SELECT 1 FROM evals", tmp_path / "nowhere")
    with pytest.raises(UserError, match="no experiment here"):
        sql.answer("SELECT 1 FROM evals", tmp_path)


@pytest.mark.parametrize("text", ["null", "[1]", "3"])
def test_a_config_json_that_is_no_mapping_is_named(text, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"config.json: not a configuration, but a .*; delete it and run again"):
        sql.answer("SELECT * FROM runs", tmp_path)


def test_answers_come_as_csv_json_and_files(finished, capsys, tmp_path):
    query = "SELECT method, count(*) AS n FROM evals GROUP BY method ORDER BY method"
    expected = rows(query, finished)
    sql.run(query, results=finished, format="csv", out=None)
    assert [row["method"] for row in csv.DictReader(io.StringIO(capsys.readouterr().out))] == [
        row["method"] for row in expected
    ]
    sql.run(query, results=finished, format="json", out=None)
    assert json.loads(capsys.readouterr().out) == expected
    sql.run(query, results=finished, format="table", out=tmp_path / "a.parquet")
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == expected
    with pytest.raises(UserError, match=r"Parquet \(\.parquet\) or CSV \(\.csv\)"):
        sql.run(query, results=finished, format="table", out=tmp_path / "a.txt")


def test_sums_of_whole_numbers_and_decimals_are_numbers_in_json(finished, capsys):
    query = "SELECT sum(turns) AS s, 1.5::DECIMAL(4, 2) AS d, [sum(turns)] AS l FROM evals"
    sql.run(query, results=finished, format="json", out=None)
    (row,) = json.loads(capsys.readouterr().out)
    (turns,) = rows("SELECT sum(turns)::BIGINT AS s FROM evals", finished)
    assert row == {"s": turns["s"], "d": 1.5, "l": [turns["s"]]}


def test_a_column_that_parquet_cannot_hold_is_one_line(finished, tmp_path):
    out = tmp_path / "a.parquet"
    with pytest.raises(UserError, match="Parquet has no type for month_day_nano_interval; cast that column"):
        sql.run("SELECT INTERVAL 1 DAY AS i FROM runs", results=finished, format="table", out=out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("'nan'::DOUBLE", None),
        ("'-inf'::DOUBLE", None),
        ("['inf'::DOUBLE, 1.5]", [None, 1.5]),
        ("{'low': 'nan'::DOUBLE}", {"low": None}),
    ],
)
def test_json_has_null_for_what_is_no_finite_number(value, said, finished, capsys):
    sql.run(f"SELECT {value} AS x FROM runs LIMIT 1", results=finished, format="json", out=None)
    assert json.loads(capsys.readouterr().out) == [{"x": said}]


def test_a_long_answer_says_what_it_leaves_out(finished, capsys):
    sql.run("SELECT task_id FROM evals", results=finished, format="table", out=None)
    out = capsys.readouterr().out
    assert f"first {sql.SHOWN_ROWS} of" in out
    assert len(out.splitlines()) < sql.SHOWN_ROWS + 8


def test_broken_metrics_are_named(tmp_path):
    folder = synthetic.make(tmp_path, synthetic.experiment(games=6, rounds=1), turns=False)
    path = folder / "runs/flat_grpo/seed0/round01/metrics/update.json"
    for text, said in (("{", "not readable as metrics"), ("{}", "no 'stage'")):
        path.write_text(text)
        with pytest.raises(UserError, match=said) as caught:
            rows("SELECT * FROM metrics", tmp_path)
        assert str(path) in str(caught.value)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_macro_gives_the_wilson_interval_of_the_report(counts):
    low, high = intervals.wilson(*counts)
    with duckdb.connect() as connection:
        connection.execute(sql_views.WILSON)
        found = connection.execute("SELECT wilson(?, ?)", counts).fetchone()[0]
    assert (found["low"], found["high"]) == (pytest.approx(float(low)), pytest.approx(float(high)))


def test_the_macro_is_null_without_a_trial(finished):
    assert rows("SELECT wilson(0, 0) AS w FROM runs LIMIT 1", finished) == [{"w": None}]


@pytest.mark.parametrize("source", ['"success"', "runs, success", "runs SEMI JOIN (success) USING (method)"])
def test_success_is_found_however_a_query_names_it(source, finished):
    assert rows(f"SELECT count(*) > 0 AS there FROM {source}", finished) == [{"there": True}]


def test_success_has_one_row_for_each_policy_and_mode(finished):
    evals = collect(finished).evals
    found = rows("SELECT method, round, seed, mode, successes FROM success ORDER BY ALL", finished)
    summed = evals.groupby(["method", "round", "seed", "mode"])["success"].sum()
    assert [row["successes"] for row in found] == summed.tolist()
    assert rows("SELECT count(*) AS n FROM evals WHERE success", finished) == [{"n": int(summed.sum())}]


def test_files_are_queried_by_their_names_and_nothing_else_is(tmp_path: Path) -> None:
    for name in ("mine", "other", "secret"):
        pq.write_table(pa.table({"turn": [0, 1], name: [1.0, 2.0]}), tmp_path / f"{name}.parquet")
    files = [tmp_path / "mine.parquet", tmp_path / "other.parquet"]
    joined = sql.answer("SELECT mine + other AS both FROM mine JOIN other USING (turn)", tmp_path, files=files)
    assert joined["both"].to_pylist() == [2.0, 4.0]
    with pytest.raises(UserError, match=r"there is no view 'turns'.*the views are mine, other"):
        sql.answer("SELECT * FROM turns", tmp_path, files=files)
    with pytest.raises(UserError, match="sql: "):
        sql.answer(f"SELECT * FROM '{tmp_path}/secret.parquet'", tmp_path, files=files)
    with pytest.raises(UserError, match="'mine' was given twice"):
        sql.answer("SELECT * FROM mine", tmp_path, files=[files[0], files[0]])


def test_a_file_with_a_dot_in_its_name_is_queried_in_quotes(tmp_path: Path) -> None:
    path = tmp_path / "mine.gigpo.parquet"
    pq.write_table(pa.table({"turn": [0, 1]}), path)
    assert sql.answer('SELECT turn FROM "mine.gigpo"', tmp_path, files=[path]).num_rows == 2
    with pytest.raises(UserError, match='put this name in double quotes, as in from "mine'):
        sql.answer("SELECT turn FROM mine.gigpo", tmp_path, files=[path])


def test_what_a_policy_wrote_does_not_reach_the_terminal_as_a_command(tmp_path: Path, capsys) -> None:
    pq.write_table(pa.table({"action": ["go \x1b[31mred \x1b]0;title\x07"]}), tmp_path / "mine.parquet")
    sql.run("SELECT * FROM mine", results=tmp_path, format="table", out=None, files=[tmp_path / "mine.parquet"])
    assert "go ␛[31mred ␛]0;title␇" in capsys.readouterr().out


def test_the_name_of_a_file_is_no_sql(tmp_path: Path) -> None:
    odd = tmp_path / 'a" AS SELECT 1; CREATE TABLE made (x INT); --.parquet'
    pq.write_table(pa.table({"x": [7]}), odd)
    named = odd.stem.replace('"', '""')
    assert sql.answer(f'SELECT x FROM "{named}"', tmp_path, files=[odd]).to_pylist() == [{"x": 7}]
    with pytest.raises(UserError, match="no view 'made'"):
        sql.answer("SELECT * FROM made", tmp_path, files=[odd])


def test_the_numbers_of_several_reports_are_one_table(tmp_path):
    """A number has a path of its own: that of the files it is made from."""
    number = {"table": "final", "row": "a", "column": "final", "title": "Final success", "heading": "final success"}
    number |= {"value": 0.5, "unit": "share", "note": "", "sql": ""}
    for name in ("one", "two"):
        (tmp_path / name / "report").mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
        path = Path(Layout(tmp_path / name).path("summary"))
        table = pa.Table.from_pylist([{**number, "path": f"runs/{name}.parquet"}], tables.schema("summary"))
        tables.write(table, path, "summary", synthetic.MADE_BY)
    query = "SELECT experiment, path FROM summary ORDER BY ALL"
    assert [tuple(row.values()) for row in rows(query, tmp_path)] == [
        ("one", "runs/one.parquet"),
        ("two", "runs/two.parquet"),
    ]


def test_columns_of_one_name_get_names_of_their_own(tmp_path, capsys):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "t.parquet")
    query, where = "select a.x, b.x, 7 as x_2 from t a, t b", {"results": tmp_path, "files": [tmp_path / "t.parquet"]}
    sql.run(query, format="json", out=None, **where)
    assert json.loads(capsys.readouterr().out) == [{"x": 1, "x_3": 1, "x_2": 7}]
    sql.run(query, format="table", out=tmp_path / "out.parquet", **where)
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == [{"x": 1, "x_3": 1, "x_2": 7}]
