"""On one machine, jobs that ask for a GPU run one at a time. None is used here: games are made on any CPU."""

from __future__ import annotations

import json

import pytest

from tests import tiny
from turncredit.layout import fill

GAMES = [tiny.LAYOUT.path("tasks", split=split) for split in ("train", "eval")]
ON_A_GPU = (*tiny.ARGUMENTS, "--set-resources", "tasks:gpu=4")


def test_jobs_that_ask_for_a_gpu_run_one_at_a_time_by_themselves(snakemake, workdir):
    ran = snakemake("--cores", "2", *ON_A_GPU, "--", *GAMES)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Provided resources: gpu=1" in ran.stderr
    paths = (workdir / fill(tiny.LAYOUT.metrics("tasks"), {"split": split}) for split in ("train", "eval"))
    first, second = sorted((json.loads(path.read_text()) for path in paths), key=lambda made: made["started"])
    assert first["started"] + first["wall_s"] <= second["started"]


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--cores", "2", "--resources", "gpu=2"), "--resources gpu=2"), (("--jobs", "2"), "no limit")],
)
def test_another_limit_is_refused_before_the_first_job(snakemake, options, said):
    ran = snakemake(*options, *ON_A_GPU, "--", *GAMES)
    assert ran.returncode != 0
    assert f"turncredit: tasks asks for a GPU, and with {said} several such jobs would run" in ran.stderr
