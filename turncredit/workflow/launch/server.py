"""A warm server: imports libraries once, forks one isolated child per job, and dies with Snakemake.

Started by `turncredit.workflow.launch.start` as
`python -m turncredit.workflow.launch.server FOLDER LISTENER PARENT WAIT MODULE...`. It has one thread of its own and
never touches a model: what a child inherits is imported code.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import logging
import os
import select
import shutil
import signal
import socket
import sys
import threading
import traceback
import weakref
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType

from turncredit.workflow.launch import ONE_THREAD, SAME_ENV

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Job:
    """A client's request, and the child that runs it."""

    client: socket.socket
    script: str
    cwd: str
    umask: int
    env: dict[str, str]
    streams: list[int]
    pid: int = 0
    pidfd: int = -1


@dataclass
class Server:
    """Sockets and children by file descriptor."""

    listener: socket.socket
    parent: int
    environ: dict[str, str]
    jobs: dict[int, Job] = field(default_factory=dict, repr=False)


def main(folder: Path, listener: int, parent: int, wait: float, modules: list[str]) -> None:
    """Serve until the process `parent`, which started this one, ends.

    What it imports, it imports with the first job, or after `wait` seconds if none has come. A forked child returns
    from `serve` with its job and runs it.
    """
    try:
        server = Server(socket.socket(fileno=listener), os.pidfd_open(parent), dict(os.environ))
    except ProcessLookupError:
        shutil.rmtree(folder, ignore_errors=True)
        return
    # Orphans of a job become ours, so that none outlives it.
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    job = None
    # While it imports, it cannot watch for the parent's end; the kernel then says so with a signal.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    try:
        if os.getppid() == parent:  # it did not end before we asked for the signal
            select.select([server.listener, server.parent], [], [], wait)
            import_all(modules)
            _libc.prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)
            job = serve(server)
    finally:
        if job is None:
            kill_children()
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)  # nothing is left to do, and the libraries would take their time
    run_script(server, job)


def import_all(modules: list[str]) -> None:
    """Import what is there; a job finds out for itself what is not."""
    for name in modules:
        with contextlib.suppress(ImportError):
            import_module(name)
    # Children share these pages; a garbage collection in a child would copy them.
    gc.collect()
    gc.freeze()


def serve(server: Server) -> Job | None:
    """Answer requests; None once the parent has ended. In a forked child: the job that the child is to run."""
    poll = select.poll()
    poll.register(server.parent, select.POLLIN)
    poll.register(server.listener, select.POLLIN)
    while True:
        # The listener comes last: a new job's descriptors may have numbers that ended jobs had in the same batch.
        for descriptor in sorted((ready for ready, _ in poll.poll()), key=server.listener.fileno().__eq__):
            if descriptor == server.parent:
                return None
            if descriptor == server.listener.fileno():
                job = accept(server)
                if job is None:
                    continue
                if fork(server, job) == 0:
                    return job
                poll.register(job.pidfd, select.POLLIN)
                poll.register(job.client, select.POLLIN | select.POLLHUP)
            elif descriptor in server.jobs:
                job = server.jobs[descriptor]
                ended = descriptor == job.pidfd
                if not ended:
                    ended = not forward(job)
                if ended:
                    poll.unregister(job.pidfd)
                    poll.unregister(job.client)
                    finish(server, job)


def accept(server: Server) -> Job | None:
    """Read one request. None, and the client told so, where the job differs too much from what we have imported."""
    client, _ = server.listener.accept()
    client.settimeout(10)
    try:
        head, streams, _, _ = socket.recv_fds(client, 4, 3)
        size = int.from_bytes(head, "big")
        body = bytearray()
        while len(body) < size and (part := client.recv(size - len(body))):
            body += part
        request = json.loads(body.decode("utf-8", "surrogateescape"))
    except (OSError, ValueError):
        client.close()
        return None
    job = Job(client, request["script"], request["cwd"], request["umask"], request["env"], list(streams))
    if len(job.streams) != 3 or _library_env(job.env) != _library_env(server.environ):
        with contextlib.suppress(OSError):
            client.sendall(b"refused\n")
        _close(job)
        return None
    return job


def fork(server: Server, job: Job) -> int:
    """Fork the job's child; returns 0 in it."""
    owner = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    job.pid = os.fork()
    if job.pid == 0:
        os.setsid()
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != owner:
            os._exit(1)
        return 0
    job.pidfd = os.pidfd_open(job.pid)
    server.jobs[job.pidfd] = server.jobs[job.client.fileno()] = job
    for stream in job.streams:
        os.close(stream)
    job.streams = []
    with contextlib.suppress(OSError):  # a client that has gone is seen as a closed socket
        job.client.sendall(b"started\n")
    return job.pid


def forward(job: Job) -> bool:
    """Pass on the signals that the client caught; False where the client has gone, and its job with it."""
    try:
        caught = job.client.recv(16)
    except OSError:
        caught = b""
    for number in caught:
        _kill_group(job.pid, number)
    if not caught:
        _kill_group(job.pid, signal.SIGKILL)
    return bool(caught)


def finish(server: Server, job: Job) -> None:
    """Wait for the child, end what it left behind, and tell the client how it ended."""
    _kill_group(job.pid, signal.SIGKILL)  # what it left behind; itself it has ended, or its client has gone
    _, status = os.waitpid(job.pid, 0)
    how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
    for descriptor in (job.pidfd, job.client.fileno()):
        del server.jobs[descriptor]
    with contextlib.suppress(OSError):
        job.client.sendall(f"{how}\n".encode())
    os.close(job.pidfd)
    _close(job)


def run_script(server: Server, job: Job) -> None:
    """In the child: become `python SCRIPT` with the client's streams, environment and folder; never returns."""
    server.listener.close()
    os.close(server.parent)
    for other in {id(running): running for running in server.jobs.values()}.values():
        os.close(other.pidfd)
        other.client.close()
    for target, stream in enumerate(job.streams):
        os.dup2(stream, target)
        os.close(stream)
    job.client.close()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python itself starts
    os.umask(job.umask)
    os.chdir(job.cwd)
    os.environ.clear()
    os.environ.update(job.env)
    take_threads()
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    forget_exit_work()
    if "tempfile" in sys.modules:
        sys.modules["tempfile"].tempdir = None
    if "numpy" in sys.modules:  # its global generator would otherwise be the same in every job
        sys.modules["numpy"].random.seed()
    os._exit(_execute(job.script))


def take_threads() -> None:
    """Use as many threads as the job asks for: torch would have read it from the environment when it was imported."""
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    if "torch" in sys.modules and threads != ONE_THREAD["OMP_NUM_THREADS"]:
        sys.modules["torch"].set_num_threads(int(threads))


def forget_exit_work() -> None:
    """Drop what the server's imports registered for their exit (torch's takes 0.1 s); a job runs its own."""
    atexit._clear()
    for entry in weakref.finalize._registry.values():
        entry.atexit = False
    weakref.finalize._registered_with_atexit = False  # the job's first finalizer registers them anew
    atexit.register(logging.shutdown)
    if "multiprocessing.util" in sys.modules:
        atexit.register(sys.modules["multiprocessing.util"]._exit_function)


def _execute(script: str) -> int:
    """Run the file as `__main__`; the exit status that Python would give."""
    module = ModuleType("__main__")
    module.__file__ = script
    module.__builtins__ = __builtins__
    sys.modules["__main__"] = module
    sys.argv = [script]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    status = 0
    try:
        exec(compile(Path(script).read_bytes(), script, "exec"), module.__dict__)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if not isinstance(end.code, int | None):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # the interpreter's own last resort: report, exit 1
        kind, error, trace = sys.exc_info()
        traceback.print_exception(kind, error, trace.tb_next if trace else None)
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return status & 0xFF


def _library_env(env: dict[str, str]) -> dict[str, str]:
    """What libraries read when they are imported; `take_threads` sees to the number of threads."""
    return {name: value for name, value in env.items() if name.startswith(SAME_ENV) and name not in ONE_THREAD}


def _kill_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def kill_children() -> None:
    """Kill everything below this process: the orphans of a killed child become children, until none is left."""
    listing = Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := [int(pid) for pid in listing.read_text().split()]:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)


def _close(job: Job) -> None:
    for stream in job.streams:
        os.close(stream)
    job.streams = []
    job.client.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5:])
