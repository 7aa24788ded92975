"""The tiny experiment (tests/tiny.py) made once: games, demonstrations, base and SFT policy, a round of rollouts."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import pytest

from tests import tiny, worlds
from turncredit.config import Experiment
from turncredit.data import provenance
from turncredit.pipeline.job import Job, JobKeys
from turncredit.pipeline.plan import Plan, load

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("turncredit", deadline=None)
hypothesis.settings.register_profile("fast", deadline=None, max_examples=10)  # make test-fast
hypothesis.settings.register_profile("fuzz", deadline=None, max_examples=7000)  # make fuzz
hypothesis.settings.load_profile("turncredit")

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs the tiny experiment (`world`) is slow: each process that runs such tests makes it first."""
    for item in items:
        if "world" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


class Ran(NamedTuple):
    """What a job made: its outputs by name, and its metrics."""

    output: dict[str, Path]
    metrics: dict[str, float]


@dataclass(frozen=True)
class World:
    """The tiny experiment's plan, and its first artifacts on disk. Tests must not change them."""

    plan: Plan

    @property
    def experiment(self) -> Experiment:
        return self.plan.experiment

    def path(self, name: str, **keys: str | int) -> Path:
        """An artifact's path; turns and what lies beside them are those that seed 0 learns from in round 1."""
        return Path(self.plan.layout.path(name, self.plan.keys(self.turns), **keys))

    @property
    def turns(self) -> JobKeys:
        """The keys of the turns that seed 0 learns from in round 1."""
        return self.plan.turns_at("flat_grpo", 0, 1)

    def job(
        self, stage: str, at: JobKeys, folder: Path, changes: dict | None = None, *, threads: int = 1, **inputs: Any
    ) -> Job:
        """A job of the tiny experiment with `changes` merged in, whose outputs lie below `folder`.

        It reads this world's artifacts, but for the `inputs` that are given.
        """
        experiment = tiny.experiment(**(changes or {}))
        job = Plan(experiment, self.plan.results).job(stage, at, threads=threads)
        assert inputs.keys() <= job.input.keys(), f"{stage} reads {list(job.input)}"
        job.input |= {
            name: str(value) if isinstance(value, str | Path) else [str(path) for path in value]
            for name, value in inputs.items()
        }
        job.output = Plan(experiment, folder).outputs(stage, at)
        return job

    def run(self, stage: str, at: JobKeys, folder: Path, changes: dict | None = None, **more: Any) -> Ran:
        """Run such a job. Returns its outputs' paths, and what it measured."""
        job = self.job(stage, at, folder, changes, **more)
        metrics = load(stage).run(job)
        return Ran({name: Path(path) for name, path in job.output.items()}, metrics)

    def policy_that_reads(self, positions: int, folder: Path) -> Path:
        """The SFT policy as if its model could read so many tokens, copied to `folder`."""
        shutil.copytree(self.path("sft_policy"), folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": positions}))
        (folder / "provenance.json").unlink()
        return folder


def _make_world(folder: Path) -> None:
    import torch

    torch.set_num_threads(1)
    plan = Plan(tiny.experiment(), folder)
    steps = [
        ("tasks", JobKeys(split="train")),
        ("tasks", JobKeys(split="eval")),
        *((name, JobKeys()) for name in ("demos", "base", "sft")),
    ]
    for stage, at in (*steps, *((name, plan.turns_at("flat_grpo", 0, 1)) for name in ("rollout", "measures"))):
        load(stage).run(plan.job(stage, at))


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Games, demonstrations, base and SFT policy, and one round of rollouts with their measures: a copy of its own."""
    import torch

    torch.set_num_threads(1)
    # Tables name the commit that made them, so a world is one commit's.
    of_commit = [tiny.mapping(), provenance.code_version()]
    name = worlds.key(of_commit, [tiny.ROOT / "turncredit", Path(__file__)])
    made = worlds.kept(worlds.cache(), name, _make_world)
    return World(Plan(tiny.experiment(), shutil.copytree(made, tmp_path_factory.mktemp("world") / "results")))


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
