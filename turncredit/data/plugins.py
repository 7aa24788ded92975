"""Plug-ins by name: built-in ones, those of installed packages (entry points), and the user's own files."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from turncredit.errors import UserError, nearest


def load(kind: str, group: str, built_in: Mapping[str, str], name: str) -> Any:
    """The plug-in called `name`: from `built_in` (name -> `module:attribute`), else from the entry points of `group`.

    Raises UserError for an unknown name, with the nearest, for a package that cannot be imported, and for a name that
    several packages provide.
    """
    if name in built_in:
        module, _, attribute = built_in[name].partition(":")
        return getattr(import_module(module), attribute) if attribute else import_module(module)
    points = installed(group).get(name, ())
    if not points:
        names = sorted({*built_in, *installed(group)})
        raise UserError(f"unknown {kind} '{name}'{nearest(name, names)}; choose one of {', '.join(names)}")
    if len(points) > 1:
        packages = ", ".join(_package(point) for point in points)
        raise UserError(f"{kind} '{name}' is in several installed packages: {packages}; uninstall all but one")
    try:
        return points[0].load()
    except Exception as error:  # third-party code may raise anything
        raise UserError(f"{kind} '{name}': {described(points[0])} cannot be imported: {shortened(error)}") from error


def own_file(name: str) -> tuple[Path, str] | None:
    """The user's own file that `name` refers to, `path.py` or `path.py:attribute`, and the attribute; else None."""
    path, suffix, attribute = name.rpartition(".py")  # the last: a folder may be called .pyenv
    return (Path(f"{path}.py"), attribute.removeprefix(":")) if suffix else None


#: What the names of modules in users' own files begin with.
USER = "turncredit_user_"


class _Content(SourceFileLoader):
    """Compiles what the module's name was made from; kept bytecode may be that of an edit within the same second."""

    def __init__(self, name: str, path: str, content: bytes) -> None:
        super().__init__(name, path)
        self.content = content

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002  (the signature of importlib's)
        code: CodeType = self.source_to_code(self.content, self.path)
        return code


def from_file(kind: str, path: str | Path) -> ModuleType:
    """The module in a user's file, imported once per process, and again after an edit; it can import its neighbours."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; {kind} of your own is the path of a Python file")
    content = path.read_bytes()
    # Under the same name in all processes, so that its objects can be pickled between them.
    place = hashlib.sha256(str(path.resolve()).encode() + b"\n" + content).hexdigest()[:16]
    name = f"{USER}{path.stem}_{place}"
    if name in sys.modules:
        return sys.modules[name]
    loader = _Content(name, str(path), content)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    beside = str(path.resolve().parent)
    if beside not in sys.path:
        sys.path.append(beside)  # last: a file of the user's replaces no package
    sys.modules[name] = module  # dataclasses and pydantic look their own module up
    try:
        loader.exec_module(module)
    except Exception as error:  # a user's code may raise anything
        del sys.modules[name]
        raise UserError(f"{line_of(path, error)}: cannot be imported: {shortened(error)}") from error
    return module


def declared_name(kind: str, name: str, attribute: str) -> str:
    """The name under which settings are given: the one that a user's file declares, else `name` itself.

    The file declares it as `attribute` if `name` does not say (`path.py:ATTRIBUTE`). `kind` is for messages.
    """
    own = own_file(name)
    if own is None:
        return name
    path, attribute = own[0], own[1] or attribute
    declared = getattr(from_file(kind, path), attribute, None)
    found = getattr(declared, "name", None)
    if not isinstance(found, str):
        raise UserError(f"{path}: has no {attribute} with a name; declare {kind} of your own as {attribute}")
    return found


def line_of(path: Path, error: BaseException) -> str:
    """The line of the user's file `path` that led to an error, as `my_credit.py:12`; without one, the path alone."""
    whole = path.resolve()
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).resolve() == whole]
    return f"{path}:{frames[-1].lineno}" if frames else str(path)


@contextmanager
def errors_of(name: str) -> Iterator[None]:
    """Inside, an error in the code of the user's file `name` (`path.py:NAME`) becomes a UserError with its line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # a user's code may raise anything
        own = own_file(name)
        line = line_of(own[0], error) if own else None
        # Others are not the file's. What is said of a GPU whose memory is full goes by the error's type.
        if own is None or line == str(own[0]) or type(error).__name__ == "OutOfMemoryError":
            raise
        raise UserError(f"{line}: {shortened(error)}") from error


@cache
def installed(group: str) -> dict[str, tuple[EntryPoint, ...]]:
    """The entry points of a group by name, not imported; more than one where packages share a name."""
    points: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=group):
        points[point.name] = (*points.get(point.name, ()), point)
    return points


def described(point: EntryPoint) -> str:
    """An entry point as shown in messages: its value and its package."""
    return f"{point.value} of the package {_package(point)}"


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "unknown"


def shortened(error: BaseException) -> str:
    """An error in one line, with its type."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
