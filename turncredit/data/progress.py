"""Progress of a long stage, for live display."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from turncredit.data.files import write_json

_last = 0.0


def progress(done: int, total: int) -> None:
    """Report that `done` of `total` parts are done, at most twice a second, to the file in `TURNCREDIT_PROGRESS`.

    A file that cannot be written is no error: nobody looks at it, or its disk is full.
    """
    global _last  # noqa: PLW0603 (one process, one heartbeat)
    path = os.environ.get("TURNCREDIT_PROGRESS")
    now = time.monotonic()
    if path is None or (now - _last < 0.5 and done < total):
        return
    _last = now
    with suppress(OSError):
        write_json(path, {"done": done, "total": total})
