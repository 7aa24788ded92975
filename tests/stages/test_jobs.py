"""When a job counts as made, and what its outputs say of how they were made."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests import tiny
from tests.helpers import nonempty
from turncredit.data import provenance, tables
from turncredit.pipeline.job import PROVENANCE_FILE, Job, JobKeys, content_hash
from turncredit.pipeline.plan import Plan, load

#: as the world's rollouts were made
MEASURED = {"methods": ["has_progressive", "oracle_progress"]}


@pytest.fixture
def results(world, tmp_path) -> Path:
    """A copy of the world's results that a test may change."""
    return Path(shutil.copytree(world.plan.results, tmp_path / "results"))


def sft(results: Path, **changes) -> Job:
    """The job of the stage sft, as a process of its own would have it."""
    return Plan(tiny.experiment(**changes), results).job("sft", JobKeys())


def test_a_job_is_made_where_its_outputs_say_so_wherever_the_results_are(results):
    assert sft(results).is_made()
    plan = Plan(tiny.experiment(**MEASURED), results)
    assert plan.job("rollout", plan.turns_at("has_progressive", 0, 1)).is_made()


def test_a_job_is_not_made_when_the_content_of_an_input_has_changed(results):
    path = sft(results).path("demos")
    demos = tables.read(path, "demos")
    tables.write(demos.slice(0, demos.num_rows - 1), path, "demos", provenance.record("test"))
    assert not sft(results).is_made()


def test_a_job_is_not_made_when_a_folder_that_it_reads_has_been_made_anew_with_other_content(results):
    plan = Plan(tiny.experiment(policy={"scratch": {"seed": 1}}), results)
    load("base").run(plan.job("base", JobKeys()))
    assert not sft(results).is_made()


def test_a_job_is_made_when_an_input_has_been_made_anew_with_the_same_content(results):
    plan = Plan(tiny.experiment(), results)
    load("base").run(plan.job("base", JobKeys()))
    assert sft(results).is_made()


def test_a_job_is_not_made_when_its_slice_has_changed_and_is_when_another_stages_has(results):
    assert not sft(results, sft={"batch": 4}).is_made()
    assert sft(results, eval={"games": 3}, rollout={"tasks": 3}).is_made()


@pytest.mark.parametrize("name", ["policy", "log"])
def test_a_job_is_not_made_when_one_of_its_outputs_is_missing(results, name):
    path = Path(sft(results).output[name])
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert not sft(results).is_made()


@pytest.mark.parametrize("kept", [slice(0, -100), slice(0, 0), slice(0, 20)])
def test_a_job_is_not_made_when_a_table_is_cut_off(results, kept):
    path = Path(sft(results).output["log"])
    path.write_bytes(path.read_bytes()[kept])
    assert not sft(results).is_made()


@pytest.mark.parametrize("text", ["{", "{}", ""])
def test_a_job_is_not_made_when_a_folder_does_not_say_what_it_was_made_from(results, text):
    (Path(sft(results).output["policy"]) / PROVENANCE_FILE).write_text(text)
    assert not sft(results).is_made()


def test_a_table_of_another_seed_in_its_place_is_not_the_jobs(results):
    plan = Plan(tiny.experiment(**MEASURED), results)
    at = plan.turns_at("has_progressive", 0, 1)
    first, other = plan.job("rollout", at), plan.job("rollout", replace(at, seed=1))
    Path(other.output["turns"]).parent.mkdir(parents=True)
    shutil.copy(first.output["turns"], other.output["turns"])
    assert not plan.job("rollout", replace(at, seed=1)).is_made()


@pytest.mark.parametrize(("code", "made"), [("{version}+another", True), ("99.0+commit", False)])
def test_what_another_version_made_is_made_again_and_what_another_commit_made_is_not(results, monkeypatch, code, made):
    version = provenance.code_version().partition("+")[0]
    monkeypatch.setattr(provenance, "code_version", lambda: code.format(version=version))
    assert sft(results).is_made() == made


def test_credit_that_is_drawn_at_random_is_another_in_each_seed_and_round(world, tmp_path):
    first = replace(world.turns, method="random_credit")
    later = JobKeys(policy="random_credit", method="random_credit", seed=0, round=2)
    drawn = [
        tables.read(
            world.run("credit", at, tmp_path / str(number), turns=world.path("turns")).output["credits"], "credits"
        ).column("advantage")
        for number, at in enumerate((first, replace(first, seed=1), later, first))
    ]
    assert drawn[0] == drawn[3]
    assert drawn[0] != drawn[1]
    assert drawn[0] != drawn[2]


# ------------------------------------------------------------------ provenance


def made_by(world, results) -> list[tuple[Job, str, dict]]:
    """Every job behind the world's artifacts, with each of its outputs and what that says of its making."""
    plan = Plan(tiny.experiment(**MEASURED), results)
    jobs = [plan.job(stage, JobKeys()) for stage in ("demos", "base", "sft")]
    jobs += [plan.job("tasks", JobKeys(split=split)) for split in ("train", "eval")]
    jobs.append(plan.job("rollout", world.turns))
    return [
        (
            job,
            path,
            json.loads((Path(path) / PROVENANCE_FILE).read_text()) if Path(path).is_dir() else tables.metadata(path),
        )
        for job in jobs
        for path in job.output.values()
    ]


def test_tables_and_folders_say_stage_keys_slice_inputs_and_seed(world, results):
    for job, path, said in made_by(world, results):
        assert said["stage"] == job.stage, path
        assert said["config"] == {**job.at.recorded, **job.config.model_dump(mode="json")}, path
        read: dict[str, str] = {}
        for name, value in job.input.items():
            read |= {name: value} if isinstance(value, str) else {f"{name}_{n}": one for n, one in enumerate(value)}
        assert said["inputs"] == {name: content_hash(file) for name, file in read.items()}, path
        assert said["seed"] == (0 if job.stage == "rollout" else None), path
        assert said["code"] == provenance.code_version(), path


def test_a_folder_says_the_hash_of_its_other_files(world, results, tmp_path):
    folders = nonempty((path, said) for _, path, said in made_by(world, results) if Path(path).is_dir())
    assert len(folders) == 2
    for number, (path, said) in enumerate(folders):
        others = shutil.copytree(path, tmp_path / str(number), ignore=shutil.ignore_patterns(PROVENANCE_FILE))
        assert said["content"] == provenance.file_hash(others) == content_hash(path)


def test_no_job_reads_a_policy_to_hash_it(world, tmp_path, monkeypatch):
    hashed, file_hash = [], provenance.file_hash

    def noted(path, **more):
        hashed.append(str(path))
        return file_hash(path, **more)

    monkeypatch.setattr(provenance, "file_hash", noted)
    world.run("rollout", world.turns, tmp_path)
    assert str(world.path("tasks", split="train")) in hashed
    assert str(world.path("sft_policy")) not in hashed


def test_several_files_of_one_input_are_each_in_the_provenance(results):
    plan = Plan(tiny.experiment(audit={"rounds": [1], "methods": ["flat_grpo", "rloo"]}), results)
    job = plan.job("fidelity", plan.audited[0])
    for number, path in enumerate((job.path("turns"), job.path("branches"), *job.paths("credits"))):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(str(number), encoding="utf-8")
    hashes = {"turns": job.path("turns"), "branches": job.path("branches")}
    hashes |= {f"credits_{number}": path for number, path in enumerate(job.paths("credits"))}
    assert job.provenance()["inputs"] == {name: provenance.file_hash(path) for name, path in hashes.items()}


def test_a_folder_whose_making_fails_leaves_what_was_there_and_nothing_beside_it(results):
    job = Plan(tiny.experiment(), results).job("base", JobKeys())
    folder = Path(job.output["model"])
    before = provenance.file_hash(folder), sorted(folder.parent.iterdir())

    def fail() -> None:
        with job.folder("model") as part:
            (part / "config.json").write_text("half of it")
            raise KeyboardInterrupt("half way")

    with pytest.raises(KeyboardInterrupt, match="half way"):
        fail()
    assert (provenance.file_hash(folder), sorted(folder.parent.iterdir())) == before
