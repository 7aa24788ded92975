"""Which jobs do not fit the memory of a GPU or the time that they ask for, and what to do about them."""

from __future__ import annotations

from turncredit.config import Experiment
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.playing import plays
from turncredit.pipeline.resources.assumed import A100, HOST, REQUEST
from turncredit.pipeline.resources.gpu_time import longest
from turncredit.pipeline.resources.memory import need

_FINER = "train with LoRA (policy.lora), or in bfloat16 (policy.train_dtype, policy.moments_dtype)"
#: what to do about the largest part of a job's memory
ADVICE = {
    "activations": "lower update.tokens_per_pass or sft.batch, or set update.gradient_checkpointing",
    "logits": "lower update.tokens_per_pass",
    "cache": "lower rollout.slots, or take the engine vllm",
    **dict.fromkeys(("block's cache", "attention"), "take the engine vllm"),
    **dict.fromkeys(("weights", "gradients", "moments", "a step"), _FINER),
}


def fits(plan: Plan, stage: str) -> str | None:
    """One line about a job that does not fit into the memory of an 80 GB GPU; None if it does, or needs none."""
    experiment = plan.experiment
    if not experiment.gpus(stage):
        return None
    memory = need(plan, stage)
    cache = memory.model.get("cache", 0.0) if experiment.policy.engine == "vllm" else 0.0  # vLLM makes do with less
    total = memory.total - cache
    sleeps = experiment.granularity != "stage" and experiment.policy.engine == "vllm" and not plays(stage)
    free = A100.usable * A100.memory - (HOST.vllm_asleep if sleeps else 0.0)
    if total <= free * _split(experiment, stage):
        return None
    largest = max(memory.model, key=lambda part: memory.model[part])
    return (
        f"{stage} takes about {total / 1e9:.0f} GB of a GPU's memory, {memory.model[largest] / 1e9:.0f} GB of them "
        f"{largest}; {ADVICE[largest]}"
    )


def _split(experiment: Experiment, stage: str) -> int:
    """The GPUs over which the estimated memory is split: what trains on several is estimated for each of them."""
    if experiment.serves(stage):
        return experiment.gpus(stage)  # as the server's own command has it
    return experiment.policy.sample_gpus if plays(stage) and experiment.policy.engine == "vllm" else 1


def in_time(plan: Plan, stage: str) -> str | None:
    """One line about a stage whose longest job takes longer than the time given for it; None if there is none."""
    given, minutes = plan.experiment.resource(stage).runtime, longest(plan, stage) / 60
    if given is None or minutes <= given:
        return None
    return (
        f"{stage} takes about {minutes:,.0f} minutes, and resources.{stage}.runtime is {given}; raise it, or leave it "
        f"out to ask for {REQUEST.slack:.0f} times what is estimated"
    )
