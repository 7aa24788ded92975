"""The tests' world on disk: made once for each state of the code, and not once in every process that runs tests."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from turncredit.data.files import new_folder

#: how many worlds stay
KEPT = 3
#: what makes other numbers beside the code
VERSIONS = (sys.version, *(f"{name} {version(name)}" for name in ("torch", "transformers", "peft", "numpy", "pyarrow")))


def cache() -> Path:
    """The folder of worlds, outside the repository."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turncredit-tests"


def key(config: Any, code: Iterable[Path]) -> str:
    """The name of the world that this configuration and these files and folders of code make."""
    digest = hashlib.sha256(json.dumps([config, VERSIONS], sort_keys=True).encode())
    for root in code:
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            digest.update(f"{path.relative_to(root.parent)}\n".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:24]


def kept(folder: Path, name: str, make: Callable[[Path], None]) -> Path:
    """The world of this name below `folder`. It is made if it is not there, by one process; others wait for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / name).exists():
            with new_folder(folder / name) as part:
                make(part)
            worlds = sorted(folder.glob("[!.]*/"), key=lambda path: path.stat().st_mtime)
            for old in worlds[:-KEPT]:
                shutil.rmtree(old)
    return folder / name
