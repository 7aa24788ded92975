"""MLflow: what the stages measured, as nested runs, imported from their `metrics/<stage>.json`.

The stages themselves never talk to MLflow: they leave JSON, and `track` copies what is new. So a tracking server that
is away costs nothing but a later `turncredit track`, and jobs that run in parallel never race for a database. In MLflow
an experiment is our experiment, a run is (method, seed), and its nested runs are the rounds; what all methods share is
a run called `shared`. Artifacts are linked by their paths, not copied.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from turncredit.audit.views import place, read_metrics, stage_numbers
from turncredit.config import Experiment
from turncredit.errors import UserError

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

#: Stages that look at results and are none themselves; tracking them would add something at every call.
NOT_TRACKED = {"report", "track"}
SHARED = "shared"
KEY = "turncredit.key"
_ARTIFACTS = (
    "credits.parquet",
    "updates.parquet",
    "evals.parquet",
    "policy",
    "rollouts/turns.parquet",
    "turns.parquet",
)
_SECRET_WORDS = {"secret", "token", "password", "passwd", "apikey", "credential", "credentials", "authorization"}
_BATCH = 100  # MLflow takes at most 100 parameters and 1000 metrics in a call


@dataclass(frozen=True)
class Entry:
    """One metrics file: the run it belongs to (`parent`), its own key below it, and where it lies."""

    parent: str
    key: str
    round: int | None
    path: Path


def track(*, experiment: Experiment, results: str | Path) -> dict[str, float]:
    """Copy the metrics below `results` (results/<experiment>) to MLflow; what was copied before is left alone.

    The store is `tracking.uri`, or else the environment's MLFLOW_TRACKING_URI, or else `mlflow.db` in `results`.
    Several processes may call this at once: a file lock lets one at a time in, so that the database is made once.
    Returns `imported` and `known`, the numbers of metrics files copied now and before. With `tracking.enabled` false
    nothing happens. Raises UserError where the store cannot be reached or used.
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
        with _locked(uri, results):
            return _copy(MlflowClient(uri), experiment, results)
    except MlflowException as error:
        reason = " ".join(str(error).split()).replace(uri, without_password(uri))
        raise UserError(
            f"MLflow at {without_password(uri)}: {reason[:300]}; the metrics are safe in {results}, "
            f"run `turncredit track {results}` when it works again"
        ) from None


def store_uri(experiment: Experiment, results: Path) -> str:
    """The address of the MLflow store."""
    given = experiment.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI")
    return given or f"sqlite:///{(results / 'mlflow.db').resolve()}"


def without_password(uri: str) -> str:
    """`uri` without user and password, for messages."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


@contextmanager
def _locked(uri: str, results: Path) -> Iterator[None]:
    """Let one process at a time in. The lock of a database lies beside it, since experiments may share it."""
    database = uri.removeprefix("sqlite:///") if uri.startswith("sqlite:///") else None
    path = Path(f"{database}.lock") if database else results / ".mlflow.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def entries(results: Path) -> list[Entry]:
    """The metrics files below an experiment's folder, runs in order, rounds in order."""
    found = []
    for path in sorted(results.rglob("metrics/*.json")):
        if path.stem in NOT_TRACKED:
            continue
        where = place(path, results)
        folder = path.parent.parent.relative_to(results).as_posix()
        if folder.startswith("runs/"):
            parent = f"{where['method']}/seed{where['seed']}"
            found.append(Entry(parent, f"{parent}/round{where['round']:02d}", where["round"], path))
        else:
            # Rollouts and evaluations of the SFT policy are nested below `shared`, each by its folder.
            nested = where["round"] is not None
            found.append(Entry(SHARED, f"{SHARED}/{folder}" if nested else SHARED, where["round"], path))
    return found


def _copy(client: MlflowClient, experiment: Experiment, results: Path) -> dict[str, float]:
    """Make the runs that are missing and log the metrics files that are new or have changed."""
    mlflow_id = _experiment_id(client, experiment.experiment, results)
    runs = _existing(client, mlflow_id)
    imported = known = 0
    for entry in entries(results):
        text = entry.path.read_bytes()
        digest = hashlib.sha256(text).hexdigest()[:16]
        mark = f"imported.{entry.path.stem}"
        if runs.get(entry.key, {}).get(mark) == digest:
            known += 1
            continue
        data = read_metrics(entry.path)
        stamp = int(1000 * (data.get("started", 0) + data["wall_s"]))
        for key in dict.fromkeys((entry.parent, entry.key)):
            if key not in runs:
                runs[key] = _new_run(
                    client, mlflow_id, experiment, key, entry, runs, start=int(1000 * data.get("started", 0))
                )
        _log(client, runs, entry, stage_numbers(data), stamp, {mark: digest, **_links(entry, results)})
        imported += 1
    return {"imported": float(imported), "known": float(known)}


def _experiment_id(client: MlflowClient, name: str, results: Path) -> str:
    found = client.get_experiment_by_name(name)
    if found is None:
        return client.create_experiment(name, artifact_location=(results / "mlflow-artifacts").resolve().as_uri())
    if found.lifecycle_stage != "active":
        raise UserError(f"MLflow: the experiment '{name}' was deleted there; restore it, or give this one another name")
    return found.experiment_id


def _existing(client: MlflowClient, mlflow_id: str) -> dict[str, dict[str, str]]:
    """Our runs in the store, by key: their tags, with the run's id under `id`."""
    found: dict[str, dict[str, str]] = {}
    token = None
    while True:
        page = client.search_runs([mlflow_id], max_results=1000, page_token=token)
        for run in page:
            if KEY in run.data.tags:
                found[run.data.tags[KEY]] = {**run.data.tags, "id": run.info.run_id}
        token = page.token
        if not token:
            return found


def _new_run(
    client: MlflowClient,
    mlflow_id: str,
    experiment: Experiment,
    key: str,
    entry: Entry,
    runs: Mapping[str, Mapping[str, str]],
    *,
    start: int,
) -> dict[str, str]:
    """Create the run called `key`: with the whole configuration if it is a parent, below its parent otherwise."""
    from mlflow.entities import Param

    tags = {KEY: key, "mlflow.runName": key}
    if key != entry.parent:
        tags["mlflow.parentRunId"] = runs[entry.parent]["id"]
    run_id = client.create_run(mlflow_id, start_time=start, tags=tags).info.run_id
    params = _parameters(experiment, entry) if key == entry.parent else {"round": str(entry.round)}
    items = [Param(name, value) for name, value in params.items()]
    for at in range(0, len(items), _BATCH):
        client.log_batch(run_id, params=items[at : at + _BATCH])
    return {**tags, "id": run_id}


def _log(
    client: MlflowClient,
    runs: dict[str, dict[str, str]],
    entry: Entry,
    numbers: Mapping[str, float],
    stamp: int,
    tags: Mapping[str, str],
) -> None:
    """Log one stage's numbers to its run and, by round, to the parent, whose curves they make."""
    from mlflow.entities import Metric, RunTag

    metrics = [Metric(f"{entry.path.stem}/{name}", value, stamp, entry.round or 0) for name, value in numbers.items()]
    if entry.key != entry.parent and entry.parent != SHARED:
        client.log_batch(runs[entry.parent]["id"], metrics=metrics)
    # The mark that this file is done goes last: what a killed process logged twice is one row to MLflow.
    run_id = runs[entry.key]["id"]
    client.log_batch(run_id, metrics=metrics)
    client.log_batch(run_id, tags=[RunTag(name, value) for name, value in tags.items()])
    for key in dict.fromkeys((entry.key, entry.parent)):
        client.set_terminated(runs[key]["id"], end_time=stamp)
    runs[entry.key].update(tags)


def _links(entry: Entry, results: Path) -> dict[str, str]:
    """The paths of the artifacts beside a metrics file, as tags."""
    folder = entry.path.parent.parent
    if folder == results:
        return {}
    return {f"artifact.{Path(name).stem}": str(folder / name) for name in _ARTIFACTS if (folder / name).exists()}


def _parameters(experiment: Experiment, entry: Entry) -> dict[str, str]:
    """The configuration as the run sees it (with its method's own sections), flat, secrets left out."""
    data = experiment.model_dump(mode="json")
    del data["tracking"]
    if entry.parent != SHARED:
        method, _, seed = entry.parent.rpartition("/seed")
        for section in ("rollout", "update"):
            data[section] = experiment.section_for(method, section).model_dump(mode="json")
        data |= {"method": method, "seed": seed}
    return {name: redacted(name, value)[:500] for name, value in _flat(data).items()}


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    out: dict[str, str] = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        out.update(_flat(value, f"{name}.") if isinstance(value, Mapping) else {name: str(value)})
    return out


def redacted(name: str, value: str) -> str:
    """`value`, unless its name or its form says that it is a secret."""
    words = set(re.split(r"[^a-z]+", name.lower()))
    if words & _SECRET_WORDS or re.search(r"api_?key|access_?key|private_?key", name.lower()):
        return "(not logged)"
    return re.sub(r"://[^/@\s]+@", "://", value)
