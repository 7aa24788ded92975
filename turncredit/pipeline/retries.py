"""When Snakemake tries a failed job again (`retries`), and with how much memory.

A user's mistake is not tried again: the same job would end in the same way. A failed connection or server is
(`turncredit.errors.OutsideFault`). Memory is doubled only for a job that ran out of it. Jobs that share no folder with
Snakemake are all tried again, with the memory that they had.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turncredit.pipeline import failures

#: With `keep_policies: last`, the rule of those policy updates whose policies are kept.
KEPT = "update_kept"


def stage_of(rule: str) -> str:
    """The stage that a rule runs: the one of its name."""
    return "update" if rule == KEPT else rule


def is_users_mistake(rule: str, wildcards: Mapping[str, str], results: str, *, since: float) -> bool:
    """Whether the last attempt of a job of the experiment in the folder `results` ended with a mistake of the user.

    A failure before `since` is of an earlier run: this one's attempts may have ended before they could say why.
    """
    failure = failures.failure_of(rule, wildcards, results)
    return failure is not None and failure.status == failures.USER_ERROR and failure.when >= since


def attempts_more(job: Any, results: str, *, preemptions: int, since: float) -> int:
    """Total retries allowed. Zero after a user error.

    Attempts that Slurm preempted do not count, nor those that stopped before the time limit: they stop only after
    progress. Snakemake counts its own attempts, so only what was `since` it began matters, in seconds since 1970.
    """
    rule, wildcards = failures.named(job)
    if is_users_mistake(rule, wildcards, results, since=since):
        return 0
    stops = failures.stops(rule, wildcards, results, since=since)
    return int(job.rule.restart_times) + preemptions + stops


def memory_factor(
    rule: str,
    wildcards: Mapping[str, str],
    attempt: int,
    results: str,
    *,
    since: float,
    on_slurm: bool,
    known: bool = True,
) -> int:
    """The memory of a job's attempt relative to its first: doubled each time that it ran out of memory.

    Slurm says so, of attempts `since` a time in seconds since 1970. Without Slurm, a job in `results` that was killed
    for no recorded reason counts as out of memory. Where jobs share no folder, the reason is not `known` here.
    """
    if attempt == 1 or not known:
        return 1
    if on_slurm:
        return int(2 ** failures.memory_outs(rule, wildcards, results, since=since))
    failure = failures.failure_of(rule, wildcards, results)
    return 1 if failure and failure.state != failures.OUT_OF_MEMORY else 2 ** (attempt - 1)
