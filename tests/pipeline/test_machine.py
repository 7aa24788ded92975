"""What of the folder and the account would stop Snakemake is one line before it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import others_reach

#: As another user, in the argument's folder: what cannot be written.
LOOKS = """
import os, sys
from turncredit.pipeline import machine
os.chdir(sys.argv[1])
os.environ["XDG_CACHE_HOME"] = sys.argv[1]
os.setgroups([]); os.setgid(54321); os.setuid(54321)
print("\\n".join(machine.folder_mistakes()))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("closed", ["", "metadata", None])
def test_snakemakes_state_of_another_user_is_one_line_unless_its_owner_shares_it(tmp_path: Path, closed):
    """Snakemake ends with a traceback there, dry runs too."""
    state = tmp_path / ".snakemake"
    for name in ("", "locks", "metadata"):
        (state / name).mkdir()
        (state / name).chmod(0o755 if name == closed else 0o777)
    others_reach(tmp_path)
    tmp_path.chmod(0o777)
    done = subprocess.run([sys.executable, "-c", LOOKS, str(tmp_path)], capture_output=True, text=True, check=True)
    line = f"{state / (closed or '')}: Snakemake cannot write its state there (it belongs to root)"
    said = [line.partition("; run in a folder of your own")[0] for line in done.stdout.splitlines() if line]
    assert said == ([] if closed is None else [line])
