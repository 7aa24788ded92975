from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import tiny
from tests.pipeline import warm

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = ("Snakefile", "rules", "workflow_scripts", "config.yaml", "config", "profiles", "slurm", "envs_conda")


class Pipeline:
    """A copy of the pipeline and the library as they are when the tests begin.

    Tables name the version of the code; a copy has one that no commit or edit changes while the tests run.
    """

    def __init__(self, source: Path):
        self.source = source
        self.environment = {**os.environ, "PYTHONPATH": str(source)}
        self._planner: subprocess.Popen[str] | None = None
        ignore = shutil.ignore_patterns("__pycache__")
        for name in (*PIPELINE, "turncredit"):
            path = ROOT / name
            shutil.copytree(path, source / name, ignore=ignore) if path.is_dir() else shutil.copy(path, source / name)

    def link(self, folder: Path) -> Path:
        """Make `folder` one in which the pipeline can be run, with results of its own."""
        for name in PIPELINE:
            (folder / name).symlink_to(self.source / name)
        return folder

    def command(self, *arguments: str) -> list[str]:
        """The command line of snakemake."""
        return [sys.executable, "-m", "snakemake", *arguments]

    def run(self, folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run snakemake in `folder`; returns the finished process, its output as text.

        A dry run is a fork of a process that has imported snakemake (`warm`), unless its environment is another.
        """
        if "-n" in arguments and not environment:
            return self._plan(folder, *arguments)
        return self.python(folder, "-m", "snakemake", *arguments, **environment)

    def _plan(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        if self._planner is None:
            self._planner = subprocess.Popen(
                [sys.executable, warm.__file__],
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        out, err = (self.source / name for name in ("planned.out", "planned.err"))
        request = {"folder": str(folder), "arguments": arguments, "out": str(out), "err": str(err)}
        print(json.dumps(request), file=self._planner.stdin, flush=True)
        answer = self._planner.stdout.readline()
        assert answer, "the process that plans has ended"
        status = int(answer)
        return subprocess.CompletedProcess(self.command(*arguments), status, out.read_text(), err.read_text())

    def close(self) -> None:
        """End the process that plans."""
        if self._planner is not None:
            self._planner.communicate()

    def python(self, folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run this interpreter in `folder`."""
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "pipeline" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path_factory.mktemp("pipeline"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def started(pipeline: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Makes a folder one in which the tiny experiment has begun: the warm start, and the rollouts of round 1.

    They are made once, and copied; Snakemake finds nothing to do about them.
    """
    made = pipeline.link(tmp_path_factory.mktemp("started"))
    run = pipeline.run(made, "--cores", "2", *tiny.ARGUMENTS, "--", tiny.path("measures"))
    assert run.returncode == 0, run.stdout + run.stderr

    def start(folder: Path) -> Path:
        for name in ("results", ".snakemake"):
            shutil.copytree(made / name, folder / name, symlinks=True)
        return folder if (folder / "Snakefile").exists() else pipeline.link(folder)

    return start


@pytest.fixture
def workdir(pipeline: Pipeline, tmp_path: Path) -> Path:
    """A folder with the pipeline in it."""
    return pipeline.link(tmp_path)


@pytest.fixture
def snakemake(pipeline: Pipeline, workdir: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Snakemake in `workdir`."""
    return lambda *arguments, **environment: pipeline.run(workdir, *arguments, **environment)
