"""The tiny experiment (tests/tiny.py) made once: games, demonstrations, base and SFT policy, a round of rollouts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("turncredit", deadline=None)
hypothesis.settings.load_profile("turncredit")

os.environ.setdefault("OMP_NUM_THREADS", "1")


@dataclass(frozen=True)
class World:
    """Where the tiny artifacts lie, and the experiment they belong to."""

    root: Path
    experiment: object

    def path(self, name: str) -> Path:
        return self.root / name


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Games, demonstrations, base and SFT policy, and one round of rollouts."""
    import torch

    from tests import tiny
    from turncredit.policy.base import make_base
    from turncredit.rollouts.demos import make_demos
    from turncredit.rollouts.rollout import rollout
    from turncredit.rollouts.tasks import make_tasks
    from turncredit.training.sft import sft

    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("world")
    experiment = tiny.experiment()
    at = World(root, experiment)
    for split in ("train", "eval"):
        make_tasks(experiment=experiment, split=split, out=at.path(f"{split}.parquet"))
    make_demos(experiment=experiment, tasks=at.path("train.parquet"), out=at.path("demos.parquet"))
    make_base(experiment=experiment, demos=at.path("demos.parquet"), out=at.path("base"))
    sft(
        experiment=experiment,
        base=at.path("base"),
        demos=at.path("demos.parquet"),
        out=at.path("sft"),
        log=at.path("sft.parquet"),
    )
    rollout(
        experiment=experiment,
        method="sft",
        seed=0,
        round=1,
        policy=at.path("sft"),
        tasks=at.path("train.parquet"),
        out=at.path("turns.parquet"),
    )
    return at


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
