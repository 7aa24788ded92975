"""Which part of the configuration each stage gets: a job runs again when its slice has changed, and only then.

Each key of the configuration is changed in turn. The stages whose slices change are those that read it, and must be
those in `slices.json`. After a change that is meant, write that file again and read its diff:

    python -m tests.stages.test_slices

That a changed slice, and nothing else, makes Snakemake run jobs again is tested on real results in
tests/pipeline/test_end_to_end.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel

from tests import tiny
from tests.helpers import nonempty
from turncredit.config import UpdateConfig, from_mapping, merge
from turncredit.config.layout import of_sft
from turncredit.config.stages import stages
from turncredit.errors import UserError
from turncredit.pipeline.all_jobs import Step, every_job
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan, load

READ_BY = Path(__file__).with_name("slices.json")
COMPARED = ("mine", "flat_grpo", "has_judge", "hcapo", "istar", "vine")
METHODS = (*COMPARED, "tree", "other", "grove")
MINE = {
    "base": "has_turnrd",
    "params": {"alpha": 0.5},
    "model": {"batch": 8},
    "rollout": {"temperature": 0.8},
    "update": {"lr": 1e-3, "minibatch": 8},
}
#: every block of the configuration is there, every stage has jobs, and what is optional has a value
CONFIG = tiny.mapping(
    rounds=6,
    seeds=[0, 1],
    methods=list(METHODS),
    define={
        "mine": MINE,
        "vine": {"base": "vineppo", "agent": "plain", "continuations": {"per_state": 3, "budget_turns": 500}},
        "tree": {"base": "carl", "forks": {"per_task": 5}},
        "other": {"base": "hcapo", "agent": "plain"},
        "grove": {"base": "carl", "agent": "plain"},
    },
    tasks={"eval": 60, "demo_split": "demos", "demos": 30},
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

#: other values of keys whose type does not say what is valid
OTHER: dict[str, Any] = {
    "experiment": "other",
    "sweep": {"grid": {"rounds": [6]}, "only": "tiny_rounds_6"},  # the same experiment, by another name
    "seeds": [0, 1, 2],
    "methods": [*METHODS, "rloo"],
    "define.mine.base": "has_turnrd_film",
    "define.vine.base": "truth",
    "define.vine.agent": None,
    "define.other.agent": None,
    "define.grove.agent": None,
    "env.name": str(tiny.ROOT / "examples" / "counting_env.py"),
    "tasks.demo_split": "valid",
    "tasks.train_split": "eval",
    "tasks.eval_split": "train",
    "agent.name": "transcript",
    "agents.plain.name": "transcript",
    "policy.source": "org/model",
    "policy.chat_template": {"enable_thinking": False},
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
    "judge.chat_template": {"reasoning_effort": "low"},
    "judge.serve": {"python": "python3"},
    "audit.run": "flat_grpo",
    "audit.rounds": [1, 2],
    "audit.seeds": [0, 1],
    "audit.methods": ["mine", "flat_grpo"],
    "tracking.uri": "sqlite:///other.db",
    "judge.timeout": 90.0,
}
#: the only bases here with forks, and with logits in hindsight for another agent
KEPT = {"define.tree.base", "define.grove.base", "define.other.base"}


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
    if value is None and key.rpartition(".")[2].startswith("slurm_"):
        return "other"
    raise AssertionError(f"{key}: say another value of {value!r} in OTHER")


LEAVES = {
    key: (value, annotation)
    for key, value, annotation in leaves(from_mapping(CONFIG))
    # What a method does not have stays so: a file of its own is an input (below), and a grid makes other methods.
    if key in OTHER or not (key.startswith("define.") and (key in KEPT or not value))
}


def changed_config(key: str) -> dict[str, Any]:
    """The configuration with another value of one key."""
    value: Any = another(key, *LEAVES[key])
    for part in reversed(key.split(".")):
        value = {part: value}
    return merge(CONFIG, value)


@cache
def jobs() -> list[Step]:
    return every_job(Plan(from_mapping(CONFIG)))


def slices(config: dict[str, Any]) -> dict[tuple[Any, ...], set[str]]:
    """The slices of each stage's jobs: of all of them, and of those of each run, seed and round."""
    plan = Plan(from_mapping(config))
    found: dict[tuple[Any, ...], set[str]] = {(stage,): set() for stage in stages()}
    for stage, at in every_job(plan):
        # The name of shared rollouts follows from how they are sampled.
        run = plan.warm_start(at) if of_sft(at.policy) else at.policy
        for jobs_alike in ((stage,), (stage, run, at.method, at.seed, at.round, at.split)):
            found.setdefault(jobs_alike, set()).add(plan.slice(stage, at).model_dump_json())
    return found


def read_by() -> dict[str, str]:
    """The stages that read each key, but for `config`, which keeps the whole configuration."""
    before, found = slices(CONFIG), {}
    assert all(before.values()), "a stage has no job here"
    for key in LEAVES:
        after = slices(changed_config(key))
        changed = {jobs_alike[0] for jobs_alike in before.keys() & after if before[jobs_alike] - after[jobs_alike]}
        found[key] = " ".join(sorted(changed - {"config"}))
    return found


@pytest.mark.slow
def test_a_key_is_in_the_slices_of_the_stages_that_read_it_and_of_no_other():
    assert read_by() == json.loads(READ_BY.read_text()), "if meant: python -m tests.stages.test_slices"
    assert OTHER.keys() <= LEAVES.keys()


@pytest.mark.parametrize("rounds", [3, 9, 12, 30])
def test_the_default_experiment_with_fewer_or_more_rounds_repeats_no_update(rounds):
    default = yaml.safe_load((tiny.ROOT / "config.yaml").read_text())
    fixed = {"eval": {"rounds": [rounds], "fresh": False}, "audit": {"rounds": []}}
    one, two = (Plan(from_mapping(merge(default, changes))) for changes in ({}, {**fixed, "rounds": rounds}))
    for at in (JobKeys(method="flat_grpo", seed=0, round=round) for round in range(1, min(rounds, 10) + 1)):
        assert two.slice("update", at) == one.slice("update", at), at


def test_the_learning_rate_of_the_default_experiment_falls_linearly_to_a_fifth_in_round_10():
    default = Plan(from_mapping(yaml.safe_load((tiny.ROOT / "config.yaml").read_text())))
    settings = default.slice("update", JobKeys(method="flat_grpo", seed=0, round=1)).update
    assert [settings.rate_in(round) for round in (1, 4, 10, 11)] == pytest.approx([1, 1 - 0.8 / 3, 0.2, 0.2])


def test_without_decay_rounds_the_learning_rate_falls_until_the_last_round():
    plan = Plan(from_mapping(merge(CONFIG, {"update": {"decay_rounds": None}})))
    settings = plan.slice("update", JobKeys(method="flat_grpo", seed=0, round=1)).update
    assert (settings.decay_rounds, settings.rate_in(6)) == (6, 0.5)


def test_a_decay_over_one_round_has_ended_in_the_second():
    settings = UpdateConfig(final_lr=0.2, decay_rounds=1)
    assert [settings.rate_in(round) for round in (1, 2, 9)] == pytest.approx([1, 0.2, 0.2])


def test_rounds_added_to_the_list_of_evaluated_rounds_leave_the_games_of_the_others():
    settings = {"eval": {"games": 2, "every": 5, "rounds": [5, 8, 9, 10]}, "rounds": 10}
    more = merge(settings, {"eval": {"rounds": [5, 8, 9, 10, 12, 11]}, "rounds": 12})
    one, two = (Plan(from_mapping(merge(CONFIG, changes))) for changes in (settings, more))
    assert two.experiment.eval_rounds() == [5, 8, 9, 10, 11, 12]
    for round in (5, 8, 9, 10):
        at = JobKeys(method="flat_grpo", seed=0, round=round)
        assert two.slice("eval", at) == one.slice("eval", at), at
    parts = [two.slice("eval", JobKeys(method="flat_grpo", seed=0, round=r)).part for r in (5, 8, 9, 10, 12, 11)]
    assert parts == [0, 1, 2, 3, 4, 5]


def test_a_round_to_evaluate_that_there_is_not_is_refused():
    with pytest.raises(UserError, match=r"eval.rounds has 7, but there are only 6 rounds"):
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
        credited, run = replace(turns, method="flat_grpo"), JobKeys(method="flat_grpo", seed=0, round=round)
        for stage, at in (("rollout", turns), ("credit", credited), ("update", run)):
            assert two.slice(stage, at) == one.slice(stage, at), stage
            assert two.inputs(stage, at) == one.inputs(stage, at), stage


def test_a_further_agent_and_a_method_that_plays_with_it_repeat_no_job():
    one = Plan(from_mapping(merge(CONFIG, {"methods": list(METHODS[:-1])})))
    more = {"agents": {"third": {"name": "transcript"}}, "define": {"new": {"base": "flat_grpo", "agent": "third"}}}
    two = Plan(from_mapping(merge(CONFIG, {"methods": [*METHODS, "new"], **more})))
    for step in nonempty(step for step in every_job(one) if step[0] not in ("config", "report", "track")):
        assert two.slice(*step) == one.slice(*step), step
        assert two.inputs(*step) == one.inputs(*step), step
        assert two.outputs(*step) == one.outputs(*step), step


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
    playing = {"demos", "measures", "rollout", "continuations", "forks", "eval", "branch"}
    limits = {(stage, plan.job(stage, at).runtime_options.timeout) for stage, at in every_job(plan) if stage in playing}
    assert limits == {(stage, 7.5) for stage in playing}


def test_a_file_of_ones_own_is_an_input_of_what_reads_it(tmp_path):
    method, agent = tmp_path / "own.py", tiny.ROOT / "examples" / "own_agent.py"
    method.write_text("def own(turns):\n    return turns.reward_N\n")
    config = tiny.mapping(methods=["own"], define={"own": {"credit": str(method)}}, agent={"name": str(agent)})
    plan = Plan(from_mapping(config))
    at = plan.turns_at("own", 0, 1)
    assert plan.inputs("credit", JobKeys(policy=at.policy, method="own", seed=0, round=1))["method"] == str(method)
    for stage, keys in (
        ("sft", JobKeys()),
        ("rollout", at),
        ("eval", JobKeys(method="own", seed=0, round=1)),
        ("branch", at),
    ):
        assert plan.inputs(stage, keys)["agent"] == str(agent), stage


def test_a_slice_that_is_kept_for_several_jobs_is_that_of_each():
    """`varies_by` says by which keys a stage's slice varies; a key that is missing there would give another's slice."""
    kept, fresh = (Plan(from_mapping(CONFIG)) for _ in range(2))
    for stage, at in nonempty(jobs()):
        assert kept.slice(stage, at) == load(stage).slice(fresh, at), (stage, at)


def test_slices_survive_as_the_plain_data_that_a_job_is_described_by():
    plan = Plan(from_mapping(CONFIG))
    for stage, at in nonempty(jobs()):
        part = plan.slice(stage, at)
        assert load(stage).part.model_validate(json.loads(json.dumps(part.model_dump(mode="json")))) == part, stage


if __name__ == "__main__":
    READ_BY.write_text(json.dumps(read_by(), indent=1) + "\n")
