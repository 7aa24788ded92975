"""The record of a stage: what the rest of the project knows of it. Each stage's own file ends with one.

A stage is a module of `turncredit/pipeline/stages` that declares `STAGE = Stage(...)`. Its rule, its paths, its place
in a round, its resources and its row in every listing follow from that record, so a new stage is one file. The modules
are found by name, as plug-ins are, when a record is first asked for: nothing here imports them.
"""

from __future__ import annotations

import pkgutil
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from typing import Any, Literal

from turncredit.errors import UserError, nearest

#: The package whose modules are the stages.
PACKAGE = "turncredit.pipeline.stages"
#: The folder of everything that is computed from the turns that a policy sampled in a round.
ROLLOUTS = "rollouts/{policy}/seed{seed}/round{round}"
#: The folder of a run, and of what it made in a round.
RUNS = "runs/{method}/seed{seed}"
RUN = RUNS + "/round{round}"


@dataclass(frozen=True)
class Artifact:
    """A kind of artifact.

    pattern   its path below `results/<experiment>`, keys in braces
    schema    the schema of its table (`turncredit.data.tables`); None if it is not a table
    folder    whether it is a folder
    """

    name: str
    pattern: str
    schema: str | None = None
    folder: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that identify an artifact of this kind."""
        return tuple(dict.fromkeys(re.findall(r"{(\w+)}", self.pattern)))


def table(name: str, folder: str, file: str | None = None, *, schema: str | None = None) -> Artifact:
    """A table in `folder/file.parquet`; file and schema are called like the artifact unless they are given."""
    return Artifact(name, f"{folder}/{file or name}.parquet", schema or name)


def _always(plan: Any, method: str) -> bool:  # noqa: ARG001
    return True


def _of_turns(plan: Any, turns: Any, method: str) -> Any:  # noqa: ARG001
    return turns


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage.

    after             the stage that it follows in a round and in listings
    phase             `start`: before any round; `round`: a step of the loop itself; `signal`: where a
                      method's credit reads it; `audit`: of audited turns; `end`: of all rounds
    message           what Snakemake prints of a job, with its keys in braces
    makes             the artifacts that it writes, by the name under which `run` writes them
    folder, file      its metrics are in `folder/metrics/file.json`, its log in `logs/folder/file.log`
    part              the class of its part of the configuration, a closed model: the stage sees nothing else of it
    slice             (plan, keys) -> that part for a job. The job runs again when it has changed, and only then
    inputs            (plan, keys) -> the files and folders that a job reads, by name
    run               (job) -> metrics: read, compute, write
    varies_by         the keys that the part of the configuration depends on
    runtime_options   (plan, keys) -> settings that cannot affect the result (a judge's URL, a number of processes), and
                      values derived from the job's keys
    warning           (metrics) -> a line about a result that is valid but probably unwanted; None for others

    In a round:

    needed            (plan, method) -> whether the method's rounds have this stage
    keys              (plan, keys of the turns, method) -> the keys of the job; None where there is no job

    What a job costs:

    policy            what it does with a policy's weights: it samples with them, trains or reads them; None: nothing
    gpu_work          (work) -> what it computes on a GPU: `Played` if it samples, operations if it trains or reads
    hiddens           whether it holds hidden states: a round's, or those of all earlier rounds that a model learns from
    local             whether Snakemake runs it in its own place, also on a cluster
    lags              whether no other job waits for it, so that it may run later
    """

    name: str
    after: str | None
    phase: Literal["start", "round", "signal", "audit", "end"]
    message: str
    makes: Mapping[str, Artifact] = field(default_factory=dict)
    folder: str
    file: str
    part: Any
    slice: Callable[[Any, Any], Any]
    inputs: Callable[[Any, Any], Any]
    run: Callable[[Any], Any]
    varies_by: tuple[str, ...] = ("policy", "method", "split", "warm_start")
    runtime_options: Callable[[Any, Any], Any] | None = None
    warning: Callable[[Mapping[str, float]], str | None] | None = None
    needed: Callable[[Any, str], bool] = _always
    keys: Callable[[Any, Any, str], Any] = _of_turns
    policy: Literal["samples", "trains", "reads"] | None = None
    gpu_work: Callable[[Any], Any] | None = None
    hiddens: bool = False
    local: bool = False
    lags: bool = False

    @cached_property
    def about(self) -> str:
        """What it does: the first line of its module, without its name."""
        first, _, _ = (sys.modules[f"{PACKAGE}.{self.name}"].__doc__ or "").partition("\n")
        return first.partition(": ")[2].removesuffix(".")

    @cached_property
    def metrics(self) -> str:
        """The pattern of its metrics file below `results/<experiment>`."""
        return "/".join(filter(None, (self.folder, "metrics", f"{self.file}.json")))

    @cached_property
    def log(self) -> str:
        """The pattern of its log below `results/<experiment>`."""
        return "/".join(filter(None, ("logs", self.folder, f"{self.file}.log")))


@cache
def stages() -> dict[str, Stage]:
    """Every stage by name, each after the one that it follows; two that follow the same one in alphabetic order."""
    package = import_module(PACKAGE)
    modules = (import_module(f"{PACKAGE}.{found.name}") for found in pkgutil.iter_modules(package.__path__))
    followers: dict[str | None, list[Stage]] = {}
    for stage in sorted((module.STAGE for module in modules), key=lambda one: one.name, reverse=True):
        followers.setdefault(stage.after, []).append(stage)
    ordered: dict[str, Stage] = {}
    waiting = followers.pop(None)
    while waiting:
        stage = waiting.pop()
        ordered[stage.name] = stage
        waiting += followers.pop(stage.name, [])
    if followers:
        raise ValueError(f"stages follow {', '.join(map(str, followers))}, which no stage is called; correct `after`")
    return ordered


def stage(name: str) -> Stage:
    """The stage called `name`. Raises UserError with the nearest name."""
    if name not in stages():
        raise UserError(f"unknown stage '{name}'{nearest(name, stages())}; choose one of {', '.join(stages())}")
    return stages()[name]


def stages_in(phase: str) -> list[Stage]:
    """The stages of a phase, in order."""
    return [one for one in stages().values() if one.phase == phase]


def policy_stages(*uses: str) -> tuple[str, ...]:
    """The names of the stages that load a policy's weights; of those, the ones that put them to one of `uses`."""
    return tuple(one.name for one in stages().values() if (one.policy in uses if uses else one.policy))


@cache
def artifacts() -> dict[str, Artifact]:
    """Every kind of artifact by name, in the order of the stages that make them."""
    return {kind.name: kind for one in stages().values() for kind in one.makes.values()}


@cache
def made_by() -> dict[str, str]:
    """The name of the stage that makes each kind of artifact."""
    return {kind.name: one.name for one in stages().values() for kind in one.makes.values()}
