"""A world is made once for each state of the code and of the configuration."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests import worlds


@pytest.fixture
def code(tmp_path):
    (tmp_path / "package" / "inside").mkdir(parents=True)
    for name in ("a.py", "inside/b.py"):
        (tmp_path / "package" / name).write_text("x = 1\n")
    return tmp_path / "package"


def test_an_edit_a_new_file_and_another_configuration_make_another_world(code):
    keys = [worlds.key({"rounds": 2}, [code]), worlds.key({"rounds": 3}, [code])]
    (code / "inside" / "b.py").write_text("x = 2\n")
    keys.append(worlds.key({"rounds": 2}, [code]))
    (code / "c.py").write_text("")
    keys.append(worlds.key({"rounds": 2}, [code]))
    (code / "c.py").rename(code / "d.py")
    keys.append(worlds.key({"rounds": 2}, [code]))
    assert len(set(keys)) == 5
    (code / "d.py").unlink()
    (code / "inside" / "b.py").write_text("x = 1\n")
    (code / "notes.md").touch()
    assert worlds.key({"rounds": 2}, [code]) == keys[0]


def test_processes_that_ask_at_once_get_one_world_and_a_failed_one_leaves_nothing(tmp_path):
    made = []

    def make(folder):
        made.append(folder)
        (folder / "turns").write_text("some")

    def fail(folder):
        make(folder)
        raise RuntimeError("half made")

    with pytest.raises(RuntimeError, match="half made"):
        worlds.kept(tmp_path, "one", fail)
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: worlds.kept(tmp_path, "one", make), range(4)))
    assert found == {tmp_path / "one"}
    assert (len(made), (tmp_path / "one" / "turns").read_text()) == (2, "some")
    for number in range(worlds.KEPT):
        worlds.kept(tmp_path, f"later{number}", make)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["later0", "later1", "later2", "lock"]
