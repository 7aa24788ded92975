"""The second of two nodes in tests/training/test_nodes.py: `python -m tests.training.second_node PORT FUNCTION`.

The functions run in one process of each node. They make a file, named in the environment, when the two have met.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

from turncredit.errors import WrongResult
from turncredit.training.processes import Node, joined

MET = "TURNCREDIT_TEST_MET"


def adds_up(team):
    return sum(team.all_of(team.rank + 1)), team.shards


def kills_itself_on_the_second(team):
    _on_one_node(team, not team.leads, lambda: os.kill(os.getpid(), signal.SIGKILL))


def kills_itself_on_the_first(team):
    _on_one_node(team, team.leads, lambda: os.kill(os.getpid(), signal.SIGKILL))


def kills_the_program_of_the_second(team):
    _on_one_node(team, not team.leads, lambda: os.kill(os.getppid(), signal.SIGKILL))


def raises_on_the_second(team):
    def fail():
        raise MemoryError("no room")

    _on_one_node(team, not team.leads, fail)


def refuses_on_the_second(team):
    def fail():
        raise WrongResult("lower the learning rate")

    _on_one_node(team, not team.leads, fail)


def collects_garbage(_team):
    signal.alarm(20)  # what waits for ever is killed
    gc.collect()
    return "done"


def waits_for_ever(team):
    meet(team)
    signal.pause()


def _on_one_node(team, here, fail):
    """When both have met, `fail` on one node, while the other waits for it."""
    meet(team)
    if here:
        fail()
    team.all_of("waits")


def meet(team):
    team.all_of(None)
    Path(os.environ[MET]).touch()  # each of them: the other one may be ended before it gets here


if __name__ == "__main__":
    joined(Node(number=1, count=2, port=int(sys.argv[1])), 2, globals()[sys.argv[2]])
