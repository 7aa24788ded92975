"""The example method of the README does what its docstring says, also from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from turncredit.cli.main import app

EXAMPLE = Path(__file__).parents[2] / "examples" / "novelty.py"


def test_the_example_credits_what_a_rollout_had_not_seen_before(tmp_path):
    turns = pa.table(
        {
            "group_id": ["g"] * 5,
            "rollout_id": ["a", "a", "a", "b", "b"],
            "turn": [0, 1, 2, 0, 1],
            "reward": [0.0, 0.0, 1.0, 0.0, 0.0],
            "next_observation": ["x", "x", "y", "x", "z"],
        }
    )
    pq.write_table(turns, tmp_path / "turns.parquet")
    out = tmp_path / "credits.parquet"
    command = ["credit", "--method", str(EXAMPLE), "--turns", str(tmp_path / "turns.parquet"), "--out", str(out)]
    result = CliRunner().invoke(app, [*command, "--set", "weight=0.5"])
    assert result.exit_code == 0, result.output
    credits = pq.read_table(out)
    assert credits.column("novelty").to_pylist() == [1, 0, 1, 1, 1]
    grpo = credits.column("advantage_rollout").to_numpy()
    expected = grpo + 0.5 * np.array([1 / 3, -2 / 3, 1 / 3, 0, 0])
    np.testing.assert_allclose(credits.column("advantage").to_numpy(), expected)
