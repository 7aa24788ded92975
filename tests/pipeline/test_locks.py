"""A killed run's lock is taken over; a living run's is not."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import others_reach
from turncredit.errors import UserError
from turncredit.pipeline import locks

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Snakemake's folder, locked."""
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "0.input.lock").write_text("x\n")
    return tmp_path


def locked(state: Path) -> bool:
    return any((state / "locks").glob("*.lock"))


def record_of(state: Path, process: subprocess.Popen) -> None:
    """Leave the record that `process` would have left."""
    (state / "turncredit-processes").mkdir(parents=True, exist_ok=True)
    (state / "turncredit-processes" / f"x-{process.pid}.json").write_text(json.dumps(locks.identity(process.pid)))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_in_a_folder_that_cannot_be_written_nothing_is_recorded_and_nothing_fails(tmp_path: Path) -> None:
    others_reach(tmp_path)
    os.seteuid(54321)
    try:
        assert not locks.take_over(tmp_path / ".snakemake")
    finally:
        os.seteuid(0)
    assert not (tmp_path / ".snakemake").exists()


@pytest.fixture
def other():
    """Another process."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_the_lock_of_a_dead_run_is_taken_over(state, other):
    record_of(state, other)
    other.kill()
    other.wait()
    assert locks.take_over(state)
    assert not locked(state)


def test_the_lock_of_a_living_run_stays(state, other):
    record_of(state, other)
    assert not locks.take_over(state)
    assert locked(state)


def test_a_record_that_a_full_disk_cut_short_keeps_the_lock_only_while_its_process_lives(state, other):
    records = state / "turncredit-processes"
    records.mkdir()
    (records / f"{socket.gethostname()}-{other.pid}.json").touch()
    assert not locks.take_over(state)
    assert locked(state)
    other.kill()
    other.wait()
    assert locks.take_over(state)
    assert not locked(state)


def test_a_later_process_with_the_same_number_is_not_the_one_that_died(state, other):
    record_of(state, other)
    path = next((state / "turncredit-processes").glob("*.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "started": "1"}))
    assert locks.take_over(state)
    assert not locked(state)


def test_a_run_on_another_machine_cannot_be_asked_and_keeps_its_lock(state, other):
    record_of(state, other)
    path = next((state / "turncredit-processes").glob("*.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "host": "elsewhere"}))
    other.kill()
    other.wait()
    assert not locks.take_over(state)
    assert locked(state)


def test_a_run_on_another_machine_is_forgotten_when_the_user_unlocks_the_folder(state, other):
    record_of(state, other)
    path = next((state / "turncredit-processes").glob("*.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "host": "elsewhere"}))
    assert locks.take_over(state, unlocking=True)
    assert locks.holder(state) == (socket.gethostname(), os.getpid())
    (state / "locks" / "0.input.lock").write_text("x\n")
    assert locks.take_over(state)  # the next run that was killed here leaves a lock, too


#: As another user, with the argument's folder: is a lock taken over there, and does its run live?
OTHER_USER = """
import json, os, sys
from pathlib import Path
from turncredit.pipeline import locks
state = Path(sys.argv[1])
os.setgroups([]); os.setegid(54321); os.seteuid(54321)
record = json.loads(next((state / "turncredit-processes").glob("x-*")).read_text())
print(Path(f"/proc/{record['pid']}").exists(), locks.lives(record), locks.take_over(state))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_run_of_another_user_whose_processes_are_hidden_keeps_its_lock(state, other):
    """Login nodes of clusters often mount /proc so that users see their own processes alone."""
    record_of(state, other)
    others_reach(state)
    for written in (state / "locks", state / "turncredit-processes"):
        written.chmod(0o777)
    look = [sys.executable, "-c", OTHER_USER, str(state)]
    hiding = ["unshare", "--mount", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh"]
    if subprocess.run([*hiding, "true"], capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a /proc that hides processes here")
    asked = subprocess.run([*hiding, *look], capture_output=True, text=True, check=True)
    assert asked.stdout.split() == ["False", "True", "False"]
    assert locked(state)
    other.kill()
    other.wait()
    asked = subprocess.run([*hiding, *look], capture_output=True, text=True, check=True)
    assert asked.stdout.split() == ["False", "False", "True"]
    assert not locked(state)


def test_of_several_runs_in_a_folder_each_makes_its_own_experiment(tmp_path):
    locks.take_over(tmp_path, "results/one")
    assert locks.holder(tmp_path, "results/one") == (socket.gethostname(), os.getpid())
    assert locks.holder(tmp_path, "results/two") is None
    assert locks.holder(tmp_path) is not None


def test_the_process_itself_is_recorded_and_without_a_lock_there_is_nothing_to_take_over(tmp_path):
    assert not locks.take_over(tmp_path)
    assert not locks.take_over(tmp_path)
    records = [json.loads(path.read_text()) for path in (tmp_path / "turncredit-processes").glob("*.json")]
    assert [record["pid"] for record in records] == [os.getpid()]


@pytest.mark.parametrize("given", ["results/tiny", "link/tiny"])
def test_nothing_is_removed_while_a_run_works_beside_a_link_to_its_results(tmp_path, monkeypatch, other, given):
    disk, folder = tmp_path / "disk", tmp_path / "folder"
    (disk / "tiny").mkdir(parents=True)
    folder.mkdir()
    (folder / "results").symlink_to(disk)
    (folder / "link").symlink_to(disk)
    record_of(folder / ".snakemake", other)
    monkeypatch.chdir(folder)
    for experiment in (Path(given), (disk / "tiny")):
        with pytest.raises(UserError, match=f"a run works in {folder}"):
            locks.refuse_while_running(experiment)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"a run works in {folder}"):
        locks.refuse_while_running(folder / given)
    other.kill()
    other.wait()
    locks.refuse_while_running(folder / given)
