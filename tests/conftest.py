"""The tiny experiment (tests/tiny.py) made once: games, demonstrations, base and SFT policy, a round of rollouts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest

from tests import tiny
from turncredit.config import Experiment
from turncredit.stages.job import At
from turncredit.stages.plan import Plan, load

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("turncredit", deadline=None)
hypothesis.settings.register_profile("fast", deadline=None, max_examples=10)  # make test-fast
hypothesis.settings.load_profile("turncredit")

os.environ.setdefault("OMP_NUM_THREADS", "1")


@dataclass(frozen=True)
class World:
    """The tiny experiment's plan, and its first artifacts on disk. Tests must not change them."""

    plan: Plan

    @property
    def experiment(self) -> Experiment:
        return self.plan.experiment

    def path(self, name: str, **keys: str | int) -> Path:
        """An artifact's path; turns and what lies beside them are those that seed 0 learns from in round 1."""
        first = self.plan.turns_at("flat_grpo", 0, 1).keys
        return Path(self.plan.layout.path(name, first, **keys))


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Games, demonstrations, base and SFT policy, and one round of rollouts."""
    import torch

    torch.set_num_threads(1)
    plan = Plan(tiny.experiment(), tmp_path_factory.mktemp("world"))
    for stage, at in (
        ("tasks", At(split="train")),
        ("tasks", At(split="eval")),
        ("demos", At()),
        ("base", At()),
        ("sft", At()),
        ("rollout", plan.turns_at("flat_grpo", 0, 1)),
    ):
        load(stage).run(plan.job(stage, at))
    return World(plan)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """SYNTHETIC: four methods, two seeds, everything there. Tests must not change it."""
    from tests.results import synthetic

    return synthetic.make(tmp_path_factory.mktemp("results"), synthetic.experiment(games=48, rounds=5))


@pytest.fixture(scope="session")
def audited(tmp_path_factory):
    """SYNTHETIC: the same with an audit of flat GRPO's rounds 1 and 3. Tests must not change it."""
    from tests.results import synthetic

    config = synthetic.experiment(games=12, rounds=3)
    folder = synthetic.make(tmp_path_factory.mktemp("audited"), config)
    synthetic.audit(folder, config)
    return folder
