"""Hashes of what stages write: a process reads a file once for its hash, and a changed file is never taken for it."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from turncredit.data import provenance
from turncredit.data.provenance import PROVENANCE_FILE
from turncredit.data.tables import TableError
from turncredit.pipeline.job import Job, JobKeys, Slice
from turncredit.policy.open import OpenPolicy
from turncredit.policy.weights import MOMENTS_FILE

WEIGHTS = "model.safetensors"
CHANGED = r"model\.safetensors: not what was written there"


@pytest.fixture
def hashed(monkeypatch):
    """The names of the files that are read for their hash."""
    names, file_hash = [], provenance.file_hash
    monkeypatch.setattr(
        provenance, "file_hash", lambda path, **more: names.append(Path(path).name) or file_hash(path, **more)
    )
    return names


def write(folder: Path) -> Path:
    """What a stage leaves in a folder, as if another process had written it."""
    folder.mkdir()
    (folder / WEIGHTS).write_bytes(b"weights")
    content, files = provenance.folder_hashes(folder)
    (folder / PROVENANCE_FILE).write_text(json.dumps({"content": content, "files": files}))
    return folder


@given(st.dictionaries(st.from_regex(r"([A-Z]/)?[a-z]{1,3}", fullmatch=True), st.binary(max_size=99), max_size=5))
def test_the_hashes_of_a_folder_are_those_of_the_folder_and_of_each_file(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("folder")
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    each = {name: provenance.file_hash(folder / name) for name in files}
    assert provenance.folder_hashes(folder) == (provenance.file_hash(folder), each)


def test_a_file_that_has_not_changed_is_hashed_once(tmp_path, hashed):
    folder = write(tmp_path / "policy")
    hashed.clear()
    for _ in range(3):
        provenance.verify(folder)
    assert hashed == [WEIGHTS]
    folder.rename(tmp_path / "elsewhere")
    provenance.verify(tmp_path / "elsewhere")
    assert hashed == [WEIGHTS]


def flip(file: Path) -> None:
    with file.open("r+b") as handle:
        handle.write(b"W")


def flip_and_keep_the_time(file: Path) -> None:
    before = file.stat()
    flip(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_with_the_same_size_and_time(file: Path) -> None:
    other = file.with_name("other")
    shutil.copy2(file, other)
    flip_and_keep_the_time(other)
    other.replace(file)


@pytest.mark.parametrize("change", [flip, flip_and_keep_the_time, replace_with_the_same_size_and_time, Path.unlink])
def test_a_file_that_has_changed_since_it_was_hashed_is_found(tmp_path, change):
    folder = write(tmp_path / "policy")
    provenance.verify(folder)
    time.sleep(0.02)  # a file system's clock may tick a hundred times a second only
    change(folder / WEIGHTS)
    with pytest.raises(TableError, match=CHANGED):
        provenance.verify(folder)


def test_what_a_job_has_written_is_not_read_again_for_its_hash_whatever_the_engine(tmp_path, hashed):
    job = Job("update", JobKeys(), Slice(), {}, {"policy": str(tmp_path / "policy")}, {})
    with job.folder("policy") as folder:
        (folder / WEIGHTS).write_bytes(b"weights")
    hashed.clear()
    for engine in ("vllm", "lockstep"):
        OpenPolicy(job.output["policy"], dtype="float32", engine=engine).verify()
    assert hashed == []
    time.sleep(0.02)
    flip(tmp_path / "policy" / WEIGHTS)
    with pytest.raises(TableError, match=CHANGED):
        OpenPolicy(job.output["policy"], dtype="float32").verify()


def test_a_damaged_config_of_a_policy_is_named_by_whoever_reads_it_first(tmp_path):
    job = Job("update", JobKeys(), Slice(), {}, {"policy": str(tmp_path / "policy")}, {})
    with job.folder("policy") as folder:
        (folder / "config.json").write_text('{"max_position_embeddings": 512}')
    policy = tmp_path / "policy"
    assert OpenPolicy(policy, dtype="float32").positions == 512
    (policy / "config.json").write_text('{"max_posi')
    with pytest.raises(TableError, match=r"config\.json: not what was written there"):
        _ = OpenPolicy(policy, dtype="float32").positions


def test_damaged_moments_are_named_by_the_update_that_reads_them_and_by_nobody_else(tmp_path):
    job = Job("update", JobKeys(), Slice(), {}, {"policy": str(tmp_path / "policy")}, {})
    with job.folder("policy") as folder:
        (folder / WEIGHTS).write_bytes(b"weights")
        save_file({"0.exp_avg": torch.ones(2)}, folder / MOMENTS_FILE)
    policy = OpenPolicy(job.output["policy"], dtype="float32")
    assert policy.moments()["0.exp_avg"].tolist() == [1, 1]
    time.sleep(0.02)
    data = bytearray((policy.folder / MOMENTS_FILE).read_bytes())
    data[-1] ^= 1
    (policy.folder / MOMENTS_FILE).write_bytes(data)
    policy.verify()
    with pytest.raises(TableError, match=r"optimizer\.safetensors: not what was written there"):
        policy.moments()
