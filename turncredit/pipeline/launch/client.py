"""The shell with which Snakemake starts a job: has the warm server fork it, or runs it as a plain process.

Started as `python -IS client.py ADDRESS -c COMMAND`. Standard library only, and little of it: this is the whole cost of
starting a job. Exit status, output and signals are those of the job.
"""

import json
import os
import shlex
import signal
import socket
import sys


def main() -> None:
    """Run the command of the command line, warm if possible, and end with its exit status."""
    address, *arguments = sys.argv[1:]
    script = script_of(arguments[1]) if len(arguments) == 2 and arguments[0] == "-c" else None
    if script:
        run_warm(address, script)
    # Nothing has been started: run the command in the shell that Snakemake would have used.
    os.execv("/bin/bash", ["/bin/bash", "-euo", "pipefail", *arguments])


def script_of(command: str) -> str | None:
    """The script in `PYTHON SCRIPT` if PYTHON is this interpreter, else None."""
    try:
        python, script = shlex.split(command)
    except ValueError:
        return None
    return script if python == sys.executable and script.endswith(".py") and os.path.isfile(script) else None


def run_warm(address: str, script: str) -> None:
    """Pass `script` to the server at `address` and never return; returns only if the server does not accept it."""
    snakemake = os.getppid()
    umask = os.umask(0)
    os.umask(umask)
    job = {"script": script, "cwd": os.getcwd(), "umask": umask, "env": dict(os.environ)}
    body = json.dumps(job).encode()
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(address)
        socket.send_fds(server, [len(body).to_bytes(4, "big")], [0, 1, 2])
        server.sendall(body)
        replies = server.makefile()
        if replies.readline() != "started\n":
            return
    except OSError:
        return
    # Whatever ends this process ends the job: these signals are passed on, and the server notices KILL by the closed
    # socket.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda caught, _frame: server.send(bytes([caught])))
    try:
        status = replies.readline()
    except OSError:
        status = ""
    if status:
        if int(status) < 0:
            signal.signal(-int(status), signal.SIG_DFL)
            os.kill(os.getpid(), -int(status))
        os._exit(int(status))
    if os.getppid() == snakemake:  # else Snakemake was killed, and the server with it
        os.write(
            2, b"The warm launcher ended while it ran this job (out of memory?). Run the same command again; if it"
        )
        os.write(2, b" happens twice, add `--config launcher=plain`.\n")
    os._exit(1)


if __name__ == "__main__":
    main()
