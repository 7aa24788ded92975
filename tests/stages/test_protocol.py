"""Every stage is a module with the same five names, an artifact for each output, and a rule and a script."""

from __future__ import annotations

import re
from collections import Counter
from typing import get_args

import pytest
from pydantic import ValidationError

from tests import tiny
from turncredit.config import Stage
from turncredit.config.layout import ARTIFACTS, METRICS
from turncredit.errors import UserError
from turncredit.pipeline.job import At, Slice
from turncredit.pipeline.plan import STAGES, Plan, load
from turncredit.pipeline.playing import plays


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_has_its_five_names(stage):
    module = load(stage)
    assert issubclass(module.Config, Slice)
    assert all(callable(getattr(module, name)) for name in ("config", "inputs", "run"))
    assert set(module.OUTPUTS.values()) <= ARTIFACTS.keys()
    assert module.__doc__.startswith(f"Stage `{stage}`")


@pytest.mark.parametrize("stage", STAGES)
def test_a_slice_takes_no_key_that_it_does_not_have_and_cannot_be_changed(stage):
    config = load(stage).Config
    assert config.model_config["frozen"]
    with pytest.raises(ValidationError) as error:
        config.model_validate({"no_such_key": 1})
    assert "extra_forbidden" in {found["type"] for found in error.value.errors() if found["loc"] == ("no_such_key",)}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_has_a_rule_a_script_and_a_file_for_what_it_measures(stage):
    assert f"rule {stage}:" in (tiny.ROOT / "rules" / f"{stage}.smk").read_text()
    assert f'job_script.run("{stage}"' in (tiny.ROOT / "workflow_scripts" / f"{stage}.py").read_text()
    assert stage in METRICS


def test_every_stage_but_those_that_start_no_job_of_their_own_may_ask_for_resources():
    assert set(get_args(Stage)) == set(STAGES) - {"config", "track"} | {"rounds"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rolout", "unknown stage 'rolout' (did you mean 'rollout'?)"),
        ("audit_model", "audit_model is now the stage credit_model"),
    ],
)
def test_resources_of_a_stage_that_is_not_there_are_refused_with_the_nearest_name(name, said):
    with pytest.raises(UserError, match=f"^config: resources: {re.escape(said)}"):
        tiny.experiment(resources={name: {"threads": 2}})


def test_every_artifact_is_made_by_one_stage():
    makers = Counter(kind for stage in STAGES for kind in load(stage).OUTPUTS.values())
    assert makers == dict.fromkeys(ARTIFACTS, 1)


def test_a_job_has_paths_for_the_outputs_of_its_stage_below_the_experiments_folder():
    plan = Plan(tiny.experiment(), "here")
    job = plan.job("update", At(method="flat_grpo", seed=3, round=2))
    assert job.output == {
        "policy": "here/tiny/runs/flat_grpo/seed3/round02/policy",
        "updates": "here/tiny/runs/flat_grpo/seed3/round02/updates.parquet",
    }


def test_the_stages_in_which_a_policy_plays_are_those_whose_rules_have_an_engines_environment():
    rules = {stage: (tiny.ROOT / "rules" / f"{stage}.smk").read_text() for stage in STAGES}
    assert {stage for stage in STAGES if plays(stage)} == {stage for stage in STAGES if "PLAYING" in rules[stage]}
    assert plays("rollout")
