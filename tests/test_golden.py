from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tests import golden

CREDIT = {
    "turn": pa.array([0, 1], pa.int32()),
    "advantage": [0.5, math.nan],
    "hidden": pa.array([[0.5, math.nan], [1.0]], pa.list_(pa.float32())),
    "score": pa.array([None, 0.25], pa.float64()),
    "created_by": ["1.0"] * 2,
}
MADE_BY = {"stage": "credit", "code": "1.0", "config": {"alpha": 1}, "inputs": {"turns": "ab"}, "seed": 0}
METRICS = {
    "stage": "credit",
    "settings": "5e",
    "started": 1.0,
    "wall_s": 2.0,
    "metrics": {"rows": 2.0},
    "files": {"credits": "c0"},
    "hash": "d1",
}
SUMMARY = {"table": ["final", "time"], "value": [0.5, 7.0], "low": [0.4, 6.0], "high": [0.6, 8.0]}
SUMMARY["unit"] = ["share", "seconds"]
CREDITS = "rollouts/gigpo/seed0/round02/credits/gigpo.parquet"
PROVENANCE = "runs/gigpo/seed0/round01/policy/provenance.json"
WEIGHTS = "runs/gigpo/seed0/round01/policy/model.safetensors"
OF_CREDIT = "rollouts/gigpo/seed0/round02/metrics/credit-gigpo.json"


def write_table(path: Path, made_by: dict | None = None, columns: dict = CREDIT, **changed) -> None:
    meta = json.dumps({**MADE_BY, **(made_by or {})})
    pq.write_table(pa.table({**columns, **changed}).replace_schema_metadata({"turncredit": meta}), path)


def write_json(path: Path, data: dict, **changed) -> None:
    path.write_text(json.dumps({**data, **changed}), encoding="utf-8")


@pytest.fixture
def old(tmp_path):
    """One file of each kind."""
    root = tmp_path / "old"
    for name in (CREDITS, PROVENANCE, OF_CREDIT, "report/x", "logs/x"):
        (root / name).parent.mkdir(parents=True)
    write_table(root / CREDITS)
    write_table(root / "report/summary.parquet", columns=SUMMARY)
    pa.csv.write_csv(pa.table(SUMMARY), root / "report/summary.csv")
    (root / "report/index.html").write_text("7 seconds")
    (root / "logs/credit.log").write_text("7 seconds")
    (root / WEIGHTS).write_bytes(b"weights")
    write_json(root / PROVENANCE, MADE_BY, content="c1", files={"model.safetensors": "f0"})
    write_json(root / OF_CREDIT, METRICS)
    write_json(root / "config.json", {"seeds": [0]})
    return root


@pytest.fixture
def new(old, tmp_path):
    return Path(shutil.copytree(old, tmp_path / "new"))


def test_a_copy_is_the_same(old, new, capsys):
    assert golden.main([str(old), str(new)]) == 0
    assert "8 files compared (2 tables, 1 folders, 1 metrics), 0 differences" in capsys.readouterr().out


def test_times_the_commit_and_created_by_make_no_difference(old, new):
    later = {"code": "1.0+abc123", "inputs": {"turns": "of a table with another commit"}}
    write_table(new / CREDITS, later, created_by=["1.0+abc123"] * 2)
    write_json(new / PROVENANCE, {**MADE_BY, **later}, content="c1", files={"model.safetensors": "f0"})
    write_json(new / OF_CREDIT, METRICS, started=9.0, wall_s=3.0, files={"credits": "c1"}, hash="d2")
    slower = {**SUMMARY, "value": [0.5, 7.5], "high": [0.6, None]}
    write_table(new / "report/summary.parquet", columns=slower)
    pa.csv.write_csv(pa.table(slower), new / "report/summary.csv")
    (new / "report/index.html").write_text("8 seconds")
    (new / "logs/credit.log").write_text("8 seconds")
    (new / "logs/more.log").touch()
    assert golden.compare(old, new)[0][:-1] == []


@pytest.mark.parametrize(
    ("name", "change", "line"),
    [
        (CREDITS, lambda path: write_table(path, advantage=[0.5, 1.0]), "column advantage differs in 1 of 2 rows"),
        (CREDITS, lambda path: write_table(path, advantage=[0.5 + 2**-53, math.nan]), "by at most 1.11e-16"),
        (CREDITS, lambda path: write_table(path, score=[0.0, 0.25]), "None in OLD, 0.0 in NEW"),
        (CREDITS, lambda path: write_table(path, turn=pa.array([1, 0], pa.int32())), "column turn differs in 2 of 2"),
        (CREDITS, lambda path: write_table(path, turn=[0, 1]), "column turn is int32 in OLD, int64 in NEW"),
        (CREDITS, lambda path: write_table(path, more=[1, 1]), "column more only in NEW"),
        (CREDITS, lambda path: write_table(path, columns=dict(reversed(CREDIT.items()))), "columns are in another"),
        (
            CREDITS,
            lambda path: write_table(path, hidden=pa.array([[0.5, math.nan], [-1.0]], pa.list_(pa.float32()))),
            "column hidden differs in 1 of 2 rows",
        ),
        (CREDITS, lambda path: write_table(path, columns={"turn": [0]}), "2 rows in OLD, 1 in NEW"),
        (CREDITS, lambda path: write_table(path, {"config": {"alpha": 2}}), "provenance: config"),
        (CREDITS, lambda path: write_table(path, {"code": "1.1"}), "provenance: code"),
        (CREDITS, lambda path: write_table(path, {"inputs": {"turns": "other"}}), "provenance: inputs"),
        (CREDITS, lambda path: write_table(path, {"code": "1.0+a", "inputs": {}}), "provenance: inputs"),
        (PROVENANCE, lambda path: write_json(path, MADE_BY, content="c2", files={}), "content"),
        (WEIGHTS, lambda path: path.write_bytes(b"Weights"), "bytes differ"),
        (OF_CREDIT, lambda path: write_json(path, METRICS, metrics={"rows": 3.0}), "rows is 2.0 in OLD, 3.0 in NEW"),
        (OF_CREDIT, lambda path: write_json(path, METRICS, settings="5f"), "settings"),
        (OF_CREDIT, lambda path: write_json(path, METRICS, files={}), "files"),
        ("config.json", lambda path: write_json(path, {"seeds": [1]}), "bytes differ"),
        (
            "report/summary.parquet",
            lambda path: write_table(path, columns=SUMMARY, value=[0.25, 7.0]),
            "column value differs in 1 of 2 rows",
        ),
        (
            "report/summary.csv",
            lambda path: pa.csv.write_csv(pa.table({**SUMMARY, "value": [0.25, 7.0]}), path),
            "numbers differ",
        ),
    ],
)
def test_a_difference_is_found(old, new, capsys, name, change, line):
    change(new / name)
    assert golden.main([str(old), str(new)]) == 1
    found = [said for said in capsys.readouterr().out.splitlines() if said.startswith(f"DIFFERENT {name}: ")]
    assert [said for said in found if line in said]


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_file_that_only_one_side_has_is_a_difference(request, old, new, capsys, side):
    (request.getfixturevalue(side) / "rollouts/more.parquet").touch()
    assert golden.main([str(old), str(new)]) == 1
    assert f"MISSING   rollouts/more.parquet: only in {side.upper()}" in capsys.readouterr().out


def test_folders_without_files_are_not_the_same(tmp_path, capsys):
    assert golden.main([str(tmp_path), str(tmp_path)]) == 1
    assert "nothing was compared" in capsys.readouterr().out
