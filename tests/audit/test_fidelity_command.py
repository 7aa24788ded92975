"""`turncredit fidelity` and the stage `fidelity`: any tables with the keys, one line for what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests import tiny
from tests.audit import known_truth
from tests.helpers import nonempty
from tests.helpers import turncredit as run
from turncredit.audit import fidelity as module
from turncredit.audit import scored_turns as reading
from turncredit.audit.noise_ceiling import TOO_FEW, Ceiling
from turncredit.cli import fidelity as command_module
from turncredit.cli import main as cli
from turncredit.cli.fidelity import COUNTED, SHOWN
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.pipeline.plan import Plan, load
from turncredit.views.report import audited_turns


@pytest.fixture
def paths(tmp_path):
    columns = known_truth.make(groups=6)
    methods = {"copy": columns["truth"], "flat_grpo": columns["flat"]}
    return known_truth.write(tmp_path, columns, methods, rows=np.arange(0, len(columns["turn"]), 2))


def command(paths, *more):
    return run("fidelity", *(word for name, path in paths.items() for word in (f"--{name}", str(path))), *more)


def change(path, edit):
    """Rewrite a table's columns by `edit`, a function of the columns as a dict."""
    table = pq.read_table(path)
    columns = {name: table.column(name) for name in table.column_names}
    pq.write_table(pa.table(edit(columns)), path)


def without(*names):
    return lambda columns: {name: column for name, column in columns.items() if name not in names}


@pytest.mark.slow
def test_the_command_writes_each_method_with_its_intervals_and_prints_a_table(paths, tmp_path):
    done = command(paths, "--json", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("copy") < done.stdout.index("flat_grpo")
    found = json.loads((tmp_path / "out.json").read_text())
    assert list(found) == ["copy", "flat_grpo"]
    for method in found.values():
        assert method["turns"] == 240
        for measure in ("rank_correlation", "sign_agreement", "regression_auc", "ceiling"):
            assert method[measure].keys() == {"value", "low", "high"}
            assert method[measure]["low"] <= method[measure]["value"] <= method[measure]["high"]
    assert found["copy"]["ceiling"]["low"] < found["copy"]["rank_correlation"]["value"]
    assert found["flat_grpo"]["rank_correlation"] == {"value": 0, "low": 0, "high": 0}


def test_a_ceiling_that_a_method_exceeds_is_too_few_turns_as_in_the_report(capsys):
    def row(method, measure, value, ceiling):
        top = None if ceiling is None else Ceiling(ceiling, float("nan"), float("nan"), 1)
        return module.Row(method, measure, "all", value, float("nan"), float("nan"), 9, 9, top)

    rows = [
        row(method, measure, value, ceiling)
        for method, values in {"a": (0.2, 0.74, 0.5, float("nan")), "b": (0.4, 0.5, 0.7, 0.6)}.items()
        for measure, value, ceiling in zip(SHOWN, values, (0.9, 0.68, 0.69, 0.8), strict=False)
    ]
    counts = dict.fromkeys(COUNTED, 9)
    command_module._print(module.Fidelity(tuple(rows), {"a": counts, "b": counts}))
    ceilings = next(line for line in capsys.readouterr().out.splitlines() if "(noise ceiling)" in line)
    assert ceilings.split("(noise ceiling)")[1].split() == ["+0.90", *2 * TOO_FEW.split(), "+0.80", "-"]


def test_the_ceiling_is_that_of_all_turns_where_a_method_lacks_credit_for_some(capsys):
    nan = float("nan")
    rows = [
        module.Row(method, measure, "all", value, nan, nan, turns, 9, Ceiling(top, nan, nan, 1))
        for method, value, turns, top in (("partly", 0.95, 3, 0.9), ("whole", 0.4, 200, 0.8))
        for measure in SHOWN
    ]
    counts = dict.fromkeys(COUNTED, 9)
    command_module._print(module.Fidelity(tuple(rows), {"partly": counts, "whole": counts}))
    ceilings = next(line for line in capsys.readouterr().out.splitlines() if "(noise ceiling)" in line)
    assert ceilings.split("(noise ceiling)")[1].split() == ["+0.80"] * len(SHOWN)


def test_reward_stands_in_for_success_and_nothing_but_keys_is_needed_beside(paths):
    whole, _ = reading.load(paths["turns"], [paths["credits"]], paths["branches"])
    change(paths["turns"], without("success", "family", "valid"))
    bare, _ = reading.load(paths["turns"], [paths["credits"]], paths["branches"])
    assert (bare.success_N == whole.success_N).all()
    assert bare.labels == {}


def test_a_credits_table_without_a_method_is_called_after_its_file_and_several_files_may_be_given(paths, tmp_path):
    table = pq.read_table(paths["credits"])
    one = table.filter(np.array(table.column("method").to_pylist()) == "copy").drop_columns(["method"])
    pq.write_table(one, tmp_path / "mine.parquet")
    _, credits = reading.load(paths["turns"], [paths["credits"], tmp_path / "mine.parquet"], paths["branches"])
    assert list(credits) == ["copy", "flat_grpo", "mine"]
    assert (credits["mine"] == credits["copy"]).all()


def test_ids_may_be_numbers_and_turns_of_any_integer_type(paths):
    def numbered(columns):
        rollouts = columns["rollout_id"].to_pylist()
        return {
            **columns,
            "group_id": pa.array([int(name.split("#")[0][1:]) for name in rollouts]),
            "turn": columns["turn"].cast(pa.int16()),
        }

    for path in paths.values():
        change(path, numbered)
    scored, _ = reading.load(paths["turns"], [paths["credits"]], paths["branches"])
    assert (scored.groups, len(scored)) == (6, 240)


@pytest.mark.slow
def test_the_bias_by_role_is_told_where_labels_are_given(paths, tmp_path):
    turns = pq.read_table(paths["turns"])
    roles = pa.array(["D" if turn % 3 else None for turn in turns.column("turn").to_pylist()])
    pq.write_table(turns.select(list(known_truth.KEYS)).append_column("role", roles), tmp_path / "labels.parquet")
    done = command(paths, "--labels", str(tmp_path / "labels.parquet"), "--json", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    subsets = json.loads((tmp_path / "out.json").read_text())["copy"]["subsets"]["bias"]
    assert [name for name in subsets if name.startswith("role:")] == ["role:D"]


def put(name, make):
    """A table whose column `name` is `make(column as a list)`."""
    return lambda columns: {**columns, name: pa.array(make(columns[name].to_pylist()))}


def repeated(columns):
    """A table whose first row occurs twice."""
    return {name: pa.concat_arrays([*column.chunks, column.chunk(0)[:1]]) for name, column in columns.items()}


#: which table, what is done to it, and what the message names beside its file
MISTAKES = [
    ("branches", without("advantage_true_se"), ["'advantage_true_se'"]),
    ("credits", without("advantage"), ["'advantage'"]),
    ("turns", without("success", "reward"), ["'success'", "'reward'"]),
    ("turns", without("turn"), ["'turn'"]),
    ("credits", repeated, ["duplicate", "'copy'", "'g0'", "'g0#0'", "turn 0"]),
    ("branches", repeated, ["duplicate", "'g0'", "'g0#0'", "turn 0"]),
    ("branches", put("group_id", lambda ids: ["other"] * len(ids)), ["turns.parquet", "no turn in common"]),
    ("credits", put("group_id", lambda ids: ["other"] * 480 + ids[480:]), ["'copy'", "no turn in common"]),
    ("branches", put("advantage_true", lambda xs: [np.nan, *xs[1:]]), ["'advantage_true'", "nan", "'g0#0'", "turn 0"]),
    ("branches", put("advantage_true_se", lambda xs: [-0.1] * len(xs)), ["'advantage_true_se'", "negative"]),
    ("credits", put("advantage", lambda xs: ["much"] * len(xs)), ["'advantage'", "numbers"]),
    ("branches", lambda columns: {name: column[:0] for name, column in columns.items()}, ["no rows"]),
]


@pytest.mark.parametrize(("which", "edit", "named"), MISTAKES, ids=[f"{one[0]}-{one[2][0]}" for one in MISTAKES])
def test_a_mistake_in_a_table_is_one_line_that_names_the_file(paths, which, edit, named):
    change(paths[which], edit)
    with pytest.raises(UserError) as caught:
        reading.load(paths["turns"], [paths["credits"]], paths["branches"])
    message = str(caught.value)
    assert all(word in message for word in [f"{which}.parquet", *named]), message
    assert "\n" not in message


@pytest.mark.slow
def test_a_mistake_ends_the_command_with_2_and_leaves_no_file(paths, tmp_path):
    change(paths["branches"], lambda columns: {**without("advantage_true")(columns), "advantage_tru": columns["turn"]})
    done = command(paths, "--json", str(tmp_path / "out.json"))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "(did you mean 'advantage_tru'?)" in done.stderr
    assert not (tmp_path / "out.json").exists()


def test_a_method_given_twice_is_refused(paths):
    with pytest.raises(UserError, match="the method 'copy' is in more than one credits table"):
        reading.load(paths["turns"], [paths["credits"], paths["credits"]], paths["branches"])


def test_the_command_uses_the_reports_words_for_every_measure():
    assert {name: audited_turns.FIDELITY[name][0] for name in SHOWN} == SHOWN


def test_the_column_that_needs_flat_grpos_credit_says_so_where_it_is_not_given(paths):
    words = ["fidelity", *(word for name, path in paths.items() for word in (f"--{name}", str(path)))]
    assert "needs flat_grpo" not in CliRunner().invoke(cli.app, words).output
    table = pq.read_table(paths["credits"])
    pq.write_table(table.filter(pc.not_equal(table["method"], "flat_grpo")), paths["credits"])
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 0, done.output
    line = "error minus flat: needs flat_grpo's credit of these turns; add its table with --credits"
    assert line in done.output.splitlines()


@pytest.mark.slow
def test_turns_without_credit_are_left_out_and_said(paths):
    change(paths["credits"], lambda columns: {name: column[20:] for name, column in columns.items()})
    done = command(paths)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "copy: 10 turns with ground truth have no credit and were left out\n"


def test_the_stage_writes_the_table_and_the_same_numbers_as_json(paths, tmp_path):
    plan = Plan(
        tiny.experiment(audit={"rounds": [1], "methods": ["copy", "flat_grpo"]}, define={"copy": {"base": "rloo"}})
    )
    made = []
    for number in (1, 2):
        job = plan.job("fidelity", plan.audited[0])
        job.input = {
            **{name: str(path) for name, path in paths.items()},
            "credits": [str(paths["credits"])],
            "labels": [],
        }
        job.output = {name: str(tmp_path / f"{number}.{name}") for name in job.makes}
        metrics = load("fidelity").run(job)
        made.append(Path(job.output["fidelity"]))
    assert (metrics["turns"], metrics["methods"]) == (240, 2)
    rows = tables.read(made[0], "fidelity").to_pylist()
    found = json.loads(Path(job.output["json"]).read_text(encoding="utf-8"))
    whole = nonempty(row for row in rows if row["subset"] == "all")
    assert {row["method"] for row in whole} == set(found)
    for row in whole:
        assert found[row["method"]][row["measure"]]["value"] == row["value"]
    assert made[0].read_bytes() == made[1].read_bytes()
