"""On one machine, jobs that ask for a GPU run one at a time; Snakemake refuses another limit. No job runs here."""

from __future__ import annotations

import pytest

from tests import tiny

GAMES = [tiny.LAYOUT.path("tasks", split=split) for split in ("train", "eval")]
ON_A_GPU = (*tiny.ARGUMENTS, "--set-resources", "tasks:gpu=4")


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--cores", "2", "--resources", "gpu=2"), "--resources gpu=2"), (("--jobs", "2"), "no limit")],
)
def test_another_limit_is_refused_before_the_first_job(snakemake, options, said):
    ran = snakemake(*options, *ON_A_GPU, "--", *GAMES)
    assert ran.returncode != 0
    assert f"turncredit: tasks asks for a GPU, and with {said} several such jobs would run" in ran.stderr
