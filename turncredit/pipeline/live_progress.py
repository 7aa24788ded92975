"""Live progress of a run: small files in the folder named by the environment variable TURNCREDIT_WATCH.

A job leaves `<host>-<pid>.job` while it runs, with a file `.progress` of the same name next to it if the stage reports
its progress, and a line in `ended.jsonl` when it ends. Without the variable nothing is written. Where a cluster's nodes
share the folder, jobs of other machines are among them.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from turncredit.data.files import write_json

VARIABLE = "TURNCREDIT_WATCH"


def tell_plan(*, results: str, runs: int, in_rounds: Callable[[], Mapping[str, float]]) -> None:
    """Record what this run is about: its folder, its number of runs, the stages of a job of several rounds."""
    folder = _folder()
    if folder:
        write_json(folder / "plan.json", {"results": results, "runs": runs, "in_rounds": in_rounds()})


@contextmanager
def announced(rule: str, label: str) -> Iterator[Callable[..., None]]:
    """Announce a job while the block runs. The function it yields adds facts to the line about its end.

    A job that is killed says nothing: its `.job` stays (`left_by`).
    """
    folder = _folder()
    facts: dict[str, Any] = {}
    if folder is None:
        yield lambda **_: None
        return
    running, progress = (folder / f"{socket.gethostname()}-{os.getpid()}.{kind}" for kind in ("job", "progress"))
    os.environ["TURNCREDIT_PROGRESS"] = str(progress)
    line = {"rule": rule, "label": label, "started": time.time()}
    with suppress(OSError):  # a display ends no job: its disk may be full, or whoever looked may have gone
        write_json(running, line)
    try:
        yield facts.update
    except BaseException:
        facts.setdefault("stopped", "error" not in facts)
        raise
    finally:
        text = json.dumps({**line, "ended": time.time(), **facts}, default=str)
        with suppress(OSError):
            with (folder / "ended.jsonl").open("a", encoding="utf-8") as file:
                file.write(text + "\n")
            running.unlink(missing_ok=True)
            progress.unlink(missing_ok=True)


def left_by(running: Path) -> bool:
    """Whether this `.job` file is of a process of this machine that ended without removing it, as a killed one does."""
    host, _, process = running.stem.rpartition("-")
    if host != socket.gethostname():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return running.exists()  # otherwise it ended well after the caller saw the file
    except PermissionError:
        return False
    return False


def _folder() -> Path | None:
    name = os.environ.get(VARIABLE)
    return Path(name) if name and os.path.isdir(name) else None
