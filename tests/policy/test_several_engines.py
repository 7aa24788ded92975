"""Several vLLM engines for one job, in real processes with a stand-in for the package vllm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.processes import alive, wait_for
from tests.policy.stand_in.vllm import said
from turncredit.errors import UserError
from turncredit.policy.engines import several
from turncredit.policy.engines.several import Engines, Several
from turncredit.policy.sampling import Request, Unordered

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def policy(folder, fault=""):
    """A policy of which only the shapes are read; engines that have its weights go wrong by its `fault`."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 64, "tie_word_embeddings": False}))
    if fault:
        (folder / "fault").write_text(fault)
    return folder


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """A folder in which engines leave how they were started; the processes find the stand-in."""
    folder = tmp_path_factory.mktemp("engines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT / "tests/policy/stand_in"))
        patch.setenv("ENGINES_LOG", str(folder))
        patch.setenv("VLLM_CACHE_ROOT", str(tmp_path_factory.mktemp("compiled")))
        patch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.syspath_prepend(str(ROOT / "tests/policy/stand_in"))
        yield folder


@pytest.fixture(scope="module")
def engines(there):  # noqa: ARG001
    made = Engines(2, slots=5)
    yield made
    made.end()


def sampler(engines, folder, slots=5):
    given = {"dtype": "float32", "eos_id": 1, "longest": None, "gpus": 2}
    return Several(str(folder), slots=slots, engines=engines, **given)


def request(slot, ids, seed, reset=True):
    return Request(slot, ids, reset, np.array([seed / 2**53]))


@settings(max_examples=20, deadline=None)
@given(
    turns=st.lists(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=5, max_size=5), max_size=3),
    seed=st.integers(0, 1000),
)
def test_answers_are_those_of_one_engine_and_contexts_grow_in_their_slots(engines, fine, turns, seed):
    several = sampler(engines, fine)
    contexts = [[] for _ in range(5)]
    for turn, prompts in enumerate(turns):
        asked = [request(slot, ids, seed + slot + turn, turn == 0) for slot, ids in enumerate(prompts)]
        responses = several.sample(asked[::-1], 1.0, 8)[::-1]
        for slot, response in enumerate(responses):
            contexts[slot] += prompts[slot]
            assert response.ids == said(contexts[slot], seed + slot + turn)
            assert response.logprobs == [-token / 7 for token in response.ids]
            contexts[slot] += response.ids


@pytest.fixture(scope="module")
def fine(tmp_path_factory):
    return policy(tmp_path_factory.mktemp("policies") / "fine")


def test_every_engine_sees_gpus_of_its_own_and_has_its_share_of_the_slots(there, engines, fine):
    assert isinstance(sampler(engines, fine), Unordered)
    started = sorted((json.loads(file.read_text()) for file in there.iterdir()), key=lambda one: one["sees"])
    assert started == [{"sees": "4,5", "slots": 3}, {"sees": "6,7", "slots": 3}]


def test_the_engines_stay_through_sleep_and_other_policies(engines, fine, tmp_path):
    before = [process.pid for process in engines._processes]
    other = policy(tmp_path / "other")
    for folder in (fine, other, fine):
        one = sampler(engines, folder)
        assert one.sample([request(3, [1, 2], 5)], 1.0, 8)[0].ids == said([1, 2], 5)
        engines.sleep()
    assert [process.pid for process in engines._processes] == before


def test_cancelled_requests_are_never_answered(engines, fine):
    one = sampler(engines, fine)
    for slot in range(5):
        one.submit(request(slot, [slot], slot), 1.0, 8)
    one.cancel()
    assert one.answered(wait=False) == []
    assert one.sample([request(0, [7], 2)], 1.0, 8)[0].ids == said([7], 2)
    other = sampler(engines, fine)
    assert other.sample([request(0, [7], 2)], 1.0, 8)[0].ids == said([7], 2)


def test_long_requests_and_long_answers_at_the_same_time_block_nobody(engines, fine):
    """Each side sends more than the socket holds while the other does not read."""
    longest, context = 50_000, [number % 97 for number in range(100_000)]
    asked = [request(slot, context, longest - 1 - slot) for slot in range(5)]
    found = sampler(engines, fine).sample(asked, 1.0, longest)
    assert [len(response.ids) for response in found] == [longest - slot for slot in range(5)]


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("mistake", UserError, "the weights are not good"),
        ("failed", RuntimeError, "vLLM engine 2: ValueError: a shape is wrong"),
        ("killed", RuntimeError, "vLLM engine 2 of 2 ended early, with status 9"),
    ],
)
def test_what_goes_wrong_in_an_engine_is_said_here(tmp_path, fault, error, message):
    engines = Engines(2, keep=False)
    one = sampler(engines, policy(tmp_path / "policy", fault), slots=2)
    pids = [process.pid for process in engines._processes]
    with pytest.raises(error, match=message):
        one.sample([request(1, [1], 0)], 1.0, 8)
    engines.end()
    assert not any(map(alive, pids))


@pytest.mark.usefixtures("there")
def test_engines_end_with_the_process_that_started_them_even_if_it_is_killed(fine):
    code = (
        "import sys, time; from turncredit.policy.engines.several import Engines\n"
        "engines = Engines(2)\n"
        f"engines.use(folder={str(fine)!r}, slots=2, dtype='float32', eos_id=1, longest=None, gpus=1)\n"
        "print(*[one.pid for one in engines._processes], flush=True)\n"
        "time.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    pids = [int(number) for number in process.stdout.readline().split()]
    assert len(pids) == 2
    assert all(map(alive, pids))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert wait_for(lambda: not any(map(alive, pids)))


@pytest.mark.usefixtures("there")
def test_fewer_gpus_than_engines_take_are_refused():
    with pytest.raises(UserError) as error:
        several._devices(3, 2)
    assert str(error.value) == (
        "policy.sample_engines is 3 with 2 GPUs each (sample_gpus), but this job sees 4; ask for as many (resources), "
        "or lower sample_engines"
    )


def test_without_gpus_engines_share_the_cores(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert several._devices(2, 1) == [None, None]
