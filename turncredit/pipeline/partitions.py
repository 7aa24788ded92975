"""What Slurm's partitions offer, by `sinfo`, and whether any node of a rule's partition can run its jobs.

Slurm takes a job that is longer than its partition allows and lets it wait for ever (`PartitionTimeLimit`).
"""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from turncredit.config.experiment import ROUNDS
from turncredit.pipeline import retries


class Asked(NamedTuple):
    """What the jobs of a rule ask for; 0: not known here. `partition` is "" for Slurm's default."""

    rule: str
    partition: str = ""
    gpus: int = 0
    minutes: int = 0
    mem_mb: int = 0
    cores: int = 0


class Offer(NamedTuple):
    """What one kind of a partition's nodes has, and the minutes that the partition gives a job; infinite: not known."""

    gpus: float
    minutes: float
    mem_mb: float
    cores: float


#: The key of `resources` behind each part of an offer, and its unit.
KEYS = {"gpus": "gpu", "minutes": "runtime", "mem_mb": "mem_mb", "cores": "threads"}
UNITS = {"gpus": "GPUs", "minutes": "minutes", "mem_mb": "MB of memory", "cores": "cores"}


class Partitions(NamedTuple):
    """Slurm's partitions, each with its kinds of nodes; and the one that jobs without a partition get, "" if none."""

    offers: Mapping[str, Sequence[Offer]]
    default: str

    def named(self, partition: str) -> list[str]:
        """The partitions of which Slurm takes the first that is free; all, where it is not known."""
        return [name.strip() for name in (partition or self.default).split(",") if name.strip()] or sorted(self.offers)

    def fitting(self, asked: Asked, *, without: str = "") -> list[Offer]:
        """The nodes of a job's partitions that have all that it asks for, but for the part `without`."""
        parts = [part for part in KEYS if part != without and getattr(asked, part)]
        return [one for one in self.of(asked) if all(getattr(one, part) >= getattr(asked, part) for part in parts)]

    def of(self, asked: Asked) -> list[Offer]:
        """The nodes of a job's partitions."""
        return [offer for name in self.named(asked.partition) for offer in self.offers.get(name, ())]


def listed() -> Partitions:
    """The partitions that sinfo lists; none if it does not answer."""
    offers: dict[str, list[Offer]] = {}
    default = ""
    # --exact: a line for each kind of node, where sinfo otherwise says the least and a plus.
    for line in printed("sinfo", "--exact", "--noheader", "--format=%P|%G|%l|%m|%c"):
        if line.count("|") == 4:
            name, gres, limit, mem_mb, cores = line.split("|")
            default = name.rstrip("*") if name.endswith("*") else default
            gpus = math.inf if mem_mb == "0" else gpus_in(gres)  # nodes of a cloud that are switched off are not listed
            offer = Offer(gpus, minutes_in(limit), _number(mem_mb), _number(cores))
            offers.setdefault(name.rstrip("*"), []).append(offer)
    return Partitions(offers, default)


def gpus_in(gres: str) -> float:
    """GPUs of a node as sinfo writes them: `gpu:a100:4(S:0-1),gpu:2`, `(null)`."""
    kinds = [kind.split(":") for kind in re.sub(r"\([^)]*\)", "", gres).split(",")]
    return sum(int(kind[-1]) if kind[-1].isdigit() else 1 for kind in kinds if kind[0] == "gpu")


def gpus_asked(resources: Mapping[str, Any]) -> int:
    """The GPUs that a job asks for by these resources of Snakemake: as GPUs, or as a generic resource."""
    gpus = resources.get("gpu", 0)
    return (gpus if isinstance(gpus, int) else 0) or int(gpus_in(str(resources.get("gres") or "")))


def minutes_in(limit: str) -> float:
    """Minutes of a time as sinfo writes it: `30:00`, `2:00:00`, `1-00:00:00`; infinite for `infinite` and the like."""
    match = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", limit)
    if match is None:
        return math.inf
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return 1440 * days + 60 * hours + minutes + seconds / 60


def _number(text: str) -> float:
    """A number of which there may be more (`64000+`), or that is not known (0)."""
    return int(text) if text.isdigit() and int(text) else math.inf


def refusal(asked: Asked, partitions: Partitions) -> str | None:
    """One line about a job that no node of its partition can run; None if one can, or if nothing is known of them."""
    offers, names = partitions.of(asked), partitions.named(asked.partition)
    if not offers or partitions.fitting(asked):
        return None
    parts = [part for part in KEYS if getattr(asked, part)]
    most = {part: max(getattr(offer, part) for offer in offers) for part in parts}
    where = f"{'' if asked.partition else 'default '}partition {', '.join(names)}"
    other = f"name another with --set-resources {asked.rule}:slurm_partition=..."
    short = next((part for part in parts if getattr(asked, part) > most[part]), None)
    if short is None:
        all_of_it = ", ".join(_amount(part, getattr(asked, part)) for part in parts)
        return f"{asked.rule} asks for {all_of_it}, and no node of the {where} offers all of it (sinfo); {other}"
    had = f"no node of the {where} has {f'more than {most[short]:,.0f}' if most[short] else 'one'}"
    if short == "minutes":
        had = f"a job in the {where} gets {most[short]:,.0f} at most"
    stage, fewer = retries.stage_of(asked.rule), ""
    if (asked.rule, short) == (ROUNDS, "minutes"):
        fewer = "put fewer rounds into a job (granularity: round, rounds_per_job), "
    less = f"{fewer}set resources.{stage}.{KEYS[short]} to less, or " if most[short] else ""
    return f"{asked.rule} asks for {_amount(short, getattr(asked, short))}, and {had} (sinfo); {less}{other}"


def largest_memory(asked: Iterable[Asked], partitions: Partitions) -> dict[str, float]:
    """For each rule, the memory of the largest node that has whatever else its jobs ask for, in MB.

    Infinite if nothing is known of such nodes.
    """
    largest: dict[str, float] = {}
    for one in asked:
        fitting = [offer.mem_mb for offer in partitions.fitting(one, without="mem_mb")]
        largest[one.rule] = min(largest.get(one.rule, math.inf), max(fitting, default=math.inf))
    return largest


def _amount(part: str, number: int) -> str:
    if number == 1:
        return "a GPU" if part == "gpus" else f"1 {UNITS[part].removesuffix('s')}"
    return f"{number:,} {UNITS[part]}"


def printed(*command: str) -> list[str]:
    """The lines that a command prints; none if it is not there or fails."""
    done = _ran(*command)
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done and not done.returncode else []


def failure(*command: str) -> str:
    """What a command that fails says, in one line; empty if it works or is not there."""
    done = _ran(*command)
    return " ".join(done.stderr.split()) or f"exit status {done.returncode}" if done and done.returncode else ""


def _ran(*command: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
