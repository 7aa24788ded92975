"""What jobs take, from the model's shapes: memory, GPUs, disk, and the command that prints it."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from tests import presets, tiny
from tests.helpers import as_if_simulators_were_here
from turncredit.cli import configured
from turncredit.cli.plan import at_once, gpu_hours, lines_of, plan, rounds_time, submitted_jobs, training
from turncredit.config import BranchConfig, from_mapping, load, merge
from turncredit.config.stages import policy_stages, stages
from turncredit.config.stages import stage as stage_record
from turncredit.data.yaml_files import read_mapping
from turncredit.errors import UserError
from turncredit.pipeline import resources as needs
from turncredit.pipeline.all_jobs import every_job
from turncredit.pipeline.blocks import resource_of_block
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.learned_models import judge_shapes, shapes
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.assumed import HOST, REQUEST, STARTS
from turncredit.pipeline.resources.gpu_time import longest
from turncredit.pipeline.resources.requests import ADVICE
from turncredit.pipeline.resources.work import Work
from turncredit.policy.shapes import PUBLISHED

ROOT = Path(__file__).resolve().parents[2]
QWEN = {size: name for name in PUBLISHED if "Qwen2.5" in name for size in ("1.5B", "3B", "7B") if size in name}
#: for a policy of any size, on the CPU's engine
BIG = {"methods": ["flat_grpo"], "sft": {"epochs": 0}, "audit": {"rounds": []}}


def plan_of(**changes):
    return Plan(tiny.experiment(**changes))


def trained(size, **types):
    """The parts of an update's memory that do not depend on the batch, in GB."""
    parts = needs.need(plan_of(policy={"source": QWEN[size], **types}, **BIG), "update").model
    return sum(parts[name] for name in ("weights", "gradients", "moments")) / 1e9


@pytest.mark.parametrize(
    ("types", "gigabytes"),
    [
        ({}, (25, 49, 122)),
        ({"dtype": "bfloat16"}, (28, 56, 137)),
        ({"dtype": "bfloat16", "moments_dtype": "bfloat16"}, (22, 43, 107)),
        ({"dtype": "bfloat16", "train_dtype": "bfloat16", "moments_dtype": "bfloat16"}, (12, 25, 61)),
    ],
    ids=["float32", "masters", "moments", "stochastic"],
)
def test_an_update_takes_the_memory_that_the_table_in_the_docs_states(types, gigabytes):
    """docs/update.md: weights, gradients and moments of Qwen2.5 1.5B, 3B and 7B, before activations."""
    assert [round(trained(size, **types)) for size in QWEN] == list(gigabytes)
    table = (ROOT / "docs/update.md").read_text()
    assert f"| {', '.join(map(str, gigabytes))} |" in table


def test_an_adapter_of_7b_trains_on_one_gpu_and_its_weights_in_float32_do_not():
    seven = {"source": QWEN["7B"], "dtype": "bfloat16", "engine": "vllm"}
    update = {"gradient_checkpointing": True}
    adapted = plan_of(policy={**seven, "lora": {"rank": 32}}, update=update, **BIG)
    assert needs.fits(adapted, "update") is None
    whole = needs.fits(plan_of(policy=seven, update=update, **BIG), "update")
    assert whole.startswith("update takes about 1")
    assert "\n" not in whole


def test_memory_of_gpus_that_a_stage_does_not_use_does_not_count():
    """A job may get more of them than its stage is split over, such as one of several stages."""
    policy = {"source": QWEN["7B"], "dtype": "bfloat16", "engine": "vllm", "sample_gpus": 4}
    plan = plan_of(policy=policy, resources={"update": {"gpu": 4}}, **BIG)
    assert plan.experiment.gpus("update") == 4
    assert needs.fits(plan, "update").startswith("update takes about 1")


def test_each_of_several_engines_holds_its_share_of_the_slots_and_all_of_the_weights():
    policy = {"source": QWEN["7B"], "dtype": "bfloat16", "engine": "vllm"}
    rollout = {"tasks": 16, "group_size": 8, "slots": 128}
    plans = [plan_of(policy={**policy, "sample_engines": count}, rollout=rollout, **BIG) for count in (1, 4)]
    one, each = (needs.need(plan, "rollout") for plan in plans)
    assert each.model["weights"] == one.model["weights"]
    assert each.model["cache"] == one.model["cache"] / 4
    assert each.host == 4 * (one.host + HOST.process)
    (alone,), (shared,) = (
        needs.gpu_seconds_in_turn(plan, [("rollout", plan.turns_at("flat_grpo", 0, 1))]) for plan in plans
    )
    start = STARTS.vllm + STARTS.vllm_a_billion * shapes(plans[0].experiment).parameters / 1e9
    # A step of decoding reads all weights whatever the number of sequences, so four engines are not four times as fast.
    assert (alone - start) / 4 < shared - start < alone - start
    assert plans[1].experiment.gpus("rollout") == 4


def test_a_step_in_float32_on_a_gpu_takes_a_number_for_each_parameter_beside_the_moments():
    """torch.optim.AdamW computes the roots of all second moments at once there; on a CPU one parameter's at a time."""
    three, update = {"source": QWEN["3B"], "dtype": "bfloat16"}, {"gradient_checkpointing": True, "minibatch": 1}
    parts = [
        needs.need(plan_of(policy={**three, "engine": engine}, update=update, **BIG), "update").model
        for engine in ("vllm", "transformers")
    ]
    assert parts[0]["a step"] / 1e9 == pytest.approx(4 * 3.09, rel=0.01)
    assert "a step" not in parts[1]


def shared_update(shards, threads, *, gpu=0, **policy):
    """The memory of an update of 1.5B by part, its minibatch split in shards."""
    resources = {"update": {"threads": threads, "gpu": gpu}}
    update = {"shards": shards, "minibatch": 8, "tokens_per_pass": 64}
    changes = {"policy": {"source": QWEN["1.5B"], **policy}, "update": update, "resources": resources}
    return needs.need(plan_of(**{**BIG, **changes}), "update").model


def test_each_process_that_shares_a_minibatch_has_weights_moments_and_passes_of_its_own():
    """training/team.py: forks; the gradients that they exchange are in shared memory, two sets of each shard's."""
    one, two, idle = shared_update(4, 1), shared_update(4, 2), shared_update(4, 4)
    for part in ("weights", "moments", "activations", "logits"):
        assert (two[part], idle[part]) == (2 * one[part], 4 * one[part]), part
    trained = one["moments"] / 2  # bytes of a float32 for each weight
    assert one["gradients"] == pytest.approx((1 + 4) * trained)
    assert two["gradients"] == pytest.approx((2 + 2 * 4) * trained)
    assert idle["gradients"] == pytest.approx((4 + 2 * 4) * trained)
    assert shared_update(2, 8) == shared_update(2, 2), "no more processes than shards"


def test_processes_share_the_base_under_an_adapter():
    one, two = (shared_update(2, threads, lora={"rank": 8}) for threads in (1, 2))
    assert two["moments"] == 2 * one["moments"]
    assert two["weights"] - one["weights"] == pytest.approx(one["moments"] / 2)


def test_a_job_on_gpus_asks_for_two_cores_and_two_for_each_gpu_unless_told():
    policy = {"source": QWEN["7B"], "engine": "vllm", "train_gpus": 8, "sample_engines": 4}
    plan = plan_of(policy=policy, resources={"eval": {"threads": 3}}, rounds=2, granularity="round", **BIG)
    threads = {stage: needs.resource(plan, stage).threads for stage in ("update", "rollout", "eval", "credit")}
    assert threads == {"update": 18, "rollout": 10, "eval": 3, "credit": 1}
    assert resource_of_block(plan, plan.experiment.trained()[0], 0, [1]).threads == 18
    assert needs.resource(plan_of(**BIG), "update").threads == 1


def test_on_a_gpu_one_process_computes_all_shards():
    assert shared_update(2, 8, gpu=1) == shared_update(2, 1, gpu=1)


def test_each_process_of_a_spread_model_reads_all_of_it_before_it_keeps_its_share():
    seven = {"source": QWEN["7B"], "dtype": "bfloat16", "engine": "vllm"}
    one, four = (
        needs.need(plan_of(policy={**seven, "train_gpus": gpus}, sft={"epochs": 0, "shards": 1}), "update").host / 1e9
        for gpus in (1, 4)
    )
    assert one == pytest.approx(12 * 7.6, rel=0.01)  # the whole policy and its moments, in float32
    assert four == pytest.approx(4 * 4 * 7.6 + 3 * HOST.cuda_process / 1e9, rel=0.01)


def test_a_pass_takes_less_memory_with_fewer_tokens_or_with_checkpointing():
    def activations(**update):
        parts = needs.need(
            plan_of(policy={"source": QWEN["1.5B"], "dtype": "bfloat16"}, update=update, **BIG), "update"
        )
        return parts.model["activations"]

    many, few = activations(tokens_per_pass=16384, minibatch=8), activations(tokens_per_pass=4096, minibatch=8)
    assert few < many
    assert activations(tokens_per_pass=16384, minibatch=8, gradient_checkpointing=True) < many / 3


@pytest.mark.parametrize(
    ("stage", "section", "more"),
    [("update", "update", {"tokens_per_pass": 262144}), ("rollout", "rollout", {"slots": 60, "tasks": 60})],
)
def test_a_method_that_takes_more_than_the_others_is_what_the_stage_asks_for(stage, section, more):
    model = {**BIG, "policy": {"source": QWEN["1.5B"]}, "update": {"tokens_per_pass": 1024}}
    own = {"methods": ["flat_grpo", "mine"], "define": {"mine": {"base": "flat_grpo", section: more}}}
    usual, mine = (needs.need(plan_of(**{**model, **changes}), stage) for changes in ({}, own))
    assert mine.total > 1.2 * usual.total
    assert mine.model == needs.need(plan_of(**{**model, section: more}), stage).model


def test_continuations_fill_all_slots_and_rollouts_as_many_as_there_are_of_them():
    rollout = {"tasks": 4, "group_size": 2, "slots": 256}
    plan = plan_of(**BIG, rollout=rollout, eval={"games": 16, "every": 1}, tasks={"train": 16, "eval": 64})
    full, round_of = (needs.need(plan, stage).model["cache"] for stage in ("branch", "rollout"))
    assert full == pytest.approx(16 * round_of)
    assert needs.need(plan, "continuations").model["cache"] == full


def test_every_stage_that_reads_a_policy_asks_for_its_memory_and_for_a_gpu_where_policies_need_one():
    """Whatever the graph of a large audit reads: a policy's folder is read by a stage that asks for it."""
    audit = {"rounds": [1, 2], "methods": ["flat_grpo", "turn_value", "istar", "vineppo", "hcapo"]}
    methods = ["flat_grpo", "turn_value", "istar", "vineppo", "carl"]
    agent = {"name": "window", "max_response_tokens": 16}
    plan = Plan(tiny.experiment(methods=methods, agent=agent, audit=audit))
    folders = ("base", "sft_policy", "policy", "implicit")
    reading = set()
    for stage, at in every_job(plan):
        files = [
            path for value in plan.inputs(stage, at).values() for path in ([value] if isinstance(value, str) else value)
        ]
        located = filter(None, map(plan.layout.locate, files))
        reading |= {stage for found in located if found.artifact in folders}
    assert reading == set(policy_stages())
    big = Plan(plan.experiment.model_copy(update={"policy": big_policy()}))
    for stage in reading:
        asked = needs.resource(big, stage)
        assert asked.gpu == 1, stage
        assert asked.mem_mb >= 20_000, stage
    assert (needs.resource(big, "credit").gpu, needs.resource(big, "credit").mem_mb) == (0, 2000)


@pytest.mark.parametrize(("gpus", "nodes"), [(0, None), (1, None), (4, 1)])
def test_a_job_with_several_gpus_asks_for_one_node(gpus, nodes):
    wanted = needs.resource(plan_of(resources={"update": {"gpu": gpus}}), "update")
    assert needs.requested(wanted, {}).get("nodes") == nodes
    assert needs.requested(wanted, {})["gpu"] == gpus


def big_policy():
    return tiny.experiment(policy={"source": QWEN["7B"], "dtype": "bfloat16", "engine": "vllm"}).policy


def test_what_the_configuration_asks_for_is_asked_for():
    plan = plan_of(resources={"update": {"mem_mb": 123, "gpu": 0}, "eval": {"gpu": 2}}, policy={"engine": "vllm"})
    assert (needs.resource(plan, "update").mem_mb, needs.resource(plan, "update").gpu) == (123, 0)
    assert needs.resource(plan, "eval").gpu == 2
    assert needs.resource(plan, "rollout").gpu == 1


def test_without_a_gpu_in_sight_no_job_asks_for_one():
    plan = plan_of()
    assert {needs.resource(plan, stage).gpu for stage in policy_stages()} == {0}
    assert {needs.resource(plan, stage).mem_mb for stage in policy_stages()} <= {2000, 3000}


def test_a_sweep_of_24_runs_of_7b_needs_two_policies_of_each_run_on_disk_and_keeping_all_is_150_times_as_much():
    """46 GB a policy in bfloat16 with its moments: 2.2 TB against 165 TB."""
    policy = {"source": QWEN["7B"], "dtype": "bfloat16", "train_dtype": "bfloat16", "moments_dtype": "bfloat16"}
    methods = ["flat_grpo", "rloo", "gigpo", "scpo", "ppo", "hgpo", "empg", "turn_value"]
    changes = {**BIG, "methods": methods, "seeds": [0, 1, 2], "rounds": 150, "tasks": {"eval": 600}}
    sizes = {}
    for keep in ("last", "all"):
        plan = plan_of(policy=policy, keep_policies=keep, **changes)
        sizes[keep] = next(size for what, size in needs.disk(plan).items() if what.startswith("policies"))
    assert sizes["last"] == pytest.approx(24 * 2 * 46e9, rel=0.01)
    assert sizes["all"] == pytest.approx(24 * 150 * 46e9, rel=0.01)


@pytest.mark.parametrize(
    ("granularity", "per_job", "kept"), [("stage", 1, 2), ("run", 1, 2), ("round", 1, 6), ("round", 3, 3)]
)
def test_of_each_job_of_rounds_one_policy_stays_on_disk(granularity, per_job, kept):
    changes = {
        "methods": ["gigpo"],
        "seeds": [0],
        "rounds": 6,
        "granularity": granularity,
        "rounds_per_job": per_job,
        "eval": {"games": 1},
    }
    plan = plan_of(policy={"source": QWEN["7B"]}, keep_policies="last", **{**BIG, **changes})
    assert f"policies ({kept}, {kept} of each run at a time)" in needs.disk(plan)


@pytest.mark.slow
@pytest.mark.parametrize("name", presets.PRETRAINED)
def test_a_preset_of_a_pretrained_model_is_planned_without_a_network_and_fits_its_gpus(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    as_if_simulators_were_here(monkeypatch)
    short = {"rounds": 3, "seeds": [0], "eval": {"every": 1}}
    experiment = from_mapping(merge(read_mapping("config.yaml"), presets.settings(name), short))
    # The minutes that a preset gives its jobs of rounds are for more rounds than these.
    lines = [line for line in lines_of(Plan(experiment)) if not line.startswith("warning: a job of 3 rounds takes")]
    assert not [line for line in lines if "warning" in line or "not known" in line]
    computed = Plan(experiment.model_copy(update={"resources": {}}))
    for stage in ("sft", "update"):
        given = experiment.resource(stage).mem_mb
        assert given is None or given >= (needs.resource(computed, stage).mem_mb or 0), stage
    whole = Plan(presets.experiment(name))
    assert rounds_time(whole) == []
    limit = read_mapping("profiles/aws-batch/config.yaml")["aws-batch-task-timeout"]
    for stage in needs.ordered(stages()):
        asked = 60 * needs.resource(whole, stage).runtime
        assert REQUEST.slack * longest(whole, stage) <= asked <= limit, stage
    hours = next(line for line in lines if line.startswith("GPU hours: about "))
    assert float(hours.split()[3].rstrip(",").replace(",", "")) >= 1
    assert any(line.startswith("disk: ") for line in lines)


def test_with_rounds_in_one_job_fewer_jobs_are_submitted_for_the_same_stages():
    plain, fused = (plan_of(granularity=granularity) for granularity in ("stage", "round"))
    jobs = every_job(plain)
    assert every_job(fused) == jobs
    assert len(submitted_jobs(plain, jobs)) == len(jobs)
    inside = {"rollout": 1, "measures": 1, "credit": 4, "update": 4, "eval": 4}
    count = Counter(stage for stage, _ in jobs)
    # Two runs of two rounds each; what the SFT policy sampled in round 1 is shared, and has jobs of its own.
    inside |= {"rollout": count["rollout"] - 1, "measures": count["measures"] - 1}
    assert len(submitted_jobs(fused, jobs)) == len(jobs) - sum(inside.values()) + 4


def hours_of(**changes) -> dict[str, float]:
    """GPU hours by stage, of one method, one seed and three rounds; those of its evaluations are left out."""
    plan = plan_of(methods=["flat_grpo"], rounds=3, eval={"games": 2}, **changes)
    hours = gpu_hours(plan, submitted_jobs(plan, every_job(plan)))
    return {stage: hours[stage] for stage in ("sft", "rollout", "update")}


def test_the_plan_prints_the_minutes_that_stages_and_jobs_of_rounds_ask_for():
    asked = {"update": {"runtime": 1234}}
    together = plan_of(
        granularity="round", rounds=5, rounds_per_job=2, resources=asked, methods=["flat_grpo"], eval={"games": 1}
    )
    rows = lines_of(together)
    assert next(line for line in rows if line.startswith("update")).split()[4] == "1,234"
    most = max(resource_of_block(together, "flat_grpo", 0, block).runtime for block in together.experiment.blocks())
    assert most > 2 * 1234
    of_rounds = next(line for line in rows if line.startswith("jobs of 2 rounds"))
    assert (of_rounds.split()[4], of_rounds.split()[-1]) == ("3", f"{most:,}")
    assert not [line for line in lines_of(plan_of(resources=asked)) if line.startswith("jobs of")]


def test_the_stages_of_one_job_wait_for_one_start_of_a_process():
    on_gpus = {"rollout": {"gpu": 1}}
    alone, together = (hours_of(granularity=each, resources=on_gpus) for each in ("stage", "run"))
    start = STARTS.process / 3600
    assert together["sft"] == alone["sft"] > start
    # Round 1 has no rollouts of its own, so its update starts the process that two more rounds run in.
    assert together["rollout"] == pytest.approx(alone["rollout"] - 2 * start)
    assert together["update"] == pytest.approx(alone["update"] - 2 * start)


def test_vllm_starts_once_in_a_job_and_again_after_a_judge_that_the_job_serves():
    judge = {"kind": "llm", "model": QWEN["1.5B"], "serve": {"python": "python"}}
    plan = plan_of(
        methods=["triage"], rounds=2, policy={"engine": "vllm"}, judge=judge, resources={"label": {"gpu": 1}}
    )
    turns = plan.turns_at("triage", 0, 2)
    stages = ("rollout", "update", "eval", "label", "eval")
    steps = [(stage, plan.keys_for(stage, turns, "triage")) for stage in stages]
    alone = [needs.gpu_seconds(plan, *step) for step in steps]
    in_turn = needs.gpu_seconds_in_turn(plan, steps)
    billions = shapes(plan.experiment).parameters / 1e9
    sleeping = STARTS.vllm + STARTS.vllm_a_billion * billions
    sleeping -= STARTS.vllm_wakes + STARTS.vllm_wakes_a_billion * billions
    saved = [one - other for one, other in zip(alone, in_turn, strict=True)]
    assert saved == pytest.approx([0, STARTS.process, sleeping, 0, 0])


def test_a_job_in_which_vllm_sleeps_has_room_for_it():
    policy = {"source": QWEN["7B"], "engine": "vllm", "dtype": "bfloat16"}
    asked, process = {}, math.ceil(REQUEST.margin * HOST.vllm_process / 1e9) * 1000
    for lora in ({}, None):
        plan = plan_of(granularity="run", **{**BIG, "policy": {**policy, "lora": lora}})
        update = needs.resource(plan, "update").mem_mb
        asked[lora is None] = resource_of_block(plan, "flat_grpo", 0, [2]).mem_mb - update
    assert asked[True] == process
    assert asked[False] == pytest.approx(process + REQUEST.margin * 2 * 7.6e3, rel=0.05)
    assert needs.asleep_mb(plan_of(**BIG)) == 0


def test_a_job_of_several_stages_holds_the_gpus_of_the_largest_all_along():
    own = {"rollout": {"gpu": 1}, "update": {"gpu": 4}}
    one, four = (hours_of(granularity="run", resources=each) for each in ({"rollout": {"gpu": 1}}, own))
    # The SFT policy's rollouts of round 1 are a job of their own, on one GPU.
    alone = needs.gpu_seconds(plan_of(resources=own), "rollout", JobKeys(policy="")) / 3600
    assert four["rollout"] - alone == pytest.approx(4 * (one["rollout"] - alone))


def test_a_model_of_unknown_size_asks_for_much_and_says_so(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    plan = plan_of(policy={"source": str(tmp_path), "engine": "transformers"}, **BIG)
    assert needs.resource(plan, "update").mem_mb == REQUEST.unknown_mb
    assert [line for line in lines_of(plan) if "are not known here, so memory is a guess" in line]


def test_the_default_experiment_fits_a_small_machine():
    plan = Plan(load([ROOT / "config.yaml"]))
    assert max(needs.resource(plan, stage).mem_mb for stage in policy_stages()) <= 4000


def test_the_time_of_every_stage_that_loads_a_policy_is_estimated():
    assert {one.name for one in stages().values() if one.gpu_work} == set(policy_stages())


def test_there_is_advice_for_every_part_of_a_jobs_memory():
    spread = {"policy": {"source": QWEN["7B"], "train_gpus": 2}, "sft": {"epochs": 0, "shards": 1}}
    plans = [plan_of(**{**BIG, **changes}) for changes in ({"policy": {"source": QWEN["7B"]}}, spread)]
    parts = {part for plan in plans for stage in policy_stages() for part in needs.need(plan, stage).model}
    assert parts >= {"weights", "cache", "activations"}
    assert parts <= ADVICE.keys()


def seven_billion(**resources):
    """A round of 64 x 8 rollouts with 7B, read 8 times by one method and 16 times by another."""
    longer = {"longer": {"base": "flat_grpo", "update": {"epochs": 16}}}
    own = {"methods": ["flat_grpo", "longer"], "define": longer, "update": {"epochs": 8}}
    policy = {**WAVES["policy"], "source": QWEN["7B"]}
    return plan_of(**{**PLAYS, **own, "policy": policy, "resources": resources})


def test_the_time_of_a_job_is_three_times_what_its_longest_is_estimated_to_take_or_an_hour():
    plan = seven_billion()
    one, two = (needs.gpu_seconds(plan, "update", JobKeys(method=name)) for name in ("flat_grpo", "longer"))
    assert longest(plan, "update") == two > one
    minutes = needs.resource(plan, "update").runtime
    assert 3 * two <= 60 * minutes < 3 * two + 600
    assert minutes > 60
    assert needs.resource(plan, "credit").runtime == 60
    assert {needs.resource(plan_of(), stage).runtime for stage in policy_stages()} == {60}


def test_a_credit_model_holds_the_hidden_states_of_its_own_methods_rollouts():
    plans = [
        plan_of(methods=["mine"], define={"mine": {"base": "has_turnrd", **own}})
        for own in ({}, {"rollout": {"group_size": 16}})
    ]
    held, more = (needs.need(plan, "credit_model").host for plan in plans)
    assert more / held == 16 / plans[0].experiment.rollout.group_size


@pytest.mark.parametrize(
    ("own", "rollouts"),
    [
        ({"base": "flat_grpo", "rollout": {"group_size": 16}}, 64 * 16),
        ({"base": "carl", "forks": {"per_task": 12}}, 64 * (8 + 12)),
    ],
)
def test_an_update_learns_from_the_rollouts_and_forks_of_its_own_method(own, rollouts):
    plan = plan_of(**{**PLAYS, "methods": ["flat_grpo", "mine"], "define": {"mine": own}})
    one, mine = (needs.gpu_seconds(plan, "update", JobKeys(method=name)) for name in ("flat_grpo", "mine"))
    assert (mine - STARTS.process) / (one - STARTS.process) == pytest.approx(rollouts / (64 * 8), rel=0.01)


def test_a_time_that_is_given_is_asked_for_and_warned_of_where_it_is_shorter_than_the_estimate():
    needed = math.ceil(longest(seven_billion(), "update") / 60)
    enough, short = (seven_billion(update={"runtime": minutes}) for minutes in (needed, needed - 2))
    assert needs.resource(short, "update").runtime == needed - 2
    assert needs.in_time(enough, "update") is None
    line = needs.in_time(short, "update")
    minutes = round(longest(short, "update") / 60)
    assert line == (
        f"update takes about {minutes} minutes, and resources.update.runtime is {needed - 2}; raise it, or "
        "leave it out to ask for 3 times what is estimated"
    )
    assert f"warning: {line}" in lines_of(short)
    assert not [line for line in lines_of(enough) if "runtime" in line]


@pytest.mark.parametrize("name", ["qwen2.5-1.5b", "searchqa_qwen2.5-1.5b"])
@pytest.mark.parametrize("jobs", [{"granularity": "round", "rounds_per_job": 10}, {"granularity": "run"}])
def test_the_start_configurations_ask_for_a_few_hours_in_jobs_of_rounds(name, jobs, monkeypatch):
    monkeypatch.chdir(ROOT)
    settings = merge(presets.settings(name), jobs)
    plan = Plan(from_mapping(merge(read_mapping("config.yaml"), settings)))
    asked = {
        resource_of_block(plan, plan.experiment.methods[0], 0, rounds).runtime for rounds in plan.experiment.blocks()
    }
    assert asked == {360}
    assert rounds_time(plan) == []


@pytest.mark.parametrize(("minutes", "warned"), [(1, True), (600, False), (601, True)])
def test_a_job_of_rounds_that_asks_for_too_little_time_or_far_too_much_is_warned_of(minutes, warned):
    plan = plan_of(
        granularity="run",
        methods=["flat_grpo"],
        policy={"source": QWEN["1.5B"], "engine": "vllm"},
        resources={"rounds": {"runtime": minutes}},
    )
    said = [line for line in lines_of(plan) if line.startswith("warning: a job of 2 rounds takes about ")]
    assert len(said) == warned
    assert not warned or said[0].endswith(f"and asks for {minutes}; set resources.rounds.runtime")


def test_the_time_of_jobs_without_an_estimate_is_not_warned_of():
    too_long = {"rounds": {"runtime": 9999}}
    assert rounds_time(plan_of(granularity="run", resources=too_long)) == []  # on a CPU
    assert rounds_time(plan_of(resources={**too_long, "rollout": {"gpu": 1}})) == []  # a job for each stage


@pytest.mark.parametrize("granularity", ["stage", "round", "run"])
def test_the_plan_says_how_many_gpus_the_runs_can_use_at_once_and_the_least_time(granularity):
    """Methods times seeds, each on the GPUs of a job; with all of them no run waits for another."""
    policy = {"source": QWEN["7B"], "engine": "vllm", "sample_gpus": 2}
    one, six = (
        plan_of(granularity=granularity, methods=names, seeds=seeds, policy=policy)
        for names, seeds in ((["gigpo"], [0]), (["gigpo", "rloo"], [0, 1, 2]))
    )
    assert (training(one).gpus, training(six).gpus) == (2, 12)
    assert training(six).hours == pytest.approx(training(one).hours, rel=0.01)
    jobs = submitted_jobs(one, every_job(one))
    assert 0 < training(one).hours <= sum(gpu_hours(one, jobs).values())
    [line] = [line for line in lines_of(six) if "at once" in line]
    assert line.startswith("training uses at most 12 GPUs at once (6 runs in parallel), and takes at least ")
    together = at_once([one, six])
    assert together.startswith("training uses at most 14 GPUs at once (7 runs in parallel), and takes at least ")


def test_without_gpus_or_an_estimate_nothing_is_said_of_gpus_at_once(tmp_path):
    assert at_once([plan_of()]) == ""
    assert not [line for line in lines_of(plan_of()) if "at once" in line]
    unknown = plan_of(policy={"source": str(tmp_path), "engine": "vllm"})
    assert at_once([unknown]) == ""


#: On vLLM, rollouts of 14 turns in the mean (70% of the horizon), in full waves.
WAVES = {
    "policy": {"source": QWEN["1.5B"], "dtype": "bfloat16", "engine": "vllm"},
    "env": {"household": {"horizon": 20}},
}
PLAYS = {**BIG, **WAVES, "rollout": {"tasks": 64, "group_size": 8, "slots": 64}, "tasks": {"train": 64}}


def sampled_hours(method, **own) -> dict[str, float]:
    """GPU hours of one round of `method` with the settings `own`, by stage, vLLM's start taken away."""
    changes = {**PLAYS, "methods": ["mine"], "define": {"mine": {"base": method, **own}}, "rounds": 1, "seeds": [0]}
    plan = plan_of(**changes)
    start = (STARTS.vllm + STARTS.vllm_a_billion * shapes(plan.experiment).parameters / 1e9) / 3600
    hours = gpu_hours(plan, submitted_jobs(plan, every_job(plan)))
    return {stage: hours[stage] - start for stage in ("rollout", "continuations", "forks") if stage in hours}


def test_continuations_of_every_state_cost_as_many_rounds_of_rollouts_as_the_methods_page_says():
    """docs/methods/vineppo.md: 1 + K (T + 1) / 2, which is 60 for K = 9 and T = 12."""
    assert "One round costs 1 + K (T + 1) / 2 rounds of flat GRPO" in (ROOT / "docs/methods/vineppo.md").read_text()
    for per_state in (1, 9):
        hours = sampled_hours("vineppo", continuations={"per_state": per_state})
        rounds = 1 + hours["continuations"] / hours["rollout"]
        assert rounds == pytest.approx(1 + per_state * (14 + 1) / 2, rel=0.01)


@pytest.mark.parametrize(("budget", "afforded"), [(10, 1), (180_000, 3), (10**9, 9)])
def test_a_budget_of_continuation_turns_bounds_what_they_cost_but_for_one_from_each_state(budget, afforded):
    """64 tasks x 8 rollouts x 14 states x 15/2 turns: 53,760 turns for one from each state."""
    within = sampled_hours("vineppo", continuations={"budget_turns": budget})
    alone = sampled_hours("vineppo", continuations={"per_state": afforded})
    assert within["continuations"] == pytest.approx(alone["continuations"])


def test_forks_cost_the_turns_that_are_left_where_they_leave_their_rollouts():
    """docs/methods/carl.md: M (N_0 T + N (T - t)) turns; those of all M tasks are played side by side."""
    hours = sampled_hours("carl", forks={"per_task": 16})
    assert hours["forks"] / hours["rollout"] == pytest.approx(16 * (14 + 1) / 2 / (8 * 14), rel=0.01)


@pytest.mark.parametrize(
    ("settings", "each"),
    [
        ({}, 64),
        ({"turns": 500, "budget_turns": 200_000}, 53),
        ({"budget_turns": 1}, 16),
        ({"max_continuations": 20}, 20),
    ],
)
def test_an_audit_plays_each_sampled_turn_at_most_so_often_and_no_more_than_its_budget(settings, each):
    """docs/audit.md: 16 to 64 continuations of each of 96 sampled turns, within 200,000 turns."""
    plan = plan_of(**{**PLAYS, "audit": {"rounds": [1], "branch": {**BranchConfig().model_dump(), **settings}}})
    branch, at = plan.experiment.audit.branch, plan.audited[0]
    played = stage_record("branch").gpu_work(Work(plan, at, shapes(plan.experiment)))
    assert played == (branch.turns * each, (14 + 1) / 2, branch.turns * each)
    assert needs.gpu_seconds(plan, "branch", at) > 0


def judged_seconds(rollouts=512, **judge):
    """Seconds of a label job of so many rollouts, with Qwen3-8B served; vLLM's start is taken away."""
    served = {"kind": "llm", "model": "Qwen/Qwen3-8B", "serve": {"python": "python"}, **judge}
    rollout = {"tasks": rollouts // 8, "group_size": 8, "slots": 64}
    plan = plan_of(**{**PLAYS, "tasks": {"train": 128}, "rollout": rollout, "methods": ["triage"], "judge": served})
    at = next(at for stage, at in every_job(plan) if stage == "label")
    start = STARTS.vllm + STARTS.vllm_a_billion * judge_shapes(plan.experiment).parameters / 1e9
    return needs.gpu_seconds(plan, "label", at) - start


def test_the_labels_of_a_served_judge_take_the_time_of_an_answer_for_each_turn():
    """512 rollouts of 14 turns, answers of 40% of 4,096 tokens: each reads 16 GB of weights."""
    thinking = judged_seconds()
    weights_alone = 512 * 14 / 64 * 0.4 * 4096 * 16.4e9 / 1e12
    assert weights_alone < thinking < 4 * weights_alone
    assert judged_seconds(rollouts=1024) == pytest.approx(2 * thinking, rel=0.03)
    assert judged_seconds(concurrency=16) > 1.5 * thinking
    assert judged_seconds(max_tokens=1024) < thinking / 2
    assert 0 < judged_seconds(thinking=False) < thinking / 4


def test_a_served_judge_answers_no_more_questions_at_a_time_than_its_cache_holds():
    """Of answers of 40% of 16,384 tokens an 80 GB GPU holds about 100: more in flight wait in vLLM's queue."""
    few, some, many = (judged_seconds(concurrency=count, max_tokens=16384) for count in (50, 128, 256))
    assert few > some == many
    assert judged_seconds(concurrency=100) > judged_seconds(concurrency=256)


@pytest.mark.parametrize("judge", [{}, {"model": "nobody/has-this-model", "serve": {"python": "python"}}])
def test_labels_of_a_judge_elsewhere_or_of_unknown_size_have_no_estimated_time(judge):
    plan = plan_of(methods=["triage"], judge={"kind": "llm", **judge})
    at = next(at for stage, at in every_job(plan) if stage == "label")
    assert needs.gpu_seconds(plan, "label", at) == 0


def test_a_plan_needs_no_environment_that_only_jobs_do(monkeypatch, tmp_path):
    """Such as AppWorld, on a machine without it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("APPWORLD_ROOT", raising=False)
    (_, preset), chosen = presets.options("mgr_table2")
    with pytest.raises(UserError, match="environment 'appworld': there is no executable"):
        configured.plan_of([preset], tmp_path, chosen)
    lines = lines_of(configured.plan_of([preset], tmp_path, chosen, installed=False))
    assert any(line.startswith("GPU hours: about ") for line in lines)
    assert any(line.startswith("warning: environment 'appworld': there is no executable") for line in lines)


def test_the_plan_of_a_sweep_says_what_it_reads_and_what_it_assumes_once(monkeypatch, tmp_path, capsys):
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text("experiment: size\nresources: {update: {gpu: 1}}\nsweep: {grid: {rounds: [1, 2]}}\n")
    monkeypatch.setattr(configured, "PATIENCE", -1)
    plan([ROOT / "config/test/tiny.yaml", sweep], None, tmp_path)
    out, err = capsys.readouterr()
    assert [out.count(f"size_rounds_{rounds}: ") for rounds in (1, 2)] == [1, 1]
    assert out.count("Assumed: ") == 1
    assert err.splitlines() == [f"reading size_rounds_{number} ({number} of 2 experiments)" for number in (1, 2)]


def test_the_plan_of_vineppo_says_how_much_more_its_rounds_take():
    def printed(method):
        lines = lines_of(plan_of(**{**PLAYS, "methods": [method], "seeds": list(range(64))}))
        line = next(line for line in lines if line.startswith("GPU hours: about "))
        return float(line.split()[3].rstrip(",").replace(",", ""))

    assert printed("vineppo") > 3 * printed("flat_grpo") > 0
