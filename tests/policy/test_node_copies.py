"""A base model that is copied to the node's disk is what jobs read, and nothing else changes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from turncredit.config import LoraConfig
from turncredit.data import provenance
from turncredit.data.provenance import PROVENANCE_FILE
from turncredit.data.tables import TableError
from turncredit.policy import models, node_copies
from turncredit.policy.engines.lockstep import Lockstep
from turncredit.policy.open import OpenPolicy
from turncredit.policy.weights import read_weights, weights_folder


@pytest.fixture
def policy(world, tmp_path) -> Path:
    """A policy with an adapter, beside its base, which a stage wrote."""
    shutil.copytree(world.path("base"), tmp_path / "base")
    (tmp_path / "base" / PROVENANCE_FILE).unlink(missing_ok=True)
    content, files = provenance.folder_hashes(tmp_path / "base")
    (tmp_path / "base" / PROVENANCE_FILE).write_text(json.dumps({"content": content, "files": files}))
    model = models.add_lora(models.load_model(tmp_path / "base", dtype="float32"), LoraConfig(rank=2), 0)
    with torch.no_grad():
        for parameter in models.trained_parameters(model).values():
            parameter.fill_(0.1)
    models.save_model(model, tmp_path / "policy", base=tmp_path / "base", final=tmp_path / "policy")
    return tmp_path / "policy"


@pytest.fixture
def disk(tmp_path, monkeypatch) -> Path:
    """The folder of this user's copies on the node's disk."""
    monkeypatch.setenv(node_copies.VARIABLE, str(tmp_path / "disk"))
    return tmp_path / "disk" / f"turncredit-{os.getuid()}"


def test_without_the_variable_the_base_is_read_where_it_is(policy, monkeypatch):
    monkeypatch.delenv(node_copies.VARIABLE, raising=False)
    assert weights_folder(policy) == policy.parent / "base"
    assert weights_folder(policy.parent / "base") == policy.parent / "base"


def test_every_reader_takes_the_weights_from_the_copy(policy, disk, monkeypatch):
    monkeypatch.delenv(node_copies.VARIABLE)
    expected = {name: weight.clone() for name, weight in read_weights(policy).items()}  # else they are the file's
    monkeypatch.setenv(node_copies.VARIABLE, str(disk.parent))
    copy = weights_folder(policy)
    assert copy.parent == disk
    assert provenance.file_hash(copy) == provenance.file_hash(policy.parent / "base")
    weights = policy.parent / "base" / "model.safetensors"
    weights.write_bytes(bytes(weights.stat().st_size))  # so whoever reads it here fails
    found = read_weights(policy)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    opened = OpenPolicy(policy, dtype="float32")
    assert torch.equal(opened.model().get_input_embeddings().weight, expected["model.embed_tokens.weight"])
    Lockstep(str(policy), slots=1, dtype="bfloat16", eos_id=opened.tokenizer.eos_id)


def test_a_policy_that_is_trained_on_names_the_base_and_not_its_copy(policy, disk):
    opened = OpenPolicy(policy, dtype="float32")
    after = policy.parent / "after"
    models.save_model(opened.model(trainable=True), after, base=policy, final=after)
    assert [path.name for path in disk.glob("base-*")]
    assert json.loads((after / "policy.json").read_text()) == {"base": "../base"}
    assert str(disk) not in (after / "adapter_config.json").read_text()


def test_jobs_that_start_together_make_one_copy(policy, disk):
    with ThreadPoolExecutor(4) as pool:
        copies = set(pool.map(lambda _: weights_folder(policy), range(8)))
    assert copies == set(disk.glob("base-*"))
    assert not list(disk.glob("*.unfinished"))


def test_what_a_killed_job_has_copied_in_part_is_no_copy(policy, disk):
    copy = weights_folder(policy)
    copy.rename(disk / f".{copy.name}.unfinished")
    (disk / f".{copy.name}.unfinished" / "model.safetensors").unlink()
    assert (weights_folder(policy) / "model.safetensors").is_file()


@pytest.mark.usefixtures("disk")
@pytest.mark.parametrize("lost", ["model.safetensors", "config.json"])
def test_a_copy_of_which_files_are_gone_is_made_again(policy, lost):
    """As after a purge of the disk that takes single old files."""
    copy = weights_folder(policy)
    (copy / lost).unlink()
    assert weights_folder(policy) == copy
    assert provenance.file_hash(copy) == provenance.file_hash(policy.parent / "base")


@pytest.mark.usefixtures("disk")
def test_a_copy_is_compared_with_its_hashes_once(policy, monkeypatch):
    """At 7B that reads 15 GB."""
    hashed, file_hash = [], provenance.file_hash
    monkeypatch.setattr(provenance, "file_hash", lambda path, **more: hashed.append(path) or file_hash(path, **more))
    for _ in range(2):
        opened = OpenPolicy(policy, dtype="float32")
        opened.model()
        assert opened.tokenizer
    assert hashed.count(weights_folder(policy) / "model.safetensors") == 1
    assert not [path for path in hashed if path.is_relative_to(policy.parent / "base")]


@pytest.mark.usefixtures("disk")
def test_a_copy_with_other_bytes_is_made_again_before_it_is_read(policy):
    weights = weights_folder(policy) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    expected = read_weights(policy.parent / "base")["model.embed_tokens.weight"]
    assert torch.equal(OpenPolicy(policy, dtype="float32").model().get_input_embeddings().weight, expected)
    assert weights.read_bytes() == (policy.parent / "base" / "model.safetensors").read_bytes()


@pytest.mark.usefixtures("disk")
def test_a_damaged_base_is_found_although_its_copy_is_as_damaged(policy):
    weights = policy.parent / "base" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(TableError, match=r"model\.safetensors: not what was written there"):
        OpenPolicy(policy, dtype="float32").model()


def test_where_no_copy_can_be_made_the_base_is_read_and_a_line_says_so(policy, disk, capsys):
    disk.parent.write_text("a file")
    assert weights_folder(policy) == policy.parent / "base"
    assert f"base is read where it is: no copy in {disk} (" in capsys.readouterr().err


def test_on_a_full_disk_nothing_is_left_of_a_copy(policy, disk, monkeypatch, capsys):
    def fills_up(_source, target):
        target.mkdir()
        (target / "config.json").write_text("{")
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    with monkeypatch.context() as at_first:
        at_first.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
        assert weights_folder(policy) == policy.parent / "base"
        assert "GB are needed, 0.0 GB are free" in capsys.readouterr().err
    monkeypatch.setattr(shutil, "copytree", fills_up)
    assert weights_folder(policy) == policy.parent / "base"
    assert "No space left on device" in capsys.readouterr().err
    assert [path.name for path in disk.iterdir() if not path.name.endswith(".lock")] == []


def test_copies_that_no_job_has_used_for_a_week_make_room(policy, disk):
    copy = weights_folder(policy)
    old, recent = disk / "base-old", disk / "base-recent"
    for other, age in ((old, 8), (recent, 6)):
        other.mkdir()
        os.utime(other, (0, time.time() - age * 24 * 3600))
    shutil.rmtree(copy)
    assert weights_folder(policy) == copy
    assert recent.is_dir()
    assert not old.exists()


def test_what_killed_jobs_have_left_of_other_copies_makes_room_unless_it_is_being_made(policy, disk):
    disk.mkdir(parents=True)
    dead, alive = (disk / f".base-{name}.unfinished" for name in ("dead", "alive"))
    dead.mkdir()
    alive.mkdir()
    with (disk / ".base-alive.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        weights_folder(policy)
    assert alive.is_dir()
    assert not dead.exists()
