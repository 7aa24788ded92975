"""What a job asks for, whether that fits a GPU and its time, and the size of the results."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import lru_cache

from turncredit.config import ResourceConfig
from turncredit.config.stages import policy_stages
from turncredit.pipeline.learned_models import shapes
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.playing import plays
from turncredit.pipeline.resources.assumed import A100, HOST, REQUEST, TYPICAL
from turncredit.pipeline.resources.gpu_time import longest
from turncredit.pipeline.resources.memory import Need, need
from turncredit.pipeline.resources.work import contexts, round_turns, saved
from turncredit.policy.shapes import BYTES

_FINER = "train with LoRA (policy.lora), or in bfloat16 (policy.train_dtype, policy.moments_dtype)"
#: what to do about the largest part of a job's memory
ADVICE = {
    "activations": "lower update.tokens_per_pass or sft.batch, or set update.gradient_checkpointing",
    "logits": "lower update.tokens_per_pass",
    "cache": "lower rollout.slots, or set policy.engine to vllm",
    **dict.fromkeys(("block's cache", "attention"), "set policy.engine to vllm"),
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
    gpus = experiment.policy.sample_gpus if plays(stage) and experiment.policy.engine == "vllm" else 1
    if experiment.serves(stage):
        gpus = experiment.gpus(stage)  # as the server's own command splits it
    sleeps = experiment.granularity != "stage" and experiment.policy.engine == "vllm" and not plays(stage)
    free = A100.usable * A100.memory - (HOST.vllm_asleep if sleeps else 0.0)
    if total <= free * gpus:
        return None
    largest = _largest(memory)
    return (
        f"{stage} takes about {total / 1e9:.0f} GB of a GPU's memory, {memory.model[largest] / 1e9:.0f} GB of them "
        f"{largest}; {ADVICE[largest]}"
    )


def less_memory(plan: Plan, stage: str) -> str:
    """What to do about a job that takes more memory of a GPU than there is."""
    memory = need(plan, stage)
    return ADVICE[_largest(memory)] if memory.model else "use a GPU with more memory"


def _largest(memory: Need) -> str:
    return max(memory.model, key=lambda part: memory.model[part])


def in_time(plan: Plan, stage: str) -> str | None:
    """One line about a stage whose longest job takes longer than the time given for it; None if there is none."""
    given, minutes = plan.experiment.resource(stage).runtime, longest(plan, stage) / 60
    if given is None or minutes <= given:
        return None
    return (
        f"{stage} takes about {minutes:,.0f} minutes, and resources.{stage}.runtime is {given}; raise it, or leave it "
        f"out to ask for {REQUEST.slack:.0f} times what is estimated"
    )


def ordered(stages: Collection[str]) -> list[str]:
    """Those of the stages that load a policy or serve a judge, in a fixed order."""
    return [stage for stage in (*policy_stages(), "label") if stage in stages]


@lru_cache(maxsize=256)  # jobs of a thousand runs ask for the same few stages
def resource(plan: Plan, stage: str) -> ResourceConfig:
    """What a job of `stage` asks for: as configured, the rest from the model's size and the work."""
    given, gpu = plan.experiment.resource(stage), plan.experiment.gpus(stage)
    # A job asks for several times what it is estimated to take on a GPU, and for an hour at least.
    steps = math.ceil(REQUEST.slack * longest(plan, stage) / 60 / REQUEST.step_minutes)
    minutes = max(REQUEST.least_minutes, steps * REQUEST.step_minutes)
    memory = given.mem_mb or _memory(plan, stage)
    filled = {"gpu": gpu, "threads": plan.experiment.threads(stage), "mem_mb": memory}
    return given.model_copy(update={**filled, "runtime": given.runtime or minutes})


def _memory(plan: Plan, stage: str) -> int:
    """Megabytes of main memory: what is computed, and a margin."""
    if stage in policy_stages() and shapes(plan.experiment) is None:
        return REQUEST.unknown_mb
    memory = need(plan, stage)
    on_gpu = plan.experiment.gpus(stage)
    host = HOST.cuda_process + memory.host if on_gpu else HOST.process + memory.total + memory.host
    return max(REQUEST.least_mb, _megabytes(host))


def _megabytes(size: float) -> int:
    """What is asked for to have so many bytes: a margin more, in whole steps."""
    return math.ceil(REQUEST.margin * size / 1e6 / REQUEST.step_mb) * REQUEST.step_mb


def asleep_mb(plan: Plan) -> int:
    """Megabytes of main memory of a vLLM that sleeps while other stages run, with an adapter's base; 0 without."""
    experiment, model = plan.experiment, shapes(plan.experiment)
    if experiment.policy.engine != "vllm":
        return 0
    waiting = BYTES[experiment.policy.dtype] * model.parameters if model is not None and experiment.policy.lora else 0
    return _megabytes(HOST.vllm_process + waiting)


def requested(wanted: ResourceConfig, slurm: Mapping[str, str], nodes: int = 1) -> dict[str, int | str]:
    """Resources by Snakemake's names, but memory, which depends on the attempt; `slurm` are those of Slurm alone."""
    return {"runtime": wanted.runtime or REQUEST.least_minutes, **gpus_requested(wanted.gpu or 0, slurm, nodes)}


def gpus_requested(gpus: int, slurm: Mapping[str, str], nodes: int = 1) -> dict[str, int | str]:
    """What a job asks for that takes so many GPUs of each of its nodes, with what it asks of Slurm alone.

    GPUs that it asks for as a generic resource (`gres`) are not asked for a second time; one without a number gets it.
    On several nodes they are always asked for in this way, which counts by node: Slurm may divide `--gpus` unevenly.
    """
    asked = {key: value for key, value in slurm.items() if key != "gpu_model" or gpus}
    if gpus and nodes > 1 and "gres" not in asked:
        asked["gres"] = ":".join(["gpu", *filter(None, [asked.pop("gpu_model", "")])])
    kind = asked.get("gres", "").split(":")
    by_gres = kind[0] == "gpu"
    if by_gres and gpus and not kind[-1].isdigit():
        asked["gres"] += f":{gpus}"
    return {"gpu": 0 if by_gres else gpus, **({"nodes": nodes} if gpus > 1 or nodes > 1 else {}), **asked}


def disk(plan: Plan) -> dict[str, float]:
    """Bytes of the experiment's results at their largest, by what they are; empty where the model is not known.

    With `keep_policies: last` a run has the policies before and after a round, those that sampled audited rounds, and
    the last policy of each job of several rounds. Tables are counted without compression.
    """
    experiment, model = plan.experiment, shapes(plan.experiment)
    if model is None:
        return {}
    runs, rounds, starts = len(experiment.runs()), experiment.rounds, len(experiment.starts())
    last = experiment.keep_policies == "last"
    audited = len({at for at in plan.audited if at.round > 1})
    kept = min(rounds, 2 if experiment.granularity == "stage" else len(experiment.blocks()) + 1) if last else rounds
    policies = runs * kept + (audited if last else 0)
    implicit = [name for name in experiment.trained() if plan.method(name).scorer == "implicit"]
    models = len(implicit) * len(experiment.seeds) * (kept if last else rounds)
    folder = saved(experiment, model, moments=experiment.update.keep_optimizer)
    base = BYTES["float32" if experiment.policy.source == "scratch" else "bfloat16"] * model.parameters
    length, turns = contexts(experiment, model), round_turns(experiment, model)
    samplings = len(plan.samplings) * len(experiment.seeds)
    sampled_rounds = runs * max(0, rounds - 1) + samplings
    # Ids, log-probabilities and texts of a turn; a number a method for its credit.
    a_turn = 4 * length.whole / (TYPICAL.turns * length.turns) + 8 * length.response + 2000
    learned = [name for name in experiment.trained() if plan.learns(name)]
    hiddens = len(learned) * len(experiment.seeds) * rounds * turns * TYPICAL.turns * model.hidden * 2
    sizes = {
        "base and SFT policies": starts * (base + saved(experiment, model, moments=False)),
        f"policies ({policies}, {f'{kept} of each run at a time' if last else 'all kept'})": policies * folder,
        f"implicit reward models ({models})": models * saved(experiment, model, moments=True),
        "tables of turns": sampled_rounds * turns * TYPICAL.turns * a_turn,
        "hidden states": hiddens,
    }
    return {what: size for what, size in sizes.items() if size}
