"""The shell that Snakemake starts a job with: asks a warm server for it, or runs it as a plain process.

Started as `python -IS client.py FOLDER SCRIPT=SERVER,... -c COMMAND`; other scripts go to the heavy server. Standard
library only, and little of it: this is the whole cost of a job's start. Exit status, output and signals are the
job's own.
"""

import array
import os
import signal
import socket
import sys

SHELL = "/bin/bash"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main() -> None:
    """Run the command line's command, warm where possible, and end as it ended."""
    folder, places, *arguments = sys.argv[1:]
    if len(arguments) == 2 and arguments[0] == "-c":
        script = _script_of(arguments[1])
        if script is not None:
            # Snakemake runs a copy of the script, called tmpXXXXXXXX.NAME.py.
            name = script.rpartition("/")[2].split(".")[-2]
            server = dict(place.split("=") for place in places.split(",")).get(name, "heavy")
            _run_warm(f"{folder}/{server}", script)
    # Nothing has been started: the command goes to the shell that Snakemake would have used.
    strict = ["-euo", "pipefail"]
    os.execv(SHELL, [SHELL, *strict, *arguments])


def _script_of(command: str) -> str | None:
    """The script in `PYTHON SCRIPT` where PYTHON is this very interpreter, else None."""
    words = command.split(" ") if "'" not in command and '"' not in command else _split(command)
    if len(words) != 2 or words[0] != sys.executable or not words[1].endswith(".py"):
        return None
    return words[1] if os.path.isfile(words[1]) else None


def _split(command: str) -> list[str]:
    import shlex

    try:
        return shlex.split(command)
    except ValueError:
        return []


def _run_warm(address: str, script: str) -> None:
    """Hand `script` to the server at `address` and never return, or return where the server cannot have it."""
    import json

    snakemake = os.getppid()
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.connect(address)
    except OSError:
        return
    umask = os.umask(0)
    os.umask(umask)
    request = {"script": script, "cwd": os.getcwd(), "umask": umask, "env": dict(os.environ)}
    body = json.dumps(request).encode("utf-8", "surrogateescape")
    streams = array.array("i", [0, 1, 2])
    try:
        server.sendmsg([len(body).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        server.sendall(body)
        # Whatever ends this process ends the job: INT, TERM, ... are passed on, KILL is seen as a closed socket.
        for number in SIGNALS:
            signal.signal(number, lambda caught, _frame: server.sendall(bytes([caught])))
        replies = server.makefile("r")
        first = replies.readline()
    except OSError:
        return
    if first != "started\n":
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        return
    try:
        kind, _, value = replies.readline().partition(" ")
    except OSError:
        kind = value = ""
    if kind == "exit":
        os._exit(int(value))
    if kind == "signal":
        signal.signal(int(value), signal.SIG_DFL)
        os.kill(os.getpid(), int(value))
    if os.getppid() != snakemake:
        os._exit(1)  # Snakemake was killed, and the launcher went with it
    os.write(2, b"The warm launcher ended while it ran this job. Run the same command again; if it happens twice,\n")
    os.write(2, b"add `--config launcher=plain` and look for the kernel's out-of-memory messages.\n")
    os._exit(1)


if __name__ == "__main__":
    main()
