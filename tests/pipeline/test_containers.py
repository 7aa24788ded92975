"""`--sdm apptainer`, with a stand-in for Apptainer that notes its image and runs the command on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

from tests import tiny
from turncredit.config.stages import stages
from turncredit.data import tables
from turncredit.pipeline import imports

ROOT = Path(__file__).resolve().parents[2]
APPTAINER = """#!/bin/sh
[ "$1" = --version ] && { echo "apptainer version 1.4.5"; exit 0; }
while [ "${1%.sif}" = "$1" ]; do shift; done
echo "$1" >> images
shift
exec "$@"
"""


def test_a_job_runs_in_the_image_of_its_rule(snakemake, workdir):
    (workdir / "bin").mkdir()
    (workdir / "bin/apptainer").write_text(APPTAINER)
    (workdir / "bin/apptainer").chmod(0o755)
    path = os.pathsep.join((str(workdir / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]))
    (workdir / "containers").mkdir()
    (workdir / "containers/core.sif").touch()
    target = tiny.path("tasks", split="train")
    run = snakemake(target, "--cores", "1", "--sdm", "apptainer", *tiny.ARGUMENTS, PATH=path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert (workdir / "images").read_text().split() == ["containers/core.sif"]
    assert tables.read(workdir / target, "tasks").num_rows == 60


def test_both_images_install_what_conda_would(tmp_path):
    """containers/install.sh, with stand-ins for apt-get, python3 and pip that note what they are asked for."""
    said = tmp_path / "said"
    for name in ("apt-get", "rm", "python3", "python", "bash"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {said}\n')
        (tmp_path / name).chmod(0o755)
    script = (ROOT / "containers/install.sh").read_text().replace("/opt/turncredit/bin", str(tmp_path))
    asked = {}
    for environment in ("core", "gpu-rollout"):
        said.unlink(missing_ok=True)
        work = tmp_path / f"work_{environment}"
        work.mkdir()
        subprocess.run(
            ["/bin/sh", "-c", script, "install.sh", environment],
            cwd=ROOT,
            env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "TMPDIR": str(work)},
            check=True,
        )
        asked[environment] = said.read_text().splitlines()
        (deploy,) = work.glob("*/post-deploy.sh")
        assert f"bash {deploy}" in asked[environment]
        # The image's package is a copy: an editable one would give way to that of the folder where Snakemake runs.
        theirs = (ROOT / f"envs_conda/{environment}.post-deploy.sh").read_text()
        assert deploy.read_text() == theirs.removesuffix(" -e .\n") + " .\n"
        assert any("compileall" in line for line in asked[environment])
    conda = yaml.safe_load((ROOT / "envs_conda/gpu-rollout.yaml").read_text())
    packages = next(entry["pip"] for entry in conda["dependencies"] if isinstance(entry, dict))
    (requirements,) = work.glob("*/requirements.txt")
    assert requirements.read_text().splitlines() == packages
    assert any("-r " in line for line in asked["gpu-rollout"])
    compilers = {
        name for name in asked if any(line.startswith("apt-get install") and " g++ " in line for line in asked[name])
    }
    assert compilers == {"gpu-rollout"}
    assert not any("-r " in line for line in asked["core"])


def test_an_image_has_all_of_the_workflows_files():
    """So that `turncredit init` in it makes a folder in which Snakemake runs."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["turncredit"]["workflow"]
    needed = {pattern.split("/")[0] for pattern in patterns} | {"turncredit", "pyproject.toml", "setup.py"}
    docker = re.findall(r"^COPY (.*) \S+$", (ROOT / "containers/Containerfile").read_text(), re.MULTILINE)
    apptainer = re.findall(r"^    (\S+) /opt/source/", (ROOT / "containers/turncredit.def").read_text(), re.MULTILINE)
    assert needed <= {name for line in docker for name in line.split()}
    assert needed <= set(apptainer)


#: What comes with vLLM, in versions that it chooses (its requirements/common.txt and cuda.txt), and with Jinja.
WITH_VLLM = {"torch", "transformers", "tokenizers", "safetensors", "numpy", "huggingface_hub", "vllm", "markupsafe"}
#: Distributions by the packages that they install, where the names differ.
DISTRIBUTIONS = {"yaml": "pyyaml", "mlflow": "mlflow-skinny", "Stemmer": "pystemmer"}
#: What stages and built-in environments need without importing it: SQLAlchemy's migrations for MLflow, a report's
#: colours and Slurm's executor for Snakemake, a compiler for Triton and torch.compile.
UNSEEN = {"alembic", "pygments", "snakemake-executor-plugin-slurm"}
#: Environments that need packages that no list has: docs/environments says how to install them.
OF_ENVIRONMENTS = {"alfworld", "fast_downward", "py4j", "scienceworld", "textworld"}


def distribution(package: str) -> str:
    return DISTRIBUTIONS.get(package, package).replace("_", "-").lower()


def imported() -> set[str]:
    """The packages that stages import, and the modules that they load by name: methods, agents, environments."""
    by_name = ("credit", "agents", "envs", "judges")
    files = [file for folder in by_name for file in (ROOT / "turncredit" / folder).rglob("*.py")]
    names = {name for file in files for name in imports.names_in(file)}
    of_stages = {package for stage in stages() for package in imports.packages(stage)}
    return of_stages | {name for name in names if name not in {*sys.stdlib_module_names, "turncredit"}}


def listed_with_vllm() -> dict[str, str]:
    """The lines of the environment with vLLM, by distribution."""
    conda = yaml.safe_load((ROOT / "envs_conda/gpu-rollout.yaml").read_text())
    lines = next(entry["pip"] for entry in conda["dependencies"] if isinstance(entry, dict))
    return {re.split(r"[~<>=\[]", line)[0].lower(): line for line in lines}


def test_the_environment_with_vllm_has_what_all_stages_import():
    """It installs the package itself without dependencies, because the package's transformers is not vLLM's."""
    needed = {distribution(name) for name in imported() - WITH_VLLM - OF_ENVIRONMENTS} | UNSEEN
    assert needed <= listed_with_vllm().keys()
    assert imported() >= OF_ENVIRONMENTS
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = [*project["dependencies"], *(line for lines in project["optional-dependencies"].values() for line in lines)]
    assert set(listed_with_vllm().values()) - {listed_with_vllm()["vllm"]} <= set(every)


def test_the_core_environment_has_what_all_stages_import():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    locked = {line.split("==")[0] for line in lines if "==" in line} | {"torch"}
    needed = {distribution(name) for name in imported() - {"vllm"} - OF_ENVIRONMENTS} | UNSEEN
    assert needed <= locked


def test_both_kinds_of_the_environment_with_vllm_bring_a_compiler():
    conda = yaml.safe_load((ROOT / "envs_conda/gpu-rollout.yaml").read_text())
    assert {"c-compiler", "cxx-compiler"} <= {entry for entry in conda["dependencies"] if isinstance(entry, str)}
    assert "g++" in (ROOT / "containers/install.sh").read_text()
