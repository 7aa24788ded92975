"""Every stage is a module with the same five names, an artifact for each output, and a rule and a script."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
from pydantic import ValidationError

from tests import tiny
from turncredit.config.stages import PACKAGE, artifacts, policy_stages, stages
from turncredit.errors import UserError
from turncredit.pipeline import all_jobs, loop
from turncredit.pipeline.job import JobKeys, Slice
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.playing import PlayingSlice


@pytest.mark.parametrize("stage", stages())
def test_a_stage_is_the_module_of_its_name_with_a_closed_part_of_the_configuration(stage):
    record = stages()[stage]
    module = import_module(f"{PACKAGE}.{stage}")
    assert module.STAGE is record
    assert module.__doc__.startswith(f"Stage `{stage}`")
    assert issubclass(record.part, Slice)
    assert record.part.model_config["frozen"]
    with pytest.raises(ValidationError) as error:
        record.part.model_validate({"no_such_key": 1})
    assert "extra_forbidden" in {found["type"] for found in error.value.errors() if found["loc"] == ("no_such_key",)}


@pytest.mark.parametrize("stage", stages())
def test_a_message_names_only_keys_of_the_stages_jobs(stage):
    record = stages()[stage]
    assert set(re.findall(r"{(\w+)}", record.message)) <= set(re.findall(r"{(\w+)}", record.metrics))


def test_every_stage_follows_another_one_and_comes_after_all_that_it_reads():
    """A round in one process runs stages in this order."""
    names = list(stages())
    after = [(names.index(one.after), names.index(one.name)) for one in stages().values() if one.after]
    assert len(after) == len(names) - 1
    assert all(first < second for first, second in after)
    plan = Plan(tiny.experiment(methods=["istar", "has_turnrd_film", "carl", "vineppo", "has_judge"]))
    for method in plan.experiment.trained():
        made, steps = set(), set(loop.run(plan, method, 0))
        for step in loop.run(plan, method, 0):
            read = plan.inputs(*step).values()
            files = {path for value in read for path in ([value] if isinstance(value, str) else value)}
            later = {path for path in files - made if all_jobs.maker(plan, path) in steps}
            assert not later, (step, later)
            made |= set(all_jobs.made_paths(plan, step))


def test_all_stages_and_jobs_of_rounds_may_ask_for_resources():
    asked = tiny.experiment(resources={name: {"threads": 2} for name in (*stages(), "rounds")})
    assert {asked.resource(name).threads for name in (*stages(), "rounds")} == {2}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rolout", "unknown stage 'rolout' (did you mean 'rollout'?)"),
        ("audit_model", "the stage audit_model is now called credit_model"),
    ],
)
def test_resources_of_a_stage_that_is_not_there_are_refused_with_the_nearest_name(name, said):
    with pytest.raises(UserError, match=f"^config: resources: {re.escape(said)}"):
        tiny.experiment(resources={name: {"threads": 2}})


def test_every_artifact_is_made_by_one_stage():
    made = [kind.name for one in stages().values() for kind in one.makes.values()]
    assert sorted(made) == sorted(artifacts())


def test_a_job_has_paths_for_the_outputs_of_its_stage_below_the_experiments_folder():
    plan = Plan(tiny.experiment(), "here")
    job = plan.job("update", JobKeys(method="flat_grpo", seed=3, round=2))
    assert job.output == {
        "policy": "here/tiny/runs/flat_grpo/seed3/round02/policy",
        "updates": "here/tiny/runs/flat_grpo/seed3/round02/updates.parquet",
    }


def test_the_stages_in_which_a_policy_plays_have_the_settings_of_playing():
    playing = {one.name for one in stages().values() if issubclass(one.part, PlayingSlice)}
    assert playing == set(policy_stages("samples"))
    assert "rollout" in playing
