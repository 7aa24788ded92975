"""Take over the lock of a Snakemake that was killed.

After `kill -9` Snakemake's lock on its folder stays, and the next run is refused. Every main process therefore records
itself. If all recorded processes but this one have ended, the lock is stale and is removed.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turncredit.errors import UserError, unusable


def take_over(state: Path, experiment: str = "", *, unlocking: bool = False) -> bool:
    """Record this process in `state` (Snakemake's folder); remove a lock that no living process can hold.

    Returns whether a lock was removed. If a process on another machine is recorded, the lock is left to `--unlock`. By
    that (`unlocking`) the user says that such processes have ended, and they are forgotten. `experiment` is the folder
    of the results that the process makes.

    Where `state` cannot be written, as in dry runs and summaries of another user's folder, nothing is recorded.
    """
    me = identity(os.getpid())
    if me is None:
        return False
    records = state / "turncredit-processes"
    try:
        records.mkdir(parents=True, exist_ok=True)
        own = {**me, "experiment": experiment}
        (records / f"{socket.gethostname()}-{os.getpid()}.json").write_text(json.dumps(own), encoding="utf-8")
    except OSError as error:
        if unusable(error) is None:
            raise
        return False
    locked = any((state / "locks").glob("*.lock"))
    for path in records.glob("*.json"):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except OSError:
            return False  # another process has just removed it
        except ValueError:  # a process is just starting and writing it, or has found the disk full
            record = _named(path)
        elsewhere = record["host"] != me["host"]
        if _same(record, me):
            continue
        if (elsewhere and not unlocking) or lives(record):
            return False
        path.unlink(missing_ok=True)
    if locked:
        shutil.rmtree(state / "locks", ignore_errors=True)
        (state / "locks").mkdir(exist_ok=True)
    return locked


def _named(path: Path) -> dict[str, Any]:
    """The process that a record is called after, whatever it says: the one of that number now, if there is one."""
    host, _, number = path.stem.rpartition("-")
    running = identity(int(number)) if host == socket.gethostname() else None
    return running or {"host": host, "pid": int(number), "boot": _boot()}


def holder(state: Path, experiment: str | None = None) -> tuple[str, int] | None:
    """Host and process id of the Snakemake that works in the folder of `state`: here, or elsewhere with a lock.

    With `experiment`, the one that makes the results in this folder: several may work beside one another.
    """
    for path in (state / "turncredit-processes").glob("*.json"):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if experiment is not None and record.get("experiment", experiment) != experiment:
            continue
        elsewhere = record["host"] != socket.gethostname()
        if lives(record) or (elsewhere and any((state / "locks").glob("*.lock"))):
            return record["host"], record["pid"]
    return None


def workplaces(experiment: str | Path) -> list[Path]:
    """The folders in which Snakemake has made, or makes, `results/<experiment>`; the most likely one is the first.

    `results` may be a link to another disk: then Snakemake's folder is beside the link, not beside what it points to.
    """
    real, here = Path(experiment).resolve(), Path.cwd()
    folders = [Path(os.path.abspath(experiment)).parent.parent, real.parent.parent]
    if (here / "results" / real.name).resolve() == real:
        folders.insert(1, here)
    return [folder for folder in dict.fromkeys(folders) if (folder / ".snakemake").is_dir()]


def refuse_while_running(experiment: Path) -> None:
    """Raise UserError if a Snakemake works in the folder of `experiment`: what it is making must not be removed."""
    for folder in workplaces(experiment):
        if (other := holder(folder / ".snakemake")) is not None:
            host, process = other
            raise UserError(
                f"{experiment}: nothing is removed while a run works in {folder} (process {process} on {host}); "
                "wait until it ends"
            )


def being_made(state: Path) -> dict[str, str | None]:
    """The outputs that Snakemake has marked as being made, each with the id of the cluster's job that makes it, if any.

    A mark is a file named after the path in base64, in as many folders (`@...`) as it needs.
    """
    job_ids = {}
    folder = state / "incomplete"
    for path in folder.rglob("*"):
        if not path.is_file() or path.name == "migration_underway":
            continue
        try:
            name = "".join(part.removeprefix("@") for part in path.relative_to(folder).parts)
            job_ids[base64.urlsafe_b64decode(name).decode()] = json.loads(path.read_text(encoding="utf-8")).get(
                "external_jobid"
            )
        except (OSError, ValueError):
            continue  # it has just been removed, or is not a mark
    return job_ids


def lives(process: Mapping[str, Any] | None) -> bool:
    """Whether the process with this `identity` is one of this machine that is running.

    Another user's process may be hidden, as on many login nodes (`/proc` with `hidepid`): then it counts as running if
    its number is in use.
    """
    if process is None or process["host"] != socket.gethostname():
        return False
    running = identity(process["pid"])
    if running is None:
        return process.get("boot") == _boot() and _hidden(process["pid"])
    return _same(process, running)


def _hidden(pid: int) -> bool:
    """Whether a process runs of which `/proc` shows this user nothing."""
    if Path(f"/proc/{pid}").exists():
        return False
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _same(record: Mapping[str, Any], process: Mapping[str, Any]) -> bool:
    """Whether a record is that of the process with this `identity`."""
    return all(record.get(key) == value for key, value in process.items())


def identity(pid: int) -> dict[str, Any] | None:
    """Identifies a process, also against later ones with the same id; None if it is not running."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    state, *numbers = stat.rpartition(")")[2].split()
    started = numbers[18]
    if state in "ZX":  # it has ended, and its parent has not asked how
        return None
    return {"host": socket.gethostname(), "pid": pid, "started": started, "boot": _boot()}


def _boot() -> str:
    """The id of this machine's present boot; '' where it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
