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
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests import tiny
from turncredit import tables
from turncredit.analysis import check
from turncredit.analysis import invariants as watched
from turncredit.analysis import logprobs as stage
from turncredit.cli.main import app
from turncredit.config import sampling_slug
from turncredit.credit import has
from turncredit.credit_models.hiddens import hiddens
from turncredit.credit_models.train import credit_model, values
from turncredit.rollouts.evaluate import evaluate
from turncredit.rollouts.rollout import rollout
from turncredit.stages.credit import credit
from turncredit.stages.label import label
from turncredit.training.update import update

EXPERIMENT = tiny.experiment(methods=["has_turnrd", "has_judge"])
SHARED = f"sft/rollouts/{sampling_slug(EXPERIMENT.rollout)}/seed0"
TURNRD, JUDGE = "runs/has_turnrd/seed0", "runs/has_judge/seed0"
AUDIT = "audit/has_turnrd/seed0/round01"


def edit(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Tamper with a table: its metadata go on saying what they said."""
    table = pq.read_table(path)
    pq.write_table(change(table).replace_schema_metadata(table.schema.metadata), path)


def with_column(name: str, change: Callable[[list], list]) -> Callable[[pa.Table], pa.Table]:
    """An edit of one column, as a list."""

    def changed(table: pa.Table) -> pa.Table:
        column = pa.array(change(table.column(name).to_pylist()), table.schema.field(name).type)
        return table.set_column(table.column_names.index(name), table.schema.field(name), column)

    return changed


def first(value) -> Callable[[list], list]:
    """The first entry replaced, or changed by a function."""
    return lambda column: [value(column[0]) if callable(value) else value, *column[1:]]


def play(world, root: Path, turns: Path, round: int, policy: Path) -> None:
    """A round's rollouts, of which every third is declared a success, so that there is something to learn."""
    run = "sft" if round == 1 else "has_turnrd"
    tasks = world.path("train.parquet")
    rollout(experiment=EXPERIMENT, method=run, seed=0, round=round, policy=policy, tasks=tasks, out=turns)
    names = pq.read_table(turns).column("rollout_id").to_pylist()
    won = {name: number % 3 == 0 for number, name in enumerate(dict.fromkeys(names))}
    last = [row + 1 == len(names) or names[row + 1] != name for row, name in enumerate(names)]
    edit(turns, with_column("success", lambda _: [won[name] for name in names]))
    edit(turns, with_column("score", lambda _: [float(won[name]) for name in names]))
    edit(turns, with_column("reward", lambda _: [float(won[n] and end) for n, end in zip(names, last, strict=True)]))
    given = {"experiment": EXPERIMENT, "policy": root / "sft" / "policy", "turns": turns, "read": "sft"}
    hiddens(**given, point="observation", out=turns.with_name("hiddens.parquet"))


def shape(method: str, round: int, turns: Path, side: dict, at: Path, policy: Path | None) -> None:
    """A round's credits and, with a policy, its update and evaluation."""
    given = {"experiment": EXPERIMENT, "method": method, "seed": 0, "round": round}
    credit(**given, turns=turns, side=side, out=at / "credits.parquet")
    if policy is not None:
        files = {"policy": policy, "reference": policy, "turns": turns, "credits": at / "credits.parquet"}
        update(**given, **files, out=at / "policy", updates=at / "updates.parquet")


@pytest.fixture(scope="module")
def made(world, tmp_path_factory) -> Path:
    """Two rounds of a learned method, one of a method with a judge, and an audit of the first."""
    root = tmp_path_factory.mktemp("made") / "tiny"
    shutil.copytree(world.path("sft"), root / "sft" / "policy")
    (root / "config.json").write_text(json.dumps(EXPERIMENT.model_dump(mode="json")))
    turns, policy, model = root / SHARED / "turns.parquet", root / "sft" / "policy", None
    learned = {"experiment": EXPERIMENT, "method": "has_turnrd", "seed": 0}
    for round in (1, 2):
        at = root / TURNRD / f"round{round:02d}"
        before, turns = turns, turns if round == 1 else at / "rollouts" / "turns.parquet"
        play(world, root, turns, round, policy)
        given = {"turns": [before], "hiddens": [before.with_name("hiddens.parquet")], "previous": model}
        if round == 1:
            given["turns"] = []
        credit_model(**learned, round=round, **given, credits=[], out=at / "credit_model")
        model = at / "credit_model"
        files = {"model": model, "turns": turns, "hiddens": turns.with_name("hiddens.parquet")}
        values(**learned, round=round, **files, out=at / "values.parquet")
        shape("has_turnrd", round, turns, {"values": at / "values.parquet"}, at, policy)
        policy = at / "policy"
        evaluate(**learned, round=round, policy=policy, tasks=world.path("eval.parquet"), out=at / "evals.parquet")
    turns = root / SHARED / "turns.parquet"
    labels = root / SHARED / "labels" / "rule-score.parquet"
    label(experiment=EXPERIMENT, ask="score", turns=turns, cache=root / "cache", out=labels)
    at = root / JUDGE / "round01"
    shape("has_judge", 1, turns, {"labels": labels}, at, root / "sft" / "policy")
    for name in ("has_turnrd", "has_judge", "flat_grpo", "scpo"):
        kind = {"has_turnrd": {"values": root / TURNRD / "round01" / "values.parquet"}, "has_judge": {"labels": labels}}
        out = root / AUDIT / "credits" / f"{name}.parquet"
        given = {"experiment": EXPERIMENT, "method": name, "seed": 0, "round": 1, "side": kind.get(name, {})}
        credit(**given, turns=turns, out=out)
    (root / AUDIT / "values").mkdir()
    shutil.copy(root / TURNRD / "round01" / "values.parquet", root / AUDIT / "values" / "has_turnrd.parquet")
    return root


@pytest.fixture
def results(made, tmp_path) -> Path:
    """A copy that a test may tamper with."""
    return Path(shutil.copytree(made, tmp_path / "tiny"))


def findings(root: Path) -> list[dict]:
    return [row for files in check.rounds_in(root, EXPERIMENT) for row in stage.check_all(EXPERIMENT, files)]


def failing(root: Path) -> set[str]:
    return {row["name"] for row in findings(root) if not row["holds"]}


def test_all_hold_on_what_the_stages_make(made):
    rows = findings(made)
    assert [row for row in rows if not row["holds"]] == []
    assert min(row["checked"] for row in rows) > 0
    where = {(row["run"], row["round"]) for row in rows}
    assert where == {("has_turnrd", 1), ("has_turnrd", 2), ("has_judge", 1)}
    assert {row["name"] for row in rows} == {*watched.CHECKS, "logprobs"}
    tables.conform(watched.table(rows), "invariants", "here")


TAMPERED = {
    "another version of a schema": (
        f"{JUDGE}/round01/updates.parquet",
        lambda table: table,  # the metadata are changed below
        {"schemas", "first_ratio"},
        "schema version 99 of 'updates'",
    ),
    "a column of another type": (
        f"{TURNRD}/round02/evals.parquet",
        lambda table: table.set_column(0, "policy_id", pa.array(range(table.num_rows))).drop_columns(["turns"]),
        {"schemas"},
        "needs the column 'turns', which is missing",
    ),
    "turns that are not those the credit was made from": (
        f"{TURNRD}/round02/rollouts/turns.parquet",
        with_column("response_text", first("something else")),
        {"made_from"},
        "made from other turns than those beside it",
    ),
    "a turn that is there twice": (
        f"{TURNRD}/round02/rollouts/turns.parquet",
        lambda table: pa.concat_tables([table, table.slice(0, 1)]),
        {"keys", "made_from"},
        "duplicate key",
    ),
    "a gap in the turns": (
        f"{TURNRD}/round02/rollouts/turns.parquet",
        lambda table: table.slice(1),
        {"keys", "made_from"},
        "has no turn 0",
    ),
    "success counted per turn": (
        f"{TURNRD}/round02/rollouts/turns.parquet",
        with_column("success", first(lambda value: not value)),
        {"success", "made_from"},
        "its success is not the one of the rollout's last turn",
    ),
    "a rollout that goes on after it was done": (
        f"{TURNRD}/round02/rollouts/turns.parquet",
        with_column("done", first(True)),
        {"success", "made_from"},
        "done, but the rollout goes on",
    ),
    "an evaluated rollout that counts twice": (
        f"{TURNRD}/round02/evals.parquet",
        lambda table: pa.concat_tables([table, table.slice(0, 1)]),
        {"success"},
        "success is counted once per rollout",
    ),
    "turns of another policy": (
        f"{TURNRD}/round02/rollouts/turns.parquet",
        with_column("policy_id", lambda column: ["sft"] * len(column)),
        {"sampled_by", "made_from"},
        "policy_id is 'sft' where it should be 'has_turnrd/seed0/round01'",
    ),
    "credits in another order": (
        f"{TURNRD}/round02/credits.parquet",
        lambda table: pa.concat_tables([table.slice(7), table.slice(0, 7)]),
        {"same_keys", "reproduced", "conservation", "made_from"},
        "its rows are not those of",
    ),
    "an advantage that is not finite": (
        f"{JUDGE}/round01/credits.parquet",
        with_column("advantage", first(np.inf)),
        {"finite", "reproduced", "made_from"},
        "1 advantages are not finite",
    ),
    "values of which some are missing": (
        f"{TURNRD}/round02/values.parquet",
        with_column("value", first(None)),
        {"finite", "reproduced", "alpha_one", "made_from"},
        "some values are missing or not finite",
    ),
    "an advantage that the method does not give": (
        f"{AUDIT}/credits/scpo.parquet",
        with_column("advantage", first(lambda value: value + 1e-6)),
        {"reproduced"},
        "row 0 has the advantage",
    ),
    "credits that do not sum to the return": (
        f"{AUDIT}/credits/has_turnrd.parquet",
        with_column("credit", first(lambda value: value + 1e-3)),
        {"conservation"},
        "sum to its return only within 0.001",
    ),
    "labels of a judge that saw something else": (
        f"{SHARED}/labels/rule-score.parquet",
        with_column("prompt_hash", lambda column: ["0" * 16] * len(column)),
        {"blind_labels", "made_from"},
        "the judge was shown something else",
    ),
    "log-probabilities that are not the policy's": (
        f"{TURNRD}/round02/rollouts/turns.parquet",
        with_column("response_logprobs", lambda column: [[x - 0.01 for x in part] for part in column]),
        {"logprobs", "made_from"},
        "log-probabilities are not those of",
    ),
    "an update that did not start where the rollouts were sampled": (
        f"{TURNRD}/round01/updates.parquet",
        with_column("ratio_max", first(1.2)),
        {"first_ratio"},
        "1.20000 times as likely as when sampled",
    ),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_what_is_tampered_with_is_found(results, what):
    file, change, names, says = TAMPERED[what]
    edit(results / file, change)
    if what == "another version of a schema":
        table = pq.read_table(results / file)
        record = json.loads(table.schema.metadata[tables.META]) | {"schema_version": 99}
        pq.write_table(table.replace_schema_metadata({tables.META: json.dumps(record)}), results / file)
    rows = [row for row in findings(results) if not row["holds"]]
    assert {row["name"] for row in rows} == names
    details = " ".join(row["detail"] for row in rows)
    assert says in details
    assert {len(row["detail"].splitlines()) for row in rows} == {1}


def test_a_policy_that_did_not_sample_the_turns_is_found(results, world):
    shutil.copytree(world.path("base"), results / "sft" / "policy", dirs_exist_ok=True)
    assert failing(results) == {"logprobs"}


def test_a_turn_term_that_acts_though_it_is_switched_off_is_found(results, monkeypatch):
    monkeypatch.setattr(has, "blend", lambda base_N, turn_N, alpha: alpha * base_N + (1.001 - alpha) * turn_N)
    assert failing(results) == {"alpha_one", "reproduced"}


@pytest.mark.parametrize("file", [f"{TURNRD}/round02/credits.parquet", f"{TURNRD}/round02/rollouts/turns.parquet"])
def test_a_damaged_table_is_a_finding_and_the_others_are_still_checked(results, file):
    (results / file).write_bytes(b"PAR1 and then nothing")
    rows = findings(results)
    broken = {row["name"]: row for row in rows if not row["holds"]}
    assert "not a readable Parquet file" in broken["schemas"]["detail"]
    assert any(row["holds"] for row in rows if (row["run"], row["round"]) == ("has_turnrd", 2))


def test_turns_that_were_deleted_are_missed(results):
    (results / SHARED / "turns.parquet").unlink()
    assert {"schemas", "keys"} <= failing(results)


def test_the_stage_writes_what_fails_and_goes_on(results, tmp_path):
    edit(results / TURNRD / "round02" / "credits.parquet", with_column("advantage", first(lambda value: value + 1)))
    rounds = [files for files in check.rounds_in(results, EXPERIMENT) if files.run == "has_turnrd"]
    told = stage.invariants(experiment=EXPERIMENT, rounds=rounds, out=tmp_path / "invariants.parquet")
    rows = tables.read(tmp_path / "invariants.parquet", "invariants").to_pylist()
    assert told["broken"] == 2
    # The update of round 2 was made from the credits as they were.
    assert {(row["name"], row["round"]) for row in rows if not row["holds"]} == {("reproduced", 2), ("made_from", 2)}
    worst = {row["name"]: row["worst"] for row in rows if row["round"] == 2}
    assert worst["reproduced"] > 0.1
    assert worst["conservation"] < 1e-5


def test_the_command_exits_with_one_where_an_invariant_fails(results):
    run = CliRunner().invoke(app, ["check", str(results)])
    assert run.exit_code == 0, run.output
    assert "invariants in 4 rounds: all hold" in run.output
    edit(results / AUDIT / "credits" / "scpo.parquet", with_column("advantage", first(7.0)))
    run = CliRunner().invoke(app, ["check", str(results)])
    assert run.exit_code == 1
    assert "FAILS reproduced    tiny: has_turnrd seed 0 round 1:" in run.output
    assert "scpo.parquet: row 0 has the advantage 7" in run.output
    assert "1 do not hold" in run.output
