"""What a fault is, how the harness judges what followed it, and the record of it.

How a fault can end, best first:

same       the same command, given again, made exactly the results of a run without faults
named      a command refused or failed with a line that names the file or the job; after what it said was done (the
           cause removed, `turncredit check --repair`), the same command made the results of a run without faults
unreached  the process had ended before it could be killed, or the fault changed nothing: does not count as a fault
SILENT     a result differs from that of a run without faults, and nothing said so
STUCK      the results could not be made again in the way that the message, or the documentation, says
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.chaos import children, world
from turncredit.errors import UserError
from turncredit.pipeline import integrity
from turncredit.pipeline.expected_artifacts import plan_of
from turncredit.pipeline.loop import Step
from turncredit.pipeline.plan import Plan
from turncredit.views.experiments import experiment_folders

OUTCOMES = ("same", "named", "unreached", "SILENT", "STUCK")


class Verdict(NamedTuple):
    """How a fault ended (one of `OUTCOMES`), the line that named it or a detail, and what a reader may want to know."""

    outcome: str
    printed: str = ""


@dataclass(frozen=True)
class Fault:
    """A fault: its kind, where and when it strikes; `inflict` does it in a folder of its own and judges the outcome.

    kind, where and when together name it, so that an interrupted run of the harness can go on.
    """

    kind: str
    where: str
    when: str
    inflict: Callable[[Path], Verdict]
    #: whether it forks the harness's own process, which then should have imported what jobs import
    forks: bool = True

    @property
    def name(self) -> str:
        """Identifies the fault."""
        return " | ".join((self.kind, self.where, self.when))


@dataclass(frozen=True)
class Record:
    """One row of the record."""

    kind: str
    where: str
    when: str
    outcome: str
    printed: str
    seconds: float

    def row(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def inflict(fault: Fault, folder: Path) -> Record:
    """Inflict a fault in `folder`, and record how it ended."""
    began = time.monotonic()
    outcome, printed = fault.inflict(folder)
    return Record(fault.kind, fault.where, fault.when, outcome, printed[:300], round(time.monotonic() - began, 2))


@dataclass(frozen=True)
class Baseline:
    """The experiment made without a fault: its folder, its plan, and the hash of every result."""

    folder: Path
    plan: Plan
    content: dict[str, str]

    def plan_in(self, folder: Path, **changes: Any) -> Plan:
        """The plan of a copy in `folder`, of the experiment with `changes` of top-level keys."""
        return Plan(self.plan.experiment.model_copy(update=changes), folder / "results")

    @property
    def results(self) -> Path:
        """The folder of results."""
        return self.plan.results


def opened(folder: Path, plan: Plan) -> Baseline:
    """The experiment whose results are in `folder`/results."""
    return Baseline(folder, plan, world.content(folder / "results"))


def judge_after_kill(
    baseline: Baseline, folder: Path, ended: children.Ended, again: Callable[[], children.Ended]
) -> Verdict:
    """What became of `folder` after a process in it was killed and the same work was done again (`again`)."""
    if ended.status != -9:
        return Verdict("unreached", f"exit status {ended.status}: {ended.last_line}" if ended.status else "")
    if wrong := world.differences(folder / "results", baseline.content, complete=False):
        return Verdict("SILENT", f"after the kill {wrong[0]} is there and differs")
    return judge_again(baseline, folder, again())


def judge_again(baseline: Baseline, folder: Path, again: children.Ended, *, named: str = "") -> Verdict:
    """What became of `folder` now that the same work was done again; `named`: the line that had named the fault."""
    if again.status:
        return Verdict("STUCK", again.last_line)
    if wrong := world.differences(folder / "results", baseline.content, complete=True):
        return Verdict("SILENT", f"{wrong[0]} differs or is missing ({len(wrong)} do)")
    if left := world.leftovers(folder / "results"):
        return Verdict("STUCK", f"{left[0]} was left behind")
    return Verdict("named", named) if named else Verdict("same")


def line_naming(printed: str, names: Sequence[str]) -> str:
    """The first line that mentions one of these names; empty if there is none. A traceback's lines do not count."""
    lines = [line.strip() for line in printed.splitlines() if not line.startswith((" ", "Traceback"))]
    return next((line for line in lines if any(name in line for name in names)), "")


def problems(folder: Path) -> list[str]:
    """What `turncredit check` finds wrong with the artifacts in `folder`, a line for each."""
    (root,) = experiment_folders(folder / "results")
    try:
        return [
            f"{problem.kind} {problem.path}: {problem.why}" for problem in integrity.compare(plan_of(root)).problems
        ]
    except UserError as error:
        return [str(error)]


def outputs_of(plan: Plan, steps: Sequence[Step]) -> list[str]:
    """The artifacts and metrics of these jobs."""
    return [path for step in steps for path in (*plan.outputs(*step).values(), plan.metrics(*step))]
