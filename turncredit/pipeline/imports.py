"""Which packages each stage imports, read from the source: a job must not find at its end that one is missing.

The imports of a stage are those of its own module and of the modules of this package that it imports, those inside of
functions too. Of the pipeline's and the configuration's modules, which every job imports, only those at the top count.
What plug-ins import (environments, agents, methods of others) is not known here.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import turncredit
from turncredit.config.stages import PACKAGE

_ROOT = Path(turncredit.__file__).parents[1]
#: Modules of every job: what they import inside of functions belongs to the jobs that call these.
_OF_EVERY_JOB = ("turncredit.pipeline.", "turncredit.config.")
#: Imported only where the configuration chooses them: the engine vllm, adapters. The check of engines looks for them.
CHOSEN = frozenset({"vllm", "peft"})


@cache
def packages(stage: str) -> dict[str, str]:
    """The packages that a stage imports, each with a module of this package that does."""
    root = f"{PACKAGE}.{stage}"
    found: dict[str, str] = {}
    seen, waiting = set[str](), [root]
    while waiting:
        module = waiting.pop()
        if module in seen or _file(module) is None:
            continue
        seen.add(module)
        for name in _imports(module, inside=module == root or not module.startswith(_OF_EVERY_JOB)):
            top = name.partition(".")[0]
            if top == turncredit.__name__:
                parts = name.split(".")
                waiting += [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
            elif top not in sys.stdlib_module_names:
                found.setdefault(top, module)
    return found


def _file(module: str) -> Path | None:
    path = _ROOT.joinpath(*module.split("."))
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.exists()), None)


def names_in(file: Path) -> set[str]:
    """The packages that a file imports anywhere, but for types alone."""
    return {name.partition(".")[0] for name in _names(ast.parse(file.read_text(encoding="utf-8")), inside=True)}


@cache
def _imports(module: str, *, inside: bool) -> tuple[str, ...]:
    """The names that a module imports, with `inside` also those in its functions; none that only types need."""
    file = _file(module)
    return tuple(_names(ast.parse(file.read_text()), inside=inside)) if file else ()


def _names(node: ast.AST, *, inside: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not inside:
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from _names(child, inside=inside)
