"""Files and folders as artifacts: made under a temporary name, renamed when whole."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """A temporary folder beside `path` that takes its place when the block ends well, and vanishes otherwise."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    part.mkdir()
    try:
        yield part
        if path.exists():
            old = path.with_name(f".{path.name}.{secrets.token_hex(4)}.old")
            os.replace(path, old)
            os.replace(part, path)
            shutil.rmtree(old)
        else:
            os.replace(part, path)
    finally:
        if part.exists():
            shutil.rmtree(part)


def write_text(path: str | Path, text: str) -> None:
    """Write `text` under a temporary name beside `path`, then rename it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_json(path: str | Path, data: Mapping[str, Any]) -> None:
    """Write `data` as JSON under a temporary name beside `path`, then rename it."""
    write_text(path, json.dumps(data, indent=1, default=str) + "\n")
