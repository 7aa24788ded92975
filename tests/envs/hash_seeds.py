"""Whether an environment depends on the order of a set or a dict's hashes, which differs between processes."""

from __future__ import annotations

import os
import subprocess
import sys

#: A program that walks through games of an environment and prints the digest of all that was seen.
WALK = """
import hashlib
from turncredit.envs.{name} import Settings, make_tasks, open_task
settings, text = Settings({settings}), ''
for row in make_tasks('train', {tasks}, 5, settings):
    env = open_task(row, settings)
    text += row['task_id'] + row['goal'] + env.reset()
    for n in range(8):
        text += env.step(env.admissible()[(7 * n + 2) % len(env.admissible())]).observation
        if not env.admissible(): break
print(hashlib.sha256(text.encode()).hexdigest())
"""


def printed_here_and_elsewhere(code: str, capsys) -> tuple[str, str]:
    """What a program prints in this process, and in another one with another hash seed."""
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    other = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    capsys.readouterr()
    exec(code, {})
    return capsys.readouterr().out, other
