"""`kill -9` of one stage, of a round in one process, in the middle of a write, of an audit, of MLflow's import."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.chaos import children, world
from benchmarks.chaos.faults import Baseline, Fault, Verdict, judge_after_kill, outputs_of
from turncredit.config.stages import artifacts
from turncredit.pipeline import loop, rounds
from turncredit.pipeline.all_jobs import every_job
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.loop import Step
from turncredit.pipeline.plan import Plan, load

#: Stages that are looked at elsewhere: Snakemake makes the configuration and the report, `of_tracking` is MLflow.
ELSEWHERE = ("config", "report", "track")
#: Points in the middle of a computation: stage, the function that is killed as it is called, and at which call.
INSIDE = (
    ("branch", "turncredit.audit.branch", "branch", 0),
    ("branch", "turncredit.rollouts.play", "Player.play", 1),
    ("rollout", "turncredit.rollouts.play", "Player.play", 0),
    ("update", "turncredit.training.update", "_summary", 0),
    ("fidelity", "turncredit.data.tables", "read", 2),
)


def of_stages(baseline: Baseline, rng: np.random.Generator, *, times: int, renames: int) -> Iterator[Fault]:
    """Kills of one job of every stage: at random times, around random renames, and with its tables half written."""
    for stage, at in one_of_each(baseline.plan, rng):
        step = stage, at
        seconds = json.loads(Path(baseline.plan.metrics(*step)).read_text(encoding="utf-8"))["wall_s"]
        for share in rng.uniform(0.02, 0.98, times):
            yield kill(baseline, step, f"after {share:.0%} of its time", kill_after=share * seconds)
        # The job's description, its artifacts, its metrics.
        total = len(load(stage).makes) + 2
        for number in sorted(rng.choice(total, min(renames, total), replace=False).tolist()):
            after = bool(rng.integers(2))
            when = f"{'after' if after else 'before'} rename {number + 1}"
            yield kill(baseline, step, when, fault=children.dies_at_rename(number, after=after))
        tables = sum(
            artifacts()[kind].schema is not None for kind in [kind.name for kind in load(stage).makes.values()]
        )
        for number in range(tables):
            yield kill(
                baseline, step, f"in the middle of writing table {number + 1}", fault=children.dies_in_write(number)
            )


def inside(baseline: Baseline, rng: np.random.Generator) -> Iterator[Fault]:
    """Kills at named points inside computations, those of the audit among them."""
    jobs = {stage: (stage, at) for stage, at in one_of_each(baseline.plan, rng)}
    for stage, module, function, call in INSIDE:
        fault = children.dies_in(module, function, call)
        yield kill(baseline, jobs[stage], f"in call {call + 1} of {function}", fault=fault)


def one_of_each(plan: Plan, rng: np.random.Generator) -> list[Step]:
    """A random job of every stage."""
    jobs: dict[str, list[JobKeys]] = {}
    for stage, at in every_job(plan):
        if stage not in ELSEWHERE:
            jobs.setdefault(stage, []).append(at)
    return [(stage, every[rng.integers(len(every))]) for stage, every in jobs.items()]


def kill(
    baseline: Baseline,
    step: Step,
    when: str,
    *,
    fault: Callable[[], Any] | None = None,
    kill_after: float | None = None,
) -> Fault:
    """A kill of one job, which is then run again."""

    def inflict(folder: Path) -> Verdict:
        world.copy(baseline.folder, folder, outputs_of(baseline.plan, [step]))
        plan = baseline.plan_in(folder)
        ended = children.run(lambda: world.perform(plan, [step]), fault, kill_after=kill_after)
        return judge_after_kill(baseline, folder, ended, lambda: children.run(lambda: world.perform(plan, [step])))

    return Fault("kill -9 of a stage", f"{step[0]} {step[1]}".rstrip(), when, inflict)


def of_rounds(baseline: Baseline, rng: np.random.Generator, *, times: int, renames: int) -> Iterator[Fault]:
    """Kills of a job of `granularity: round` or `run`, at random times and around random renames."""
    plan = baseline.plan
    for method, seed in plan.experiment.runs():
        for span in ([2], [1, 2]):
            steps = loop.block(plan, method, seed, span)
            seconds = sum(json.loads(Path(plan.metrics(*step)).read_text(encoding="utf-8"))["wall_s"] for step in steps)
            written = sum(len(load(stage).makes) + 2 for stage, _ in steps)
            kills: list[tuple[str, dict[str, Any]]] = [
                (f"after {share:.0%} of its time", {"kill_after": share * seconds})
                for share in rng.uniform(0.02, 0.98, times)
            ]
            for number in sorted(rng.choice(written, renames, replace=False).tolist()):
                kills.append((f"before rename {number + 1}", {"fault": children.dies_at_rename(number, after=False)}))
            for when, how in kills:
                yield kill_of_round(baseline, method, seed, span, when, how)


def kill_of_round(baseline: Baseline, method: str, seed: int, span: list[int], when: str, how: dict[str, Any]) -> Fault:
    """A kill of the job that runs some rounds of a run in one process, which is then run again."""

    def inflict(folder: Path) -> Verdict:
        world.copy(baseline.folder, folder, outputs_of(baseline.plan, loop.block(baseline.plan, method, seed, span)))
        plan = baseline.plan_in(folder, granularity="run")

        def work() -> None:
            rounds.run_rounds(plan, method, seed, span)

        return judge_after_kill(baseline, folder, children.run(work, **how), lambda: children.run(work))

    named = f"rounds {span[0]} to {span[-1]} of {method}" if len(span) > 1 else f"round {span[0]} of {method}"
    return Fault("kill -9 of a round's job", named, when, inflict)


# MLflow ----------------------------------------------------------------------------------------------------------


def of_tracking(baseline: Baseline, rng: np.random.Generator, *, times: int) -> Iterator[Fault]:
    """Kills of MLflow's import: as its package is imported, in the middle of the copy, at random times."""
    client, store = "mlflow.tracking", "mlflow.store.tracking.sqlalchemy_store"
    points: list[tuple[str, dict[str, Any]]] = [
        ("as mlflow is imported", {"fault": children.dies_in_import("mlflow")}),
        ("as mlflow's SQL store is imported", {"fault": children.dies_in_import(store)}),
        ("in call 3 of log_batch", {"fault": children.dies_in(client, "MlflowClient.log_batch", 2)}),
        ("in call 2 of create_run", {"fault": children.dies_in(client, "MlflowClient.create_run", 1)}),
    ]
    seconds = json.loads(Path(baseline.plan.metrics("track", JobKeys())).read_text(encoding="utf-8"))["wall_s"]
    points += [
        (f"after {share:.0%} of its time", {"kill_after": share * seconds}) for share in rng.uniform(0.1, 0.95, times)
    ]
    for when, how in points:
        yield kill_of_tracking(baseline, when, how)


def kill_of_tracking(baseline: Baseline, when: str, how: dict[str, Any]) -> Fault:
    """A kill of the stage that copies metrics to MLflow, which then runs again: the same runs and numbers are there."""

    def inflict(folder: Path) -> Verdict:
        world.copy(baseline.folder, folder, [baseline.plan.metrics("track", JobKeys())])
        plan = baseline.plan_in(folder)
        for file in plan.layout.root.glob("mlflow.db*"):
            file.unlink()

        def work() -> None:
            world.perform(plan, [("track", JobKeys())])

        ended = children.run(work, **how)
        verdict = judge_after_kill(baseline, folder, ended, lambda: children.run(work))
        if verdict.outcome != "same":
            return verdict
        expected, numbers = tracked(baseline.plan.layout.root), tracked(plan.layout.root)
        return (
            verdict
            if expected == numbers
            else Verdict("SILENT", f"MLflow has {len(numbers)} numbers of {len(expected)}")
        )

    return Fault("kill -9 of MLflow's import", "track", when, inflict)


def tracked(root: Path) -> list[tuple[Any, ...]]:
    """Every number in an experiment's MLflow database, with the name of its run."""
    # A copy: reading a database that a killed process has left rolls its journal back.
    copy = root / "mlflow-read.db"
    shutil.copyfile(root / "mlflow.db", copy)
    try:
        with sqlite3.connect(copy) as database:
            query = (
                "SELECT name, key, value, step FROM metrics JOIN runs USING (run_uuid) WHERE lifecycle_stage = 'active'"
            )
            return sorted(database.execute(query).fetchall(), key=repr)
    finally:
        copy.unlink()
