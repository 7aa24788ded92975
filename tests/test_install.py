"""Without a checkout: a wheel, installed and used outside the repository; `turncredit init` and what it writes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.credit import synthetic
from turncredit import __version__
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.pipeline import init_folder

ROOT = Path(__file__).resolve().parents[1]
#: What of a checkout is not needed to build it, beside what git and tools keep under names that begin with a dot.
NO_SOURCE = {"results", "build", "dist", "site", "docs", "tests", "benchmarks"}


class Installed:
    """A wheel of this package in an environment of its own, beside the packages that the tests run with."""

    def __init__(self, folder: Path):
        source, self.wheels, self.python = folder / "source", folder / "wheels", folder / "venv/bin/python"
        source.mkdir()
        for path in ROOT.iterdir():
            if path.is_file():
                shutil.copy(path, source)
            elif path.name not in NO_SOURCE and not path.name.startswith(".") and path.suffix != ".egg-info":
                shutil.copytree(path, source / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        # As `python -m build` does: an sdist, and the wheel from that.
        self._run(sys.executable, "-c", BUILD, str(self.wheels), cwd=source)
        self.sdist = next(self.wheels.glob("*.tar.gz"))
        shutil.unpack_archive(self.sdist, folder / "unpacked")
        self._run(sys.executable, "-c", BUILD_WHEEL, str(self.wheels), cwd=next((folder / "unpacked").iterdir()))
        self.wheel = next(self.wheels.glob("*.whl"))
        venv.create(folder / "venv", with_pip=False)
        library = next((folder / "venv/lib").glob("python*/site-packages"))
        # A .pth file in a folder that a .pth file names is not read, so this checkout is not among them.
        others = [path for path in sys.path if path.endswith("site-packages")]
        (library / "dependencies.pth").write_text("\n".join(others) + "\n")
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "--disable-pip-version-check"]
        self._run(*pip, "install", "-q", "--no-index", "--no-deps", "--ignore-installed", str(self.wheel), cwd=folder)
        self.package = library / "turncredit"

    def _run(self, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment |= {"OMP_NUM_THREADS": "1", "PATH": f"{self.python.parent}:{os.environ['PATH']}"}
        done = subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done

    def turncredit(self, *arguments: str, cwd: Path) -> str:
        """What the installed command prints."""
        return self._run(str(self.python.with_name("turncredit")), *arguments, cwd=cwd).stdout

    def snakemake(self, *arguments: str, cwd: Path) -> str:
        """What Snakemake of that environment prints."""
        done = self._run(str(self.python), "-m", "snakemake", *arguments, cwd=cwd)
        return done.stdout + done.stderr


BUILD = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
BUILD_WHEEL = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def workdir(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that `turncredit init` of the wheel has written."""
    folder = tmp_path_factory.mktemp("experiments") / "mine"
    installed.turncredit("init", "mine", cwd=folder.parent)
    return folder


@pytest.mark.slow
def test_a_wheel_brings_the_package_with_all_its_data(installed, tmp_path):
    sources = {path.relative_to(ROOT) for path in (ROOT / "turncredit").rglob("*") if path.is_file()}
    wanted = {path for path in sources if "__pycache__" not in path.parts and path.parts[:3] != FILES}
    there = {path.relative_to(installed.package.parent) for path in installed.package.rglob("*") if path.is_file()}
    assert wanted - there == set()
    where = installed._run(str(installed.python), "-c", "import turncredit; print(turncredit.__file__)", cwd=tmp_path)
    assert Path(where.stdout.strip()).parent == installed.package


FILES = ("turncredit", "workflow", "files")


@pytest.mark.slow
def test_the_installed_commands_work_outside_the_repository(installed, tmp_path):
    assert installed.turncredit("--version", cwd=tmp_path) == f"turncredit {__version__}\n"
    assert "gigpo" in installed.turncredit("methods", cwd=tmp_path)
    assert "household" in installed.turncredit("env", "list", cwd=tmp_path)
    turns, _ = synthetic.tables(synthetic.rows(3, 3, 8, seed=1))
    pq.write_table(turns, tmp_path / "turns.parquet")
    installed.turncredit(
        "credit", "--method", "gigpo", "--turns", "turns.parquet", "--out", "out.parquet", cwd=tmp_path
    )
    assert tables.read(tmp_path / "out.parquet", "credits").num_rows == turns.num_rows


@pytest.mark.slow
def test_the_folder_of_a_wheel_has_what_that_of_a_checkout_has(workdir):
    there = {path.relative_to(workdir).as_posix(): path.read_bytes() for path in workdir.rglob("*") if path.is_file()}
    own = {"README.md", ".gitignore", "envs_conda/core.post-deploy.sh", "envs_conda/gpu-rollout.post-deploy.sh"}
    assert {name: content for name, content in there.items() if name not in own} == {
        name: content for name, content in init_folder.workflow_files().items() if name not in own
    }
    assert own <= set(there)


@pytest.mark.slow
def test_conda_environments_install_the_wheel_that_wrote_the_folder(installed, workdir):
    for name in ("core", "gpu-rollout"):
        last = (workdir / f"envs_conda/{name}.post-deploy.sh").read_text().splitlines()[-1]
        assert last.endswith(f" 'turncredit @ {installed.wheel.as_uri()}'")


@pytest.mark.slow
def test_snakemake_plans_the_default_experiment_in_such_a_folder(installed, workdir):
    assert "This was a dry-run" in installed.snakemake("-n", cwd=workdir)
    lines = installed.turncredit("where", "credit", "gigpo", cwd=workdir).splitlines()
    assert lines[0] == "stage credit: policy sft-t64k8T1.0, method gigpo, seed 0, round 1"


@pytest.mark.long
@pytest.mark.slow
def test_the_tiny_experiment_runs_to_its_report_in_such_a_folder(installed, workdir):
    installed.turncredit("run", "--cores", "2", "--configfile", "config/test/tiny.yaml", cwd=workdir)
    assert (workdir / "results/tiny/report/index.html").is_file()
    made = list((workdir / "results/tiny").rglob("evals.parquet"))
    assert len(made) == 3 * 2  # the SFT policy and two methods, two rounds
    assert tables.metadata(made[0])["code"] == __version__
    answer = installed.turncredit("where", str(made[0].relative_to(workdir)), cwd=workdir)
    assert answer.startswith("stage eval: ")
    assert "missing" not in answer


def test_a_folder_from_a_checkout_has_the_workflow_and_installs_the_checkout(tmp_path):
    written = init_folder.init(tmp_path / "mine")
    assert {*init_folder.workflow_files(), "README.md", ".gitignore"} == set(written)
    for name in ("Snakefile", "config.yaml", "rules/common.smk", "config/test/tiny.yaml", "workflow_scripts/stage.py"):
        assert (tmp_path / "mine" / name).read_bytes() == (ROOT / name).read_bytes()
    script = (tmp_path / "mine/envs_conda/core.post-deploy.sh").read_text()
    assert script.splitlines()[-1].endswith(f" -e {ROOT}")


@pytest.mark.parametrize("folder", ["rules", "workflow_scripts", "profiles", "slurm", "config", "examples", "schemas"])
def test_nothing_of_the_workflow_stays_behind(folder):
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*") if path.is_file()}
    assert {name for name in there if not name.endswith(".pyc")} == {
        name for name in init_folder.workflow_files() if name.startswith(f"{folder}/")
    }


def test_a_checkout_with_a_part_of_the_workflow_writes_nothing(tmp_path, monkeypatch):
    """As in an image into which only some folders were copied."""
    (tmp_path / "source").mkdir()
    for name in ("pyproject.toml", "Snakefile"):
        shutil.copy(ROOT / name, tmp_path / "source")
    monkeypatch.setattr(init_folder, "CHECKOUT", tmp_path / "source")
    with pytest.raises(UserError, match=r"source: the workflow's file rules/\S+ is missing; install turncredit again"):
        init_folder.init(tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("taken", ["config.yaml", "rules", "README.md", "rules/stages.smk"])
def test_nothing_that_exists_is_overwritten(tmp_path, taken):
    (tmp_path / taken).parent.mkdir(exist_ok=True)
    (tmp_path / taken).write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError) as error:
        init_folder.init(tmp_path)
    assert str(error.value).startswith(f"{tmp_path / taken}: exists already")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_may_hold_other_files(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert "Snakefile" in init_folder.init(tmp_path)


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (None, f"turncredit=={__version__}"),
        ('{"url": "file:///a b/t.whl", "archive_info": {}}', "'turncredit @ file:///a b/t.whl'"),
        (
            '{"url": "https://h/t.git", "vcs_info": {"vcs": "git", "commit_id": "1a"}}',
            "'turncredit @ git+https://h/t.git@1a'",
        ),
    ],
)
def test_conda_environments_install_from_where_the_package_came(tmp_path, monkeypatch, recorded, expected):
    class Distribution:
        def read_text(self, name: str) -> str | None:
            return recorded if name == "direct_url.json" else None

    monkeypatch.setattr(init_folder, "PACKED", tmp_path)
    monkeypatch.setattr(init_folder.metadata, "distribution", lambda _: Distribution())
    assert init_folder.requirement() == expected
