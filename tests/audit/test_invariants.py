"""Invariants.

1. All hold on what the stages make, in every round and in an audit.
2. Each fails, in words that name the file, when a real artifact is tampered with in the way it watches for; and what
   has nothing to do with it goes on holding.
3. A damaged or missing table is a finding, not a crash; `turncredit check` exits with 1, the stage does not fail.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from benchmarks.credit import synthetic
from tests import tiny
from turncredit.audit import hidden_probe
from turncredit.audit import invariants as watched
from turncredit.audit.logprobs import check_all, logprobs
from turncredit.cli.check import rounds_in
from turncredit.cli.main import app
from turncredit.credit import METHODS, compute, has
from turncredit.credit.parts.compose import Part
from turncredit.data import provenance, tables
from turncredit.data.turns import Turns
from turncredit.pipeline.expected_artifacts import plan_of
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan, load

EXPERIMENT = tiny.experiment(
    methods=["has_turnrd", "has_judge"],
    audit={
        "rounds": [1],
        "methods": ["has_turnrd", "has_judge", "flat_grpo", "scpo", "has_progressive"],
        "branch": {"turns": 4, "min_continuations": 2, "max_continuations": 2, "reference_continuations": 0},
    },
)
#: paths relative to the folder of results
PLAN = Plan(EXPERIMENT, "")
FIRST, SECOND = (PLAN.turns_at("has_turnrd", 0, round) for round in (1, 2))


def beside(name: str, turns: JobKeys, **keys: str) -> str:
    """The path of an artifact about these turns."""
    return PLAN.layout.path(name, turns.keys, **keys)


def of_run(name: str, method: str, round: int) -> str:
    """The path of an artifact of a method's run."""
    return PLAN.layout.path(name, method=method, seed=0, round=round)


def edit(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Tamper with a table; its metadata say what they said, but for the number of rows, which has its own check."""
    table = pq.read_table(path)
    changed = change(table)
    record = json.loads((changed.schema.metadata or table.schema.metadata)[tables.META]) | {"rows": changed.num_rows}
    pq.write_table(changed.replace_schema_metadata({tables.META: json.dumps(record)}), path)


def with_column(name: str, change: Callable[[list], list]) -> Callable[[pa.Table], pa.Table]:
    """An edit of one column, as a list."""

    def changed(table: pa.Table) -> pa.Table:
        column = pa.array(change(table.column(name).to_pylist()), table.schema.field(name).type)
        return table.set_column(table.column_names.index(name), table.schema.field(name), column)

    return changed


def first(value) -> Callable[[list], list]:
    """The first entry replaced, or changed by a function."""
    return lambda column: [value(column[0]) if callable(value) else value, *column[1:]]


def declare_successes(turns: Path, measures: Path) -> None:
    """Every third rollout is declared a success, so that there is something to learn.

    The measures are those of the rollouts as they were played; they are marked as made from the changed turns.
    """
    names = pq.read_table(turns).column("rollout_id").to_pylist()
    won = {name: number % 3 == 0 for number, name in enumerate(dict.fromkeys(names))}
    last = [row + 1 == len(names) or names[row + 1] != name for row, name in enumerate(names)]
    edit(turns, with_column("success", lambda _: [won[name] for name in names]))
    edit(turns, with_column("score", lambda _: [float(won[name]) for name in names]))
    edit(turns, with_column("reward", lambda _: [float(won[n] and end) for n, end in zip(names, last, strict=True)]))
    made_by = tables.metadata(measures)
    made_by["inputs"]["turns"] = provenance.file_hash(turns)
    tables.write(tables.read(measures), measures, "measures", made_by)


@pytest.fixture(scope="module")
def made(world, tmp_path_factory) -> Path:
    """Two rounds of a learned method, one of a method with a judge, and an audit of the first."""
    plan = Plan(EXPERIMENT, tmp_path_factory.mktemp("made"))

    def run(stage: str, at: JobKeys) -> None:
        load(stage).run(plan.job(stage, at))

    there = (("demos", {}), ("base", {}), ("sft_policy", {}), ("sft_log", {}))
    for name, keys in (*there, ("tasks", {"split": "train"}), ("tasks", {"split": "eval"})):
        to = Path(plan.layout.path(name, plan.keys(JobKeys()), **keys))
        to.parent.mkdir(parents=True, exist_ok=True)
        source = world.path(name, **keys)
        shutil.copytree(source, to) if source.is_dir() else shutil.copy(source, to)
    run("config", JobKeys())
    for turns in (FIRST, SECOND):
        run("rollout", turns)
        run("measures", turns)
        declare_successes(*(Path(plan.layout.path(name, turns.keys)) for name in ("turns", "measures")))
        run("hiddens", plan.keys_of("hiddens", turns, "has_turnrd"))
        for stage in ("credit_model", "values", "credit"):
            run(stage, replace(turns, method="has_turnrd"))
        for stage in ("update", "eval"):
            run(stage, JobKeys(method="has_turnrd", seed=0, round=turns.round))
    run("label", plan.keys_of("labels", FIRST, "has_judge"))
    for method in ("has_judge", "flat_grpo", "scpo", "has_progressive"):
        run("credit", replace(FIRST, method=method))
    run("update", JobKeys(method="has_judge", seed=0, round=1))
    run("branch", FIRST)
    return plan.layout.root


@pytest.fixture
def results(made, tmp_path) -> Path:
    """A copy that a test may tamper with."""
    return Path(shutil.copytree(made, tmp_path / "tiny"))


def findings(root: Path) -> list[dict]:
    return [row for settings, files in rounds_in(plan_of(root)) for row in check_all(settings, files)]


def failing(root: Path) -> set[str]:
    return {row["name"] for row in findings(root) if not row["holds"]}


def test_all_hold_on_what_the_stages_make(made):
    rows = findings(made)
    assert [row for row in rows if not row["holds"]] == []
    assert min(row["checked"] for row in rows) > 0
    where = {(row["run"], row["round"]) for row in rows}
    assert where == {("has_turnrd", 1), ("has_turnrd", 2), ("has_judge", 1), (FIRST.policy, 1)}
    too_few_turns = {"states"}
    assert {row["name"] for row in rows} == {*watched.CHECKS, "logprobs"} - too_few_turns
    tables.conform(watched.table(rows), "invariants", "here")


TURNS, EVALS = beside("turns", SECOND), of_run("evals", "has_turnrd", 2)
CREDITS, VALUES = (beside(name, SECOND, method="has_turnrd") for name in ("credits", "values"))
JUDGED, SCPO, TURNRD = (beside("credits", FIRST, method=name) for name in ("has_judge", "scpo", "has_turnrd"))
MEASURES, LABELS = beside("measures", FIRST), beside("labels", FIRST, judge="rule", question="score")
UPDATES = [of_run("updates", "has_turnrd", round) for round in (1, 2)]


def twice(table: pa.Table) -> pa.Table:
    """The first row a second time."""
    return pa.concat_tables([table, table.slice(0, 1)])


def reordered(table: pa.Table) -> pa.Table:
    """The first rows last."""
    return pa.concat_tables([table.slice(7), table.slice(0, 7)])


def of_version_99(table: pa.Table) -> pa.Table:
    """Another version of the schema."""
    record = json.loads(table.schema.metadata[tables.META]) | {"schema_version": 99}
    return table.replace_schema_metadata({tables.META: json.dumps(record)})


def lacking(table: pa.Table) -> pa.Table:
    """A column of another type, and another one that is gone."""
    return table.set_column(0, "policy_id", pa.array(range(table.num_rows))).drop_columns(["turns"])


#: the table, what is done to it, the checks that find it, and what one of them says
TAMPERED = [
    (of_run("updates", "has_judge", 1), of_version_99, "schemas first_ratio steps", "version 99 of 'updates'"),
    (EVALS, lacking, "schemas", "'turns'"),
    (TURNS, with_column("response_text", first("something else")), "made_from", "another 'turns'"),
    (TURNS, twice, "keys made_from", "duplicate key"),
    (TURNS, lambda table: table.slice(1), "keys made_from", "has no turn 0"),
    (TURNS, with_column("success", first(lambda value: not value)), "success made_from", "its success differs"),
    (TURNS, with_column("done", first(True)), "success made_from", "done is true before the last turn"),
    (EVALS, twice, "success", "once per rollout"),
    (TURNS, with_column("policy_id", lambda ids: ["sft"] * len(ids)), "sampled_by made_from", "policy_id is 'sft'"),
    (CREDITS, reordered, "same_keys reproduced conservation made_from", "its rows are not those of"),
    (MEASURES, with_column("progress", lambda xs: [1.0 - x for x in xs]), "reproduced made_from", "has the advantage"),
    (MEASURES, reordered, "same_keys made_from", "its rows are not those of"),
    (JUDGED, with_column("advantage", first(np.inf)), "finite reproduced made_from", "1 advantages are not finite"),
    (VALUES, with_column("value", first(None)), "finite reproduced alpha_one made_from", "missing or not finite"),
    (SCPO, with_column("advantage", first(lambda value: value + 1e-6)), "reproduced", "row 0 has the advantage"),
    (TURNRD, with_column("credit", first(lambda value: value + 1e-3)), "conservation made_from", "within 0.001"),
    (LABELS, with_column("prompt_hash", lambda ids: ["0" * 16] * len(ids)), "blind_labels made_from", "something else"),
    (
        TURNS,
        with_column("response_logprobs", lambda column: [[x - 0.01 for x in part] for part in column]),
        "logprobs made_from",
        "log-probabilities are not those of",
    ),
    (UPDATES[0], with_column("ratio_max", first(1.2)), "first_ratio", "1.20000 times"),
    (UPDATES[1], lambda table: table.slice(0, table.num_rows - 1), "steps", "3 steps, where 16 rollouts"),
]


@pytest.mark.parametrize(("file", "change", "names", "says"), TAMPERED, ids=[f"{one[2]}-{one[3]}" for one in TAMPERED])
def test_what_is_tampered_with_is_found(results, file, change, names, says):
    edit(results.parent / file, change)
    rows = [row for row in findings(results) if not row["holds"]]
    assert {row["name"] for row in rows} == set(names.split())
    assert says in " ".join(row["detail"] for row in rows)
    assert {len(row["detail"].splitlines()) for row in rows} == {1}


@pytest.mark.parametrize(
    ("dtype", "ratio", "apart", "holds"),
    [
        ("float32", 1.0005, 1e-6, True),
        ("float32", 1.2, 1e-6, False),
        ("bfloat16", 1.2, 0.012, True),
        ("bfloat16", 12.0, 0.012, True),
        ("bfloat16", 1.2, 0.06, False),
        ("bfloat16", 12.0, 0.3, False),
        ("bfloat16", 1.0, 0.3, True),  # the ratio to recomputed log-probabilities; the engine's are not its matter
        ("bfloat16", 12.0, None, None),  # an earlier version's table
    ],
)
def test_in_bfloat16_the_mean_over_the_first_minibatch_decides(results, tmp_path, dtype, ratio, apart, holds):
    log = tables.read(results.parent / of_run("updates", "has_turnrd", 1), "updates")
    log = log.set_column(log.column_names.index("ratio_max"), "ratio_max", pa.array([ratio] * len(log)))
    log = log.set_column(log.column_names.index("log_ratio"), "log_ratio", pa.array([apart] * len(log), pa.float64()))
    log = log.drop_columns("log_ratio") if apart is None else log
    path = tmp_path / "updates.parquet"
    tables.write(log, path, "updates", provenance.record("test"))
    at = SimpleNamespace(files=SimpleNamespace(updates=path), settings=SimpleNamespace(dtype=dtype, dropout=0.0))
    finding = watched.first_ratio(at)
    assert (finding and finding.holds) is holds


def test_a_policy_that_did_not_sample_the_turns_is_found(results, world):
    shutil.copytree(world.path("base"), results.parent / PLAN.sft_policy(JobKeys()), dirs_exist_ok=True)
    assert failing(results) == {"logprobs"}


@pytest.mark.parametrize(
    ("dtype", "all_by", "one_by", "holds"),
    [
        ("float32", 0.0, 0.0, True),
        ("float32", 0.0, 0.01, False),
        ("bfloat16", 0.0, 0.7, True),
        ("bfloat16", 0.0, 30.0, False),
        ("bfloat16", 0.05, 0.0, False),
    ],
)
def test_in_bfloat16_the_mean_over_tokens_decides_and_gross_errors(results, monkeypatch, dtype, all_by, one_by, holds):
    monkeypatch.setattr("turncredit.audit.logprobs.SAMPLE", 1000)  # all rollouts

    def changed(column: list) -> list:
        (first, *rest), *others = [[number - all_by for number in part] for part in column]
        return [[first - one_by, *rest], *others]

    plan = plan_of(results)
    settings, files = next((s, f) for s, f in rounds_in(plan) if (f.run, f.round) == ("has_turnrd", 2))
    edit(Path(files.turns), with_column("response_logprobs", changed))
    finding = logprobs(settings.model_copy(update={"dtype": dtype}), files)
    assert finding.holds is holds
    assert (" in the mean" in finding.detail) is not holds


def test_a_turn_term_that_acts_though_it_is_switched_off_is_found(results, monkeypatch):
    monkeypatch.setattr(has, "blend", lambda base_N, turn_N, alpha: alpha * base_N + (1.001 - alpha) * turn_N)
    assert failing(results) == {"alpha_one", "reproduced"}


@pytest.mark.parametrize("name", sorted(name for name, method in METHODS.items() if method.turn_term))
def test_alpha_one_holds_for_every_method_whatever_its_parameters_are_called(name):
    view = Turns(*synthetic.tables(synthetic.rows(3, 4, 6)))
    at = SimpleNamespace(
        files=SimpleNamespace(credits={name: ""}), credit_seed=0, method=METHODS.__getitem__, with_side=lambda _: view
    )
    finding = watched.alpha_one(at)
    assert finding.holds, finding.detail
    others = {"has_progressive", "random_credit"} - {name}
    # GAE's lambda, EMPG's zeta and MGR's critic have no value at which they are the estimator.
    assert finding.checked == view.n * (len(others) + bool(METHODS[name].turn_term.neutral))
    assert bool(METHODS[name].turn_term.neutral) is (name != "empg" and not name.startswith("mgr"))


def test_the_turn_terms_credit_is_what_sums_to_the_return_beside_one_of_the_estimators():
    def own(turns):
        return {"credit": np.full(turns.n, 7.0), "advantage": turns.reward_N}

    table, side = synthetic.tables(synthetic.rows(2, 3, 4, seed=0))
    view = Turns(table, side)
    method = replace(METHODS["has_turnrd"], estimator=Part("own", own, "estimator"))
    credits = compute(view, method)
    at = SimpleNamespace(
        files=SimpleNamespace(credits={"mine": ""}), turns=view, method=lambda _: method, credits=lambda _: credits
    )
    finding = watched.conservation(at)
    assert finding.holds, finding.detail
    assert finding.checked == view.rollouts


@pytest.mark.parametrize("file", [beside("credits", SECOND, method="has_turnrd"), beside("turns", SECOND)])
def test_a_damaged_table_is_a_finding_and_the_others_are_still_checked(results, file):
    (results.parent / file).write_bytes(b"PAR1 and then nothing")
    rows = findings(results)
    broken = {row["name"]: row for row in rows if not row["holds"]}
    assert "not a readable Parquet file" in broken["schemas"]["detail"]
    assert any(row["holds"] for row in rows if (row["run"], row["round"]) == ("has_turnrd", 2))


def test_turns_that_were_deleted_are_missed(results):
    (results.parent / beside("turns", FIRST)).unlink()
    assert {"schemas", "keys"} <= failing(results)


def test_the_stage_writes_what_fails_and_goes_on(results):
    credits = results.parent / beside("credits", SECOND, method="has_turnrd")
    edit(credits, with_column("advantage", first(lambda value: value + 1)))
    job = Plan(EXPERIMENT, results.parent).job("invariants", JobKeys(method="has_turnrd", seed=0))
    told = load("invariants").run(job)
    rows = tables.read(job.output["invariants"], "invariants").to_pylist()
    assert told["broken"] == 2
    # The update of round 2 was made from the credits as they were.
    assert {(row["name"], row["round"]) for row in rows if not row["holds"]} == {("reproduced", 2), ("made_from", 2)}
    worst = {row["name"]: row["worst"] for row in rows if row["round"] == 2}
    assert worst["reproduced"] > 0.1
    assert worst["conservation"] < 1e-5


def test_the_command_exits_with_one_where_an_invariant_fails(results):
    run = CliRunner().invoke(app, ["check", str(results)])
    assert run.exit_code == 0, run.output
    assert "invariants in 4 rounds of all runs: all hold" in run.output
    edit(results.parent / beside("credits", FIRST, method="scpo"), with_column("advantage", first(7.0)))
    run = CliRunner().invoke(app, ["check", str(results)])
    assert run.exit_code == 1
    assert "FAILS reproduced    tiny: sft-t4k4T1.0 seed 0 round 1:" in run.output
    assert "scpo.parquet: row 0 has the advantage 7" in run.output
    assert "1 violated" in run.output


def test_the_command_names_a_policy_whose_weights_have_changed_since_they_were_written(results):
    policy = results.parent / of_run("policy", "has_judge", 1)
    with (policy / "optimizer.safetensors").open("ab") as file:
        file.write(b"0")
    run = CliRunner().invoke(app, ["check", str(results)])
    assert run.exit_code == 1
    assert f"FAILS damaged       {policy}: changed since it was written" in run.output
    assert "1 violated" in run.output


def test_the_command_names_methods_that_took_other_steps_than_the_rest(results):
    """Credit must not change how many optimiser steps there are, on which sequences."""
    file = results.parent / of_run("updates", "has_judge", 1)
    edit(file, lambda table: table.slice(0, table.num_rows - 1))
    run = CliRunner().invoke(app, ["check", str(results)])
    assert run.exit_code == 1
    assert "FAILS equal_steps   tiny: seed 0, round 1: has_turnrd took 4 optimiser steps on 16 seq" in run.output


@pytest.mark.parametrize(
    ("point", "carried", "lacks"),
    [
        ("action", {"action", "observation"}, None),
        ("action", {"observation"}, "action"),
        ("action", {"action"}, "observation"),
        ("observation", {"observation"}, None),
        ("observation", {"action"}, "observation"),
    ],
)
def test_states_must_carry_what_a_model_that_reads_them_needs(tmp_path, point, carried, lacks):
    """Which is the action only where they are read over it."""
    turns, _ = synthetic.tables(synthetic.rows(40, 4, 8, seed=1))
    verbs = np.random.default_rng(0).choice(["go", "take"], turns.num_rows)
    turns = turns.set_column(turns.column_names.index("action"), "action", pa.array([f"{verb} x" for verb in verbs]))
    hidden = np.random.default_rng(1).normal(size=(turns.num_rows, 8))
    for number, question in enumerate(hidden_probe.questions(turns)):
        hidden[:, number] += 4.0 * question.yes_N * (question.about in carried)
    states = pa.array([row.astype(np.float16) for row in hidden], pa.list_(pa.float16()))
    keys = {key: turns.column(key) for key in tables.KEYS}
    path = tmp_path / f"sft-{point}.parquet"
    tables.write(pa.table({**keys, "policy_id": pa.repeat("sft", len(states)), "hidden": states}), path, "hiddens", {})
    finding = watched.states(SimpleNamespace(files=SimpleNamespace(beside_of=lambda _: [path]), table=turns))
    assert finding.holds == (lacks is None)
    said = f"AUC of a linear probe: sft-{point}: " if lacks is None else f"{path}: does not carry the {lacks}: AUC 0."
    assert finding.detail.startswith(said)
    assert (finding.worst < 0.2) == finding.holds
