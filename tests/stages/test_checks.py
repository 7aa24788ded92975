"""What the checks of a configuration refuse before any job."""

from __future__ import annotations

import pytest

from tests import tiny
from turncredit.config.stages import policy_stages
from turncredit.errors import UserError
from turncredit.pipeline.checks import check
from turncredit.policy.shapes import PUBLISHED

#: an agent that limits its contexts
HIPIF = {"name": "hipif", "max_response_tokens": 512}


def published(name: str, max_prompt_tokens: int):
    """The tiny experiment with a published model that no folder here has, and contexts of at most so many tokens."""
    agent = {**HIPIF, "hipif": {"max_prompt_tokens": max_prompt_tokens}}
    return tiny.experiment(agent=agent, policy={"source": name}, sft={"epochs": 0}, audit={"rounds": []})


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_context_that_a_published_model_cannot_read_is_refused_before_anything_is_fetched(name):
    positions = PUBLISHED[name]["max_position_embeddings"]
    check(published(name, positions - 512))
    with pytest.raises(UserError) as error:
        check(published(name, positions - 511))
    assert str(error.value) == (
        f"config: agent.hipif.max_prompt_tokens is {positions - 511} and agent.max_response_tokens 512, but the model "
        f"has {positions} positions; lower one of them, or use a model with more"
    )


def test_the_context_of_a_model_that_is_not_known_yet_is_left_to_its_job():
    check(published("nobody/has-this-model", 10**6))


@pytest.mark.parametrize("name", ["window", "reflexion_window"])
@pytest.mark.parametrize("key", ["agent", "agents.short"])
def test_a_prompt_that_asks_for_thoughts_is_refused_with_a_warm_start_on_actions_alone(name, key):
    def configured(think, epochs=1):
        asks = {"name": name, "max_response_tokens": 12, name: {} if think is None else {"think": think}}
        own = {"agent": asks}
        if key != "agent":
            own = {"agents": {"short": asks}, "methods": ["mine"], "define": {"mine": {"agent": "short"}}}
            own["define"]["mine"]["base"] = "flat_grpo"
        return tiny.experiment(**{"methods": ["flat_grpo"], **own}, sft={"epochs": epochs}, audit={"rounds": []})

    check(configured(False))
    check(configured(True, epochs=0))
    for think in (True, None):
        with pytest.raises(UserError) as error:
            check(configured(think))
        assert str(error.value) == (
            f"config: {key}.{name}.think is true, but the demonstrations of a warm start have no thoughts, and a "
            "policy that imitates them learns to ignore the request for one; set it to false, or sft.epochs to 0"
        )


@pytest.mark.parametrize("stage", ["rollout", "eval", "continuations", "forks", "branch"])
def test_several_gpus_for_a_stage_that_samples_are_those_that_vllm_splits_the_model_over(stage):
    def asking(engine, gpus, of=stage, split=1):
        policy, resources = {"engine": engine, "sample_gpus": split}, {of: {"gpu": gpus}}
        return tiny.experiment(methods=["flat_grpo"], policy=policy, resources=resources)

    check(asking("vllm", 1))
    check(asking("lockstep", 2))
    for other in ("label", "rounds"):
        check(asking("vllm", 2, of=other))
    both = asking("vllm", 2, split=2)
    check(both)
    assert both.gpus(stage) == asking("vllm", 1, split=2).gpus(stage) == both.gpus("rounds") == 2
    assert both.gpus("update") == 1
    with pytest.raises(UserError) as error:
        check(asking("vllm", 2))
    assert str(error.value) == (
        f"config: resources.{stage}.gpu is 2, but vLLM takes policy.sample_gpus, 1, and leaves the others idle; set "
        "both to the same number"
    )
    with pytest.raises(UserError) as error:
        check(asking("lockstep", 1, split=2))
    assert str(error.value) == (
        "config: policy.sample_gpus is 2, but policy.engine lockstep does not split a model; set it to 1, or engine to "
        "vllm"
    )


def test_adapters_in_float32_are_refused_only_where_vllm_would_compute_them_on_a_gpu():
    def configured(gpu=None, **policy):
        given = {"engine": "vllm", "lora": {"rank": 8, "alpha": 16}, "dtype": "float32", **policy}
        resources = {} if gpu is None else {stage: {"gpu": gpu} for stage in policy_stages()}
        return tiny.experiment(methods=["flat_grpo"], policy=given, resources=resources)

    for fine in (configured(dtype="bfloat16"), configured(engine="lockstep"), configured(lora=None), configured(gpu=0)):
        check(fine)
    with pytest.raises(UserError, match=r"^config: policy\.dtype is float32, but on GPUs vLLM computes adapters .*"):
        check(configured())


def test_a_job_that_samples_asks_for_the_gpus_of_all_engines():
    def configured(gpu=None, **policy):
        given = {} if gpu is None else {"rollout": {"gpu": gpu}}
        return tiny.experiment(methods=["flat_grpo"], policy=policy, resources=given)

    vllm = {"engine": "vllm", "sample_gpus": 2, "sample_engines": 4}
    made = configured(**vllm)
    check(made)
    assert {made.gpus(stage) for stage in ("rollout", "eval", "rounds")} == {8}
    assert made.gpus("update") == 1
    with pytest.raises(UserError) as error:
        check(configured(gpu=9, **vllm))
    assert str(error.value) == (
        "config: resources.rollout.gpu is 9, but vLLM takes policy.sample_engines x sample_gpus, 8, and leaves the "
        "others idle; set both to the same number"
    )
    with pytest.raises(UserError) as error:
        check(configured(engine="lockstep", sample_engines=2))
    assert str(error.value) == (
        "config: policy.sample_engines is 2, but rollouts with policy.engine lockstep are shared by rollout.processes; "
        "set it to 1, or engine to vllm"
    )


@pytest.mark.parametrize(
    ("stage", "given", "refused"),
    [
        ("update", {}, "training takes policy.train_gpus, 1, and leaves the others idle; set both to the same number"),
        ("sft", {}, "training takes policy.train_gpus, 1, and leaves the others idle; set both to the same number"),
        ("hiddens", {}, "the stage uses one GPU and leaves the others idle; set it to 1"),
        ("invariants", {"engine": "vllm", "sample_gpus": 4}, "the stage uses one GPU and leaves the others idle"),
    ],
)
def test_gpus_that_a_stage_would_not_use_are_refused(stage, given, refused):
    def asking(gpus):
        return tiny.experiment(methods=["flat_grpo"], policy=given, resources={stage: {"gpu": gpus}})

    check(asking(1))
    with pytest.raises(UserError) as error:
        check(asking(4))
    assert str(error.value).startswith(f"config: resources.{stage}.gpu is 4, but {refused}")
