"""MLflow: the stages' metrics as nested runs, imported from their JSON files.

The stages themselves never talk to MLflow: they write JSON, and `track` copies what is new. If a tracking server is
down, a later `turncredit track` catches up, and parallel jobs never compete for a database. In MLflow an experiment is
our experiment, a run is (method, seed), and its nested runs are the rounds; what all methods share is a run called
`shared`. Artifacts are linked by their paths, not copied.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from turncredit.config import Experiment
from turncredit.config.layout import Layout, round_name, sampled_by
from turncredit.config.loading import AUDIT, SHARED, leaves
from turncredit.config.warm_starts import SFT
from turncredit.errors import UserError
from turncredit.views.experiments import paid_by, played_for, run_rounds
from turncredit.views.redact import redacted
from turncredit.views.sql_views import read_metrics, stage_numbers

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

#: Stages that only read results; tracking them would add something at every call.
NOT_TRACKED = {"report", "track"}
KEY = "turncredit.key"
#: Artifacts of a round that are linked.
_ARTIFACTS = ("turns", "credits", "updates", "evals", "policy")


class Entry(NamedTuple):
    """One metrics file: the run it belongs to (`parent`), its own run below it (`key`), the `name` of its numbers, and
    the keys of the job's outputs."""

    parent: str
    key: str
    name: str
    keys: Mapping[str, str | int]
    path: Path

    @property
    def round(self) -> int | None:
        """The round of the job; None if it is not about a single round."""
        return int(self.keys["round"]) if "round" in self.keys else None


class Measured(NamedTuple):
    """The content of a new metrics file: its numbers, its times (ms), and the tag that marks it as imported."""

    entry: Entry
    numbers: dict[str, float]
    start: int
    end: int
    mark: tuple[str, str]


def track(
    *, experiment: Experiment, results: str | Path, make_layout: Callable[[Path], Layout] = Layout
) -> dict[str, float]:
    """Copy the metrics below `results` (results/<experiment>) to MLflow, except those that were copied before.

    `make_layout` makes the folder's layout, which says which jobs' metrics and which artifacts are looked at.
    The store is `tracking.uri`, or else the environment's MLFLOW_TRACKING_URI, or else `mlflow.db` in `results`.
    Several processes may call this at once: a file lock admits one at a time. Returns `imported` and `known`, the
    numbers of metrics files copied now and before. With `tracking.enabled` false nothing happens. Raises UserError if
    the store cannot be reached or used.
    """
    results = Path(results)
    if not experiment.tracking.enabled:
        return {"imported": 0.0, "known": 0.0}
    if not results.is_dir():
        raise UserError(f"{results}: no such folder; give an experiment's folder such as results/household")
    uri = store_uri(experiment, results)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        with _locked(uri, results), _quick_commits():
            _create_database(uri)
            return _copy(MlflowClient(uri), experiment, make_layout(results))
    except MlflowException as error:
        reason = " ".join(str(error).split()).replace(uri, without_password(uri))
        raise UserError(
            f"MLflow at {without_password(uri)}: {reason[:300]}; the metrics are safe in {results}, "
            f"run `turncredit track {results}` when it is available again"
        ) from None


def store_uri(experiment: Experiment, results: Path) -> str:
    """The address of the MLflow store."""
    given = experiment.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI")
    return given or f"sqlite:///{(results / 'mlflow.db').resolve()}"


def without_password(uri: str) -> str:
    """`uri` without user and password, for messages."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _database(uri: str) -> Path | None:
    """The file of an SQLite store."""
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None


def _create_database(uri: str) -> None:
    """Create an SQLite store that is not there yet, completely or not at all.

    MLflow creates it in many steps, and cannot go on with one in which it was killed.
    """
    from mlflow.tracking import MlflowClient

    database = _database(uri)
    if database is not None and not database.exists():
        part = database.with_name(f".{database.name}.part")
        part.unlink(missing_ok=True)
        MlflowClient(f"sqlite:///{part}").search_experiments(max_results=1)
        os.replace(part, database)


@contextmanager
def _locked(uri: str, results: Path) -> Iterator[None]:
    """Admit one process at a time. The lock of a database is next to it, since experiments may share it.

    A server admits several itself, so a file system without locks is no obstacle to one.
    """
    database = _database(uri)
    path = Path(f"{database}.lock") if database else results / ".mlflow.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            if database is not None:
                raise UserError(
                    f"{path}: this file system has no locks ({error.strerror}), which MLflow's database needs; set "
                    "tracking.uri to a server, or to a database elsewhere"
                ) from None
        yield


@contextmanager
def _quick_commits() -> Iterator[None]:
    """SQLite without a disk flush after every commit: hundreds of small commits otherwise take most of the time.

    The database is a copy of the metrics files and can be rebuilt after deleting it; only a power cut could damage it.
    """
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    def set_pragma(connection: Any, _record: Any) -> None:
        if type(connection).__module__ == "sqlite3":
            connection.execute("PRAGMA synchronous=OFF")

    event.listen(Engine, "connect", set_pragma)
    try:
        yield
    finally:
        event.remove(Engine, "connect", set_pragma)


def entries(experiment: Experiment, layout: Layout) -> list[Entry]:
    """The metrics files of an experiment's layout: those of runs by method, seed and round, the others as `shared`.

    A run's own stages have their bare names (`credit`, not `credit-gigpo`), so that curves of methods can be compared.
    """
    rounds, played = frozenset(run_rounds(layout, experiment)), played_for(experiment)
    found = []
    for stage, keys, path in layout.find_metrics():
        if stage in NOT_TRACKED:
            continue
        payer = paid_by(stage, keys, rounds, played)
        if payer in (SHARED, AUDIT):
            whose = keys.get("policy", keys.get("method"))
            parent, below, name = SHARED, f"{SHARED}/{whose}", _file_name(path, keys)
        else:
            parent, below, name = f"{payer}/seed{keys['seed']}", payer, stage if "method" in keys else path.stem
        # Metrics of the whole run (its invariants) are in the run itself.
        key = round_name(below, int(keys["seed"]), int(keys["round"])) if "round" in keys else parent
        found.append(Entry(parent, key, name, keys if parent == SHARED else {**keys, "method": payer}, path))
    return sorted(found, key=lambda entry: (entry.key, entry.path))


def _copy(client: MlflowClient, experiment: Experiment, layout: Layout) -> dict[str, float]:
    """Create missing runs and log the metrics files that are new or have changed.

    The tags that mark files as done are written last, and parents before their rounds: metrics that a killed process
    logged are logged again, and MLflow treats them as the same row, since time, round and value are the same. A run
    that was created and nothing more gets its parameters then.
    """
    from mlflow.entities import Metric, Param, RunTag

    mlflow_id = _experiment_id(client, experiment.experiment, layout.root)
    runs = _existing(client, mlflow_id)
    every = entries(experiment, layout)
    new = [measured for entry in every if (measured := _read(entry, runs.get(entry.key))) is not None]
    by_run: dict[str, list[Measured]] = {}
    for one in new:
        for key in dict.fromkeys((one.entry.parent, one.entry.key)):
            by_run.setdefault(key, []).append(one)
    ids = {key: run.info.run_id for key, run in runs.items()}
    for key, measured in by_run.items():
        first, own, params = measured[0].entry, [one for one in measured if one.entry.key == key], {}
        if key not in ids:
            below = {} if key == first.parent else {"mlflow.parentRunId": ids[first.parent]}
            created = client.create_run(mlflow_id, measured[0].start, {KEY: key, **below}, run_name=key)
            ids[key] = created.info.run_id
        if key not in runs or not runs[key].data.params:
            params = _parameters(experiment, key) if key == first.parent else {"round": str(first.round)}
        # A run's own numbers are its rounds', by round: the curves that MLflow draws.
        metrics = [
            Metric(f"{one.entry.name}/{name}", value, one.end, one.entry.round or 0)
            for one in (own if key == SHARED else measured)
            for name, value in one.numbers.items()
        ]
        tags = dict(one.mark for one in own) | (_links(own[0].entry, experiment, layout) if own else {})
        client.log_batch(ids[key], metrics=metrics, params=[Param(*param) for param in params.items()])
        client.set_terminated(ids[key], end_time=max(one.end for one in measured))
        client.log_batch(ids[key], tags=[RunTag(*tag) for tag in tags.items()])
    return {"imported": float(len(new)), "known": float(len(every) - len(new))}


def _file_name(path: Path, keys: Mapping[str, str | int]) -> str:
    """A metrics file's name without its ending, with the warm start's: every agent has its own."""
    return path.stem + ("" if keys.get("warm_start", SFT) == SFT else f"-{keys['warm_start']}")


def _read(entry: Entry, run: Run | None) -> Measured | None:
    """The metrics file of `entry`, or None if the tags of its run show that it was copied in its present state."""
    mark = (f"imported.{_file_name(entry.path, entry.keys)}", hashlib.sha256(entry.path.read_bytes()).hexdigest()[:16])
    if run is not None and run.data.tags.get(mark[0]) == mark[1]:
        return None
    data = read_metrics(entry.path)
    start, end = (int(1000 * seconds) for seconds in (data["started"], data["started"] + data["wall_s"]))
    return Measured(entry, stage_numbers(data), start, end, mark)


def _experiment_id(client: MlflowClient, name: str, results: Path) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return client.create_experiment(name, artifact_location=(results / "mlflow-artifacts").resolve().as_uri())
    if experiment.lifecycle_stage != "active":
        raise UserError(f"MLflow: the experiment '{name}' was deleted there; restore it, or give this one another name")
    return experiment.experiment_id


def _existing(client: MlflowClient, mlflow_id: str) -> dict[str, Run]:
    """Our runs in the store, by key."""
    page = client.search_runs([mlflow_id])
    found = [*page]
    while page.token:
        page = client.search_runs([mlflow_id], page_token=page.token)
        found += page
    return {run.data.tags[KEY]: run for run in found if KEY in run.data.tags}


def _links(entry: Entry, experiment: Experiment, layout: Layout) -> dict[str, str]:
    """The paths of a round's artifacts, as tags."""
    if entry.round is None:
        return {}
    keys, kinds = dict(entry.keys), list(_ARTIFACTS)
    if entry.parent == SHARED:
        kinds = ["turns"] if "policy" in keys else ["evals"]
    else:
        keys["policy"] = sampled_by(experiment, str(keys["method"]), entry.round)
    paths = {kind: Path(layout.path(kind, keys)) for kind in kinds}
    return {f"artifact.{kind}": str(path) for kind, path in paths.items() if path.exists()}


def _parameters(experiment: Experiment, parent: str) -> dict[str, str]:
    """The run's configuration (with its method's own sections), flattened, without secrets."""
    data = experiment.model_dump(mode="json", exclude={"tracking"})
    if parent != SHARED:
        method, _, seed = parent.rpartition("/seed")
        for section in ("rollout", "update"):
            data[section] = experiment.section_for(method, section).model_dump(mode="json")
        data["agent"] = experiment.agent_of(method).model_dump(mode="json")
        data |= {"method": method, "seed": seed}
    return {".".join(path): str(value)[:500] for path, value in leaves(redacted(data))}
