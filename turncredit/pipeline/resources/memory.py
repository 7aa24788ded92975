"""The memory of a job where its policy is, by part, and in main memory, into which weights are read first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from turncredit.config import Experiment, stages
from turncredit.credit.models.settings import replay_rounds
from turncredit.pipeline.learned_models import judge_shapes, shapes
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.assumed import HOST, PASSES, REQUEST
from turncredit.pipeline.resources.work import (
    contexts,
    rebuilds_context,
    round_turns,
    saved,
    stepped_type,
    trained_parameters,
)
from turncredit.policy.shapes import BYTES, Shapes


@dataclass(frozen=True)
class Need:
    """Bytes that a job takes where its policy is (`model`, by part), and in main memory (`host`) beside its process."""

    model: Mapping[str, float] = field(default_factory=dict)
    host: float = 0.0
    note: str = ""

    @property
    def total(self) -> float:
        """Bytes where the policy is."""
        return sum(self.model.values())


def need(plan: Plan, stage: str) -> Need:
    """The memory of a job of `stage`: of the most demanding method, if they differ."""
    experiment = plan.experiment
    if experiment.serves(stage):
        return _of_judge(experiment)
    model = shapes(experiment)
    if model is None:
        return Need()
    record = stages.stage(stage)
    match record.policy:
        case "trains":
            needs = [_training(one, model, stage) for one in _by_method(experiment)]
        case "samples":
            needs = [_sampling(one, model, stage) for one in _by_method(experiment)]
        case "reads":
            needs = [_reading(experiment, model, stage)]
        case _:
            needs = [Need(host=_hidden_states(plan, model)) if record.hiddens else Need()]
    return max(needs, key=lambda one: (one.total, one.host))


def _by_method(experiment: Experiment) -> Iterator[Experiment]:
    """The experiment, and with the `rollout` and `update` of each trained method that has its own."""
    yield experiment
    for name in experiment.trained():
        yield experiment.model_copy(
            update={
                "rollout": experiment.section_for(name, "rollout"),
                "update": experiment.section_for(name, "update"),
            }
        )


def _weights(experiment: Experiment, model: Shapes) -> float:
    """Bytes of a policy that computes: whole, or a base with an adapter (merged in float32)."""
    lora = experiment.policy.lora
    adapter = 0 if lora is None else model.adapter(lora.rank, lora.targets)
    return float(BYTES[experiment.policy.dtype] * (model.parameters + adapter))


def _logits(model: Shapes, tokens: int) -> float:
    return min(tokens * model.vocab, max(PASSES.logits_at_once, model.vocab)) * PASSES.logit


def _tokens_of_a_pass(experiment: Experiment, model: Shapes, most: float) -> int:
    """Padded tokens of a pass: `update.tokens_per_pass`, the longest context at least, `most` of them at most."""
    longest = contexts(experiment, model).longest
    return int(max(longest, min(experiment.update.tokens_per_pass, most)))


def _training(experiment: Experiment, model: Shapes, stage: str) -> Need:
    """Weights, gradients, moments, activations and logits of SFT, an update, or an implicit reward model."""
    policy, update = experiment.policy, experiment.update
    stepped, trained = BYTES[stepped_type(experiment)], trained_parameters(experiment, model)
    if stage == "sft" and not experiment.sft.epochs:  # the base model is read and written
        return Need({"weights": float(stepped * model.parameters)}, float(stepped * model.parameters))
    copies = BYTES[policy.dtype] * model.parameters if policy.lora or policy.dtype != policy.train_dtype else 0
    shards = {"sft": experiment.sft.shards, "update": update.shards}.get(stage, 1)
    processes = 1 if experiment.gpus(stage) else min(shards, experiment.threads(stage))
    length = contexts(experiment, model).longest
    turns = contexts(experiment, model).turns if rebuilds_context(experiment) else 1
    sequences = experiment.sft.batch if stage == "sft" else update.minibatch * turns
    tokens = _tokens_of_a_pass(experiment, model, math.ceil(sequences / shards) * length)
    recomputed = stage == "update" and update.gradient_checkpointing
    adapted = policy.lora.targets if policy.lora else ()
    # Forks of one process share what none of them writes (training/team.py): the base under an adapter, and the
    # shards' gradients in float32, of which there are two sets if several processes write them. The rest each has.
    frozen, written = (copies, 0) if policy.lora else (0, copies)
    if policy.lora and policy.dtype != "float32":
        written = BYTES[policy.dtype] * trained  # the adapter's rounded copy
    exchanged = 4 * trained * shards * min(processes, 2) if shards > 1 else 0
    parts = {
        "weights": float(frozen + processes * (written + stepped * trained)),
        "gradients": float(processes * stepped * trained + exchanged),
        "moments": processes * 2.0 * BYTES[policy.moments_dtype] * trained,
    }
    passing = {
        "activations": processes
        * float(model.activations(tokens, policy.dtype, recomputed=recomputed, adapted=adapted)),
        "logits": processes * _logits(model, tokens),
    }
    gpus = policy.train_gpus if stage != "implicit_model" else 1
    if gpus > 1:
        parts = _spread(model, parts, gpus, trained, BYTES[policy.dtype], frozen=copies if policy.lora else 0)
    rounded = "bfloat16" in (policy.train_dtype, policy.moments_dtype) and not policy.lora
    whole = experiment.gpus(stage) and gpus == 1  # then AdamW computes the roots of all second moments at once
    step = {"a step": float(PASSES.rounded_step * model.largest_matrix if rounded else 4 * trained if whole else 0)}
    # Activations are gone when the weights are stepped.
    parts |= step if sum(step.values()) > sum(passing.values()) else passing
    kept = saved(experiment, model, moments=stage != "sft")
    read = BYTES[policy.dtype] * model.parameters if policy.lora else stepped * trained
    # Each process reads the whole model before it keeps its share; the first then has the whole policy and its moments.
    here = gpus // policy.train_nodes if gpus > 1 else 1
    return Need(parts, max(here * read, kept) + (here - 1) * HOST.cuda_process)


def _spread(
    model: Shapes, parts: Mapping[str, float], gpus: int, trained: int, item: int, *, frozen: float
) -> dict[str, float]:
    """What each GPU takes of a model that is spread over several: its share, and what a pass gathers for a while.

    The parts outside of the layers, two layers, and the gradients of the first and of one layer
    (`turncredit.policy.fsdp.bytes_on_each`, which counts them from the model itself).
    """
    layer = model.layer_parameters
    outside = model.parameters - model.layers * layer
    gathered = item * (outside + 2 * layer) + ((item + 4) * (outside + layer) if not frozen else 0)
    return {
        "weights": (frozen + 4 * trained) / gpus + gathered,
        "gradients": 4 * trained / gpus,
        "moments": parts["moments"] / gpus,
    }


def _sampling(experiment: Experiment, model: Shapes, stage: str) -> Need:
    """Weights and caches of an engine, or of all that share a job's rollouts on the CPU; of one of vLLM's engines."""
    policy, rollout = experiment.policy, experiment.rollout
    slots = rollout.slots
    if stage not in ("continuations", "forks", "branch"):
        slots = min(slots, max(rollout.tasks * rollout.group_size, experiment.eval.games))
    length = contexts(experiment, model)
    weights = _weights(experiment, model)
    vllm = policy.engine == "vllm"
    if vllm:
        slots = math.ceil(slots / policy.sample_engines)
    copies = 1 if vllm or experiment.gpus("rollout") else rollout.processes
    tokens = slots * (length.mean if vllm else length.longest)
    parts = {
        "weights": copies * weights,
        "cache": float(model.cache(tokens, policy.dtype)),
        "logits": 8.0 * slots * model.vocab,
    }
    if policy.engine == "lockstep":
        device = "cuda" if experiment.gpus(stage) else "cpu"
        # The processes that share rollouts on the CPU divide the slots, and each has buffers of its own.
        buffers = model.lockstep(math.ceil(slots / copies), length.longest, policy.dtype, device)
        parts |= {name: float(copies * size) for name, size in buffers.items()}
    note = "vLLM takes 92% of its GPU, or what is free; with less cache it queues rollouts" if vllm else ""
    host = policy.sample_engines * (weights + HOST.vllm_process) if vllm else weights
    if vllm and policy.sample_engines > 1:  # each engine has a process of ours beside its own
        host += policy.sample_engines * HOST.process
    return Need(parts, host, note)


def _reading(experiment: Experiment, model: Shapes, stage: str) -> Need:
    """Weights, and what a forward pass holds at a time; for gradients, everything that it keeps."""
    tokens = _tokens_of_a_pass(experiment, model, math.inf)
    weights, dtype = _weights(experiment, model), experiment.policy.dtype
    parts = {"weights": weights, "logits": _logits(model, tokens)}
    if stage == "gradients":
        stepped = 4 if experiment.policy.lora else BYTES[dtype]
        parts["gradients"] = float(stepped * trained_parameters(experiment, model))
        adapted = experiment.policy.lora.targets if experiment.policy.lora else ()
        parts["activations"] = float(model.activations(tokens, dtype, adapted=adapted))
    else:
        parts["activations"] = model.activations(tokens, dtype) / model.layers
    return Need(parts, weights)


def _hidden_states(plan: Plan, model: Shapes) -> float:
    """Bytes of the most hidden states that a learned credit model reads, as float32 with one copy."""
    experiment = plan.experiment
    turns = [
        round_turns(experiment.model_copy(update={"rollout": experiment.section_for(name, "rollout")}), model)
        * max(1, len(replay_rounds(plan.model(name)[0], experiment.rounds)))
        for name in experiment.trained()
        if plan.learns(name)
    ]
    return 8.0 * max(turns, default=round_turns(experiment, model)) * model.hidden


def _of_judge(experiment: Experiment) -> Need:
    """The judge that a label job serves with vLLM."""
    model = judge_shapes(experiment)
    if model is None:
        return Need(host=REQUEST.unknown_mb * 1e6 / REQUEST.margin)
    weights = 2.0 * model.parameters
    return Need({"weights": weights}, weights + HOST.vllm_process, "vLLM takes 92% of its GPU, or what is free")
