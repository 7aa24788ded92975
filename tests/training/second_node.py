"""The second of two nodes in tests/training/test_nodes.py: `python -m tests.training.second_node PORT FUNCTION`.

The functions run in one process of each node. They make a file, named in the environment, when the two have met.
"""

from __future__ import annotations

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
    meet(team)
    if not team.leads:
        os.kill(os.getpid(), signal.SIGKILL)
    team.all_of("waits")


def kills_itself_on_the_first(team):
    meet(team)
    if team.leads:
        os.kill(os.getpid(), signal.SIGKILL)
    team.all_of("waits")


def kills_the_program_of_the_second(team):
    meet(team)
    if not team.leads:
        os.kill(os.getppid(), signal.SIGKILL)
    team.all_of("waits")


def raises_on_the_second(team):
    meet(team)
    if not team.leads:
        raise MemoryError("no room")
    team.all_of("waits")


def refuses_on_the_second(team):
    meet(team)
    if not team.leads:
        raise WrongResult("lower the learning rate")
    team.all_of("waits")


def waits_for_ever(team):
    meet(team)
    signal.pause()


def meet(team):
    team.all_of(None)
    Path(os.environ[MET]).touch()  # each of them: the other one may be ended before it gets here


if __name__ == "__main__":
    joined(Node(number=1, count=2, port=int(sys.argv[1])), 2, globals()[sys.argv[2]])
