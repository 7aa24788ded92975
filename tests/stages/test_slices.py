"""Which part of the configuration each stage gets: a job runs again when its slice has changed, and only then.

Each key of the configuration is changed in turn; the slices that change with it are compared with `READ_BY`, written by
hand. `config` keeps the whole configuration, so it is left out there. That a changed slice, and nothing else, makes
Snakemake run jobs again is tested on real results in tests/pipeline/test_end_to_end.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel

from tests import tiny
from tests.helpers import nonempty
from turncredit.config import from_mapping, merge
from turncredit.config.stages import stages
from turncredit.config.warm_starts import start_name
from turncredit.errors import UserError
from turncredit.pipeline.job import At, Slice
from turncredit.pipeline.plan import Plan, load
from turncredit.training.update import round_rate

COMPARED = ("mine", "flat_grpo", "has_judge", "hcapo", "istar", "vine")
METHODS = (*COMPARED, "tree", "other")
MINE = {
    "base": "has_turnrd",
    "params": {"alpha": 0.5},
    "model": {"batch": 8},
    "rollout": {"temperature": 0.8},
    "update": {"lr": 1e-3, "minibatch": 8},
}
#: every block of the configuration is there, and what is optional has a value
CONFIG = tiny.mapping(
    rounds=6,
    seeds=[0, 1],
    methods=list(METHODS),
    define={
        "mine": MINE,
        "vine": {"base": "vineppo", "continuations": {"per_state": 3, "budget_turns": 500}},
        "tree": {"base": "carl", "forks": {"per_task": 5}},
        "other": {"base": "hcapo", "agent": "plain"},
    },
    tasks={"eval": 60},
    agent={"name": "window", "window": {"history": 2, "show_admissible": True}},
    agents={"plain": {"name": "window", "window": {"history": 3}}},
    policy={"revision": "main", "lora": {"rank": 4}, "dtype": "bfloat16"},
    update={"kl": "k3", "kl_coefficient": 0.1, "kl_target": 0.01, "final_lr": 0.5, "old_logprobs": "recomputed"},
    eval={"modes": [{"name": "sampled", "temperature": 1.0}, {"name": "greedy", "temperature": 0}]},
    judge={"kind": "llm"},
    audit={
        "run": "mine",
        "rounds": [2],
        "seeds": [0],
        "methods": list(COMPARED),
        "branch": {"min_continuations": 8, "max_continuations": 16},
    },
    tracking={"uri": "sqlite:///runs.db"},
    resources={stage: {"mem_mb": 2000, "gpu": 1} for stage in ("demos", "sft", "rollout", "update", "eval")},
    granularity="round",
)

PLAYING = {"rollout", "continuations", "forks", "eval", "branch"}
#: what plays, or makes prompts, for a method with an agent of its own; the audit is of a run with the experiment's
OTHERS = {"logprobs", *PLAYING} - {"branch"}
INVARIANTS = {"invariants", "rollout_invariants"}
CREDIT = {"credit", "leaks", "pages", *INVARIANTS}
COMPARING = {"fidelity", "gradients", "pages", "rollout_invariants"}
GRADIENT = {"update", "gradients"}
LABELS = {"label", *INVARIANTS}
READING = {"hiddens", "logprobs", "implicit_model"}
NOTHING: set[str] = set()

#: the start of a key -> the stages whose slice holds it; the longest start counts
READ_BY: dict[str, set[str]] = {
    "experiment": {"pages"},  # in their title
    "seeds": NOTHING,
    "rounds": NOTHING,
    "methods": NOTHING,
    "define.mine.base": CREDIT | {"credit_model", "values"},
    "sweep": {"pages"},  # the name in their title
    "define.mine.params": CREDIT,
    "define.mine.model": {"credit_model", "values", "leaks"},
    "define.mine.rollout.temperature": {"rollout", *INVARIANTS},
    "define.mine.update.lr": {"update"},
    "define.mine.update.minibatch": {*GRADIENT, "invariants"},
    "define.vine.base": CREDIT - {"leaks"},
    "define.vine.continuations": {"continuations"},
    "define.tree.forks": {"forks"},
    "define.other.agent": OTHERS,
    "env": {"tasks", "demos", "measures", *PLAYING},
    "env.timeout": NOTHING,
    "env.name": {"tasks", "demos", "sft", "logprobs", "measures", *PLAYING},
    "tasks": {"tasks"},
    "agent": {"sft", "logprobs", *PLAYING},
    "agent.max_response_tokens": PLAYING,
    "agents": {"sft", *OTHERS},
    "agents.plain.max_response_tokens": OTHERS - {"logprobs"},
    "policy.source": {"base"},
    "policy.revision": {"base"},
    "policy.scratch": {"base"},
    "policy.lora": {"sft"},
    "policy.lora.dropout": {"sft", *INVARIANTS},
    "policy.dtype": {"sft", *READING, *PLAYING, *GRADIENT, *INVARIANTS},
    "policy.train_dtype": {"sft", "update", "implicit_model"},
    "policy.moments_dtype": {"sft", "update", "implicit_model"},
    "policy.train_gpus": {"sft", "update"},
    "policy.sample_gpus": NOTHING,
    "policy.engine": PLAYING,
    "demos": {"demos"},
    "sft": {"sft"},
    "rollout": {"rollout"},
    "rollout.temperature": {"rollout", "invariants"},  # the audited run has its own
    "rollout.slots": PLAYING,
    "rollout.processes": NOTHING,
    "update": {"update"},
    "update.minibatch": {*GRADIENT, "invariants"},
    "update.epochs": {"update", "invariants"},
    "update.lr": {"update", "implicit_model"},  # the implicit reward model's is twice the policy's
    "update.kl": GRADIENT,
    "update.kl_coefficient": {"update"},
    "update.kl_target": {"update"},
    "update.loss_aggregation": GRADIENT,
    "update.advantage_scale": GRADIENT,
    "update.skip_dead_groups": {*GRADIENT, "invariants"},
    "update.tokens_per_pass": {"sft", *READING, *GRADIENT, *INVARIANTS},
    "eval": {"eval"},
    "eval.primary": NOTHING,
    "judge": NOTHING,
    "judge.kind": LABELS,
    "judge.model": LABELS,
    "judge.thinking": LABELS,
    "judge.temperature": LABELS,
    "judge.max_tokens": LABELS,
    "judge.structured": LABELS,
    "judge.window": LABELS,
    "judge.evidence": LABELS,
    "audit.run": {"pages", "rollout_invariants"},  # other turns, sampled at another temperature
    "audit.rounds": NOTHING,
    "audit.seeds": NOTHING,
    "audit.methods": COMPARING,
    "audit.branch": {"branch"},
    "audit.pages": {"pages"},
    "tracking": {"track"},
    "resources": NOTHING,
    "granularity": NOTHING,
    "rounds_per_job": NOTHING,
    "keep_policies": NOTHING,
    "launcher": NOTHING,
}

#: other values of keys whose type does not say what is valid
OTHER: dict[str, Any] = {
    "experiment": "other",
    "sweep": {"grid": {"rounds": [6]}, "only": "tiny_rounds_6"},  # the same experiment, by another name
    "seeds": [0, 1, 2],
    "methods": [*METHODS, "rloo"],
    "define.mine.base": "has_turnrd_film",
    "define.vine.base": "truth",
    "define.other.agent": None,
    "env.name": str(tiny.ROOT / "examples" / "counting_env.py"),
    "tasks.train_split": "eval",
    "tasks.eval_split": "train",
    "agent.name": "transcript",
    "agents.plain.name": "transcript",
    "policy.source": "org/model",
    "policy.revision": "other",
    "policy.scratch.hidden": 64,
    "policy.scratch.heads": 4,
    "policy.lora.targets": ["q_proj"],
    "sft.betas": [0.8, 0.9],
    "update.kl": "k2",
    "update.betas": [0.8, 0.9],
    "update.importance_cap": 2.0,
    "eval.modes": [{"name": "sampled", "temperature": 0.7}],
    "eval.primary": "greedy",
    "eval.rounds": [1, 6],
    "judge.model": "org/other",
    "judge.base_url": "http://elsewhere:8000/v1",
    "judge.api_key_env": "OTHER_KEY",
    "judge.window": 3,
    "judge.serve": {"python": "python3"},
    "audit.run": "flat_grpo",
    "audit.rounds": [1, 2],
    "audit.seeds": [0, 1],
    "audit.methods": ["mine", "flat_grpo"],
    "tracking.uri": "sqlite:///other.db",
}
MORE = ("credit", "continuations", "params", "model", "rollout", "update")
#: keys of methods that are not changed here: what the method does not have; the only base with forks; `credit`, since a
#: method has either a base or a file of one's own, which is an input of its credit (below); and `grid`, whose methods
#: have other names
UNSET = {
    *(f"define.{method}.grid" for method in ("mine", "vine", "tree", "other")),
    *(f"define.mine.{key}" for key in ("credit", "agent", "continuations", "forks")),
    *(f"define.vine.{key}" for key in ("credit", "agent", "forks", "params", "model", "rollout", "update")),
    *(f"define.tree.{key}" for key in ("base", "agent", *MORE)),
    *(f"define.other.{key}" for key in ("base", "forks", *MORE)),
}


def leaves(value: Any, where: str = "", annotation: Any = None) -> Iterator[tuple[str, Any, Any]]:
    """(key, value, annotation) of every key of the configuration that has no keys below it."""
    if isinstance(value, BaseModel):
        parts = [(name, getattr(value, name), field.annotation) for name, field in type(value).model_fields.items()]
        parts += [(name, part, None) for name, part in (value.model_extra or {}).items()]
    elif isinstance(value, dict) and value:
        parts = [(name, part, None) for name, part in value.items()]
    else:
        yield where, value, annotation
        return
    for name, part, its in parts:
        yield from leaves(part, f"{where}.{name}" if where else name, its)


def another(key: str, value: Any, annotation: Any) -> Any:
    """A valid value of this key that is not the one it has."""
    if key in OTHER:
        return OTHER[key]
    if get_origin(annotation) is Literal:
        return next(one for one in get_args(annotation) if one != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value / 2 or 0.25
    if isinstance(value, list):
        return [*value, *value]
    if value is None and int in get_args(annotation):
        return 90
    raise AssertionError(f"{key}: say another value of {value!r} in OTHER")


LEAVES = {key: (value, annotation) for key, value, annotation in leaves(from_mapping(CONFIG)) if key not in UNSET}


def changed_config(key: str) -> dict[str, Any]:
    """The configuration with another value of one key."""
    value: Any = another(key, *LEAVES[key])
    for part in reversed(key.split(".")):
        value = {part: value}
    return merge(CONFIG, value)


def jobs(plan: Plan) -> dict[str, list[At]]:
    """Keys of jobs of every stage: of the first round and of later ones, of every method."""
    turns = [plan.turns_at(method, 0, round) for method in METHODS for round in (1, 2)]
    learned = [plan.turns_at("mine", 0, round) for round in (1, 2)]
    of_mine = [At(policy=at.policy, seed=0, round=at.round, method="mine") for at in learned]
    runs = [At(method=method, seed=0, round=round) for method in METHODS for round in (1, 6)]
    audited = [at for at in plan.audited if (at.seed, at.round) == (0, 2)]
    of_experiment = ("config", "demos", "report", "track")
    of_agents = [At(), *(At(start=start_name(agent)) for agent in plan.experiment.agents)]
    of_audit = ("branch", "fidelity", "gradients", "leaks", "rollout_invariants", "pages")
    return {
        **{stage: [At()] for stage in of_experiment},
        **dict.fromkeys(of_audit, audited),
        **dict.fromkeys(("base", "sft"), of_agents),
        "tasks": [At(split="train"), At(split="eval")],
        "rollout": turns,
        "measures": turns,
        "label": [plan.keys_of("labels", at, "has_judge") for at in turns],
        "continuations": [plan.keys_of("continuations", at, "vine") for at in turns],
        "forks": [plan.keys_of("forks", at, "tree") for at in turns],
        "hiddens": [plan.keys_of("hiddens", at, "mine") for at in learned],
        "implicit_model": [At(policy="istar", seed=0, round=2, method="istar")],
        "logprobs": [plan.keys_of("logprobs", at, name) for at in turns for name in ("hcapo", "istar")],
        "credit_model": of_mine,
        "values": of_mine,
        "credit": [At(policy=at.policy, seed=0, round=at.round, method=method) for at in turns for method in METHODS],
        "update": runs,
        "eval": [At(method=method, seed=0, round=6) for method in (*plan.experiment.starts(), *METHODS)],
        "invariants": [At(method=method, seed=0) for method in METHODS],
    }


def slices(plan: Plan) -> dict[str, list[Slice]]:
    return {stage: [plan.slice(stage, at) for at in ats] for stage, ats in jobs(plan).items()}


@cache
def before() -> dict[str, list[Slice]]:
    return slices(Plan(from_mapping(CONFIG)))


def changed_stages(config: dict[str, Any]) -> set[str]:
    after = slices(Plan(from_mapping(config)))
    return {stage for stage in stages() if after[stage] != before()[stage]}


@pytest.mark.slow
@pytest.mark.parametrize("key", LEAVES)
def test_a_key_is_in_the_slices_of_the_stages_that_read_it_and_of_no_other(key):
    starts = [start for start in READ_BY if f"{key}.".startswith(f"{start}.")]
    assert starts, f"which stages read {key}? say it in READ_BY"
    assert changed_stages(changed_config(key)) == {"config", *READ_BY[max(starts, key=len)]}


def test_every_entry_of_the_table_is_about_a_key_that_there_is():
    assert [start for start in READ_BY if not any(f"{key}.".startswith(f"{start}.") for key in LEAVES)] == []
    assert OTHER.keys() <= LEAVES.keys()


def test_every_stage_has_jobs_here():
    assert {stage for stage, ats in jobs(Plan(from_mapping(CONFIG))).items() if ats} == set(stages())


@pytest.mark.parametrize("rounds", [3, 9, 12, 30])
def test_the_default_experiment_with_fewer_or_more_rounds_repeats_no_update(rounds):
    default = yaml.safe_load((tiny.ROOT / "config.yaml").read_text())
    fixed = {"eval": {"rounds": [rounds], "fresh": False}, "audit": {"rounds": []}}
    one, two = (Plan(from_mapping(merge(default, changes))) for changes in ({}, {**fixed, "rounds": rounds}))
    for at in (At(method="flat_grpo", seed=0, round=round) for round in range(1, min(rounds, 10) + 1)):
        assert two.slice("update", at) == one.slice("update", at), at


def test_the_learning_rate_of_the_default_experiment_falls_linearly_to_a_fifth_in_round_10():
    default = Plan(from_mapping(yaml.safe_load((tiny.ROOT / "config.yaml").read_text())))
    settings = default.slice("update", At(method="flat_grpo", seed=0, round=1)).update
    assert [round_rate(settings, round) for round in (1, 4, 10, 11)] == pytest.approx([1, 1 - 0.8 / 3, 0.2, 0.2])


def test_without_decay_rounds_the_learning_rate_falls_until_the_last_round():
    plan = Plan(from_mapping(merge(CONFIG, {"update": {"decay_rounds": None}})))
    settings = plan.slice("update", At(method="flat_grpo", seed=0, round=1)).update
    assert (settings.decay_rounds, round_rate(settings, 6)) == (6, 0.5)


def test_rounds_added_to_the_list_of_evaluated_rounds_leave_the_games_of_the_others():
    settings = {"eval": {"games": 2, "every": 5, "rounds": [5, 8, 9, 10]}, "rounds": 10}
    more = merge(settings, {"eval": {"rounds": [5, 8, 9, 10, 12, 11]}, "rounds": 12})
    one, two = (Plan(from_mapping(merge(CONFIG, changes))) for changes in (settings, more))
    assert two.experiment.eval_rounds() == [5, 8, 9, 10, 11, 12]
    for round in (5, 8, 9, 10):
        at = At(method="flat_grpo", seed=0, round=round)
        assert two.slice("eval", at) == one.slice("eval", at), at
    parts = [two.slice("eval", At(method="flat_grpo", seed=0, round=r)).part for r in (5, 8, 9, 10, 12, 11)]
    assert parts == [0, 1, 2, 3, 4, 5]


def test_a_round_to_evaluate_that_there_is_not_is_refused():
    with pytest.raises(UserError, match=r"eval.rounds names 7, but there are only 6 rounds"):
        from_mapping(merge(CONFIG, {"eval": {"rounds": [1, 7]}}))


@pytest.mark.parametrize(
    "more",
    [
        {"methods": ["flat_grpo", "has_progressive"]},
        {"methods": ["flat_grpo", "oracle_progress"]},
        {"audit": {"run": "flat_grpo", "rounds": [1]}},
    ],
    ids=["progress", "distance", "audit"],
)
def test_what_reads_progress_or_distance_adds_jobs_and_repeats_none(more):
    """Neither the rollouts nor what was made of them: slices and inputs of the jobs there were stay as they are."""
    config = merge(CONFIG, {"methods": ["flat_grpo"], "audit": {"run": None, "rounds": []}})
    one, two = (Plan(from_mapping(merge(config, changes))) for changes in ({}, more))
    for round in (1, 2):
        turns = one.turns_at("flat_grpo", 0, round)
        credited, run = replace(turns, method="flat_grpo"), At(method="flat_grpo", seed=0, round=round)
        for stage, at in (("rollout", turns), ("credit", credited), ("update", run)):
            assert two.slice(stage, at) == one.slice(stage, at), stage
            assert two.inputs(stage, at) == one.inputs(stage, at), stage


def test_a_further_agent_and_a_method_that_plays_with_it_repeat_no_job():
    one = Plan(from_mapping(merge(CONFIG, {"methods": list(METHODS[:-1])})))
    more = {"agents": {"third": {"name": "transcript"}}, "define": {"new": {"base": "flat_grpo", "agent": "third"}}}
    two = Plan(from_mapping(merge(CONFIG, {"methods": [*METHODS, "new"], **more})))
    compared = 0
    for stage, ats in jobs(one).items():
        for at in ats if stage not in ("config", "report", "track") else ():
            assert two.slice(stage, at) == one.slice(stage, at), (stage, at)
            assert two.inputs(stage, at) == one.inputs(stage, at), (stage, at)
            assert two.outputs(stage, at) == one.outputs(stage, at), (stage, at)
            compared += 1
    assert compared > 100


def test_another_measure_that_is_read_does_not_repeat_what_reads_the_first():
    one, two = (
        Plan(tiny.experiment(methods=methods))
        for methods in (["has_progressive"], ["has_progressive", "oracle_progress"])
    )
    turns = one.turns_at("has_progressive", 0, 2)
    credited = replace(turns, method="has_progressive")
    for stage, at in (("measures", turns), ("credit", credited)):
        assert (two.slice(stage, at), two.inputs(stage, at)) == (one.slice(stage, at), one.inputs(stage, at))


def test_the_time_limit_of_an_environment_reaches_every_job_that_plays():
    plan = Plan(from_mapping(merge(CONFIG, {"env": {"timeout": 7.5}})))
    for stage in ("demos", "measures", *sorted(PLAYING)):
        for at in nonempty(jobs(plan)[stage]):
            assert plan.job(stage, at).runtime_options.timeout == 7.5, stage


def test_a_file_of_ones_own_is_an_input_of_what_reads_it(tmp_path):
    method, agent = tmp_path / "own.py", tiny.ROOT / "examples" / "own_agent.py"
    method.write_text("def own(turns):\n    return turns.reward_N\n")
    config = tiny.mapping(methods=["own"], define={"own": {"credit": str(method)}}, agent={"name": str(agent)})
    plan = Plan(from_mapping(config))
    at = plan.turns_at("own", 0, 1)
    assert plan.inputs("credit", At(policy=at.policy, method="own", seed=0, round=1))["method"] == str(method)
    for stage, keys in (("sft", At()), ("rollout", at), ("eval", At(method="own", seed=0, round=1)), ("branch", at)):
        assert plan.inputs(stage, keys)["agent"] == str(agent), stage


def test_a_slice_that_is_kept_for_several_jobs_is_that_of_each():
    """`varies_by` says by which keys a stage's slice varies; a key that is missing there would give another's slice."""
    kept = Plan(from_mapping(CONFIG))
    for stage, ats in nonempty(jobs(kept).items()):
        for at in ats:
            assert kept.slice(stage, at) == load(stage).slice(Plan(from_mapping(CONFIG)), at), (stage, at)


def test_slices_survive_as_the_plain_data_that_a_job_is_described_by():
    for stage, parts in before().items():
        for part in parts:
            plain = json.loads(json.dumps(part.model_dump(mode="json")))
            assert load(stage).part.model_validate(plain) == part, stage
