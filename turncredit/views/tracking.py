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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from turncredit.config import Experiment
from turncredit.config.layout import Layout, round_name, sampled_by
from turncredit.config.warm_starts import SFT
from turncredit.errors import UserError
from turncredit.views.experiments import AUDIT, SHARED, paid_by, played_for, run_rounds
from turncredit.views.redact import redacted
from turncredit.views.sql_views import read_metrics, stage_numbers

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

#: Stages that only read results; tracking them would add something at every call.
NOT_TRACKED = {"report", "track"}
KEY = "turncredit.key"
#: Artifacts of a round that are linked.
_ARTIFACTS = ("turns", "credits", "updates", "evals", "policy")


@dataclass(frozen=True)
class Entry:
    """One metrics file: the run it belongs to (`parent`), its own key below it, the `name` of its numbers, and the keys
    of the job's outputs."""

    parent: str
    key: str
    name: str
    keys: Mapping[str, str | int]
    path: Path

    @property
    def round(self) -> int | None:
        """The round of the job; None if it is not about a single round."""
        return int(self.keys["round"]) if "round" in self.keys else None


def track(
    *, experiment: Experiment, results: str | Path, make_layout: Callable[[Path], Layout] = Layout
) -> dict[str, float]:
    """Copy the metrics below `results` (results/<experiment>) to MLflow, except those that were copied before.

    `make_layout` makes the folder's layout, which says which jobs' metrics and which artifacts are looked at.
    The store is `tracking.uri`, or else the environment's MLFLOW_TRACKING_URI, or else `mlflow.db` in `results`.
    Several processes may call this at once: a file lock admits one at a time, so that the database is created once.
    Returns `imported` and `known`, the numbers of metrics files copied now and before. With `tracking.enabled` false
    nothing happens. Raises UserError if the store cannot be reached or used.
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

    logging.getLogger("mlflow").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
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
    if database is None or database.exists():
        return
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
    with path.open("w") as handle:
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
    all_entries = []
    for stage, keys, path in layout.find_metrics():
        if stage in NOT_TRACKED:
            continue
        payer = paid_by(stage, keys, rounds, played)
        if payer in (SHARED, AUDIT):
            of_round = f"{SHARED}/{_round(keys.get('policy', keys.get('method')), keys)}" if "round" in keys else SHARED
            # Every agent has its own warm start.
            whose = "" if keys.get("start", SFT) == SFT else f"-{keys['start']}"
            all_entries.append(Entry(SHARED, of_round, path.stem + whose, keys, path))
            continue
        parent = f"{payer}/seed{keys['seed']}"
        # Metrics of the whole run (its invariants) are in the run itself.
        of_round = _round(payer, keys) if "round" in keys else parent
        name = stage if "method" in keys else path.stem
        all_entries.append(Entry(parent, of_round, name, {**keys, "method": payer}, path))
    return sorted(all_entries, key=lambda entry: (entry.key, entry.path))


def _round(who: object, keys: Mapping[str, str | int]) -> str:
    return round_name(str(who), int(keys["seed"]), int(keys["round"]))


@dataclass(frozen=True)
class Measured:
    """The content of a new metrics file: its numbers, its time (ms), and the tag that marks it as imported."""

    entry: Entry
    numbers: dict[str, float]
    start: int
    stamp: int
    mark: tuple[str, str]


def _copy(client: MlflowClient, experiment: Experiment, layout: Layout) -> dict[str, float]:
    """Create missing runs and log the metrics files that are new or have changed.

    The tags that mark files as done are written last: metrics that a killed process logged are logged again, and MLflow
    treats them as the same row, since time, round and value are the same.
    """
    mlflow_id = _experiment_id(client, experiment.experiment, layout.root)
    runs = _existing(client, mlflow_id)
    every = entries(experiment, layout)
    new = [measured for entry in every if (measured := _read(entry, runs.get(entry.key, {}))) is not None]
    for one in new:
        for key in dict.fromkeys((one.entry.parent, one.entry.key)):
            if key not in runs:
                runs[key] = _new_run(client, mlflow_id, experiment, key, one, runs)
    for parent in dict.fromkeys(one.entry.parent for one in new):
        # A run's own numbers are its rounds', by round: the curves that MLflow draws.
        own = [one for one in new if one.entry.parent == parent and (parent != SHARED or one.entry.key == parent)]
        _log_numbers(client, runs[parent]["id"], own)
    for key in dict.fromkeys(one.entry.key for one in new):
        own = [one for one in new if one.entry.key == key]
        if key != own[0].entry.parent:
            _log_numbers(client, runs[key]["id"], own)
        _finish(
            client, runs[key]["id"], {**dict(one.mark for one in own), **_links(own[0].entry, experiment, layout)}, own
        )
    for parent in dict.fromkeys(one.entry.parent for one in new):
        _finish(client, runs[parent]["id"], {}, [one for one in new if one.entry.parent == parent])
    return {"imported": float(len(new)), "known": float(len(every) - len(new))}


def _read(entry: Entry, tags: Mapping[str, str]) -> Measured | None:
    """The metrics file of `entry`, or None if the run's `tags` show that it was copied in its present state."""
    digest = hashlib.sha256(entry.path.read_bytes()).hexdigest()[:16]
    mark = (f"imported.{entry.path.stem}", digest)
    if tags.get(mark[0]) == digest:
        return None
    data = read_metrics(entry.path)
    end = data["started"] + data["wall_s"]
    return Measured(entry, stage_numbers(data), int(1000 * data["started"]), int(1000 * end), mark)


def _experiment_id(client: MlflowClient, name: str, results: Path) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return client.create_experiment(name, artifact_location=(results / "mlflow-artifacts").resolve().as_uri())
    if experiment.lifecycle_stage != "active":
        raise UserError(f"MLflow: the experiment '{name}' was deleted there; restore it, or give this one another name")
    return experiment.experiment_id


def _existing(client: MlflowClient, mlflow_id: str) -> dict[str, dict[str, str]]:
    """Our runs in the store, by key: their tags, with the run's id under `id`."""
    runs: dict[str, dict[str, str]] = {}
    token = None
    while True:
        page = client.search_runs([mlflow_id], max_results=1000, page_token=token)
        for run in page:
            if KEY in run.data.tags:
                runs[run.data.tags[KEY]] = {**run.data.tags, "id": run.info.run_id}
        token = page.token
        if not token:
            return runs


def _new_run(
    client: MlflowClient,
    mlflow_id: str,
    experiment: Experiment,
    key: str,
    first: Measured,
    runs: Mapping[str, Mapping[str, str]],
) -> dict[str, str]:
    """Create the run called `key`: with the whole configuration if it is a parent, otherwise nested in its parent."""
    from mlflow.entities import Param

    parent = first.entry.parent
    tags = {KEY: key, "mlflow.runName": key}
    if key != parent:
        tags["mlflow.parentRunId"] = runs[parent]["id"]
    run_id = client.create_run(mlflow_id, start_time=first.start, tags=tags).info.run_id
    params = _parameters(experiment, parent) if key == parent else {"round": str(first.entry.round)}
    for part in batched([Param(name, value) for name, value in params.items()], 100):
        client.log_batch(run_id, params=part)
    return {**tags, "id": run_id}


def _log_numbers(client: MlflowClient, run_id: str, measured: Sequence[Measured]) -> None:
    """Log the numbers as `stage/name`, with the round as their step."""
    from mlflow.entities import Metric

    metrics = [
        Metric(f"{one.entry.name}/{name}", value, one.stamp, one.entry.round or 0)
        for one in measured
        for name, value in one.numbers.items()
    ]
    for part in batched(metrics, 1000):
        client.log_batch(run_id, metrics=part)


def _finish(client: MlflowClient, run_id: str, tags: Mapping[str, str], measured: Sequence[Measured]) -> None:
    """Set the run's tags and close it at the time of its last stage."""
    from mlflow.entities import RunTag

    for part in batched([RunTag(name, value) for name, value in tags.items()], 100):
        client.log_batch(run_id, tags=part)
    client.set_terminated(run_id, end_time=max(one.stamp for one in measured))


def batched(items: Sequence[Any], size: int) -> Iterator[list[Any]]:
    """`items` in parts of at most `size`, the most that MLflow accepts in one call."""
    for at in range(0, len(items), size):
        yield list(items[at : at + size])


def _links(entry: Entry, experiment: Experiment, layout: Layout) -> dict[str, str]:
    """The paths of a round's artifacts, as tags."""
    keys = dict(entry.keys)
    if entry.round is None:
        return {}
    if entry.parent == SHARED:
        kinds = ["turns"] if "policy" in keys else ["evals"]
    else:
        kinds = list(_ARTIFACTS)
        keys["policy"] = sampled_by(experiment, str(keys["method"]), entry.round)
    paths = {kind: Path(layout.path(kind, keys)) for kind in kinds}
    return {f"artifact.{kind}": str(path) for kind, path in paths.items() if path.exists()}


def _parameters(experiment: Experiment, parent: str) -> dict[str, str]:
    """The run's configuration (with its method's own sections), flattened, without secrets."""
    data = experiment.model_dump(mode="json")
    del data["tracking"]
    if parent != SHARED:
        method, _, seed = parent.rpartition("/seed")
        for section in ("rollout", "update"):
            data[section] = experiment.section_for(method, section).model_dump(mode="json")
        data["agent"] = experiment.agent_of(method).model_dump(mode="json")
        data |= {"method": method, "seed": seed}
    return {name: value[:500] for name, value in _flat(redacted(data)).items()}


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    out: dict[str, str] = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        out.update(_flat(value, f"{name}.") if isinstance(value, Mapping) else {name: str(value)})
    return out
