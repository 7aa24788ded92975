"""When Snakemake tries a failed job again (`retries`), and with how much memory.

A user error is not tried again: the same job would end in the same way. Memory is doubled only for a job that ran
out of it, not after a node failure or an `scancel`. Both need to know why a job failed, which is not known here of jobs
that share no folder with Snakemake: those are all tried again, with the memory that they had.
"""

from __future__ import annotations

from collections.abc import Mapping

from turncredit.pipeline import failures, slurm

#: Rules that run the same stage under another name.
OTHER_NAMES = {"base": ("base_of_agents",), "sft": ("sft_of_agents",), "update": ("update_last", "update_audited")}
#: The stage of such a rule.
STAGES = {name: stage for stage, names in OTHER_NAMES.items() for name in names}


def is_users_mistake(rule: str, wildcards: Mapping[str, str], results: str) -> bool:
    """Whether the last attempt of a job of the experiment in the folder `results` ended with a UserError."""
    failure = failures.failure_of(rule, wildcards, results)
    return failure is not None and failure.status == failures.USER_ERROR


def memory_factor(
    stage: str, wildcards: Mapping[str, str], attempt: int, run: str | None, results: str, *, known: bool = True
) -> int:
    """By how much the memory of a job's attempt exceeds that of its first: 2 for each time that it ran out of it.

    As Slurm says it of the jobs of `run`. Where nobody says it, a job of the experiment in `results` that was killed,
    and of which nothing says why it failed, counts as one that ran out of memory. Where jobs share no folder, why they
    failed is not `known` here, and all would count as such.
    """
    if attempt == 1 or not known:
        return 1
    rules = (stage, *OTHER_NAMES.get(stage, ()))
    if run is not None:
        answers = [slurm.out_of_memory(run, rule, list(wildcards.values())) for rule in rules]
        counts = [number for number in answers if number is not None]
        if counts:
            return int(2 ** sum(counts))
    told = [failure for rule in rules if (failure := failures.failure_of(rule, wildcards, results))]
    other = any(failure.state != failures.OUT_OF_MEMORY for failure in told)
    return 1 if other else 2 ** (attempt - 1)
