"""What a job asks for: as the configuration says, the rest from the model's size and the work."""

from __future__ import annotations

import math
from collections.abc import Collection

from turncredit.config import ResourceConfig
from turncredit.config.stages import policy_stages
from turncredit.pipeline.learned_models import shapes
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.assumed import HOST, REQUEST
from turncredit.pipeline.resources.gpu_time import longest
from turncredit.pipeline.resources.memory import need
from turncredit.policy.shapes import BYTES


def ordered(stages: Collection[str]) -> list[str]:
    """Those of the stages that load a policy or serve a judge, in a fixed order."""
    return [stage for stage in (*policy_stages(), "label") if stage in stages]


def resource(plan: Plan, stage: str) -> ResourceConfig:
    """What a job of `stage` asks for: as the configuration says, the rest from the model's size and the work."""
    given, gpu = plan.experiment.resource(stage), plan.experiment.gpus(stage)
    asked = {
        "gpu": gpu,
        "mem_mb": given.mem_mb or _memory(plan, stage),
        "runtime": given.runtime or _minutes(plan, stage),
    }
    return given.model_copy(update=asked)


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
    """Megabytes of main memory that a vLLM takes while other stages of its job run; 0 without vLLM.

    Beside its process they are the base of an adapter, which waits there; whole weights are read from disk again.
    """
    experiment, model = plan.experiment, shapes(plan.experiment)
    if experiment.policy.engine != "vllm":
        return 0
    waiting = BYTES[experiment.policy.dtype] * model.parameters if model is not None and experiment.policy.lora else 0
    return _megabytes(HOST.vllm_process + waiting)


def _minutes(plan: Plan, stage: str) -> int:
    """Minutes of a job: what its longest is estimated to take on a GPU, several times over, and an hour at least."""
    minutes = REQUEST.slack * longest(plan, stage) / 60
    return max(REQUEST.least_minutes, math.ceil(minutes / REQUEST.step_minutes) * REQUEST.step_minutes)


def requested(wanted: ResourceConfig) -> dict[str, int]:
    """Resources by Snakemake's names, but memory, which depends on the attempt.

    A job with several GPUs asks for one node, where its processes share a model; Slurm would give it GPUs of several.
    """
    gpus = wanted.gpu or 0
    return {"runtime": wanted.runtime or REQUEST.least_minutes, "gpu": gpus} | ({"nodes": 1} if gpus > 1 else {})
