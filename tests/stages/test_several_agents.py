"""Methods that play with different agents in one experiment: what their jobs read and write, and what is refused.

`flat_grpo` plays with the experiment's agent, the others of `METHODS` with the one called `short`.
"""

from __future__ import annotations

import pytest

from tests import tiny
from turncredit.config import from_mapping
from turncredit.errors import UserError
from turncredit.pipeline import blocks, checks
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.stages.report import all_evaluations

METHODS = ["flat_grpo", "short_flat", "short_value", "short_hindsight", "short_istar"]
SHORT = {
    "agents": {"short": {"name": "window", "max_response_tokens": 12, "window": {"history": 1}}, "spare": {}},
    "define": {
        "short_flat": {"base": "flat_grpo", "agent": "short"},
        "short_value": {"base": "turn_value", "agent": "short"},
        "short_hindsight": {"base": "hcapo", "agent": "short"},
        "short_istar": {"base": "istar", "agent": "short"},
    },
    "methods": METHODS,
}
SHARED = tiny.SHARED.replace("sft", "sft_short")
POLICY, OWN_POLICY = "results/tiny/sft_short/policy", "results/tiny/sft/policy"


@pytest.fixture
def plan() -> Plan:
    return Plan(tiny.experiment(**SHORT))


def turns(round: int, policy: str) -> JobKeys:
    return JobKeys(policy=policy, seed=0, round=round)


def test_each_agent_has_a_base_model_and_a_warm_start_of_its_own(plan):
    assert plan.outputs("base", JobKeys()) == {"model": "results/tiny/sft/base"}
    assert plan.outputs("base", JobKeys(warm_start="sft_short")) == {"model": "results/tiny/sft_short/base"}
    assert plan.inputs("sft", JobKeys(warm_start="sft_short"))["base"] == "results/tiny/sft_short/base"
    assert plan.inputs("sft", JobKeys(warm_start="sft_short"))["demos"] == plan.inputs("sft", JobKeys())["demos"]
    assert plan.outputs("sft", JobKeys(warm_start="sft_short"))["policy"] == POLICY
    assert plan.metrics("sft", JobKeys(warm_start="sft_short")) == "results/tiny/sft_short/metrics/sft.json"
    agents = [plan.slice("sft", at).agent for at in (JobKeys(), JobKeys(warm_start="sft_short"))]
    assert [(agent.name, agent.settings) for agent in agents] == [("transcript", {}), ("window", {"history": 1})]


def test_a_methods_first_rollouts_are_those_of_its_agents_warm_start_shared_by_the_agents_methods(plan):
    first = {name: plan.turns_at(name, 0, 1).policy for name in METHODS}
    assert first == {**dict.fromkeys(METHODS, SHARED), "flat_grpo": tiny.SHARED}
    assert plan.inputs("rollout", turns(1, SHARED))["policy"] == POLICY
    assert plan.inputs("rollout", turns(1, tiny.SHARED))["policy"] == OWN_POLICY
    assert (
        plan.inputs("rollout", turns(2, "short_flat"))["policy"] == "results/tiny/runs/short_flat/seed0/round01/policy"
    )


@pytest.mark.parametrize(
    ("stage", "at"),
    [
        ("rollout", turns(1, SHARED)),
        ("rollout", turns(2, "short_flat")),
        ("continuations", JobKeys(policy="short_flat", seed=0, round=2, continuations="k3")),
        ("forks", JobKeys(policy="short_flat", seed=0, round=2, forks="n3")),
        ("branch", turns(2, "short_flat")),
        ("eval", JobKeys(method="short_flat", seed=0, round=1)),
        ("eval", JobKeys(method="sft_short", seed=0, round=1)),
        ("logprobs", JobKeys(policy="short_hindsight", seed=0, round=2, scorer="hindsight")),
        ("sft", JobKeys(warm_start="sft_short")),
    ],
)
def test_what_plays_or_makes_prompts_does_so_with_the_methods_agent(plan, stage, at):
    assert (plan.slice(stage, at).agent.name, plan.slice(stage, at).agent.settings) == ("window", {"history": 1})


@pytest.mark.parametrize(
    ("stage", "at", "name"),
    [
        ("update", JobKeys(method="short_flat", seed=0, round=1), "policy"),
        ("update", JobKeys(method="short_flat", seed=0, round=2), "reference"),
        ("eval", JobKeys(method="sft_short", seed=0, round=1), "policy"),
        (
            "hiddens",
            JobKeys(policy=SHARED, seed=0, round=1, hidden_policy="sft", hidden_position="observation"),
            "policy",
        ),
        (
            "hiddens",
            JobKeys(policy="short_value", seed=0, round=2, hidden_policy="sft", hidden_position="observation"),
            "policy",
        ),
        ("logprobs", JobKeys(policy="short_flat", seed=0, round=2, scorer="sft"), "policy"),
        ("implicit_model", JobKeys(policy=SHARED, method="short_istar", seed=0, round=1), "policy"),
        ("branch", turns(1, SHARED), "policy"),
        ("gradients", turns(1, SHARED), "policy"),
    ],
)
def test_the_sft_policy_that_a_job_reads_is_that_of_its_agent(plan, stage, at, name):
    assert plan.inputs(stage, at)[name] == POLICY


def test_what_names_the_frozen_sft_policy_in_tables_names_that_of_the_agent(plan):
    at = JobKeys(
        policy="short_value", seed=0, round=2, hidden_policy="sft", hidden_position="observation", scorer="sft"
    )
    assert [plan.runtime_options(stage, at) for stage in ("hiddens", "logprobs")] == ["sft_short", "sft_short"]


def test_credit_of_another_agents_method_on_audited_turns_reads_them_by_the_agent_that_played_them():
    plan = Plan(tiny.experiment(**SHORT, audit={"run": "flat_grpo", "rounds": [2], "methods": METHODS}))
    hiddens = plan.keys_of("hiddens", turns(2, "flat_grpo"), "short_value")
    assert plan.inputs("hiddens", hiddens)["policy"] == OWN_POLICY
    assert plan.inputs("branch", turns(2, "flat_grpo"))["policy"] == "results/tiny/runs/flat_grpo/seed0/round01/policy"
    assert plan.slice("branch", turns(2, "flat_grpo")).agent.name == "transcript"
    other = plan.keys_of("logprobs", turns(2, "flat_grpo"), "short_hindsight")
    assert plan.slice("logprobs", other).agent.name == "transcript"


def test_the_first_rounds_inputs_of_a_whole_runs_job_are_those_of_its_agent():
    plan = Plan(tiny.experiment(**SHORT, granularity="run"))
    read = blocks.inputs_of_block(plan, "short_flat", 0, [1, 2])
    assert f"results/tiny/rollouts/{SHARED}/seed0/round01/turns.parquet" in read
    assert POLICY in read
    assert not any(path.startswith("results/tiny/sft/") or tiny.SHARED in path.split("/") for path in read)


def test_the_warm_starts_that_are_made_and_evaluated_are_those_that_methods_begin_with(plan):
    assert plan.experiment.starts() == ["sft", "sft_short"]
    assert tiny.experiment(**{**SHORT, "methods": ["short_flat"]}).starts() == ["sft_short"]
    assert tiny.experiment(**{**SHORT, "methods": ["short_flat", "sft"]}).starts() == ["sft", "sft_short"]
    evaluated = {path.split("/")[3] for path in all_evaluations(plan)}
    assert evaluated == {"sft", "sft_short", *METHODS}


def test_turns_of_the_sft_policy_of_no_agent_are_refused(plan):
    with pytest.raises(UserError, match=r"unknown sampling 'sft_short-t9k4T1\.0'.*'sft_short-t4k4T1\.0'"):
        plan.slice("rollout", turns(1, "sft_short-t9k4T1.0"))
    with pytest.raises(UserError, match=r"unknown agent 'shot' \(did you mean 'short'\?\)"):
        plan.agent(JobKeys(method="sft_shot"))


# ------------------------------------------------------------------ configuration


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"agents": {"plain": {}}, "define": {"m": {"base": "rloo", "agent": "plane"}}},
            "config: define.m.agent is 'plane', which is not one of agents (did you mean 'plain'?); add it to agents",
        ),
        (
            {"define": {"sft_plain": {"base": "rloo"}}},
            "config: define.sft_plain: 'sft' and names that begin with 'sft_' are reserved for warm starts; rename "
            "the method",
        ),
        ({"define": {"sft": {"base": "rloo"}}}, "config: define.sft: 'sft' and names that begin with"),
        (
            {"agents": {"plain": {}}, "methods": ["rloo", "sft_plane"]},
            "config: methods: 'sft_plane' names the warm start of an agent that does not exist (did you mean "
            "'sft_plain'?)",
        ),
        ({"agents": {"a-b": {}}}, "config: agents.a-b: an agent's name must have only letters, digits and underscores"),
        ({"agents": {"plain": {"nam": "window"}}}, "config: agents.plain: unknown key 'nam' (did you mean 'name'?)"),
    ],
)
def test_a_name_that_cannot_be_meant_is_refused_in_one_line(changes, message):
    with pytest.raises(UserError) as told:
        from_mapping(changes)
    assert str(told.value).startswith(message)
    assert "\n" not in str(told.value)


def refused(**changes) -> str:
    with pytest.raises(UserError) as told:
        checks.check(tiny.experiment(**changes))
    return str(told.value)


def test_columns_that_a_method_reads_must_be_written_by_the_agent_of_that_method():
    define = {"level": {"base": "hipif", "agent": "plain"}}
    told = refused(agents={"plain": {"name": "transcript"}}, define=define, methods=["flat_grpo", "level"])
    assert told == (
        "config: methods: 'level' reads the columns subgoal, subgoal_index of the turns, which the agent 'transcript' "
        "(agents.plain) does not write; choose an agent that does (agents.plain.name), or another method"
    )


def test_a_method_compared_in_an_audit_needs_its_columns_of_the_audited_runs_agent(tmp_path):
    agent = tmp_path / "goals.py"
    agent.write_text(
        "from dataclasses import replace\nimport pyarrow as pa\nfrom turncredit.agents import transcript\n"
        "columns = {'subgoal': pa.string(), 'subgoal_index': pa.int32()}\n"
        "AGENT = replace(transcript.AGENT, name='goals', turn_columns=columns)\n"
    )
    define = {"level": {"base": "hipif", "agent": "goals"}}
    config = {"agents": {"goals": {"name": str(agent)}}, "define": define, "methods": ["flat_grpo", "level"]}
    checks.check(tiny.experiment(**config))
    checks.check(tiny.experiment(**config, audit={"run": "level", "rounds": [1]}))
    told = refused(**config, audit={"run": "flat_grpo", "rounds": [1]})
    assert told == (
        "config: audit.methods: 'level' reads the columns subgoal, subgoal_index of the turns of the audited run "
        "'flat_grpo', which the agent 'transcript' does not write; choose which methods to compare (audit.methods), or "
        "another run (audit.run)"
    )


def test_the_demonstrations_must_have_what_the_agents_that_methods_play_with_learn_from(tmp_path):
    agent = tmp_path / "plans.py"
    agent.write_text(
        "from dataclasses import replace\nimport pyarrow as pa\nfrom turncredit.agents import transcript\n"
        "AGENT = replace(transcript.AGENT, name='plans', demo_columns={'plan': pa.string()})\n"
    )
    config = {"agents": {"plans": {"name": str(agent)}}, "define": {"m": {"base": "rloo", "agent": "plans"}}}
    checks.check(tiny.experiment(**config))  # no method plays with it
    told = refused(**config, methods=["flat_grpo", "m"])
    assert told.startswith("config: agents.plans: 'plans' learns from the columns plan of the demonstrations, which")


def test_settings_of_a_further_agent_are_checked_under_its_own_key():
    assert refused(agents={"short": {"name": "window", "window": {"histroy": 1}}}) == (
        "config: unknown key 'agents.short.window.histroy' (did you mean 'history'?)"
    )
    assert refused(agents={"short": {"name": "window", "windwo": {}}}) == (
        "config: unknown key 'agents.short.windwo' (did you mean 'window'?)"
    )
