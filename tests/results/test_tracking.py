from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest
from mlflow.tracking import MlflowClient

from tests.results import synthetic
from turncredit.config.layout import Layout
from turncredit.errors import UserError
from turncredit.views import tracking
from turncredit.views.collect import read_config

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """SYNTHETIC: two methods, one seed, three rounds."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    config = synthetic.experiment(methods=["flat_grpo", "random_credit"], seeds=[0], rounds=3, games=6)
    return synthetic.make(tmp_path, config)


def track(folder):
    return tracking.track(experiment=read_config(folder), results=folder)


def table(folder, query):
    with sqlite3.connect(folder / "mlflow.db") as connection:
        return connection.execute(query).fetchall()


def state(folder):
    """Everything that people see, without the store's own random ids."""
    return {
        "runs": sorted(table(folder, "SELECT name, status FROM runs")),
        "metrics": sorted(
            table(
                folder, "SELECT r.name, m.key, m.value, m.step, m.timestamp FROM metrics m JOIN runs r USING (run_uuid)"
            )
        ),
        "params": sorted(table(folder, "SELECT r.name, p.key, p.value FROM params p JOIN runs r USING (run_uuid)")),
    }


def test_runs_are_nested_and_every_stage_is_there(folder):
    found = track(folder)
    names = {name for (name,) in table(folder, "SELECT name FROM runs")}
    rounds = {f"{method}/seed0/round0{r}" for method in ("flat_grpo", "random_credit") for r in (1, 2, 3)}
    assert rounds | {"flat_grpo/seed0", "random_credit/seed0", "shared"} <= names
    assert found == {"imported": len(tracking.entries(read_config(folder), Layout(folder))), "known": 0}
    parents = table(
        folder,
        "SELECT c.name, p.name FROM runs c JOIN tags t USING (run_uuid) JOIN runs p ON p.run_uuid = t.value "
        "WHERE t.key = 'mlflow.parentRunId'",
    )
    assert ("flat_grpo/seed0/round02", "flat_grpo/seed0") in parents
    assert all(child.startswith(f"{parent}/") for child, parent in parents)


def test_a_runs_curve_is_its_rounds_numbers(folder):
    track(folder)
    curve = table(
        folder,
        "SELECT m.step, m.value FROM metrics m JOIN runs r USING (run_uuid) "
        "WHERE r.name = 'flat_grpo/seed0' AND m.key = 'update/wall_s' ORDER BY 1",
    )
    assert curve == [(1, 3.0), (2, 3.0), (3, 3.0)]


def test_a_runs_credit_of_shared_turns_is_in_the_run_and_a_compared_methods_is_shared(folder):
    keys = {"policy": "sft-t4k4T1.0", "seed": 0, "round": 1}
    synthetic.metrics(Layout(folder), "credit", {**keys, "method": "rloo"}, seconds=0.5)
    track(folder)
    query = (
        "SELECT r.name, m.key, m.value FROM metrics m JOIN runs r USING (run_uuid) WHERE m.key LIKE 'credit%/wall_s'"
    )
    found = table(folder, f"{query} AND m.step = 1")
    shared = "shared/sft-t4k4T1.0/seed0/round01"
    of_runs = {
        (name, "credit/wall_s", 0.1)
        for method in ("flat_grpo", "random_credit")
        for name in (f"{method}/seed0", f"{method}/seed0/round01")
    }
    assert set(found) == {*of_runs, (shared, "credit-rloo/wall_s", 0.5)}


def test_tracking_again_adds_nothing(folder):
    first = track(folder)
    before = state(folder)
    assert track(folder) == {"imported": 0, "known": first["imported"]}
    assert state(folder) == before


def test_only_what_is_new_is_added(folder):
    track(folder)
    runs = len(table(folder, "SELECT 1 FROM runs"))
    path = folder / "runs/flat_grpo/seed0/round03/metrics/update.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "started": data["started"] + 60, "wall_s": 5.0}))
    assert track(folder)["imported"] == 1
    assert len(table(folder, "SELECT 1 FROM runs")) == runs


def test_an_import_that_was_cut_short_is_finished_without_doubles(folder):
    track(folder)
    before = state(folder)
    # As after a kill between the numbers and the mark that they are there.
    with sqlite3.connect(folder / "mlflow.db") as connection:
        connection.execute("DELETE FROM tags WHERE key LIKE 'imported.%'")
    assert track(folder)["known"] == 0
    assert state(folder) == before


def test_tracking_again_adds_nothing_where_agents_have_warm_starts_of_their_own(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    own = {"agents": {"plain": {"name": "transcript"}}, "define": {"mine": {"base": "flat_grpo", "agent": "plain"}}}
    config = synthetic.experiment(methods=["flat_grpo", "mine"], seeds=[0], rounds=1, games=6, **own)
    folder = synthetic.make(tmp_path, config)
    synthetic.metrics(Layout(folder), "sft", {"warm_start": "sft_plain"}, seconds=99.0)
    first = track(folder)
    assert track(folder) == {"imported": 0, "known": first["imported"]}


def test_an_import_that_was_killed_between_any_two_calls_is_finished(folder, tmp_path, monkeypatch):
    at_once = shutil.copytree(folder, tmp_path / "at_once")
    track(at_once)

    def killed(*_, **__):
        raise KeyboardInterrupt("killed")

    for call in ("log_batch", "set_terminated", "log_batch"):
        with monkeypatch.context() as patch:
            patch.setattr(MlflowClient, call, killed)
            with pytest.raises(KeyboardInterrupt, match="killed"):
                track(folder)
    track(folder)
    assert state(folder) == state(at_once)


@pytest.mark.long
def test_a_database_whose_creation_was_killed_is_created_anew(folder):
    """MLflow gives up on a database in which it finds some of its tables."""
    left = folder / ".mlflow.db.part"
    with sqlite3.connect(left) as database:
        database.execute("CREATE TABLE experiments (experiment_id INTEGER)")
    assert track(folder)["imported"] > 0
    assert not left.exists()
    assert (folder / "mlflow.db").is_file()


def test_several_processes_at_once_on_a_new_database_give_the_same_as_one(folder):
    code = (
        "import sys; from turncredit.views.tracking import track; "
        "from turncredit.views.collect import read_config; "
        "track(experiment=read_config(sys.argv[1]), results=sys.argv[1])"
    )
    jobs = [
        subprocess.Popen([sys.executable, "-c", code, str(folder)], stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    errors = [job.communicate(timeout=300)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0] * 3, errors
    together = state(folder)
    (folder / "mlflow.db").unlink()
    track(folder)
    assert together == state(folder)


def test_artifacts_are_linked_and_not_copied(folder):
    track(folder)
    links = dict(
        table(
            folder,
            "SELECT t.key, t.value FROM tags t JOIN runs r USING (run_uuid) "
            "WHERE r.name = 'flat_grpo/seed0/round02' AND t.key LIKE 'artifact.%'",
        )
    )
    assert links == {
        "artifact.turns": str(folder / "rollouts/flat_grpo/seed0/round02/turns.parquet"),
        "artifact.credits": str(folder / "rollouts/flat_grpo/seed0/round02/credits/flat_grpo.parquet"),
        "artifact.updates": str(folder / "runs/flat_grpo/seed0/round02/updates.parquet"),
        "artifact.evals": str(folder / "runs/flat_grpo/seed0/round02/evals.parquet"),
    }
    assert not (folder / "mlflow-artifacts").exists()


def test_parameters_are_the_methods_own_and_hold_no_secret(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    config = synthetic.experiment(
        methods=["mine"],
        seeds=[0],
        rounds=1,
        games=6,
        define={"mine": {"base": "flat_grpo", "params": {"api_key": "hunter2"}, "update": {"lr": 0.5}}},
        env={"name": "household", "household": {"url": "https://user:hunter2@host/x", "token": "hunter2"}},
    )
    folder = synthetic.make(tmp_path, config)
    track(folder)
    params = dict(
        table(folder, "SELECT p.key, p.value FROM params p JOIN runs r USING (run_uuid) WHERE r.name = 'mine/seed0'")
    )
    assert params["update.lr"] == "0.5"
    assert params["agent.max_response_tokens"] == "16"
    assert params["env.household.url"] == "https://host/x"
    assert b"hunter2" not in (folder / "mlflow.db").read_bytes()


def test_disabled_tracking_touches_nothing(folder):
    config = synthetic.experiment(tracking={"enabled": False})
    assert tracking.track(experiment=config, results=folder) == {"imported": 0, "known": 0}
    assert not (folder / "mlflow.db").exists()


def test_the_store_is_the_configurations_then_the_environments_then_a_file(folder, monkeypatch):
    config = read_config(folder)
    assert tracking.store_uri(config, folder) == f"sqlite:///{folder}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://one")
    assert tracking.store_uri(config, folder) == "http://one"
    config = synthetic.experiment(tracking={"uri": "http://two"})
    assert tracking.store_uri(config, folder) == "http://two"


def test_a_server_that_is_away_is_one_line_without_its_password(folder, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hunter2@127.0.0.1:9")
    with pytest.raises(UserError, match="turncredit track") as caught:
        tracking.track(experiment=synthetic.experiment(), results=folder)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("uri", ["http://me:hunter2@127.0.0.1:9", "postgresql://me:hunter2@db/mlflow"])
def test_a_password_in_the_configuration_is_refused_and_not_shown(uri):
    """Each job writes its configuration beside its log."""
    with pytest.raises(UserError, match="MLFLOW_TRACKING_PASSWORD") as caught:
        synthetic.experiment(tracking={"uri": uri})
    assert "hunter2" not in str(caught.value)


def test_a_file_system_without_locks_is_one_line_for_a_database_and_no_obstacle_to_a_server(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(tracking.fcntl, "flock", refuse)
    with pytest.raises(UserError, match=r"mlflow.db.lock: this file system has no locks .* tracking.uri"):
        tracking._locked(f"sqlite:///{tmp_path}/mlflow.db", tmp_path).__enter__()
    with tracking._locked("http://one", tmp_path):
        pass
