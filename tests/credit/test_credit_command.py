"""`turncredit credit` and `turncredit methods` as a user meets them."""

from __future__ import annotations

import subprocess
import sys
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


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> int:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["turncredit", *arguments])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def credit(monkeypatch: pytest.MonkeyPatch, folder: Path, method: str, *more: str) -> int:
    return run(
        monkeypatch, folder, "credit", "--method", method, "--turns", "turns.parquet", "--out", "out.parquet", *more
    )


@pytest.mark.parametrize("name", sorted(METHODS))
def test_any_method_runs_on_a_table_of_anybodys(name: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    sides = [part for need in METHODS[name].needs for part in (f"--{need}", f"{need}.parquet")]
    assert credit(monkeypatch, folder, name, *sides) == 0
    turns, made = pq.read_table(folder / "turns.parquet"), tables.read(folder / "out.parquet", "credits")
    for key in ("group_id", "rollout_id", "turn"):
        assert made[key].to_pylist() == turns[key].to_pylist()
    assert tables.metadata(folder / "out.parquet")["config"]["method"] == name


@pytest.mark.parametrize("name", ["has_progressive", "oracle_progress"])
def test_measures_in_the_folder_of_the_turns_are_found(
    name: str, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """So a table of the pipeline's, whose measures are beside it, is credited as one that has them as columns."""
    assert credit(monkeypatch, folder, name) == 0
    expected = tables.read(folder / "out.parquet", "credits")
    turns = pq.read_table(folder / "turns.parquet")
    pq.write_table(turns.select([*tables.KEYS, *tables.MEASURED])[::-1], folder / "measures.parquet")
    pq.write_table(turns.drop_columns(list(tables.MEASURED)), folder / "turns.parquet")
    assert credit(monkeypatch, folder, name) == 0
    assert tables.read(folder / "out.parquet", "credits").equals(expected)
    assert "measures" in tables.metadata(folder / "out.parquet")["inputs"]


def test_settings_and_presets_change_the_result(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    seen = []
    for more in (
        (),
        ("--set", "norm=mean"),
        ("--preset", "verl_agent"),
        ("--preset", "verl_agent", "--set", "weighting=rollout"),
    ):
        assert credit(monkeypatch, folder, "gigpo", *more) == 0
        seen.append(pq.read_table(folder / "out.parquet")["advantage"].to_pylist())
    assert seen[0] != seen[1]
    assert seen[0] != seen[2]
    assert seen[0] == seen[3]


def test_two_settings_of_one_method_have_the_names_that_they_are_given(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    for name, norm in (("divided", "mean_std"), ("plain", "mean")):
        assert credit(monkeypatch, folder, "gigpo", "--set", f"norm={norm}", "--name", name) == 0
        assert set(tables.read(folder / "out.parquet", "credits")["method"].to_pylist()) == {name}
    assert tables.metadata(folder / "out.parquet")["config"]["method"] == "gigpo"


def test_what_is_set_stands_in_the_files_metadata(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    credit(monkeypatch, folder, "scpo", "--set", "shapers=[scpo, invalid_penalty]", "--set", "omega=0.5")
    params = tables.metadata(folder / "out.parquet")["config"]["params"]
    assert params["omega"] == 0.5
    assert params["penalty"] == 0.1


def without(folder: Path, *columns: str) -> None:
    table = pq.read_table(folder / "turns.parquet").drop_columns(list(columns))
    pq.write_table(table, folder / "turns.parquet")


@pytest.mark.parametrize(
    ("method", "more", "message"),
    [
        ("gigp", (), "unknown method 'gigp' (did you mean 'gigpo'?)"),
        ("gigpo", ("--set", "omgea=1"), "no parameter 'omgea' (did you mean 'omega'?)"),
        ("gigpo", ("--set", "omega"), "write key=value"),
        ("gigpo", ("--set", "omega=1", "--set", "omega=2"), "given twice"),
        ("gigpo", ("--preset", "verl_agents"), "unknown preset 'verl_agents' (did you mean 'verl_agent'?)"),
        ("triage", (), "triage needs labels; give a table with --labels"),
        ("triage", ("--labels", "nowhere.parquet"), "nowhere.parquet: no such file"),
        ("has_turnrd", ("--values", "labels.parquet"), "needs the column 'value'"),
        ("scpo", ("--set", "scorer=bm25"), "unknown scorer 'bm25'"),
    ],
)
def test_a_mistake_is_one_line_exit_code_two_and_no_file(
    method: str, more: tuple, message: str, monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture
) -> None:
    assert credit(monkeypatch, folder, method, *more) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (folder / "out.parquet").exists()


def asked(folder: Path, ask: str) -> None:
    """The labels as `turncredit judge label --ask` writes them."""
    table = pq.read_table(folder / "labels.parquet")
    meta = tables.stamp("labels", provenance.record("label", config={"ask": ask}))
    pq.write_table(table.replace_schema_metadata(meta), folder / "labels.parquet")


@pytest.mark.parametrize(
    ("method", "ask", "code"),
    [("triage", "role", 0), ("triage_scalar", "role", 2), ("has_judge", "progress", 2), ("has_judge", "score", 0)],
)
def test_labels_of_another_question_are_refused(
    method: str, ask: str, code: int, monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture
) -> None:
    asked(folder, ask)
    assert credit(monkeypatch, folder, method, "--labels", "labels.parquet") == code
    refused = f"labels.parquet: labels of `--ask {ask}`, but {method} reads labels of `--ask {METHODS[method].asks}`"
    assert (refused in capsys.readouterr().err) is bool(code)


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
def test_a_damaged_table_is_one_line_exit_code_two_and_no_file(
    kind: str, message: str, monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture
) -> None:
    damage(folder, kind)
    assert credit(monkeypatch, folder, "flat_grpo") == 2
    error = capsys.readouterr().err
    assert message in error
    assert "turns.parquet" in error
    assert error.count("\n") == 1
    assert not (folder / "out.parquet").exists()


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
def test_a_missing_column_names_itself_and_the_method(
    method: str, column: str, monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture
) -> None:
    without(folder, column)
    assert credit(monkeypatch, folder, method) == 2
    error = capsys.readouterr().err
    assert f"'{column}'" in error
    assert method.removesuffix("_no_critic") in error or column == "reward"
    assert not (folder / "out.parquet").exists()


def test_a_truncated_file_is_told_as_one(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture
) -> None:
    file = folder / "turns.parquet"
    file.write_bytes(file.read_bytes()[:200])
    assert credit(monkeypatch, folder, "flat_grpo") == 2
    assert "not a readable Parquet file" in capsys.readouterr().err


def test_the_list_has_every_method_with_its_parameters(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture
) -> None:
    assert run(monkeypatch, folder, "methods") == 0
    text = capsys.readouterr().out
    for name, method in METHODS.items():
        assert f"{name}: {method.summary}" in text
    assert "omega=1.0" in text
    assert run(monkeypatch, folder, "methods", "scpo") == 0
    assert "shaper scpo(alpha=0.5, theta=0.6" in capsys.readouterr().out
    assert run(monkeypatch, folder, "methods", "has_turnrd_outcome_only") == 0
    assert "model turnrd(lambda_value=0.0, lambda_progress=0.0, read=sft" in capsys.readouterr().out


def test_crediting_needs_no_torch(folder: Path) -> None:
    code = (
        "import sys\n"
        "sys.argv = 'turncredit credit --method scpo --turns turns.parquet --out o.parquet'.split()\n"
        "from turncredit.cli.main import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
