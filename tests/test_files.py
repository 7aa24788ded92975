"""Artifacts are there whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from turncredit.data import files
from turncredit.data.files import new_file, new_folder
from turncredit.pipeline import job_script


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    with new_folder(tmp_path / "policy") as folder:
        (folder / "weights").write_text("one")
        assert not (tmp_path / "policy").exists()
    with pytest.raises(RuntimeError, match="killed"), new_folder(tmp_path / "policy") as folder:  # noqa: PT012
        (folder / "weights").write_text("half")
        raise RuntimeError("killed")
    assert (tmp_path / "policy" / "weights").read_text() == "one"
    with new_folder(tmp_path / "policy") as folder:
        (folder / "other").write_text("two")
    assert os.listdir(tmp_path) == ["policy"]
    assert os.listdir(tmp_path / "policy") == ["other"]


@pytest.mark.parametrize("there", [True, False], ids=["a link", "a link to nothing"])
def test_a_new_folder_replaces_a_link_and_leaves_what_it_points_to(tmp_path, there):
    disk, policy = tmp_path / "disk", tmp_path / "round01" / "policy"
    policy.parent.mkdir()
    policy.symlink_to(disk)
    if there:
        disk.mkdir()
        (disk / "weights").write_text("one")
    with new_folder(policy) as folder:
        (folder / "weights").write_text("two")
    assert not policy.is_symlink()
    assert (policy / "weights").read_text() == "two"
    assert not there or (disk / "weights").read_text() == "one"
    assert [path.name for path in policy.parent.iterdir()] == ["policy"]


def test_a_link_to_a_folder_is_removed_alone_also_where_a_killed_job_has_left_it(tmp_path):
    disk, place = tmp_path / "disk", tmp_path / "round01"
    for folder in (disk, place):
        folder.mkdir()
    (disk / "weights").write_text("one")
    for name in ("policy", ".policy.0123.old"):
        (place / name).symlink_to(disk)
    files.remove_folder(place / "policy")
    job_script.clear_leftovers([str(place / "policy")])
    assert not list(place.iterdir())
    assert (disk / "weights").read_text() == "one"


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o007, 0o660)])
def test_weights_in_a_folder_can_be_read_by_whom_the_umask_says(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        with new_folder(tmp_path / "policy") as folder:
            save_file({"weight": torch.zeros(2)}, folder / "model.safetensors")
    finally:
        os.umask(before)
    assert (tmp_path / "policy" / "model.safetensors").stat().st_mode & 0o777 == mode


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "turns.csv"
    with new_file(path) as part:
        part.write_text("one")
        assert not path.exists()
    with pytest.raises(RuntimeError, match="killed"), new_file(path) as part:  # noqa: PT012
        part.write_text("half")
        raise RuntimeError("killed")
    assert path.read_text() == "one"
    assert os.listdir(path.parent) == ["turns.csv"]


@pytest.mark.parametrize(
    ("write", "content", "expected"),
    [
        (files.write_bytes, b"\x00\xff", b"\x00\xff"),
        (files.write_text, "é\n", "é\n".encode()),
        (files.write_json, {"path": Path("a/b"), "rounds": [1]}, b'{\n "path": "a/b",\n "rounds": [\n  1\n ]\n}\n'),
    ],
)
def test_what_is_written_replaces_what_was_there(tmp_path, write, content, expected):
    path = tmp_path / "new" / "artifact"
    for _ in range(2):
        write(path, content)
        assert path.read_bytes() == expected
    assert os.listdir(path.parent) == ["artifact"]


def test_what_cannot_be_written_leaves_what_was_there(tmp_path):
    path = tmp_path / "metrics.json"
    files.write_json(path, {"loss": 1})
    with pytest.raises(TypeError, match="keys must be str"):
        files.write_json(path, {("a", "tuple"): 1})
    assert json.loads(path.read_text()) == {"loss": 1}
    assert os.listdir(tmp_path) == ["metrics.json"]


@pytest.mark.parametrize(
    ("kind", "output"), [("file", "policy"), ("folder", "policy"), ("folder", "policy/index.html")]
)
def test_what_a_killed_process_leaves_is_not_the_artifact_and_is_cleared_by_the_next_job(tmp_path, kind, output):
    path = tmp_path / "policy"
    code = f"""
import os, signal
from turncredit.data.files import new_{kind}
with new_{kind}({str(path)!r}) as part:
    (part / "weights" if part.is_dir() else part).write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    (left,) = os.listdir(tmp_path)
    assert left.startswith(".policy.")
    assert left.endswith(".part")
    job_script.clear_leftovers([str(tmp_path / output)])
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_being_removed_has_lost_its_name_first(tmp_path, monkeypatch):
    """A policy of 7B takes seconds to remove; half of it by its name would count as the policy."""

    def killed(*_, **__):
        raise KeyboardInterrupt("killed")

    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "weights").write_text("one")
    monkeypatch.setattr(files.shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt, match="killed"):
        files.remove_folder(tmp_path / "policy")
    monkeypatch.undo()
    (left,) = os.listdir(tmp_path)
    assert left.startswith(".policy.")
    assert left.endswith(".old")
    job_script.clear_leftovers([str(tmp_path / "policy")])
    assert os.listdir(tmp_path) == []
    files.remove_folder(tmp_path / "policy")  # nothing is there, and nothing happens
