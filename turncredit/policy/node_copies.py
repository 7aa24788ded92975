"""Copies of base models on a node's own disk.

Every job of an experiment with adapters reads the same base model twice: to check its hashes, and into memory.
`TURNCREDIT_NODE_COPIES` names a folder on the nodes' own disks. The first job on a node copies the model there, into a
folder of its user; later jobs read the copy.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turncredit.data import provenance
from turncredit.data.files import remove_folder
from turncredit.data.provenance import PROVENANCE_FILE

#: The environment variable with the folder for copies.
VARIABLE = "TURNCREDIT_NODE_COPIES"
#: Seconds after which a copy that no job has used is removed, when another one is made.
UNUSED = 7 * 24 * 3600.0
_PREFIX = "base-"


def of(folder: Path) -> Path:
    """The copy of `folder` on this node, made if there is none; `folder` itself where copies are not asked for.

    A stage must have written `folder`: a copy is named by its content hash. A copy with missing or truncated files, as
    after a purge of the disk, is made again. If no copy can be made, standard error says why, and `folder` is read.
    """
    root = os.environ.get(VARIABLE)
    if not root or not (folder / PROVENANCE_FILE).is_file():
        return folder
    copies = Path(root) / f"turncredit-{os.getuid()}"
    copy = copies / f"{_PREFIX}{provenance.record_of(folder)['content']}"
    try:
        copies.mkdir(parents=True, exist_ok=True)
        with _locked(copy):
            sizes = _sizes(folder)
            if _sizes(copy) != sizes:
                _remove_unused(copies, copy)
                _make(folder, copy, sum(sizes.values()))
            os.utime(copy)
    except OSError as error:
        first = error.args[0][0][-1] if isinstance(error, shutil.Error) else error
        print(f"turncredit: warning: {folder} is read where it is: no copy in {copies} ({first})", file=sys.stderr)
        return folder
    return copy


def discard(copy: Path) -> None:
    """Remove a damaged copy; the next job makes it again."""
    with _locked(copy):
        remove_folder(copy)


def _make(folder: Path, copy: Path, size: int) -> None:
    """Copy `folder`, of `size` bytes. A failed copy is removed."""
    remove_folder(copy)
    free = shutil.disk_usage(copy.parent).free
    if size > free:
        raise OSError(f"{size / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free")
    unfinished = _unfinished(copy)
    shutil.rmtree(unfinished, ignore_errors=True)  # a killed job's
    try:
        shutil.copytree(folder, unfinished)
        unfinished.rename(copy)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _remove_unused(copies: Path, but: Path) -> None:
    """Remove copies that no job has used for long, and unfinished ones of killed jobs."""
    for other in copies.glob(f"{_PREFIX}*"):
        if other != but and time.time() - other.stat().st_mtime > UNUSED:
            with _locked(other, wait=False) as mine:
                if mine and time.time() - other.stat().st_mtime > UNUSED:  # nobody has been given it since
                    remove_folder(other)
    for left in copies.glob(f".{_PREFIX}*.unfinished"):
        other = copies / left.name.removeprefix(".").removesuffix(".unfinished")
        if other != but:
            with _locked(other, wait=False) as mine:
                if mine:
                    shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _locked(copy: Path, *, wait: bool = True) -> Iterator[bool]:
    """Whether this process holds the lock of `copy` inside the block; always if it waits. A killed job loses it."""
    with (copy.parent / f".{copy.name}.lock").open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


def _unfinished(copy: Path) -> Path:
    return copy.parent / f".{copy.name}.unfinished"


def _sizes(folder: Path) -> dict[str, int]:
    """Bytes of each file below `folder`, by name; empty if there is no folder."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
