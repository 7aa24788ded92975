from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import golden

CREDIT = {
    "group_id": ["g", "g"],
    "rollout_id": ["g#0", "g#1"],
    "turn": pa.array([0, 0], pa.int32()),
    "method": ["gigpo"] * 2,
    "advantage": [0.5, math.nan],
}
UPDATE = {"policy_id": ["gigpo/seed0/round01"], "loss": [0.25], "kl": pa.array([None], pa.float64())}
EVAL = {"policy_id": ["sft"], "task_id": ["t"], "success": [True]}


def write(root: Path, path: str, columns: dict, **changed) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({**columns, **changed}), root / path)


@pytest.fixture
def before(tmp_path):
    root = tmp_path / "before"
    for round in (1, 2):
        write(root, f"runs/gigpo/seed0/round0{round}/credits.parquet", CREDIT, created_by=["1.0"] * 2)
        write(root, f"runs/gigpo/seed0/round0{round}/updates.parquet", UPDATE)
        write(root, f"audit/gigpo/seed0/round0{round}/credits/gigpo.parquet", CREDIT)
        write(root, f"audit/gigpo/seed0/round0{round}/credits/rloo.parquet", CREDIT)
        write(root, f"sft/evals/round0{round}.parquet", EVAL)
    return root


@pytest.fixture
def after(tmp_path):
    root = tmp_path / "after"
    for policy, round in (("sft-t4k4T1.0", 1), ("gigpo", 2)):
        for method in ("gigpo", "rloo"):
            write(root, f"rollouts/{policy}/seed0/round0{round}/credits/{method}.parquet", CREDIT)
        write(root, f"runs/gigpo/seed0/round0{round}/updates.parquet", UPDATE)
        write(root, f"runs/sft/seed0/round0{round}/evals.parquet", EVAL)
    return root


def test_the_same_tables_in_both_layouts_are_the_same(before, after, capsys):
    assert golden.main([str(before), str(after)]) == 0
    out = capsys.readouterr().out
    assert out.count("same  ") == 8
    assert "10 pairs of files compared" in out


@pytest.mark.parametrize(
    ("path", "columns", "changed", "line"),
    [
        (
            "rollouts/sft-t4k4T1.0/seed0/round01/credits/rloo.parquet",
            CREDIT,
            {"advantage": [0.5, 1.0]},
            "column advantage differs in 1 of 2 rows",
        ),
        (
            "rollouts/gigpo/seed0/round02/credits/gigpo.parquet",
            CREDIT,
            {"rollout_id": ["g#1", "g#0"]},
            "column rollout_id differs in 2 of 2 rows",
        ),
        (
            "runs/gigpo/seed0/round02/updates.parquet",
            UPDATE,
            {"loss": [math.nextafter(0.25, 1)]},
            "by at most 5.55e-17",
        ),
        ("runs/gigpo/seed0/round02/updates.parquet", UPDATE, {"kl": [0.0]}, "None in OLD, 0.0 in NEW"),
        ("runs/gigpo/seed0/round02/updates.parquet", UPDATE, {"new": [1]}, "column new only in NEW"),
        (
            "runs/gigpo/seed0/round01/updates.parquet",
            UPDATE,
            {"loss": pa.array([0.25], pa.float32())},
            "is double in OLD",
        ),
        ("runs/sft/seed0/round01/evals.parquet", EVAL, {"success": [False]}, "True in OLD, False in NEW"),
        ("runs/sft/seed0/round01/evals.parquet", {}, {"task_id": ["t", "t"]}, "1 rows in OLD, 2 in NEW"),
    ],
)
def test_a_difference_is_found(before, after, capsys, path, columns, changed, line):
    write(after, path, columns, **changed)
    assert golden.main([str(before), str(after)]) == 1
    out = capsys.readouterr().out
    assert line in out
    assert out.count("DIFFERENT") == 1


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_table_that_only_one_side_has_is_a_difference(request, before, after, capsys, side):
    write(request.getfixturevalue(side), "runs/gigpo/seed1/round01/updates.parquet", UPDATE)
    assert golden.main([str(before), str(after)]) == 1
    assert "MISSING   updates, gigpo/seed1/round01" in capsys.readouterr().out


def test_folders_without_tables_are_not_the_same(tmp_path, capsys):
    assert golden.main([str(tmp_path), str(tmp_path)]) == 1
    assert "nothing was compared" in capsys.readouterr().out


def test_each_sampling_of_round_one_needs_its_own_equal(before, after):
    other = {**CREDIT, "advantage": [7.0, 8.0]}
    write(before, "audit/scaled/seed0/round01/credits/gigpo.parquet", other)
    write(after, "rollouts/sft-t4k4T2.0/seed0/round01/credits/gigpo.parquet", other)
    assert golden.main([str(before), str(after)]) == 0
    write(after, "rollouts/sft-t4k4T2.0/seed0/round01/credits/gigpo.parquet", CREDIT)
    assert golden.main([str(before), str(after)]) == 1
