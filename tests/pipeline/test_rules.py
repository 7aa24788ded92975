"""What Snakemake knows of the rules: where they run, and what they ask for."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from turncredit.config.stages import policy_stages

#: prints the local rules, cores and a resource of every rule, and the memory of one rule's first two attempts
LOADED = """
import json, sys
from pathlib import Path
from snakemake.api import SnakemakeApi
from snakemake.iocontainers import Wildcards
from snakemake.settings.types import ConfigSettings, OutputSettings, ResourceSettings
config, resources, threads, stored, nodes, largest = json.loads(sys.argv[1])
with SnakemakeApi(OutputSettings()) as api:
    workflow = api.workflow(
        ResourceSettings(cores=1, nodes=nodes, overwrite_resources=resources, overwrite_threads=threads),
        ConfigSettings(config=config, configfiles=[Path("config/test/tiny.yaml")]),
        snakefile=Path("Snakefile"),
    )._workflow
    workflow.globals["STORED"] = stored  # a provider needs its plugin, and is the same to the memory
    asked = {
        rule.name: [rule.resources["_cores"].raw, "mark" in rule.resources and rule.resources["mark"].raw]
        for rule in workflow.rules
    }
    memory = next(rule.resources["mem_mb"]._evaluator for rule in workflow.rules if rule.name == "base")
    workflow.globals["LARGEST_MEMORY"].update(base=largest)
    memory = [memory(Wildcards(), attempt=attempt) for attempt in (1, 2)]
    file = lambda spec: Path(str(getattr(spec, "file", spec))).stem
    rules = [rule for rule in workflow.rules if rule.script]
    environments = {rule.name: [file(rule.conda_env), file(rule.container_img)] for rule in rules}
    limits = {name: limit.value for name, limit in workflow.global_resources.items()}
    said = {"asked": asked, "memory": memory, "limits": limits, "environments": environments}
    print(json.dumps({"local": sorted(workflow._localrules), **said}))
"""


@pytest.fixture
def loaded(pipeline, workdir):
    """Loads the rules of the tiny experiment with changes."""

    def load(
        config: dict[str, Any],
        resources: dict[str, Any] | None = None,
        threads: dict[str, int] | None = None,
        stored: bool = False,
        nodes: int | None = None,
        largest: float = math.inf,
    ) -> dict[str, Any]:
        changes = json.dumps([config, resources or {}, threads or {}, stored, nodes, largest])
        run = pipeline.python(workdir, "-c", LOADED, changes)
        assert run.returncode == 0, run.stdout + run.stderr
        return json.loads(run.stdout.splitlines()[-1])

    return load


AGENTS = {"agents": {"other": {"name": "transcript"}}}


def test_what_is_given_to_a_rule_holds_for_those_that_run_its_stage_under_other_names(loaded):
    config = {**AGENTS, "keep_policies": "last"}
    asked = loaded(config, {"update": {"mark": "a"}, "update_kept": {"mark": "b"}}, {"update": 3})["asked"]
    assert [asked[name] for name in ("update", "update_kept")] == [[3, "a"], [3, "b"]]
    assert loaded(config, {"update": {"mark": "a"}})["asked"]["update_kept"][1] == "a"
    assert "update_kept" not in loaded(AGENTS)["asked"]


def test_a_hubs_model_is_copied_where_snakemake_runs_for_every_agent(loaded):
    policy = {"policy": {"source": "Qwen/Qwen2.5-1.5B-Instruct"}}
    assert "base" in loaded({**AGENTS, **policy})["local"]
    assert "base" not in loaded(AGENTS)["local"]


def test_a_rule_has_the_image_with_what_its_conda_environment_has(loaded):
    """Stages in which a policy plays, and labels of a served judge, need vLLM."""
    needed = {*policy_stages("samples"), "label"}
    environments = loaded({"policy": {"engine": "vllm"}, "judge": {"kind": "llm", "serve": {"python": "python"}}})[
        "environments"
    ]
    assert {name for name, (conda, _) in environments.items() if conda == "gpu-rollout"} == needed
    assert {name for name, (_, image) in environments.items() if image == "gpu-rollout"} == needed
    plain = loaded({})["environments"].values()
    assert {tuple(one) for one in plain} == {("core", "core")}


def test_memory_is_doubled_only_where_it_is_known_here_why_a_job_failed(loaded):
    """A job that was killed leaves nothing in the folder that it shares with Snakemake; a pod has another folder."""
    shared, apart = loaded({})["memory"], loaded({}, stored=True)["memory"]
    assert shared == [apart[0], 2 * apart[0]]
    assert apart[1] == apart[0]


def test_memory_is_not_raised_above_the_largest_node_that_slurm_has(loaded):
    """Slurm would refuse such a job. What a job asks for itself is checked before the first job."""
    first, doubled = loaded({})["memory"]
    assert doubled == 2 * first
    for largest, second in ((first + 1, first + 1), (first - 1, first), (3 * first, doubled)):
        assert loaded({}, largest=largest)["memory"] == [first, second]


def test_on_one_machine_one_gpu_is_the_limit_of_all_jobs_and_on_a_cluster_there_is_none(loaded):
    """Where Snakemake counts nodes, jobs run on others."""
    assert loaded({})["limits"]["gpu"] == 1
    assert "gpu" not in loaded({}, nodes=100)["limits"]
