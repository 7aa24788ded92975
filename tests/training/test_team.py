"""Shards: the same bits from any number of processes, and nobody is left waiting."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from turncredit.errors import UserError
from turncredit.training.team import Team, cut_into_shards


def trained(shards: int, processes: int) -> tuple[list[torch.Tensor], list]:
    """A small network after five steps on ten rows, and what was said in the last."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    x, y = torch.randn(10, 4), torch.randn(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)  # AdamW's steps are the same for k times the gradient
    parts = cut_into_shards([1] * 10, shards)
    team = Team(processes)
    with team.sharing(list(model.parameters()), shards):
        for _ in range(5):

            def compute(shard: int) -> dict[str, float]:
                loss = (model(x[parts[shard]]) - y[parts[shard]]).square().sum()
                loss.backward()
                return {"loss": float(loss.detach()), "process": float(os.getpid())}

            said = team.gradient(compute)
            optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()], said


def test_any_number_of_processes_gives_the_same_bits():
    alone, said = trained(3, 1)
    for processes in (2, 3, 5):
        parameters, told = trained(3, processes)
        assert all(torch.equal(one, two) for one, two in zip(alone, parameters, strict=True))
        assert [one["loss"] for one in told] == [one["loss"] for one in said]
        assert len({one["process"] for one in told}) == min(processes, 3)


def test_the_process_that_continues_keeps_its_threads():
    """Later stages of a job of several rounds use them."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        trained(2, 2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_shards_add_up_to_the_whole_minibatch():
    whole, _ = trained(1, 1)
    parts, _ = trained(4, 2)
    assert all(torch.allclose(one, two, atol=1e-5) for one, two in zip(whole, parts, strict=True))


def raise_in_the_other_process() -> None:
    raise ValueError("in the other process")


def kill_the_other_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("end", [raise_in_the_other_process, kill_the_other_process])
def test_a_process_that_fails_or_is_killed_ends_the_team_with_an_error(end):
    parameter = torch.nn.Parameter(torch.ones(2))
    first = os.getpid()

    def compute(_shard: int) -> dict[str, float]:
        if os.getpid() != first:
            end()
        parameter.sum().backward()
        return {}

    team = Team(processes=2)
    with pytest.raises(UserError, match="has died"), team.sharing([parameter], shards=2):
        team.gradient(compute)


def test_an_error_in_the_first_process_leaves_no_other_behind():
    before = set(psutil.Process().children())  # of other tests: a Java process that the session keeps
    parameter = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(KeyError, match="here"), Team(processes=2).sharing([parameter], shards=2):
        raise KeyError("here")
    assert set(psutil.Process().children()) == before


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_when_the_first_process_is_killed_the_others_end():
    code = """
        import os, sys, time, torch
        from turncredit.training.team import Team
        parameter = torch.nn.Parameter(torch.ones(2))
        def compute(shard):
            parameter.sum().backward()
            time.sleep(0.05)
            return {}
        team = Team(processes=2)
        with team.sharing([parameter], shards=2):
            while True:
                team.gradient(compute)
                if team.leads:
                    os.write(1, b"going\\n")
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE) as run:
        try:
            assert run.stdout.readline() == b"going\n"
            others = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text(encoding="utf-8").split()
        finally:
            run.kill()
        assert len(others) == 1
    deadline = time.monotonic() + 20
    while Path(f"/proc/{others[0]}/exe").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{others[0]}/exe").exists()


def test_shards_are_about_equally_heavy_and_hold_everything_once():
    rng = np.random.default_rng(0)
    lengths = rng.integers(50, 400, size=31).tolist()
    parts = cut_into_shards(lengths, 4)
    assert sorted(index for part in parts for index in part) == list(range(31))
    loads = [sum(lengths[index] for index in part) for part in parts]
    assert max(loads) - min(loads) <= min(lengths)
    assert all(part == sorted(part) for part in parts)


def test_more_shards_than_sequences_leave_some_empty():
    assert cut_into_shards([3, 2], 3) == [[0], [1], []]
