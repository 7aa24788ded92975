"""A plain installation: how large, how long; and whether it goes beside trainers in the versions that they choose.

    python -m benchmarks.install.run > benchmarks/install/RESULTS.md

Needs a package index, and uv (`pip install uv`), whose resolver asks for metadata alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import NamedTuple

from turncredit.data import provenance

ROOT = Path(__file__).resolve().parents[2]
TRAINERS = ("trl", "verl", "vllm")
#: MB that a plain installation may take, without the bytecode.
MOST_MEGABYTES = 350
#: What a checkout has besides its sources.
NO_SOURCE = shutil.ignore_patterns(
    "results", "build", "dist", "site", ".*", "*.egg-info", "__pycache__", "docs", "weights"
)
#: The largest packages that the table names.
NAMED = 6


class Installed(NamedTuple):
    """An environment with the wheel: its interpreter, the MB of each package, those that pip compiled, the seconds."""

    python: Path
    sizes: dict[str, float]
    compiled: float
    seconds: float

    @property
    def megabytes(self) -> float:
        """All packages together."""
        return sum(self.sizes.values())


def install_wheel(folder: Path) -> Installed:
    """Build the wheel of this checkout and install it with pip, and what it requires, into an empty environment."""
    source, python = folder / "source", folder / "venv/bin/python"
    shutil.copytree(ROOT, source, ignore=NO_SOURCE)
    run_pip("wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, source)
    venv.create(folder / "venv", with_pip=False)
    started = time.monotonic()
    run_pip("--python", python, "install", "-q", next(folder.glob("*.whl")))
    seconds = time.monotonic() - started
    packages = next((folder / "venv/lib").glob("python*/site-packages"))
    return Installed(python, sizes(packages), sum(sizes(packages, "*.pyc").values()), seconds)


def run_pip(*arguments: str | Path) -> None:
    """Run pip with these arguments, without the paths of this environment."""
    subprocess.run([sys.executable, "-m", "pip", *arguments], env=without_paths(), check=True)


def sizes(packages: Path, pattern: str = "*") -> dict[str, float]:
    """MB by package, the largest first, without the bytecode unless `pattern` asks for it. The folder of a package's
    libraries counts for the package."""
    found: dict[str, float] = {}
    for file in packages.rglob(pattern):
        if file.is_file() and not file.is_symlink() and (file.suffix != ".pyc" or pattern == "*.pyc"):
            name = re.split(r"[.-]", file.relative_to(packages).parts[0].lstrip("_"))[0]
            found[name] = found.get(name, 0.0) + file.stat().st_size / 1e6
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def without_paths() -> dict[str, str]:
    """This process's environment without the folders of modules that it may name."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def beside(trainer: str, extra: str, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Versions that the resolver chooses for a trainer alone, and for it and turncredit with the first ones kept."""
    alone = resolved(folder, trainer)
    ours = f"turncredit[{extra}] @ {ROOT.as_uri()}" if extra else f"turncredit @ {ROOT.as_uri()}"
    return alone, resolved(folder, trainer, ours, *(f"{name}=={version}" for name, version in alone.items()))


def resolved(folder: Path, *requirements: str) -> dict[str, str]:
    """The version of each package for these requirements on Python 3.12. Raises CalledProcessError if there is none."""
    from uv import find_uv_bin

    asked = folder / "asked.in"
    asked.write_text("\n".join(requirements), encoding="utf-8")
    uv = [find_uv_bin(), "pip", "compile", "-q", "--python-version", "3.12", "--no-annotate", "--no-header", asked]
    done = subprocess.run(uv, env=without_paths(), capture_output=True, text=True, check=True)
    lines = (line.partition(";")[0].strip() for line in done.stdout.splitlines())
    return dict(re.split(r"==| @ ", line, maxsplit=1) for line in lines if "==" in line or " @ " in line)


def report(folder: Path) -> list[str]:
    """The record, in Markdown."""
    installed = install_wheel(folder)
    largest = list(installed.sizes.items())[:NAMED]
    rest = installed.megabytes - sum(size for _, size in largest)
    lines = [
        "# Installation",
        "",
        f"`python -m benchmarks.install.run`, turncredit {provenance.code_version()}, Python "
        f"{sys.version_info.major}.{sys.version_info.minor}.",
        "",
        "## A plain `pip install` of the wheel",
        f"{installed.megabytes:.0f} MB in {installed.seconds:.0f} s, into an empty environment, nothing cached. "
        f"The bytecode that pip compiles takes {installed.compiled:.0f} MB more.",
        "",
        "| package | MB |",
        "|---|---|",
        *(f"| {name} | {size:.0f} |" for name, size in largest),
        f"| {len(installed.sizes) - len(largest)} others | {rest:.0f} |",
        "",
        "## Beside a trainer",
        "The resolver chooses versions for the trainer alone, then for the trainer and turncredit with these kept. "
        "Python 3.12.",
        "",
        "| trainer | torch | transformers | numpy | beside `turncredit` | beside `turncredit[train]` |",
        "|---|---|---|---|---|---|",
    ]
    for trainer in TRAINERS:
        told = []
        for extra in ("", "train"):
            alone, together = beside(trainer, extra, folder)
            kept = all(together.get(name) == version for name, version in alone.items())
            told.append(f"{len(together) - len(alone)} more packages" if kept else "other versions")
        chosen = " | ".join(alone[name] for name in ("torch", "transformers", "numpy"))
        lines.append(f"| {trainer} {alone[trainer]} | {chosen} | {told[0]} | {told[1]} |")
    return lines


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        print("\n".join(report(Path(name))))
