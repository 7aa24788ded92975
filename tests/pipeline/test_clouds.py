"""The profiles for clusters without a shared file system, with moto's S3 on this machine; `make test-cloud` runs it."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter

import pytest

from tests import tiny
from turncredit.pipeline.all_jobs import every_job
from turncredit.pipeline.plan import Plan

PLUGINS = {
    "kubernetes": "snakemake_executor_plugin_kubernetes",
    "aws-batch": "snakemake_executor_plugin_aws_batch",
    "s3": "snakemake_storage_plugin_s3",
}
MISSING = [name for name in (*PLUGINS.values(), "moto") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}: make test-cloud"),
]
KEYS = {"SNAKEMAKE_STORAGE_S3_ACCESS_KEY": "x", "SNAKEMAKE_STORAGE_S3_SECRET_KEY": "x"}


@pytest.fixture(scope="module")
def bucket():
    """The options of Snakemake for a bucket on this machine."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield ("--storage-s3-endpoint-url", f"http://127.0.0.1:{port}")
    server.stop()


@pytest.mark.parametrize("profile", ["kubernetes", "aws-batch"])
def test_a_profile_plans_the_whole_experiment_in_its_bucket(snakemake, bucket, profile):
    run = snakemake("--profile", f"profiles/{profile}", "-n", *bucket, *tiny.ARGUMENTS, **KEYS)
    assert run.returncode == 0, run.stdout + run.stderr
    counted = Counter({name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", run.stdout, re.MULTILINE)})
    planned = Counter(stage for stage, _ in every_job(Plan(tiny.experiment())))
    assert {stage: counted[stage] for stage in planned} == planned
    assert "s3://my-bucket/turncredit/results/tiny/sft/policy" in run.stdout


def test_jobs_read_and_write_tables_and_folders_through_a_bucket(snakemake, bucket, workdir):
    stored = ("--default-storage-provider", "s3", "--default-storage-prefix", "s3://my-bucket/turncredit")
    target = tiny.path("base")
    run = snakemake(target, "--cores", "1", *stored, *bucket, *tiny.ARGUMENTS, **KEYS)
    assert run.returncode == 0, run.stdout + run.stderr
    assert not (workdir / "results").exists(), "the results are in the bucket"
    again = snakemake(target, "-n", *stored, *bucket, *tiny.ARGUMENTS, **KEYS)
    assert "Nothing to be done" in again.stdout + again.stderr
