"""An experiment's artifacts against its plan: what is missing, damaged, changed, stale, or not of this configuration.

missing   it is not there, although its job has ended or something was made from it
damaged   it cannot be read, its checksums fail, or a folder's files are not those that were written
changed   it differs from what was recorded in everything that was made from it
stale     it was made with other settings, or from other inputs, than it would be now
unplanned   the present configuration would not make it (`turncredit.pipeline.expected_artifacts`)

What has not been made yet, because the run has not got that far or was extended, is only counted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from turncredit.config import stages
from turncredit.config.layout import UNFINISHED_UPDATE, Layout, Located, keys_in
from turncredit.config.loading import leaves
from turncredit.data import provenance, tables
from turncredit.data.files import discard
from turncredit.data.metrics import read_metrics
from turncredit.errors import UserError
from turncredit.pipeline import loop, rounds
from turncredit.pipeline.all_jobs import every_job, jobs_and_inputs, made_paths, planned_paths, read_paths, step_of
from turncredit.pipeline.job import JobKeys, Store
from turncredit.pipeline.loop import Step
from turncredit.pipeline.plan import Plan


class Problem(NamedTuple):
    """An artifact that must be made again: what is wrong with it, where, why, and its job."""

    kind: str
    path: str
    why: str
    step: Step


@dataclass
class Compared:
    """What differs. Report, SQL, MLflow and `show` leave out `unplanned` artifacts; `waiting` jobs have not run yet."""

    problems: list[Problem] = field(default_factory=list)
    unplanned: list[Located] = field(default_factory=list)
    waiting: int = 0
    checked: int = 0

    @property
    def unreadable(self) -> set[str]:
        """The artifacts that no further check can read."""
        return {problem.path for problem in self.problems if problem.kind in ("missing", "damaged")}


class JobFiles(NamedTuple):
    """A job of the plan: the artifacts it makes, its metrics, and what it reads by the names in their provenance."""

    outputs: dict[str, str]
    metrics: str
    reads: dict[str, str]


def _files_of_jobs(plan: Plan) -> dict[Step, JobFiles]:
    return {
        step: JobFiles(plan.outputs(*step), plan.metrics(*step), read_paths(plan, step)) for step in every_job(plan)
    }


def compare(plan: Plan) -> Compared:
    """Compare the artifacts on disk with the plan. Reads every file once, and changes nothing."""
    jobs = _files_of_jobs(plan)
    deleted = deleted_after_use(plan)
    comparison = Compared(unplanned=unplanned(plan, jobs))
    store, broken = Store(), {}
    for step, files in jobs.items():
        for name, path in files.outputs.items():
            if os.path.lexists(path):
                comparison.checked += 1
                why = damage(path, stages.stage(step[0]).makes[name].name)
                if why:
                    broken[path] = Problem("damaged", path, why, step)
    recorded = {step: _recorded(step, files) for step, files in jobs.items()}
    stale, changed = _provenance(plan, jobs, recorded, store, set(broken))
    missing = _missing(plan, jobs, recorded, deleted)
    by_path = {**_rewritten(jobs, store, deleted), **stale, **changed, **missing, **broken}
    comparison.problems = sorted(by_path.values(), key=lambda one: one.path)
    comparison.waiting = sum(
        any(not os.path.exists(path) and path not in deleted and path not in missing for path in files.outputs.values())
        for files in jobs.values()
    )
    return comparison


def missing_from(plan: Plan) -> list[Problem]:
    """What is missing, and metrics that cannot be read: no artifact is read but for its provenance."""
    jobs = _files_of_jobs(plan)
    recorded = {step: _recorded(step, files) for step, files in jobs.items()}
    return sorted(_missing(plan, jobs, recorded, deleted_after_use(plan)).values(), key=lambda one: one.path)


def unplanned(plan: Plan, jobs: Iterable[Step]) -> list[Located]:
    """The artifacts on disk that the plan would not make."""
    return Layout(plan.layout.root, planned_paths(plan, jobs)).unplanned()


def damage(path: str, kind: str) -> str | None:
    """Why an artifact cannot be what was written; None if nothing shows it."""
    artifact = stages.artifacts()[kind]
    if artifact.folder != Path(path).is_dir():
        return "is not a folder" if artifact.folder else "is a folder"
    if artifact.folder:
        folder = Path(path)
        made_by = provenance.made_from(folder) if (folder / provenance.PROVENANCE_FILE).exists() else {}
        if not made_by or "content" not in made_by:
            return f"has no readable {provenance.PROVENANCE_FILE}"
        content, files = provenance.folder_hashes(folder, without=provenance.PROVENANCE_FILE)
        if (content, files) != (made_by["content"], made_by.get("files", files)):
            return "changed since it was written"
        return _changed_settings(made_by)
    if artifact.schema is None:
        return None
    try:
        tables.read(path, artifact.schema)
        made_by = tables.metadata(path)
    except UserError as error:
        return str(error).removeprefix(f"{path}: ").partition(";")[0]
    except Exception as error:  # a damaged file can make its reader stumble over anything
        return f"not a readable Parquet file ({type(error).__name__})"
    return _changed_settings(made_by) if made_by else None


def _changed_settings(made_by: Mapping[str, Any]) -> str | None:
    """Why the settings in a provenance cannot be those that were written; None if they are."""
    same = provenance.config_hash(made_by.get("config", {})) == made_by.get("config_hash")
    return None if same else "what it says of its settings has changed since it was written"


def deleted_after_use(plan: Plan) -> set[str]:
    """The policies and implicit reward models that were deleted after their last use (`keep_policies: last`)."""
    experiment = plan.experiment
    if experiment.keep_policies == "all":
        return set()
    passing: dict[str, str] = {}
    # No job of a stage reads the last model of a run after its own round.
    last = [(plan.turns_at(method, seed, experiment.rounds), method) for method, seed in experiment.runs()]
    for turns, method in (*last, *product(plan.audited, plan.audit_methods)):
        for path, after in _implicit_models(plan, turns, method).items():
            passing.setdefault(path, after)
    for method, seed in experiment.runs():
        passing |= rounds.passing_policies(plan, method, seed, range(1, experiment.rounds + 1))
    return {path for path, after in passing.items() if os.path.exists(after) and not os.path.exists(path)}


def _implicit_models(plan: Plan, turns: JobKeys, method: str) -> dict[str, str]:
    """The implicit reward models of a method up to these turns that jobs of single stages make.

    Each has the log-probabilities of these turns, which are the last that is made of it.
    """
    if plan.method(method).scorer != "implicit":
        return {}
    every = [plan.turns_at(turns.policy, turns.seed, round) for round in range(1, turns.round)]
    keys = [plan.keys_of("implicit", one, method) for one in (*every, turns)]
    alone = [at for at in keys if at is not None and loop.block_of(plan, "implicit_model", at) is None]
    return {plan.layout.path("implicit", at.keys): plan.read_by("logprobs", turns, method) for at in alone}


#: By path, the provenance in the artifacts of a job that are on disk and have one.
Recorded = dict[str, dict[str, Any]]


def _recorded(step: Step, files: JobFiles) -> Recorded:
    if stages.stage(step[0]).local:  # these artifacts do not say which settings and inputs they were made with
        return {}
    records = {path: provenance.made_from(path) for path in files.outputs.values() if os.path.exists(path)}
    return {path: made_by for path, made_by in records.items() if made_by}


def _missing(
    plan: Plan, jobs: Mapping[Step, JobFiles], recorded: Mapping[Step, Recorded], deleted: set[str]
) -> dict[str, Problem]:
    """Artifacts that are not there although their job has ended, or something that is there was made from them."""
    users: dict[str, str] = {}
    for step, files in jobs.items():
        for path, made_by in recorded[step].items():
            if set(files.reads) == set(made_by.get("inputs") or {}):  # otherwise it was made from other inputs
                users |= dict.fromkeys(files.reads.values(), path)
    problems = {}
    for step, files in jobs.items():
        ended = os.path.exists(files.metrics)
        gone = [path for path in files.outputs.values() if not os.path.exists(path) and path not in deleted]
        for path in gone:
            if ended or path in users:
                why = f"{users[path]} was made from it" if path in users else "its job has ended"
                problems[path] = Problem("missing", path, why, step)
        log = plan.log(*step)
        if not gone and not ended and step[0] not in ("config", "track") and os.path.exists(log):
            problems[files.metrics] = Problem("missing", files.metrics, "its job has ended", step)
        elif ended and (why := _unreadable(files.metrics)):
            problems[files.metrics] = Problem("damaged", files.metrics, why, step)
    return problems


def _rewritten(jobs: Mapping[Step, JobFiles], store: Store, deleted: set[str]) -> dict[str, Problem]:
    """Files that are not what their job wrote, by the hashes in its metrics, which older jobs did not record."""
    return {
        path: Problem("changed", path, "changed since its job wrote it", step)
        for step, files in jobs.items()
        for path, content in _written(files).items()
        if os.path.isfile(path) and path not in deleted and store.hash(path) != content
    }


def _as_written(path: str, files: JobFiles, store: Store) -> bool:
    """Whether an undamaged artifact is what its job wrote: a folder by its own record, a file by the job's metrics."""
    if Path(path).is_dir():
        return "content" in (provenance.made_from(path) or {})  # compared when damage was looked for
    return store.hash(path) == _written(files).get(path)


def _written(files: JobFiles) -> dict[str, str]:
    """By path, the hash of each file as its job wrote it; none where there are no metrics that can be read."""
    try:
        hashes = read_metrics(Path(files.metrics)).get("files", {})
    except UserError:
        return {}  # there are no metrics yet, or `_missing` says what is wrong with them
    return {path: hashes[name] for name, path in files.outputs.items() if name in hashes}


def _unreadable(metrics: str) -> str | None:
    try:
        read_metrics(Path(metrics))
    except UserError as error:
        return str(error).removeprefix(f"{metrics}: ").partition(";")[0]
    return None


def _provenance(
    plan: Plan, jobs: Mapping[Step, JobFiles], recorded: Mapping[Step, Recorded], store: Store, broken: set[str]
) -> tuple[dict[str, Problem], dict[str, Problem]]:
    """Artifacts that are stale by their own provenance, and those that changed after all others were made from them.

    An input is to blame if every artifact that was made from it recorded another content, unless it is what its job
    wrote; else these are stale.
    """
    stale: dict[str, Problem] = {}
    same: set[str] = set()
    other: dict[str, list[tuple[str, Step]]] = {}
    for step, files in jobs.items():
        if stages.stage(step[0]).local or not all(map(os.path.exists, files.reads.values())):
            continue
        settings = plan.settings(*step)
        config_hash = provenance.config_hash(settings)
        for path, made_by in recorded[step].items():
            if path in broken:
                continue
            inputs = made_by.get("inputs") or {}
            if made_by.get("config_hash") != config_hash:
                why = f"made with other settings than the configuration has now{_differences(made_by, settings)}"
                stale[path] = Problem("stale", path, why, step)
            elif set(inputs) != set(files.reads):
                stale[path] = Problem("stale", path, "made from other files than it would be now", step)
            for name, source in files.reads.items():
                if name not in inputs or source in broken:
                    continue
                if store.hash(source) == inputs[name]:
                    same.add(source)
                else:
                    other.setdefault(source, []).append((path, step))
    changed = {}
    makers = {path: step for step, files in jobs.items() for path in files.outputs.values()}
    for source, users in other.items():
        maker = makers.get(source)
        settled = source in same or source in stale
        if maker and not settled and not _as_written(source, jobs[maker], store):
            changed[source] = Problem("changed", source, f"changed since {users[0][0]} was made from it", maker)
            continue
        for path, step in users:
            stale.setdefault(path, Problem("stale", path, f"{source} has changed since it was made", step))
    return stale, changed


def _differences(made_by: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """The first settings that differ from those of the provenance, as ` (update.lr was 0.001, is 0.0001)`."""
    configs = made_by.get("config") or {}, json.loads(json.dumps(settings, default=str))
    was, now = ({".".join(path): value for path, value in leaves(one)} for one in configs)
    differ = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    told = [f"{name} was {json.dumps(was.get(name))[:40]}, is {json.dumps(now.get(name))[:40]}" for name in differ[:2]]
    if len(differ) > len(told):
        told.append(f"and {len(differ) - len(told)} more")
    return f" ({'; '.join(told)})" if told else ""


# Removing --------------------------------------------------------------------------------------------------------


def to_remove(plan: Plan, problems: Sequence[Problem]) -> list[str]:
    """The files to remove so that the same command makes these artifacts again: they, and what was made from them.

    A job of several rounds itself checks which stages are up to date: only the files that make Snakemake start it are
    removed.
    """
    jobs = jobs_and_inputs(plan)
    makers = {path: step for step in jobs for path in plan.outputs(*step).values()}
    readers: dict[Step, list[Step]] = {}
    for step, reads in jobs.items():
        for maker in {makers[path] for path in reads if path in makers}:
            readers.setdefault(maker, []).append(step)
    gone: dict[Step, None] = {}
    left = [problem.step for problem in problems]
    while left:
        step = left.pop()
        if step in gone:
            continue
        gone[step] = None
        block = loop.block_of(plan, *step)
        if block is None:
            left += readers.get(step, [])
            continue
        method, span = block
        seed = step[1].seed
        last = loop.block(plan, method, seed, span[-1:])
        left += [one for one in last if one[0] in ("update", "invariants")]
        left += [one for one in readers.get(step, []) if loop.block_of(plan, *one) is None]
    return [path for step in gone for path in made_paths(plan, step) if os.path.lexists(path)]


def unplanned_files(plan: Plan) -> list[Path]:
    """What the plan would not make: artifacts, with the metrics, logs and descriptions of the jobs that made them.

    Also the states of unfinished updates whose policy it would not make.
    """
    root = plan.layout.root
    kept = planned_paths(plan, every_job(plan))
    layout = Layout(root, kept)
    paths = [artifact.path for artifact in layout.unplanned()]
    for step in dict.fromkeys(filter(None, (step_of(path.relative_to(root).as_posix()) for path in paths))):
        metrics, log = Path(plan.metrics(*step)), Path(plan.log(*step))
        if metrics.relative_to(root).as_posix() not in kept:
            paths += [path for path in (metrics, log, log.with_suffix(".job.json")) if path.exists()]
    return paths + layout.unplanned_updates()


def remove(root: Path, paths: Iterable[str | Path]) -> None:
    """Remove artifacts below `root`, and folders that this leaves empty. Raises UserError first for anything else."""
    every = [Path(path) for path in paths]
    for path in every:
        if not belongs(root, path):
            raise UserError(f"{path}: no artifact of {root}; nothing was removed")
    for path in dict.fromkeys(_with_other_pages(root, path) for path in every):
        discard(path)
        for folder in path.parents:
            if folder == root or (folder.is_dir() and any(folder.iterdir())):
                break
            folder.rmdir()


def _with_other_pages(root: Path, path: Path) -> Path:
    """The folder of credit pages, if the path is that of their index; any other path as it is."""
    is_index = keys_in(stages.artifacts()["pages"].pattern, path.relative_to(root).as_posix()) is not None
    return path.parent if is_index else path


def belongs(root: Path, path: Path) -> bool:
    """Whether this path below an experiment's folder is that of an artifact, of a job's metrics, log or description.

    Or of the state of an unfinished update.
    """
    relative = path.relative_to(root).as_posix()
    return step_of(relative) is not None or keys_in(UNFINISHED_UPDATE, relative) is not None
