"""A stand-in for `appworld serve environment`: the same protocol, with a world of its own and no content of AppWorld's.

Code runs in a namespace with `apis.supervisor.complete_task`, `apis.notes.write` and `once(fault)`: if the folder of
faults has a file of that name, it is removed and the server dies, hangs or breaks. The note "done" is a success.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

SUPERVISOR = {"first_name": "Ada", "last_name": "Byron", "email": "ada@example.org", "phone_number": "123"}
TASKS = ("aaaaaa1_1", "aaaaaa1_2", "bbbbbb2_1", "bbbbbb2_2")


def install(folder: Path) -> dict[str, str]:
    """Settings of a root folder that is made here: two lists, difficulties, and the executable."""
    lists = folder / "data" / "datasets"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("aaaaaa1_1\naaaaaa1_2:tag\n\nbbbbbb2_1\n")
    (lists / "dev.txt").write_text("bbbbbb2_2 3\n")
    for task, difficulty in (("aaaaaa1_1", 1), ("aaaaaa1_2", 1), ("bbbbbb2_1", 2)):
        below = folder / "data" / "tasks" / task / "ground_truth"
        below.mkdir(parents=True)
        (below / "metadata.json").write_text(json.dumps({"difficulty": difficulty}))
    command = folder / "appworld"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} "$@"\n')
    command.chmod(0o755)
    return {"root": str(folder), "command": str(command)}


class Broken(Exception):
    """The server answers 500, as the real one does whenever anything goes wrong in it."""


class World:
    """The one world of a server."""

    def __init__(self, task_id, **options):
        if task_id not in TASKS:
            raise Broken(task_id)
        self.task_id, self.options, self.complete, self.notes = task_id, options, False, []
        supervisor = SimpleNamespace(complete_task=self.complete_task)
        apis = SimpleNamespace(supervisor=supervisor, notes=SimpleNamespace(write=self.notes.append))
        self.names = {"apis": apis, "once": once, "port": PORT}

    def complete_task(self):
        self.complete = True

    def execute(self, code):
        if not code.strip():
            return "No code available to execute."
        shown = io.StringIO()
        try:
            with contextlib.redirect_stdout(shown):
                exec(code, self.names)
        except Broken:
            raise
        except Exception:
            last = traceback.format_exc().splitlines()[-1]
            return f'Execution failed. Traceback:\n  File "<python-input>", line 1\n{last}'
        return shown.getvalue() or "Execution successful."

    def task_completed(self):
        return self.complete

    def evaluate(self, suppress_errors, report):
        assert (suppress_errors, report) == (True, False)
        passes = [{"requirement": "complete", "label": None}] * self.complete
        passes += [{"requirement": "note", "label": None}] * ("done" in self.notes)
        failures = [{}] * (2 - len(passes))
        fine = len(passes) == 2
        return {"success": fine, "difficulty": 1, "num_tests": 2, "passes": passes, "failures": failures}


def once(fault):
    flag = ROOT / "faults" / fault
    if not flag.exists():
        return
    if not fault.startswith("always"):
        flag.unlink()
    if "die" in fault:
        os._exit(1)
    if "hang" in fault:
        time.sleep(60)
    raise Broken(fault)


class Handler(BaseHTTPRequestHandler):
    world = None

    def do_GET(self):
        task_id = self.path.rpartition("/")[2]
        if not task_id:
            return self.answer(200, {"message": "Welcome"})
        return self.guarded(lambda: described(task_id))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method = self.path[1:]
        if "ground_truth_mode" in body:  # the real one has a wrong list of its values
            return self.answer(422, {"detail": "unexpected value; permitted: 'fullminimal'"})
        if method == "initialize":
            return self.guarded(lambda: self.opened(body))
        if Handler.world is None or Handler.world.task_id != body.pop("task_id"):
            return self.answer(500, None)
        return self.guarded(lambda: getattr(Handler.world, method)(**body))

    def opened(self, body):
        Handler.world = World(**body)
        return described(body["task_id"])

    def guarded(self, call):
        try:
            return self.answer(200, {"output": call()})
        except Broken:
            return self.answer(500, None)

    def answer(self, status, body):
        raw = b"Internal Server Error" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_):
        """Say nothing."""


def described(task_id):
    if task_id not in TASKS:
        raise Broken(task_id)
    when = "2023-05-18T12:00:00"
    return {"task_id": task_id, "instruction": f"do {task_id}.", "supervisor": SUPERVISOR, "datetime": when}


PORT, ROOT = 0, Path()

if __name__ == "__main__":
    given = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
    assert sys.argv[1:3] == ["serve", "environment"]
    assert "--no-show-usage" in sys.argv
    if not (Path(given["--root"]) / "data").exists():
        sys.exit("Exception: Did not find any ./data in the AppWorld's root directory")
    PORT, ROOT = int(given["--port"]), Path(given["--root"])
    ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
