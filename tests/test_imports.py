"""What is read when nothing runs yet must not wait for the heavy packages: stages import them where they use them."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

pytestmark = pytest.mark.slow

HEAVY = ("torch", "transformers", "peft", "mlflow", "snakemake", "matplotlib")
LIGHT = (
    "agents",
    "audit.score",
    "cli",
    "config",
    "credit",
    "envs",
    "judges",
    "data",
    "pipeline.stages",
    "views.pages",
    "views.score",
    "views.viewer",
)


def modules(name: str) -> list[str]:
    """A module of turncredit and, for a package, what is directly in it."""
    module = import_module(f"turncredit.{name}")
    inside = pkgutil.iter_modules(getattr(module, "__path__", []), f"{module.__name__}.")
    return [module.__name__, *(found.name for found in inside)]


@pytest.mark.parametrize("name", LIGHT)
def test_importing_it_imports_nothing_heavy(name: str) -> None:
    code = f"import sys, {', '.join(modules(name))}; print([heavy for heavy in {HEAVY!r} if heavy in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
