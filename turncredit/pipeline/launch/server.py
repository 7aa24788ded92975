"""The warm server: imports libraries once, forks a process per job, and ends with Snakemake.

Started by `turncredit.pipeline.launch.start` as
`python -m turncredit.pipeline.launch.server FOLDER LISTENER PARENT MODULE...`. Each request gets two forks: an
*attendant*, which passes on signals and the exit status and ends whatever the job leaves running, and the job.

A job shares with the server, and so with all other jobs of the run: the imported modules as they were when the server
was ready (their pages until one writes to them), the hash seed, and what libraries read from the environment when they
were imported; a job whose environment differs in these variables is refused. Each job has its own streams, environment,
folder, umask, signal handlers, random state and exit handlers. Exit handlers of the libraries that the server has
imported are skipped.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import weakref
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

from turncredit.data.process_lifetime import adopt_orphans, end_with_parent, kill_descendants
from turncredit.pipeline.launch import ONE_THREAD

#: Environment variables that must be the same in the server and in a job: libraries read them when imported.
SAME_ENV = (
    "PYTHON",
    *("OMP_", "MKL_", "OPENBLAS_", "KMP_", "TORCH", "CUDA", "LD_", "HF_", "TRANSFORMERS_", "TOKENIZERS_"),
)


def main(folder: str, listener: int, parent: int, modules: list[str]) -> None:
    """Serve until the process `parent`, which started this one, ends. Forked jobs run their script in here."""
    outcome, environment = SimpleNamespace(status=0), library_env(os.environ)  # imports may change it
    atexit.register(leave, outcome)  # the first registered is the last called
    signal.signal(signal.SIGTERM, lambda *_: end(folder))
    try:
        end_with_parent(parent=parent)
        with no_exit_work():
            for name in modules:
                with contextlib.suppress(ImportError):  # a job that needs it reports the error
                    import_module(name)
        # Jobs share these pages; a garbage collection in one would copy them.
        gc.collect()
        gc.freeze()
        job = serve(socket.socket(fileno=listener), environment)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    outcome.status = execute(job["script"])


def end(folder: str | None = None) -> None:
    """Handle SIGTERM: clean up and end, without an exception that imported code might swallow.

    A second SIGTERM, which the kernel may send when the server dies, does not interrupt it. The server removes its
    folder; an attendant (no folder) ends all that its job has started.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if folder is None:
        kill_descendants()
    else:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


@contextlib.contextmanager
def no_exit_work() -> Iterator[None]:
    """Skip exit handlers that libraries register in this block: torch's takes 0.06 s in every job."""
    register, finalize = atexit.register, weakref.finalize

    class NotAtExit(finalize):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            self.atexit = False

    def register_own(function, *arguments, **named):
        if (getattr(function, "__module__", None) or "").partition(".")[0] in sys.stdlib_module_names:
            register(function, *arguments, **named)
        return function

    atexit.register, weakref.finalize = register_own, NotAtExit
    try:
        yield
    finally:
        atexit.register, weakref.finalize = register, finalize


def serve(listener: socket.socket, environment: dict[str, str]) -> dict:
    """Fork an attendant for each request, forever. Returns in forked jobs only: the job that this process runs."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for attendants
    server = os.getpid()
    while True:
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return attend(client, server, environment)
        client.close()


def attend(client: socket.socket, server: int, environment: dict[str, str]) -> dict:
    """Fork the job that `client` requests and attend to it. Returns in the job only; the attendant ends in here."""
    attendant = os.getpid()
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, lambda *_: end())
        adopt_orphans()
        end_with_parent(parent=server)
        head, streams, _, _ = socket.recv_fds(client, 4, 3)
        job = json.loads(client.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
        if library_env(job["env"]) == environment:
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.setsid()
                end_with_parent(signal.SIGKILL, parent=attendant)
                become(job, streams)
                client.sendall(b"started\n")
                client.close()
                return job
            for stream in streams:
                os.close(stream)
            status = follow(client, pid)
            kill_descendants()
            client.sendall(f"{status}\n".encode())
    finally:
        if os.getpid() == attendant:  # even if the server has ended, or the client sent nothing
            kill_descendants()
            os._exit(0)


def follow(client: socket.socket, pid: int) -> int:
    """Pass on the signals that the client catches until the job ends; returns its exit status, negative for a signal.

    If the client has ended, the job is killed.
    """
    ended = os.pidfd_open(pid)
    while ended not in select.select([client, ended], [], [])[0]:
        caught = client.recv(16)
        for number in caught or [signal.SIGKILL]:
            os.killpg(pid, number)
        if not caught:
            break
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def become(job: dict, streams: list[int]) -> None:
    """Take over the client's streams, environment and folder, as `python SCRIPT` would have found them."""
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    sys.stdout.reconfigure(line_buffering=True)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.umask(job["umask"])
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    if "torch" in sys.modules and threads != ONE_THREAD["OMP_NUM_THREADS"]:
        sys.modules["torch"].set_num_threads(int(threads))
    if "tempfile" in sys.modules:
        sys.modules["tempfile"].tempdir = None
    if "numpy" in sys.modules:  # its global generator would otherwise be the same in every job
        sys.modules["numpy"].random.seed()


def execute(script: str) -> int:
    """Run the file as `__main__`; returns the exit status that Python would have, negative for a signal."""
    sys.modules["__main__"] = module = ModuleType("__main__")
    module.__file__ = script
    sys.argv = [script]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        exec(compile(Path(script).read_bytes(), script, "exec"), module.__dict__)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        below = error.__traceback__ and error.__traceback__.tb_next  # without this function's own line
        sys.excepthook(type(error), error.with_traceback(below), below)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def leave(outcome: SimpleNamespace) -> None:
    """End this process with `outcome.status`, without Python's own finalisation, which takes half a second."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if outcome.status < 0:
        signal.signal(-outcome.status, signal.SIG_DFL)
        os.kill(os.getpid(), -outcome.status)
    os._exit(outcome.status)


def library_env(env: dict[str, str]) -> dict[str, str]:
    """The variables that libraries read on import, except the number of threads, which each job sets."""
    return {name: value for name, value in env.items() if name.startswith(SAME_ENV) and name not in ONE_THREAD}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
