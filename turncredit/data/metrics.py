"""The metrics file of a job, read and checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turncredit.errors import UserError


def read_metrics(path: Path) -> dict:
    """A stage's metrics file. Raises UserError for a file that is not a JSON object with the keys of one."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not readable as metrics ({error}); delete it and run again") from None
    absent = [key for key in ("stage", "started", "wall_s", "metrics") if not isinstance(data, dict) or key not in data]
    if absent:
        raise UserError(f"{path}: not a stage's metrics (no '{absent[0]}'); delete it and run again")
    if "hash" in data and data["hash"] != metrics_hash(data):
        raise UserError(f"{path}: changed since it was written; delete it and run again")
    return data


def metrics_hash(data: Mapping[str, Any]) -> str:
    """The hash of what a metrics file says, but for its own `hash`."""
    text = json.dumps({key: value for key, value in data.items() if key != "hash"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
