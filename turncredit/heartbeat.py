"""How far a long stage is: a heartbeat that whoever runs the stage may listen to."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

_last = 0.0


def progress(done: int, total: int) -> None:
    """Say that `done` of `total` parts are done, at most twice a second, to the file `TURNCREDIT_PROGRESS` names."""
    global _last  # noqa: PLW0603 (one process, one heartbeat)
    path = os.environ.get("TURNCREDIT_PROGRESS")
    now = time.monotonic()
    if path is None or (now - _last < 0.5 and done < total):
        return
    _last = now
    part = Path(f"{path}.part")
    part.write_text(json.dumps({"done": done, "total": total}))
    part.replace(path)
