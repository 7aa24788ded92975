"""The stages `credit_model` and `values`, from files to files; what the models learn is in tests/credit/models."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests import tiny
from turncredit.credit.models.train import WEIGHTS
from turncredit.data import provenance, tables
from turncredit.errors import UserError
from turncredit.pipeline.job import Job, JobKeys
from turncredit.pipeline.plan import Plan, load

MINE = {"base": "has_turnrd", "model": {"batch": 8}}
CRITIC = {"base": "ppo"}


def plan_of(results: Path, **model) -> Plan:
    define = {"mine": {**MINE, "model": {**MINE["model"], **model}}, "critic": CRITIC}
    return Plan(tiny.experiment(methods=["mine", "critic"], define=define), results)


def keys(plan: Plan, method: str, round: int) -> JobKeys:
    turns = plan.turns_at(method, 0, round)
    return JobKeys(policy=turns.policy, method=method, seed=0, round=round)


def run(job: Job) -> dict[str, float]:
    return load(job.stage).run(job)


@pytest.fixture(scope="module")
def results(world, tmp_path_factory) -> Path:
    """The world's results, with the hidden states and the models of rounds 1 and 2 of two methods."""
    folder = Path(shutil.copytree(world.plan.results, tmp_path_factory.mktemp("learned") / "results"))
    plan = plan_of(folder)
    for method in ("mine", "critic"):
        run(plan.job("hiddens", plan.keys_of("hiddens", world.turns, method)))
        first = keys(plan, method, 1)
        for stage in ("credit_model", "values", "credit"):
            run(plan.job(stage, first))
        run(plan.job("credit_model", keys(plan, method, 2)))
    return folder


@pytest.mark.parametrize("method", ["mine", "critic"])
def test_a_model_is_untrained_in_round_1_and_learns_from_round_1_for_round_2(world, results, method):
    plan = plan_of(results)
    first, second = (plan.job("credit_model", keys(plan, method, round)) for round in (1, 2))
    assert [first.paths(name) for name in ("turns", "credits", "previous")] == [[], [], []]
    assert second.paths("turns") == [plan.layout.path("turns", world.turns.keys)]
    assert second.paths("previous") == [first.output["model"]]
    expected = [plan.layout.path("credits", world.turns.keys, method=method)] if method == "critic" else []
    assert second.paths("credits") == expected
    assert first.is_made()
    assert second.is_made()


def test_the_same_inputs_give_the_same_model_and_another_seed_another(results, tmp_path):
    plan = plan_of(results)
    hashes = []
    for seed in (0, 0, 1):
        job = plan.job("credit_model", keys(plan, "mine", 2))
        job.at = JobKeys(**{**job.at.keys, "seed": seed})
        job.output = {"model": str(tmp_path / f"{len(hashes)}")}
        assert run(job)["steps_total"] > 0
        hashes.append(provenance.file_hash(Path(job.output["model"]) / WEIGHTS))
    first, again, other = hashes
    assert first == again
    assert first != other


def values_job(plan: Plan, folder: Path, model_of: int = 2) -> Job:
    """What the model of a round says of the turns of round 1."""
    job = plan.job("values", keys(plan, "mine", 1))
    job.input["model"] = plan.layout.path("model", keys(plan, "mine", model_of).keys)
    job.output = {"values": str(folder / "values.parquet")}
    return job


def test_values_are_those_of_the_turns_in_their_order(world, results, tmp_path):
    job = values_job(plan_of(results), tmp_path)
    run(job)
    values, turns = tables.read(job.output["values"], "values"), tables.read(world.path("turns"), "turns")
    assert all(values.column(key).equals(turns.column(key)) for key in tables.KEYS)
    assert values.column("value").null_count == 0


def test_a_model_that_was_made_with_other_settings_is_named_and_no_values_are_written(results, tmp_path):
    job = values_job(plan_of(results, film=True), tmp_path)
    with pytest.raises(UserError, match=rf"^{job.path('model')}: .*other settings \(film\)"):
        run(job)
    assert not Path(job.output["values"]).exists()


def test_hidden_states_that_lack_a_turn_are_refused(results, tmp_path):
    plan = plan_of(results)
    job = values_job(plan, tmp_path)
    hiddens = tables.read(job.path("hiddens"), "hiddens")
    job.input["hiddens"] = str(tmp_path / "hiddens.parquet")
    tables.write(hiddens.slice(1), job.path("hiddens"), "hiddens", {})
    with pytest.raises(UserError, match=r"^hiddens: no row for .* turn 0 .*make it for these turns"):
        run(job)
    assert not Path(job.output["values"]).exists()
