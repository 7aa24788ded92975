from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.results import synthetic
from turncredit import tables
from turncredit.errors import UserError
from turncredit.results import sql, views
from turncredit.results.collect import collect


def rows(query, results):
    return sql.answer(query, results).to_pylist()


def test_the_path_gives_experiment_method_seed_and_round(finished):
    query = "SELECT DISTINCT experiment, method, seed, round FROM credits ORDER BY ALL"
    found = rows(query, finished.parent)
    assert found[0] == {"experiment": "synthetic", "method": "flat_grpo", "seed": 0, "round": 1}
    assert len(found) == 4 * 2 * 5


def test_shared_rollouts_are_the_sft_policys_of_round_one(finished):
    found = rows("SELECT DISTINCT method, seed, round FROM turns WHERE path LIKE '%/sft/%' ORDER BY ALL", finished)
    assert found == [{"method": "sft", "seed": seed, "round": 1} for seed in (0, 1)]


def test_sql_and_python_place_a_file_the_same_way(finished):
    for view in ("turns", "evals", "updates", "credits"):
        by_sql = rows(f"SELECT DISTINCT path, method, seed, round FROM {view}", finished)
        assert len(by_sql) == len(views.files(view, [finished]))
        for row in by_sql:
            there = views.place(views.Path(row["path"]), finished)
            # The SFT policy's evaluations have no seed in their path; the table's own is shown.
            assert (row["method"], row["round"]) == (there["method"], there["round"])
            assert there["seed"] in (None, row["seed"])


def test_sql_and_the_report_read_the_same_rows(finished):
    count = rows("SELECT count(*) AS n, sum(success::INT) AS s FROM evals", finished)[0]
    evals = collect(finished).evals
    assert (count["n"], int(count["s"])) == (len(evals), int(evals["success"].sum()))


def test_a_results_folder_holds_all_its_experiments(tmp_path):
    for name in ("one", "two"):
        synthetic.make(tmp_path, synthetic.experiment(games=6, rounds=1, experiment=name), turns=False)
    assert [row["experiment"] for row in rows("SELECT DISTINCT experiment FROM evals ORDER BY 1", tmp_path)] == [
        "one",
        "two",
    ]
    assert [row["experiment"] for row in rows("SELECT DISTINCT experiment FROM evals", tmp_path / "two")] == ["two"]


def test_a_table_that_no_stage_has_written_is_empty_and_has_its_columns(finished):
    table = sql.answer("SELECT * FROM labels", finished)
    assert table.num_rows == 0
    assert {"experiment", "round", "judge", "role"} <= set(table.column_names)


@pytest.mark.parametrize("view", sorted(views.PATTERNS))
def test_every_view_can_be_asked_before_its_files_exist(view, tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.json").write_text("{}")
    assert sql.answer(f"SELECT * FROM {view}", tmp_path).num_rows == 0


def test_the_queries_of_the_documentation_run(audited):
    text = (Path(__file__).parents[2] / "docs/sql.md").read_text()
    queries = [
        query
        for block in re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
        for query in block.split(";")
        if query.strip()
    ]
    assert len(queries) >= 4
    for query in queries:
        assert sql.answer(query, audited).num_rows > 0, query


def test_tables_about_turns_join_on_one_number(audited):
    by_keys = """SELECT c.method, c.seed, c.round, count(*) AS n, sum(c.advantage * t.turn) AS s FROM credits c
        JOIN turns t USING (experiment, seed, round, group_id, rollout_id, turn)
        WHERE t.method IN ('sft', c.method) GROUP BY ALL ORDER BY ALL"""
    by_number = """SELECT c.method, c.seed, c.round, count(*) AS n, sum(c.advantage * t.turn) AS s FROM credits c
        JOIN turns t USING (turn_id) GROUP BY ALL ORDER BY ALL"""
    found = rows(by_number, audited)
    assert [row | {"s": pytest.approx(row["s"])} for row in rows(by_keys, audited)] == found
    assert len(found) == 4 * 2 * 3
    whole = rows("SELECT count(*) AS n, count(DISTINCT turn_id) AS d FROM turns", audited)[0]
    assert whole["n"] == whole["d"]


def test_what_an_audit_made_joins_the_turns_it_is_about(audited):
    found = rows("SELECT run, method, seed, round, count(*) AS n FROM branches GROUP BY ALL ORDER BY ALL", audited)
    assert [(row["run"], row["method"], row["seed"], row["round"]) for row in found] == [
        ("flat_grpo", "flat_grpo", seed, round_) for seed in (0, 1) for round_ in (1, 3)
    ]
    joined = rows("SELECT count(*) AS n FROM branches JOIN turns USING (turn_id) JOIN labels USING (turn_id)", audited)
    assert joined[0]["n"] == sum(row["n"] for row in found)
    credited = rows("SELECT count(*) AS n FROM branches b JOIN audit_credits c USING (turn_id)", audited)
    assert credited[0]["n"] == len(synthetic.FIDELITY) * joined[0]["n"]


@pytest.mark.parametrize("view", ["fidelity", "gradients", "leaks"])
def test_measures_of_an_audit_name_their_method_and_the_audited_run(view, audited):
    found = rows(f"SELECT DISTINCT method, run, round FROM {view}", audited)
    assert {row["run"] for row in found} == {"flat_grpo"}
    assert {row["method"] for row in found} == set(synthetic.LEARNED if view == "leaks" else synthetic.FIDELITY)
    assert {row["round"] for row in found} == ({3} if view == "leaks" else {1, 3})


def test_columns_that_only_some_files_have_are_found_all_the_same(tmp_path):
    folder = synthetic.make(tmp_path, synthetic.experiment(games=6, rounds=1))
    path = folder / "runs/oracle_progress/seed0/round01/credits.parquet"
    table = tables.read(path, "credits")
    distance = pa.array([1.5] * table.num_rows)
    tables.write(table.append_column("distance_term", distance), path, "credits", synthetic.MADE_BY)
    first = folder / "runs/flat_grpo/seed0/round01/credits.parquet"
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


def test_the_judges_cache_belongs_to_all_experiments(tmp_path):
    folder = synthetic.make(tmp_path, synthetic.experiment(games=6, rounds=1), turns=False)
    text = dict.fromkeys(("key", "model", "ask", "prompt_version", "prompt", "decoding", "answer"), "x")
    row = text | {"finish_reason": None, "tokens_in": 7, "tokens_out": 1, "seconds": 0.5}
    table = pa.Table.from_pylist([row], schema=tables.schema("judge_cache"))
    tables.write(table, tmp_path / "judge_cache/a.parquet", "judge_cache", synthetic.MADE_BY)
    for results in (tmp_path, folder):
        assert rows("SELECT sum(tokens_in)::INT AS n FROM judge_cache", results) == [{"n": 7}]


def test_a_folder_above_the_results_may_have_any_name(tmp_path):
    place = tmp_path / "runs" / "audit" / "seed9" / "sft"
    place.mkdir(parents=True)
    synthetic.make(place, synthetic.experiment(methods=["flat_grpo"], seeds=[0], games=6, rounds=1))
    found = rows("SELECT DISTINCT experiment, method, seed, round FROM credits", place)
    assert found == [{"experiment": "synthetic", "method": "flat_grpo", "seed": 0, "round": 1}]


def test_rounds_may_have_three_digits(tmp_path):
    folder = synthetic.make(tmp_path, synthetic.experiment(methods=["flat_grpo"], seeds=[0], games=6, rounds=1))
    (folder / "runs/flat_grpo/seed0/round01").rename(folder / "runs/flat_grpo/seed0/round123")
    assert rows("SELECT DISTINCT round FROM credits", folder) == [{"round": 123}]


def test_the_mean_of_a_boolean_is_refused_with_what_to_write(finished):
    with pytest.raises(UserError, match=r"write avg\(success::INT\)"):
        rows("SELECT avg(success) FROM evals", finished)


def test_metrics_are_a_table_too(finished):
    found = rows("SELECT sum(value) AS s FROM metrics WHERE name = 'wall_s' AND stage = 'update'", finished)
    assert found[0]["s"] == pytest.approx(3.0 * 4 * 2 * 5)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT * FROM turn", "no view 'turn' (did you mean 'turns'?)"),
        ("SELECT succes FROM evals", "succes"),
        ("SELEC 1", "Parser Error"),
    ],
)
def test_a_wrong_query_is_one_line(query, said, finished):
    with pytest.raises(UserError) as caught:
        sql.answer(query, finished)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_results_folders_are_named(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        sql.answer("SELECT 1 FROM evals", tmp_path / "nowhere")
    with pytest.raises(UserError, match="no experiment here"):
        sql.answer("SELECT 1 FROM evals", tmp_path)


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
    with pytest.raises(UserError, match=r"\.parquet or a \.csv"):
        sql.run(query, results=finished, format="table", out=tmp_path / "a.txt")


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
