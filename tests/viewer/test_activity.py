"""What Snakemake leaves of its jobs while they run, and when they have failed, as the viewer shows it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re

import pytest

from tests.viewer import world
from tests.viewer.world import settled
from turncredit.cli.view import activity_of
from turncredit.pipeline import failures, locks
from turncredit.views.viewer.activity import NOTHING


@pytest.fixture
def place(own, tmp_path):
    """The folder in which Snakemake runs, and what is in its results."""
    (tmp_path / ".snakemake").mkdir()
    return tmp_path, own[0]


def being_made(base, path, job=None):
    """A mark of Snakemake's on an output."""
    mark = base / ".snakemake/incomplete" / base64.urlsafe_b64encode(path.encode()).decode()
    mark.parent.mkdir(exist_ok=True)
    mark.write_text(json.dumps({"external_jobid": job}))


def fail(base, line, log):
    with contextlib.chdir(base), contextlib.suppress(SystemExit):
        keys = {"method": "random_credit", "seed": "1", "round": "03"}
        with failures.recorded("update", keys, "results/synthetic"):
            raise failures.JobFailed(failures.USER_ERROR, line, log)


def test_without_a_snakemake_nothing_is_said(own):
    assert activity_of(own[0].folder) == NOTHING


def test_an_output_that_is_being_made_is_running_only_while_a_snakemake_lives(place):
    base, made = place
    being_made(base, "results/synthetic/runs/random_credit/seed1/round03/updates.parquet")
    being_made(base, "results/synthetic/rollouts/flat_grpo/seed0/round03/turns.parquet", job="17")
    being_made(base, "results/other/runs/random_credit/seed1/round03/updates.parquet")
    being_made(base, "/etc/passwd")

    def states():
        return {(work.stage, work.who, work.seed, work.round): work.state for work in activity_of(made.folder).works}

    update, rollout = ("update", "random_credit", 1, 3), ("rollout", "flat_grpo", 0, 3)
    assert states() == {update: "interrupted", rollout: "submitted"}
    processes = base / ".snakemake/turncredit-processes"
    processes.mkdir()
    (processes / "one.json").write_text(json.dumps(locks.identity(os.getpid())))
    assert states() == {update: "running", rollout: "submitted"}


def test_a_run_beside_a_link_to_its_results_is_seen_from_its_own_folder(own, tmp_path, monkeypatch):
    folder = tmp_path / "elsewhere"
    (folder / ".snakemake").mkdir(parents=True)
    (folder / "results").symlink_to(own[0].folder.parent)
    monkeypatch.chdir(folder)
    being_made(folder, "results/synthetic/runs/random_credit/seed1/round03/updates.parquet", job="17")
    (work,) = activity_of(own[0].folder.resolve()).works
    assert (work.who, work.round, work.state) == ("random_credit", 3, "submitted")


def test_a_failure_has_the_end_of_its_log_until_the_job_ends_well(place):
    base, made = place
    log = made.folder / "logs/update.log"
    log.parent.mkdir()
    log.write_text("".join(f"line {number}\n" for number in range(40)))
    fail(base, "update random_credit seed1 round03: no memory", "results/synthetic/logs/update.log")
    (found,) = activity_of(made.folder).failed
    assert (found.who, found.seed, found.round) == ("random_credit", 1, 3)
    assert found.line.endswith("no memory")
    assert found.tail == [f"line {number}" for number in range(35, 40)]
    record = world.record(made.layout, "update", {"method": "random_credit", "seed": 1, "round": 3})
    record.write_text(json.dumps({**json.loads(record.read_text()), "started": 4e9}))
    assert activity_of(made.folder).failed == []


def test_a_log_outside_the_experiment_is_not_read(place, tmp_path):
    base, made = place
    (tmp_path / "secret.log").write_text("hidden treasure\n")
    fail(base, "update: failed", "secret.log")
    (found,) = activity_of(made.folder).failed
    assert found.tail == []


def test_a_job_of_several_rounds_runs_in_the_first_that_is_not_done(place, own):
    base, made = place
    viewer = own[1]
    viewer.activity_of = activity_of
    world.record(made.layout, "update", {"method": "random_credit", "seed": 1, "round": 2}).unlink()
    for round_ in (1, 2, 3):
        being_made(base, f"results/synthetic/runs/random_credit/seed1/round{round_:02d}/updates.parquet", job="4")
    row = settled(viewer).split('aria-label="random_credit, seed 1')[1].partition("</tr>")[0]
    assert re.findall(r'title="round (\d): update (\w+)', row) == [
        ("1", "submitted"),
        ("2", "submitted"),
        ("3", "queued"),
    ]
