"""Files and folders that are complete or absent: written under a temporary name, then renamed.

The temporary name is `.NAME.HEX.part`, in the same folder; a stage removes what a killed job left under such names.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turncredit.errors import unusable


@contextmanager
def new_file(path: str | Path) -> Iterator[Path]:
    """A temporary path next to `path`: the file there replaces it if the block succeeds, and is removed otherwise.

    The folder of `path` is created if it does not exist. A full disk is an OSError that names `path`.
    """
    path = Path(path)
    with _naming(path):
        part = _temporary(path, "part")
        try:
            yield part
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Inside, an error that says the disk is full, or a path may not be used, becomes an OSError that names `path`."""
    try:
        yield
    except Exception as error:
        cause = unusable(error)
        if cause is None:
            raise
        raise OSError(*cause, str(path)) from error


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """A temporary folder next to `path` that replaces it if the block succeeds, and is removed otherwise.

    Its files get the umask's permissions: safetensors makes them readable for their owner only.
    """
    path = Path(path)
    with _naming(path):
        part = _temporary(path, "part")
        part.mkdir()
        try:
            yield part
            allowed = part.stat().st_mode & 0o666
            for file in part.rglob("*"):
                if file.is_file() and not file.is_symlink():
                    file.chmod(file.stat().st_mode | allowed)
            if os.path.lexists(path):
                old = _temporary(path, "old")
                os.replace(path, old)
                os.replace(part, path)
                discard(old)
            else:
                os.replace(part, path)
        finally:
            if part.exists():
                shutil.rmtree(part)


def remove_folder(path: str | Path) -> None:
    """Remove a folder, if it is there. Its name goes first: a process that is killed leaves no part of it by that."""
    path = Path(path)
    if path.exists():
        old = _temporary(path, "old")
        os.replace(path, old)
        if old.is_symlink():
            old.unlink()
        shutil.rmtree(old, ignore_errors=True)  # what stays, such as a file that is open elsewhere, has lost its name


def discard(path: Path) -> None:
    """Remove a file, a folder with all in it, or a link alone: what it points to stays. Nothing if it is not there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def discard_leftovers(path: Path) -> None:
    """Remove what killed processes have left of a file or folder: temporary ones beside it."""
    for left in (*path.parent.glob(f".{path.name}.*.part"), *path.parent.glob(f".{path.name}.*.old")):
        discard(left)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write `data` to `path`, completely or not at all."""
    with new_file(path) as part:
        part.write_bytes(data)


def write_text(path: str | Path, text: str) -> None:
    """Write `text` as UTF-8 to `path`, completely or not at all."""
    write_bytes(path, text.encode())


def write_json(path: str | Path, data: Any, *, indent: int | None = 1) -> None:
    """Write `data` as JSON to `path`, whole or not at all. Other values become their `str`."""
    write_text(path, json.dumps(data, indent=indent, default=str) + "\n")


def _temporary(path: Path, ending: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.{ending}")
