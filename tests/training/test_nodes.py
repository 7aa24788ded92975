"""Processes on two nodes: two programs on this machine that share a TCP port. What fails on one ends both, and is said.

That they train as one process does is in test_fsdp.py; two nodes of a real Slurm are in tests/slurm.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch.distributed as dist

from tests.pipeline.processes import alive, wait_for
from tests.training import second_node
from tests.training.second_node import MET
from turncredit.errors import UserError
from turncredit.training import processes
from turncredit.training.processes import SAID, ProcessFailed, launched

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
#: Seconds in which a failure ends both nodes on a busy machine. Connections of torch and gloo wait for at least 300.
SOON = 40


def start_second(function, port):
    """The program of the second node."""
    command = [sys.executable, "-m", "tests.training.second_node", str(port), function.__name__]
    environment = {**os.environ, "SLURMD_NODENAME": "second", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=ROOT, env=environment)


@pytest.fixture
def met(tmp_path, monkeypatch):
    """The file that is made when the two nodes have met."""
    monkeypatch.setenv(MET, str(tmp_path / "met"))
    return tmp_path / "met"


def on_two_nodes(monkeypatch, function):
    """What the function returns on the first of two nodes, called first and second, and the second's program."""
    monkeypatch.setenv("SLURMD_NODENAME", "first")
    started = {}

    def start_others(port):
        started["second"] = start_second(function, port)
        return started

    try:
        return launched(2, function, start_others=start_others), started["second"]
    except Exception as error:
        return error, started["second"]


def test_two_nodes_are_one_team(monkeypatch):
    result, second = on_two_nodes(monkeypatch, second_node.adds_up)
    assert result == (3, 2)
    assert second.returncode == 0


@pytest.mark.parametrize(
    ("function", "said", "status"),
    [
        (
            second_node.kills_itself_on_the_second,
            ProcessFailed("on node second: a process that trains was killed (SIGKILL)"),
            SAID,
        ),
        (
            second_node.kills_itself_on_the_first,
            ProcessFailed("on node first: a process that trains was killed (SIGKILL)"),
            SAID,
        ),
        (
            second_node.kills_the_program_of_the_second,
            ProcessFailed("on node second: the program that trains has ended (exit status -9)"),
            -signal.SIGKILL,
        ),
        (second_node.raises_on_the_second, ProcessFailed("on node second: MemoryError: no room"), SAID),
        (second_node.refuses_on_the_second, UserError("lower the learning rate"), SAID),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_fails_on_one_node_ends_both_soon_and_is_said(monkeypatch, met, function, said, status):
    error, second = on_two_nodes(monkeypatch, function)
    assert time.time() - met.stat().st_mtime < SOON
    assert (type(error), str(error)) == (type(said), str(said))
    assert second.returncode == status


def test_a_process_does_not_collect_a_store_that_its_parent_has_left():
    """A fork has no thread of the store, for which its destructor would wait for ever."""
    gc.disable()
    try:
        left: list = [dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)]
        left.append(left)
        del left
        assert launched(1, second_node.collects_garbage) == "done"
    finally:
        gc.enable()


@pytest.mark.parametrize("looks", range(6))
def test_a_process_that_dies_between_two_looks_is_noticed(monkeypatch, looks):
    """It lives for so many looks at its exit status."""
    left = iter([None] * looks)
    dying = type("Dying", (), {"exitcode": property(lambda _: next(left, -signal.SIGKILL)), "sentinel": 0})
    monkeypatch.setattr(processes, "wait", lambda *_: None)
    monkeypatch.setattr(processes, "_processes", lambda *_: nullcontext(([dying()], multiprocessing.SimpleQueue())))
    with pytest.raises(ProcessFailed, match="a process that trains was killed"):
        launched(1, len)


def test_if_the_first_node_is_lost_the_second_ends(met):
    code = """if True:
        from tests.training import second_node, test_nodes
        from turncredit.training.processes import launched

        def start_others(port):
            second = test_nodes.start_second(second_node.waits_for_ever, port)
            print(second.pid, flush=True)
            return {"second": second}

        launched(2, second_node.waits_for_ever, start_others=start_others)
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    first = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    second = int(first.stdout.readline())
    assert wait_for(met.exists, 300)
    first.kill()
    first.wait()
    assert wait_for(lambda: not alive(second), SOON)
