"""What Snakemake knows of the rules: where they run, and what they ask for."""

from __future__ import annotations

import json
from typing import Any

import pytest

#: prints the local rules, and cores and a resource of every rule
LOADED = """
import json, sys
from pathlib import Path
from snakemake.api import SnakemakeApi
from snakemake.settings.types import ConfigSettings, OutputSettings, ResourceSettings
config, resources, threads = json.loads(sys.argv[1])
with SnakemakeApi(OutputSettings()) as api:
    workflow = api.workflow(
        ResourceSettings(cores=1, overwrite_resources=resources, overwrite_threads=threads),
        ConfigSettings(config=config, configfiles=[Path("config/test/tiny.yaml")]),
        snakefile=Path("Snakefile"),
    )._workflow
    asked = {
        rule.name: [rule.resources["_cores"].raw, "mark" in rule.resources and rule.resources["mark"].raw]
        for rule in workflow.rules
    }
    print(json.dumps({"local": sorted(workflow._localrules), "asked": asked}))
"""


@pytest.fixture
def loaded(pipeline, workdir):
    """Loads the rules of the tiny experiment with changes."""

    def load(config: dict[str, Any], resources: dict[str, Any], threads: dict[str, int]) -> dict[str, Any]:
        run = pipeline.python(workdir, "-c", LOADED, json.dumps([config, resources, threads]))
        assert run.returncode == 0, run.stdout + run.stderr
        return json.loads(run.stdout.splitlines()[-1])

    return load


AGENTS = {"agents": {"other": {"name": "transcript"}}}


def test_what_is_given_to_a_rule_holds_for_those_that_run_its_stage_under_other_names(loaded):
    resources = {"update": {"mark": "a"}, "update_last": {"mark": "b"}, "sft": {"mark": "c"}}
    config = {**AGENTS, "keep_policies": "last"}
    asked = loaded(config, resources, {"base": 3, "sft": 2, "sft_of_agents": 5})["asked"]
    assert [asked[name][1] for name in ("update", "update_last", "sft", "sft_of_agents", "base")] == [
        *("a", "b", "c", "c", False)
    ]
    assert [asked[name][0] for name in ("base", "base_of_agents", "sft", "sft_of_agents")] == [3, 3, 2, 5]
    assert loaded(config, {"update": {"mark": "a"}}, {})["asked"]["update_last"][1] == "a"


def test_a_hubs_model_is_copied_where_snakemake_runs_for_every_agent(loaded):
    policy = {"policy": {"source": "Qwen/Qwen2.5-1.5B-Instruct"}}
    assert {"base", "base_of_agents"} <= set(loaded({**AGENTS, **policy}, {}, {})["local"])
    assert {"base", "base_of_agents"}.isdisjoint(loaded(AGENTS, {}, {})["local"])
    assert "base" in loaded(policy, {}, {})["local"]
