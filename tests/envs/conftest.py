"""Games for the environment tests."""

from __future__ import annotations

import tarfile
from importlib.util import find_spec
from pathlib import Path

import pytest

DATA = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def released_games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with a few dozen released valid_seen games."""
    archive = DATA / "alfworld_valid_seen.tar.xz"
    if not archive.exists():
        pytest.skip(f"no {archive.name}: the released games are not part of the project")
    root = tmp_path_factory.mktemp("alfworld")
    with tarfile.open(archive) as tar:
        members = [m for m in tar.getmembers() if m.name.endswith("game.tw-pddl")]
        tar.extractall(root, members[::4], filter="data")
    return root


needs_virtualhome = pytest.mark.skipif(
    find_spec("virtualhome") is None, reason="the package virtualhome is not installed: make .venv/.ready-virtualhome"
)
