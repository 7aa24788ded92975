"""The servers of a process, started when needed or already running; each serves one rollout at a time.

A server has one world, so a rollout has a server to itself from its reset to its end. Servers that this process started
end with it, and one that fails is replaced by a new one. A server's address is locked, so that no other process of this
machine uses it as well. One that was running already is not used again after it has failed.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from turncredit.envs.appworld.client import Server
from turncredit.envs.appworld.settings import Settings
from turncredit.errors import UserError

START_SECONDS = 180.0
"""Until a started server must answer."""

PROBE_SECONDS = 5.0


class Servers:
    """The servers that these settings name, for the rollouts of this process."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self._lock = threading.Lock()
        self._free: list[Server] = []
        self._untried = list(settings.urls)
        self._starting = 0
        self._lent: dict[Server, None] = {}
        self._processes: dict[Server, subprocess.Popen] = {}
        self._locks: dict[Server, IO[str]] = {}

    def lend(self) -> Server:
        """A server for one rollout. Raises UserError where there is none left, or none can be started."""
        with self._lock:
            if self._free:
                server = self._free.pop()
                self._lent[server] = None
                return server
            if not self._settings.urls:
                if len(self._lent) + self._starting >= self._settings.servers:
                    raise UserError(
                        f"environment 'appworld': all {self._settings.servers} servers have a rollout; set "
                        "rollout.slots to env.appworld.servers at most, or raise that"
                    )
                self._starting += 1
        server = self._running() if self._settings.urls else self._started()
        with self._lock:
            self._lent[server] = None
        return server

    def give_back(self, server: Server) -> None:
        """Take back a server whose rollout has ended."""
        with self._lock:
            del self._lent[server]
            self._free.append(server)

    def discard(self, server: Server) -> None:
        """Give up a server that has failed."""
        with self._lock:
            del self._lent[server]
            process, lock = self._processes.pop(server, None), self._locks.pop(server, None)
        if process is not None:
            _end(process)
        if lock is not None:
            lock.close()

    def close(self) -> None:
        """End all servers that were started, and release the addresses."""
        for process in self._processes.values():
            _end(process)
        for lock in self._locks.values():
            lock.close()

    def _running(self) -> Server:
        """One of the servers that were already running."""
        while True:
            with self._lock:
                if not self._untried:
                    raise UserError(
                        f"environment 'appworld': none of the {len(self._settings.urls)} servers of env.appworld.urls "
                        "is free: each has a rollout, is used by another process, or does not answer; set "
                        "rollout.slots to their number at most, and see that they run"
                    )
                server = Server(self._untried.pop(0))
                lock = _locked(server.url)
                if lock is not None:
                    self._locks[server] = lock
            if lock is not None:
                if server.ready(PROBE_SECONDS):
                    return server
                self._locks.pop(server).close()

    def _started(self) -> Server:
        server = None
        try:
            root = root_folder(self._settings)
            if shutil.which(self._settings.command) is None:
                raise UserError(
                    f"environment 'appworld': no executable '{self._settings.command}'; install AppWorld in an "
                    "environment of its own and set env.appworld.command to its bin/appworld "
                    "(docs/environments/appworld.md)"
                )
            server = self._reserved()
            port = server.url.rpartition(":")[2]
            command = [self._settings.command, "serve", "environment", "--port", port, "--no-show-usage"]
            if root is not None:
                command += ["--root", str(root)]
            log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - the server writes it
            # Its own session, so that all that it has started can be ended with it.
            process = subprocess.Popen(
                [sys.executable, "-m", "turncredit.data.process_lifetime", *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=_harmless(os.environ),
                start_new_session=True,
            )
            deadline = time.monotonic() + START_SECONDS
            # What answers is another program where this one has ended, because it could not have the port.
            while not server.ready(PROBE_SECONDS) or process.poll() is not None:
                if process.poll() is not None or time.monotonic() > deadline:
                    why = "ended" if process.poll() is not None else f"did not answer within {START_SECONDS:g} s"
                    _end(process)
                    log.seek(0)
                    output = " ".join(log.read().split())[-300:]
                    raise UserError(
                        f"environment 'appworld': `{' '.join(command)}` {why}: {output or 'it said nothing'}; see "
                        "docs/environments/appworld.md for env.appworld.command and env.appworld.root"
                    )
                time.sleep(0.1)
            with self._lock:
                self._processes[server] = process
            return server
        except BaseException:
            if server is not None:
                self._locks.pop(server).close()
            raise
        finally:
            with self._lock:
                self._starting -= 1

    def _reserved(self) -> Server:
        """A free port of this machine, locked: it is free again until the server listens, which takes seconds."""
        while True:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                server = Server(f"http://127.0.0.1:{free.getsockname()[1]}")
            with self._lock:
                lock = _locked(server.url)
                if lock is not None:
                    self._locks[server] = lock
                    return server


def _harmless(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables for a server: it executes a policy's code, which must not find any keys in them."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH")
    return {name: value for name, value in environ.items() if name in kept or name.startswith(("LC_", "APPWORLD_"))}


def root_folder(settings: Settings) -> Path | None:
    """AppWorld's root folder; None where it is not known."""
    root = settings.root or os.environ.get("APPWORLD_ROOT")
    return Path(root).expanduser().resolve() if root else None


def check_installed(settings: Settings) -> None:
    """Raise UserError, one line, where nothing says where AppWorld is. Where it is, its tasks and servers say more."""
    if not settings.urls and root_folder(settings) is None and shutil.which(settings.command) is None:
        raise UserError(
            f"environment 'appworld': there is no executable '{settings.command}' and no root folder, and this project "
            "has no tasks of it (their licence): install AppWorld, download its data, and set env.appworld.command and "
            "env.appworld.root (or $APPWORLD_ROOT), as docs/environments/appworld.md says"
        )


def _locked(url: str) -> IO[str] | None:
    """A lock on a server's address, held until it is closed or the process ends; None if another process has it."""
    name = f"turncredit-appworld-{hashlib.sha256(url.encode()).hexdigest()[:16]}.lock"
    path = Path(tempfile.gettempdir()) / name
    try:
        lock = open(path, encoding="utf-8")  # noqa: SIM115 - held open; another user's file can be read and locked, but not written
    except FileNotFoundError:
        lock = open(path, "w", encoding="utf-8")  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _end(process: subprocess.Popen) -> None:
    """Kill a server with its child processes: one that hangs would not react to anything else."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


#: by process, because a forked one must not use its parent's, and settings
_all: dict[tuple[int, Settings], Servers] = {}
_all_lock = threading.Lock()


def servers(settings: Settings) -> Servers:
    """The servers of these settings in this process. They end with it."""
    key = os.getpid(), settings
    with _all_lock:
        if key not in _all:
            _all[key] = Servers(settings)
            atexit.register(_all[key].close)
        return _all[key]
