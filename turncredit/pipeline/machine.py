"""What of the account and the paths on this machine would stop Snakemake itself, whatever the experiment."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterator
from pathlib import Path

#: Snakemake's command. -P: a file in this folder, such as a method's `random.py`, is no module of that name.
SNAKEMAKE = (sys.executable, "-P", "-m", "snakemake")


def hide_this_folder_from_imports() -> None:
    """Let no process started from here take a file in its working folder for a module, as `-P` does for one."""
    os.environ["PYTHONSAFEPATH"] = "1"


def name_the_user() -> None:
    """Give a user id without a name one, as in containers that run with any id: Snakemake and others ask for it."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = f"uid{os.getuid()}"


def cache_folder() -> Path:
    """The folder below which Snakemake and the hub keep their caches: `$XDG_CACHE_HOME` or `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))


#: Snakemake's state in the folder in which it runs, and the parts of it that even a dry run writes.
STATE, IN_STATE = Path(".snakemake"), ("", "locks", "metadata", "incomplete", "iocache")


def folder_mistakes() -> Iterator[str]:
    """A line for each folder that Snakemake itself writes and cannot: its cache, and its state in this folder."""
    if not _writable(cache_folder()):
        yield f"{cache_folder()}: Snakemake cannot write its cache there; set HOME or XDG_CACHE_HOME to another folder"
    if (line := state_mistake()) is not None:
        yield line


def state_mistake() -> str | None:
    """A line if Snakemake cannot write its state in this folder, as in one of another user's."""
    closed = next((path for path in map(STATE.joinpath, IN_STATE) if not _writable(path)), None)
    if closed is None:
        return None
    if not STATE.is_dir():
        return f"{Path.cwd()}: Snakemake cannot write its state ({STATE}) there; change to a folder that can be written"
    return _not_yours(next(path for path in (closed, *closed.parents) if path.exists()))


def _not_yours(folder: Path) -> str:
    try:
        owner = folder.owner()
    except (KeyError, OSError):
        owner = "another user"
    return (
        f"{folder.absolute()}: Snakemake cannot write its state there (it belongs to {owner}); run in a folder of your "
        "own, or share it (a group that may write, umask 002)"
    )


def interpreter_mistakes() -> Iterator[str]:
    """A line if Snakemake cannot start jobs with this interpreter: it does not quote its path."""
    if len(sys.executable.split()) > 1:
        yield (
            f"{sys.executable}: the path of this Python has a space in it, and Snakemake "
            "starts no job with such a one; make the environment in another folder"
        )


def _writable(path: Path) -> bool:
    """Whether a folder can be written, or made in the nearest folder above it that is there."""
    there = next((one for one in (path, *path.absolute().parents) if one.exists()), path)
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
