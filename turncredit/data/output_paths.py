"""Where a command may write: never over what it reads, never in place of what is not a regular file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from turncredit.errors import UserError


def output_file(path: str | Path, suffixes: tuple[str, ...], *, reads: Iterable[str | Path | None] = ()) -> Path:
    """`path`, if a command that reads `reads` may write a file there. Call it before anything is computed.

    `suffixes` are the endings of the formats that the command writes. Raises UserError for another ending, for what is
    not a regular file, for a path below a file, and for a file that is read or is in a folder that is read.
    """
    path = Path(path)
    if path.is_symlink():
        raise UserError(f"{path}: is a link to {os.readlink(path)}; give the path of the file itself")
    if path.is_dir():
        raise UserError(f"{path}: is a folder; give the path of a {' or '.join(suffixes)} file")
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: is not a regular file, and would be replaced; give the path of a file")
    if path.suffix.lower() not in suffixes:
        raise UserError(f"{path}: this command writes {_formats(suffixes)}; give a path with that ending")
    _check_parents(path)
    for given in reads:
        if given is None or not (path.exists() and Path(given).exists()):
            continue
        if os.path.samefile(path, given):
            raise UserError(f"{path}: is read by this command ({given}), and would be overwritten; give another path")
        if Path(given).is_dir() and path.resolve().is_relative_to(Path(given).resolve()):
            raise UserError(f"{path}: is one of the files in {given}, which this command reads; give a path outside")
    return path


def output_folder(path: str | Path, names: Iterable[str], *, ours: bool) -> Path:
    """`path`, if a command may write files called `names` into this folder.

    Raises UserError for what is not a folder, and for files of these names unless the same command wrote them (`ours`).
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise UserError(f"{path}: is not a folder; give the path of a folder, which is created if needed")
    _check_parents(path)
    taken = next((path / name for name in names if os.path.lexists(path / name)), None)
    if taken and not ours:
        raise UserError(f"{taken}: exists and was not written by this command; give another folder")
    return path


def _check_parents(path: Path) -> None:
    above = next((folder for folder in path.parents if folder.exists()), None)
    if above is not None and not above.is_dir():
        raise UserError(f"{path}: {above} is a file and not a folder; give another path")


def _formats(suffixes: tuple[str, ...]) -> str:
    page = "an HTML page"
    names = {".parquet": "Parquet", ".csv": "CSV", ".json": "JSON", ".jsonl": "JSON lines", ".html": page, ".htm": page}
    return " or ".join(f"{names[suffix]} ({suffix})" for suffix in suffixes)
