"""`turncredit credit` and `turncredit methods` as a user meets them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.credit import synthetic
from turncredit.cli.main import main
from turncredit.credit import METHODS
from turncredit.data import provenance, tables


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = synthetic.rows(3, 3, 8, seed=1)
    table, side = synthetic.tables(made[::-1])
    pq.write_table(table, tmp_path / "turns.parquet")
    for name, part in side.items():
        pq.write_table(part, tmp_path / f"{name}.parquet")
    return tmp_path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Callable[..., int]:
    """The exit code of `turncredit ...` in the folder."""

    def ran(*arguments: str) -> int:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["turncredit", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        return int(stop.value.code or 0)

    return ran


@pytest.fixture
def credit(run: Callable[..., int]) -> Callable[..., int]:
    """The exit code of `turncredit credit --method ...` on the folder's turns."""
    return lambda method, *more: run(
        "credit", "--method", method, "--turns", "turns.parquet", "--out", "out.parquet", *more
    )


@pytest.fixture
def refused(credit: Callable[..., int], folder: Path, capsys: pytest.CaptureFixture) -> Callable[..., str]:
    """The one line of an error with exit code 2, which leaves no file."""

    def told(method: str, *more: str) -> str:
        assert credit(method, *more) == 2
        assert not (folder / "out.parquet").exists()
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    return told


@pytest.mark.parametrize(
    ("groups", "rewards", "warned"),
    [
        ("ab", [0.0, 1.0], "every group has one rollout, and methods compare the rollouts of a group"),
        ("aab", [1.0, 1.0, 0.0], "the rollouts of each group have equal returns"),
        ("aa", [1.0, 0.0], None),
    ],
)
def test_credit_that_is_0_everywhere_is_warned_of_with_the_reason(groups, rewards, warned, credit, folder, capsys):
    keys = {"group_id": list(groups), "rollout_id": [str(number) for number in range(len(groups))]}
    pq.write_table(pa.table({**keys, "turn": [0] * len(groups), "reward": rewards}), folder / "turns.parquet")
    assert credit("flat_grpo") == 0
    out = capsys.readouterr().out
    assert ("warning: every advantage is 0" in out) == (warned is not None)
    assert (warned or "") in out


@pytest.mark.parametrize("name", sorted(METHODS))
def test_any_method_runs_on_a_table_of_anybodys(name, credit, folder):
    sides = [part for need in METHODS[name].needs for part in (f"--{need}", f"{need}.parquet")]
    assert credit(name, *sides) == 0
    turns, made = pq.read_table(folder / "turns.parquet"), tables.read(folder / "out.parquet", "credits")
    for key in ("group_id", "rollout_id", "turn"):
        assert made[key].to_pylist() == turns[key].to_pylist()
    assert tables.metadata(folder / "out.parquet")["config"]["method"] == name


@pytest.mark.parametrize("name", ["has_progressive", "oracle_progress"])
def test_measures_in_the_folder_of_the_turns_are_found(name, credit, folder):
    """So a table of the pipeline's, whose measures are beside it, is credited as one that has them as columns."""
    assert credit(name) == 0
    expected = tables.read(folder / "out.parquet", "credits")
    turns = pq.read_table(folder / "turns.parquet")
    pq.write_table(turns.select([*tables.KEYS, *tables.MEASURED])[::-1], folder / "measures.parquet")
    pq.write_table(turns.drop_columns(list(tables.MEASURED)), folder / "turns.parquet")
    assert credit(name) == 0
    assert tables.read(folder / "out.parquet", "credits").equals(expected)
    assert "measures" in tables.metadata(folder / "out.parquet")["inputs"]


def test_settings_and_presets_change_the_result(credit, folder):
    seen, agent = [], ("--preset", "verl_agent")
    for more in ((), ("--set", "norm=mean"), agent, (*agent, "--set", "weighting=rollout")):
        assert credit("gigpo", *more) == 0
        seen.append(pq.read_table(folder / "out.parquet")["advantage"].to_pylist())
    assert seen[0] != seen[1]
    assert seen[0] != seen[2]
    assert seen[0] == seen[3]


def test_two_settings_of_one_method_have_the_names_that_they_are_given(credit, folder):
    for name, norm in (("divided", "mean_std"), ("plain", "mean")):
        assert credit("gigpo", "--set", f"norm={norm}", "--name", name) == 0
        assert set(tables.read(folder / "out.parquet", "credits")["method"].to_pylist()) == {name}
    assert tables.metadata(folder / "out.parquet")["config"]["method"] == "gigpo"


def test_what_is_set_stands_in_the_files_metadata(credit, folder):
    credit("scpo", "--set", "shapers=[scpo, invalid_penalty]", "--set", "omega=0.5")
    params = tables.metadata(folder / "out.parquet")["config"]["params"]
    assert params["omega"] == 0.5
    assert params["penalty"] == 0.1


def without(folder: Path, *columns: str) -> None:
    table = pq.read_table(folder / "turns.parquet").drop_columns(list(columns))
    pq.write_table(table, folder / "turns.parquet")


@pytest.mark.parametrize(
    ("method", "more", "message"),
    [
        ("gigp", (), "'gigpo'"),
        ("gigpo", ("--set", "omgea=1"), "'omega'"),
        ("gigpo", ("--set", "omega"), "write key=value"),
        ("gigpo", ("--set", "omega=1", "--set", "omega=2"), "given twice"),
        ("gigpo", ("--preset", "verl_agents"), "'verl_agent'"),
        ("triage", (), "triage needs labels; give a table with --labels"),
        ("triage", ("--labels", "nowhere.parquet"), "nowhere.parquet: no such file"),
        ("flat_grpo", ("--labels", "nowhere.parquet"), "nowhere.parquet: no such file"),
        ("has_turnrd", ("--values", "labels.parquet"), "needs the column 'value'"),
        ("scpo", ("--set", "scorer=bm25"), "unknown scorer 'bm25'"),
    ],
)
def test_a_mistake_is_one_line_exit_code_two_and_no_file(method, more, message, refused):
    assert message in refused(method, *more)


def asked(folder: Path, ask: str) -> None:
    """The labels as `turncredit judge label --ask` writes them."""
    table = pq.read_table(folder / "labels.parquet")
    meta = tables.stamp("labels", provenance.record("label", config={"ask": ask}))
    pq.write_table(table.replace_schema_metadata(meta), folder / "labels.parquet")


@pytest.mark.parametrize(
    ("method", "ask", "code"),
    [("triage", "role", 0), ("triage_scalar", "role", 2), ("has_judge", "progress", 2), ("has_judge", "score", 0)],
)
def test_labels_of_another_question_are_refused(method, ask, code, credit, folder, capsys):
    asked(folder, ask)
    assert credit(method, "--labels", "labels.parquet") == code
    says = (
        f"labels.parquet: made with `--ask {ask}`, but {method} needs labels made with `--ask {METHODS[method].asks}`"
    )
    assert (says in capsys.readouterr().err) is bool(code)


def test_a_function_of_ones_own_is_told_which_question_the_labels_answer(credit, folder, capsys):
    (folder / "mine.py").write_text("def mine(turns):\n    return turns.side_table('labels').numbers('score')")
    asked(folder, "progress")
    assert credit("mine.py", "--labels", "labels.parquet") == 0
    assert "labels.parquet: made with `--ask progress`\n" in capsys.readouterr().out


def test_values_of_another_model_are_refused(credit, refused, folder):
    values = pq.read_table(folder / "values.parquet")
    pq.write_table(values.append_column("model", pa.repeat("critic", len(values))), folder / "theirs.parquet")
    said = "theirs.parquet: values of the model critic, but turn_value reads those of turn_value; give that"
    assert said in refused("turn_value", "--values", "theirs.parquet")
    (folder / "mine.py").write_text("def mine(turns):\n    return turns.side_table('values').numbers('value')")
    for method, file in (("ppo", "theirs.parquet"), ("turn_value", "values.parquet"), ("mine.py", "theirs.parquet")):
        assert credit(method, "--values", file) == 0


def damage(folder: Path, kind: str) -> None:
    rows = pq.read_table(folder / "turns.parquet").to_pylist()
    if kind == "duplicate":
        rows.append(rows[0])
    elif kind == "gap":
        rows = [row for row in rows if row["turn"] != 1]
    elif kind == "nan":
        rows[0]["reward"] = float("nan")
    elif kind == "two groups":
        next(row for row in rows if row["turn"] == 1)["group_id"] = "other"
    pq.write_table(pa.Table.from_pylist(rows), folder / "turns.parquet")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("duplicate", "duplicate key"),
        ("gap", "has no turn 1"),
        ("nan", "column 'reward' is nan"),
        ("two groups", "is in more than one group"),
    ],
)
def test_a_damaged_table_is_one_line_exit_code_two_and_no_file(kind, message, refused, folder):
    damage(folder, kind)
    error = refused("flat_grpo")
    assert message in error
    assert "turns.parquet" in error


@pytest.mark.parametrize(
    ("method", "column"),
    [
        ("flat_grpo", "reward"),
        ("gigpo", "observation"),
        ("hgpo", "observation"),
        ("scpo", "action"),
        ("scpo", "next_observation"),
        ("has_progressive", "progress"),
        ("oracle_progress", "distance"),
        ("mgr_no_critic", "action"),
        ("hipif", "well_formed"),
    ],
)
def test_a_missing_column_names_itself_and_the_method(method, column, refused, folder):
    without(folder, column)
    error = refused(method)
    assert f"'{column}'" in error
    assert method.removesuffix("_no_critic") in error or column == "reward"


def test_a_truncated_file_is_told_as_one(refused, folder):
    file = folder / "turns.parquet"
    file.write_bytes(file.read_bytes()[:200])
    assert "not a readable Parquet file" in refused("flat_grpo")


def test_the_list_has_every_method_with_its_parameters(run, capsys):
    assert run("methods") == 0
    text = capsys.readouterr().out
    for name, method in METHODS.items():
        assert f"{name}: {method.summary}" in text
    assert "omega=1.0" in text
    assert run("methods", "scpo") == 0
    assert "shaper scpo(alpha=0.5, theta=0.6" in capsys.readouterr().out
    assert run("methods", "has_turnrd_outcome_only") == 0
    assert "model turnrd(lambda_value=0.0, lambda_progress=0.0, hidden_policy=sft" in capsys.readouterr().out


def test_crediting_needs_no_torch(folder: Path) -> None:
    code = (
        "import sys\n"
        "sys.argv = 'turncredit credit --method scpo --turns turns.parquet --out o.parquet'.split()\n"
        "from turncredit.cli.main import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
