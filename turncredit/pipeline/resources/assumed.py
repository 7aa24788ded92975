"""The numbers behind the estimates: one a line, with its unit and where it is from.

"Assumed" is what no job of this repository has measured on a GPU yet (docs/gpu_checklist.md).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """An A100-80GB by NVIDIA's data sheet, and the shares of it that jobs reach."""

    memory: float = 80 * 2.0**30  # bytes
    operations: float = 312e12  # bf16 operations a second, dense, without sparsity
    bandwidth: float = 2.0e12  # bytes of its memory read a second: 1.9 (PCIe) and 2.0 TB/s (SXM)
    reached: float = 0.4  # share of `operations` in training and in reading prompts; assumed
    decoded: float = 0.5  # share of `bandwidth` in decoding, which reads all weights for each token; assumed
    usable: float = 0.95  # share of `memory` that may be filled; assumed
    vllm: float = 0.92  # share of `memory` that vLLM 0.32 fills, weights and cache together; its default


@dataclass(frozen=True)
class Typical:
    """Rollouts, beside what the environment (`Lengths`) and the agent (`Shown`) say of their lengths."""

    markup: int = 10  # tokens around an earlier turn: labels, ends of messages
    characters: float = 3.5  # of a token of action templates; measured (benchmarks/env/lengths.py)
    longest: float = 1.5  # times a mean prompt that the longest one has, at the same turn; assumed
    question: int = 400  # tokens of a judge's rubric; assumed
    horizon: int = 50  # turns of the longest rollout; assumed
    response: float = 0.4  # share of the longest response that a mean one has; assumed
    turns: float = 0.7  # share of the horizon that a mean rollout has; assumed
    answer: int = 100  # tokens of a judge's answer that it gives without reasoning; assumed
    reasoned: int = 300  # tokens of its answer if it may reason in it, but does not think; assumed


@dataclass(frozen=True)
class Starts:
    """Seconds until a job computes."""

    process: float = 30.0  # until Python, torch and the weights are loaded; assumed
    vllm: float = 60.0  # until vLLM samples, for a model without parameters; assumed
    vllm_a_billion: float = 15.0  # for each 1e9 parameters besides; assumed
    vllm_wakes: float = 3.0  # until a vLLM that sleeps samples, for a model without parameters; assumed
    vllm_wakes_a_billion: float = 2.0  # for each 1e9 parameters, which are read again, besides; assumed


@dataclass(frozen=True)
class Host:
    """Main memory that a process takes beside its policy."""

    process: float = 1.5e9  # bytes, with torch and transformers imported
    cuda_process: float = 6e9  # bytes, with a CUDA context
    vllm_process: float = 6e9  # bytes of vLLM's own process beside that
    vllm_asleep: float = 2e9  # bytes of its GPU that a vLLM keeps asleep: a CUDA context and graphs; assumed


@dataclass(frozen=True)
class Request:
    """Main memory and time that a job asks for."""

    margin: float = 1.2  # times what is computed
    step_mb: int = 1000  # MB; requests are multiples of it
    least_mb: int = 2000  # MB
    unknown_mb: int = 64_000  # MB, of a stage that loads a policy whose shapes are not known
    slack: float = 3.0  # times the estimated time on a GPU, which no job has measured yet
    step_minutes: int = 10  # requests that follow from an estimate are multiples of it
    least_minutes: int = 60


@dataclass(frozen=True)
class Passes:
    """Memory of passes through a model."""

    logits_at_once: int = 2**26  # numbers that are computed at a time (training/sequences.py)
    logit: int = 16  # bytes kept of each of them
    rounded_step: int = 24  # bytes of a stochastically rounded step, a number of a matrix (training/optimizers.py)


A100, TYPICAL, STARTS, HOST, REQUEST, PASSES = Gpu(), Typical(), Starts(), Host(), Request(), Passes()

ASSUMED = (
    f"Assumed: an A100-80GB at {A100.reached:.0%} of its bf16 peak in training and {A100.decoded:.0%} of its bandwidth "
    f"in sampling; {TYPICAL.response:.0%} of max_response_tokens and {TYPICAL.turns:.0%} of the horizon in the mean; "
    "texts as long as the environment's were measured; a judge's answers of "
    f"{TYPICAL.response:.0%} of judge.max_tokens if it thinks, else of {TYPICAL.answer} tokens "
    f"({TYPICAL.reasoned} with judge.structured: never); {STARTS.process:.0f} s to start a job, {STARTS.vllm:.0f} s "
    f"and {STARTS.vllm_a_billion:.0f} s for each billion parameters to start vLLM, {STARTS.vllm_wakes:.0f} "
    f"and {STARTS.vllm_wakes_a_billion:.0f} s to wake it in a job of several stages. Memory is computed from "
    f"the model's shapes; requests add {REQUEST.margin - 1:.0%}."
)
