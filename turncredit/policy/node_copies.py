"""Copies of base models on a node's own disk.

Every job of an experiment with adapters reads the same base model, twice: once to compare it with the hashes that were
written with it, once into memory. `TURNCREDIT_NODE_COPIES` names a folder on the nodes' own disks, where the first job
of each node copies it and later ones find it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import time
from pathlib import Path

from turncredit import provenance
from turncredit.provenance import PROVENANCE_FILE

#: The environment variable with the folder for copies.
VARIABLE = "TURNCREDIT_NODE_COPIES"
#: Seconds after which a copy that no job has used is removed, when another one is made.
UNUSED = 7 * 24 * 3600.0
_PREFIX = "turncredit-base-"


def of(folder: Path) -> Path:
    """The copy of `folder` on this node, made now if there is none; `folder` itself where copies are not asked for.

    `folder` has to be one that a stage wrote: the copy is found by the hash of what it wrote, and whoever opens a model
    compares the files that it reads with the hashes beside them. Where no copy can be made, a line on standard error
    says why, and `folder` is read.
    """
    root = os.environ.get(VARIABLE)
    if not root or not (folder / PROVENANCE_FILE).is_file():
        return folder
    copy = Path(root) / f"{_PREFIX}{provenance.record_of(folder)['content']}"
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        with (copy.parent / f".{copy.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the system frees it if the job is killed
            if not copy.is_dir():
                _remove_unused(copy.parent)
                unfinished = copy.parent / f".{copy.name}.unfinished"
                shutil.rmtree(unfinished, ignore_errors=True)
                shutil.copytree(folder, unfinished)
                unfinished.rename(copy)
            os.utime(copy)
    except OSError as error:
        print(f"turncredit: warning: {folder} is read where it is: no copy in {root} ({error})", file=sys.stderr)
        return folder
    return copy


def _remove_unused(root: Path) -> None:
    for other in root.glob(f"{_PREFIX}*"):
        if time.time() - other.stat().st_mtime > UNUSED:
            shutil.rmtree(other, ignore_errors=True)
