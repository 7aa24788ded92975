"""What `make setup` and `make test` say where something is missing, before anything fails. Programs are stand-ins."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def machine(tmp_path: Path):
    """A machine with these stand-ins for programs: name -> shell code. Returns how to run a script of .ci on it."""

    def make(**programs: str):
        for name, code in programs.items():
            path = tmp_path / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\n{code}\n")
            path.chmod(0o755)

        def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["/bin/sh", str(ROOT / ".ci" / script), *arguments],
                env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
                capture_output=True,
                text=True,
                check=False,
            )

        return run

    return make


def test_without_a_recent_python_it_says_how_to_name_one(machine):
    done = machine()("need-python", "")
    assert done.returncode == 1
    assert "Python 3.11 or later" in done.stderr
    assert "make setup PYTHON=" in done.stderr


def test_a_python_without_venv_is_named(machine, tmp_path):
    run = machine(python3='case "$2" in *ensurepip*) exit 1 ;; *) echo python3.12 ;; esac')
    done = run("need-python", str(tmp_path / "python3"))
    assert done.returncode == 1
    assert "has no venv module" in done.stderr


def test_a_python_with_venv_is_enough(machine, tmp_path):
    assert machine(python3="exit 0")("need-python", str(tmp_path / "python3")).returncode == 0


def test_missing_packages_are_all_named_to_a_user_who_cannot_install_them(machine):
    run = machine(dpkg_query="echo 'unknown ok not-installed'", id="echo 1000")
    done = run("need-packages", "libffi-dev", "python3-dev")
    assert done.returncode == 1
    assert done.stderr.strip().endswith("sudo apt-get install libffi-dev python3-dev")


def test_root_installs_what_is_missing_and_only_that(machine, tmp_path):
    run = machine(
        dpkg_query='case "$4" in python3-dev) echo "install ok installed" ;; *) exit 1 ;; esac',
        id="echo 0",
        apt_get=f'echo "$@" >> {tmp_path}/apt',
    )
    done = run("need-packages", "libffi-dev", "python3-dev")
    assert done.returncode == 0, done.stderr
    install = (tmp_path / "apt").read_text().splitlines()[-1]
    assert "libffi-dev" in install
    assert "python3-dev" not in install


def test_with_everything_there_nothing_is_installed(machine, tmp_path):
    run = machine(dpkg_query='echo "install ok installed"', id="echo 0", apt_get=f"touch {tmp_path}/apt")
    assert run("need-packages", "libffi-dev", "python3-dev").returncode == 0
    assert not (tmp_path / "apt").exists()


def test_any_java_will_do(machine):
    run = machine(java="exit 0", dpkg_query="echo 'unknown ok not-installed'", id="echo 1000")
    assert run("need-packages", "openjdk-17-jre-headless").returncode == 0
    assert run("need-packages", "openjdk-17-jre-headless", "libffi-dev").stderr.strip().endswith("install libffi-dev")


def test_the_lock_files_pin_one_version_each_and_leave_torch_to_its_own_step():
    seen: dict[str, str] = {}
    for name in ("requirements.lock", "requirements-test.lock", "requirements-reference.lock"):
        for line in (ROOT / name).read_text().splitlines():
            package, _, version = line.partition(" ;")[0].partition("==")
            assert version, f"{name}: {line}"
            assert not package.startswith(("torch", "nvidia", "triton")), line
            key = f"{package};{line.partition(' ;')[2]}"
            assert seen.setdefault(key, version) == version, line
    assert "torch==2.13.0" in (ROOT / "Makefile").read_text()
