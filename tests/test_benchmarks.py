"""The measurements in benchmarks/: what they use still exists. mypy checks how they use it (`make lint`)."""

from __future__ import annotations

import ast
import os
from functools import cache
from importlib import import_module
from pathlib import Path
from string import Formatter
from unittest import mock

import pytest

from benchmarks import findings
from turncredit.config.layout import artifact
from turncredit.config.stages import artifacts

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs/images"
SCRIPTS = sorted(ROOT.glob("benchmarks/**/*.py"))


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@cache
def _names_of(module: str) -> frozenset[str]:
    """What a module of this repository has at its top level, modules within a package included; nothing is imported."""
    path = ROOT / module.replace(".", "/")
    within = {one.stem for one in (*path.glob("*.py"), *path.glob("*/"))} if path.is_dir() else set()
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    found: set[str] = set(within)
    for node in ast.walk(ast.parse(source.read_text() if source.exists() else "")):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Name(ctx=ast.Store()):
                found.add(node.id)
            case ast.Import() | ast.ImportFrom():
                found.update(alias.asname or alias.name for alias in node.names)
    return frozenset(found)


@pytest.mark.parametrize("path", SCRIPTS, ids=_module)
def test_a_benchmark_imports_only_what_the_library_has(path: Path) -> None:
    imports = [
        node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)
    ]
    ours = [node for node in imports if str(node.module).split(".")[0] in ("turncredit", "benchmarks", "tests")]
    assert [
        f"{node.module}.{alias.name}"
        for node in ours
        for alias in node.names
        if alias.name not in _names_of(str(node.module))
    ] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=_module)
def test_a_benchmark_names_all_keys_of_an_artifacts_path(path: Path) -> None:
    missing = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(ast.Attribute(attr="path"), [ast.Constant(str(name))], keywords) if name in artifacts():
                keys = {field for _, field, _, _ in Formatter().parse(artifact(name).pattern) if field}
                missing += [f"{name}: {key}" for key in keys - {one.arg for one in keywords}]
    assert missing == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [_module(path) for path in SCRIPTS])
def test_a_benchmark_can_be_imported_and_measures_nothing_then(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with mock.patch.dict(os.environ):  # some set a number of threads
        import_module(name)
    assert capsys.readouterr().out == ""


def test_the_figures_of_the_findings_are_drawn_from_the_recorded_tables(tmp_path):
    findings.main(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        path.name for path in FIGURES.glob("findings_*.svg")
    )
    scored = findings.leaderboard(findings.LEADERBOARD.read_text(encoding="utf-8"))
    assert {"gigpo", "graphgpo", "truth"} <= set(scored["method"])
    assert scored["cosine"].between(-1, 1).all()
