"""Work shared by forked processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pipeline.processes import alive
from turncredit.data.workers import gathered
from turncredit.errors import OutsideFault, UserError
from turncredit.rollouts.play import Start, shares

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are tied to their parent on Linux")


def gone(pids: list[int]) -> bool:
    """Whether all have ended within ten seconds."""
    until = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(alive, pids))


def test_everything_that_the_processes_find_arrives_once():
    found = list(gathered(lambda part: ((part, number) for number in range(part + 2)), 3))
    assert sorted(found) == [(part, number) for part in range(3) for number in range(part + 2)]


def test_each_process_keeps_its_own_order_and_runs_elsewhere():
    found = list(gathered(lambda part: [(part, os.getpid(), number) for number in range(50)], 2))
    for part in range(2):
        mine = [entry for entry in found if entry[0] == part]
        assert [number for _, _, number in mine] == list(range(50))
        assert {pid for _, pid, _ in mine} != {os.getpid()}


def stall(pid_file: Path):
    pid_file.write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(600)
    yield


@linux
@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (UserError("no such game"), UserError, "no such game"),
        (ValueError("bad state"), RuntimeError, "a forked process failed: ValueError: bad state"),
        (SystemExit(3), RuntimeError, "it ended early, with status 3"),
    ],
)
def test_an_error_in_one_process_ends_all_with_its_message(tmp_path, error, raised, said):
    pid_file = tmp_path / "pid"

    def work(part):
        if part == 0:
            yield from stall(pid_file)
        while not (pid_file.exists() and pid_file.read_text()):
            time.sleep(0.01)
        raise error

    with pytest.raises(raised, match=said):
        list(gathered(work, 2))
    assert gone([int(pid_file.read_text())])


@linux
def test_a_fault_from_outside_stays_one():
    def work(part):
        raise OutsideFault("the server is gone")
        yield part

    with pytest.raises(OutsideFault, match=r"^the server is gone$"):
        list(gathered(work, 1))


@linux
def test_a_killed_process_is_an_error_that_says_so():
    def work(part):
        os.kill(os.getpid(), signal.SIGKILL)
        yield part

    with pytest.raises(RuntimeError, match="status -9"):
        list(gathered(work, 1))


@linux
def test_the_processes_end_when_nobody_listens_any_more():
    def work(_part):
        yield os.getpid()
        time.sleep(600)

    heard = gathered(work, 2)
    pids = [next(heard), next(heard)]
    heard.close()
    assert gone(pids)


@linux
def test_the_processes_end_when_their_parent_is_killed():
    script = """
import os, time
from turncredit.data.workers import gathered
def work(part):
    yield os.getpid()
    time.sleep(600)
for pid in gathered(work, 2):
    print(pid, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        assert all(map(alive, pids))
        parent.kill()
    assert gone(pids)


def starts(*sizes: int) -> list[Start]:
    return [Start(f"g{group}", "", {}, 0) for group, size in enumerate(sizes) for _ in range(size)]


def test_rollouts_are_shared_out_evenly_and_by_whole_groups():
    parts = shares(starts(*[8] * 9), 2)
    assert [number for part in parts for number in part] == list(range(72))
    assert sorted(map(len, parts)) == [32, 40]


def test_a_group_is_cut_where_whole_groups_would_leave_a_process_idle():
    assert list(map(len, shares(starts(16), 4))) == [4, 4, 4, 4]
    assert list(map(len, shares(starts(1), 3))) == [1]
