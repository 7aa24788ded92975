"""What the configuration asks of Slurm for single stages, for jobs of rounds and for all jobs that ask for a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests import tiny
from turncredit.cli import doctor
from turncredit.config import load
from turncredit.errors import UserError
from turncredit.pipeline import partitions, preflight, resources
from turncredit.pipeline.partitions import Asked
from turncredit.pipeline.plan import Plan

EXAMPLES = sorted((tiny.ROOT / "slurm/examples").glob("*.yaml"))


def experiment(**given):
    return tiny.experiment(resources=given)


def test_gpu_jobs_hold_for_every_job_with_a_gpu_and_for_no_other():
    one = experiment(gpu_jobs={"slurm_partition": "gpu", "slurm_account": "lab"}, update={"gpu": 1})
    for job in ("update", "rollout", "eval", "rounds"):  # one stage with a GPU gives one to all that load a policy
        assert one.slurm(job) == {"slurm_partition": "gpu", "slurm_account": "lab"}
    for job in ("tasks", "demos", "credit", "report"):
        assert one.slurm(job) == {}


def test_what_a_stage_or_a_job_of_rounds_has_itself_wins():
    own = {"slurm_partition": "long", "slurm_qos": "high", "slurm_gres": "nvme:1", "slurm_constraint": "a100"}
    one = experiment(gpu_jobs={"slurm_partition": "gpu", "slurm_account": "lab"}, rounds=own, update={"gpu": 1})
    expected = {
        "slurm_partition": "long",
        "qos": "high",
        "gres": "nvme:1",
        "constraint": "a100",
        "slurm_account": "lab",
    }
    assert one.slurm("rounds") == expected
    assert one.slurm("update")["slurm_partition"] == "gpu"


def test_gpu_jobs_take_nothing_else():
    with pytest.raises(
        UserError, match="gpu_jobs takes only keys that begin with slurm_; give runtime to single stages"
    ):
        experiment(gpu_jobs={"runtime": 60})
    with pytest.raises(UserError, match="slurm_gres"):
        experiment(update={"slurm_gres": "'gpu:1'"})


@pytest.mark.parametrize(
    ("gpus", "slurm", "asked"),
    [
        (0, {"gpu_model": "a100"}, {"gpu": 0}),
        (2, {"gpu_model": "a100"}, {"gpu": 2, "nodes": 1, "gpu_model": "a100"}),
        (1, {"gres": "gpu"}, {"gpu": 0, "gres": "gpu:1"}),
        (4, {"gres": "gpu:a100"}, {"gpu": 0, "nodes": 1, "gres": "gpu:a100:4"}),
        (4, {"gres": "gpu:a100:2"}, {"gpu": 0, "nodes": 1, "gres": "gpu:a100:2"}),
        (1, {"gres": "nvme:1"}, {"gpu": 1, "gres": "nvme:1"}),
        (0, {"gres": "nvme:1"}, {"gpu": 0, "gres": "nvme:1"}),
    ],
)
def test_gpus_are_asked_for_once_and_a_generic_resource_gets_their_number(gpus, slurm, asked):
    assert resources.gpus_requested(gpus, slurm) == asked


@pytest.mark.parametrize(
    ("given", "gpus"), [({"gpu": 2}, 2), ({"gpu": 0, "gres": "gpu:a100:4"}, 4), ({"gres": "nvme:1"}, 0)]
)
def test_a_job_counts_its_gpus_however_they_were_asked_for(given, gpus):
    assert partitions.gpus_asked(given) == gpus


def test_gpus_by_gres_are_refused_on_one_machine():
    plan = Plan(experiment(gpu_jobs={"slurm_gres": "gpu"}, update={"gpu": 1}))
    where = preflight.Where(asked=(Asked("update", gpus=1),))
    (found,) = preflight.one_gpu_job_at_a_time(plan, ("update",), where)
    assert found.line.startswith("resources.gpu_jobs.slurm_gres asks Slurm for GPUs")
    disks = Plan(experiment(update={"gpu": 1, "slurm_gres": "nvme:1"}))
    assert not list(preflight.one_gpu_job_at_a_time(disks, ("update",), where))


def test_the_doctor_looks_for_the_partitions_that_the_configuration_names():
    plan = Plan(experiment(gpu_jobs={"slurm_partition": "gpu"}, update={"gpu": 1}, tasks={"slurm_partition": "short"}))
    asked = {one.rule: one.partition for one in doctor.asked_by_rules(plan, preflight.Where(partitions=("all",)))}
    assert (asked["update"], asked["tasks"], asked["credit"]) == ("gpu", "short", "all")
    where = preflight.Where(own=(("update", "slurm_partition", "mine"),))
    assert {one.rule: one.partition for one in doctor.asked_by_rules(plan, where)}["update"] == "mine"


def test_without_slurm_the_doctor_says_what_it_has_not_checked_and_all_that_is_missing(monkeypatch):
    monkeypatch.setenv("PATH", "")
    plan = Plan(tiny.experiment())
    found = list(preflight.slurm(plan, ("update",), preflight.Where(executor="slurm", asked=())))
    assert [one.fine for one in found] == [False, None]
    assert found[0].line.startswith("the slurm profile needs sbatch, squeue, scancel, not found here")
    assert found[1].line.startswith("not checked: partitions")


def test_where_sinfo_fails_the_doctor_says_what_it_said(monkeypatch, tmp_path):
    for name in ("sbatch", "squeue", "scancel", "sinfo"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'sinfo: fatal: no configuration' >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (found,) = preflight.slurm(Plan(tiny.experiment()), ("update",), preflight.Where(executor="slurm", asked=()))
    assert found.fine is None
    assert found.line.endswith("because sinfo fails (sinfo: fatal: no configuration): Slurm does not work here now")


def test_every_mistake_is_said_at_once(monkeypatch):
    known = partitions.Partitions({"cpu": [partitions.Offer(0, 60, 1000, 4)]}, "cpu")
    monkeypatch.setattr(partitions, "listed", lambda: known)
    monkeypatch.setattr(preflight.shutil, "which", lambda name: name)
    monkeypatch.setattr(partitions, "printed", lambda *_: ["lab"])
    asked = (Asked("update", "gpu"), Asked("eval", "cpu", minutes=100), Asked("sft", "cpu", cores=8))
    where = preflight.Where(executor="slurm", accounts=("nobody",), asked=asked)
    lines = [one.line for one in preflight.slurm(Plan(tiny.experiment()), ("update",), where)]
    assert [line.split()[0] for line in lines] == ["slurm_partition", "eval", "sft", "slurm_account"]


def test_a_misspelt_rule_and_one_that_has_no_job_are_refused():
    for name in ("update", "update_kept", "rounds", "rollout"):
        preflight.refuse_unknown_rules("--set-resources", [name], "stage")
    with pytest.raises(
        UserError, match=r"^--set-resources: there is no rule 'updat' \(did you mean 'update'\?\); rules"
    ):
        preflight.refuse_unknown_rules("--set-resources", ["updat"], "stage")
    with pytest.raises(UserError, match="with granularity round updates are in the jobs of the rule rounds"):
        preflight.refuse_unknown_rules("--set-resources", ["update"], "round")


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_of_a_site_goes_over_a_configuration_and_names_its_gpu_jobs(path: Path, monkeypatch):
    monkeypatch.chdir(tiny.ROOT)
    assert f"slurm/examples/{path.name}" in path.read_text(encoding="utf-8")
    assert f"examples/{path.name}" in (tiny.ROOT / "docs/cluster.md").read_text()
    whole = load([Path("config.yaml"), Path("config/qwen2.5-1.5b.yaml"), path])
    given = yaml.safe_load(path.read_text(encoding="utf-8"))["resources"]["gpu_jobs"]
    assert len(whole.slurm("rollout")) == len(given)
    assert whole.slurm("tasks") == {}


def test_there_are_examples_of_three_kinds_of_site():
    assert len(EXAMPLES) == 3
