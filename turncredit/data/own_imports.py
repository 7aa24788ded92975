"""Which files a user's own Python file imports from its folder, without importing any: an edit of them counts too."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path


def own_imports(path: str | Path) -> list[str]:
    """The Python files beside `path`, or in folders there, that it imports, directly or through one another; sorted.

    A module that is also installed is not the one in the folder (`plugins.from_file`). An import whose name is computed
    is not seen. A file that cannot be read or parsed imports nothing here: importing it says why.
    """
    own = Path(path).resolve()
    folder, elsewhere = own.parent, [one for one in sys.path if Path(one).resolve() != own.parent]
    found, unread = {own}, [own]
    while unread:
        file = unread.pop()
        for module in _imported(file, folder):
            package = module.relative_to(folder).parts[0]
            if package != "turncredit" and PathFinder.find_spec(package, elsewhere) is None:
                new = {one for one in _files(module, folder) if one not in found}
                found |= new
                unread += new
    given = Path(path).parent
    shown = given if given.resolve() == folder else folder
    return sorted(str(shown / file.relative_to(folder)) for file in found - {own})


def _imported(file: Path, folder: Path) -> Iterator[Path]:
    """The modules that a file's import statements may mean, as paths below `folder` without a suffix."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (folder.joinpath(*alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = file.parents[node.level - 1] if node.level else folder
            module = start.joinpath(*(node.module or "").split("."))
            if folder in module.parents:
                yield module
            if module == folder or folder in module.parents:
                yield from (module / alias.name for alias in node.names if alias.name != "*")


def _files(module: Path, folder: Path) -> Iterator[Path]:
    """The files that importing a module reads: its own and those of the packages around it."""
    around = [one for one in module.parents if folder in one.parents]
    for one in (module, *around):
        yield from (file for file in (one.with_name(f"{one.name}.py"), one / "__init__.py") if file.is_file())
