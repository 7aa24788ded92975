"""A base model that is copied to the node's disk is what jobs read, and nothing else changes."""

from __future__ import annotations

import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from turncredit import provenance
from turncredit.config import LoraConfig
from turncredit.policy import models, node_copies
from turncredit.policy.engines.lockstep import Lockstep
from turncredit.policy.open import OpenPolicy
from turncredit.policy.weights import read_weights, weights_folder
from turncredit.provenance import PROVENANCE_FILE
from turncredit.tables import TableError


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
    """The node's disk."""
    monkeypatch.setenv(node_copies.VARIABLE, str(tmp_path / "disk"))
    return tmp_path / "disk"


def test_without_the_variable_the_base_is_read_where_it_is(policy, monkeypatch):
    monkeypatch.delenv(node_copies.VARIABLE, raising=False)
    assert weights_folder(policy) == policy.parent / "base"
    assert weights_folder(policy.parent / "base") == policy.parent / "base"


def test_every_reader_takes_the_weights_from_the_copy(policy, disk, monkeypatch):
    monkeypatch.delenv(node_copies.VARIABLE)
    expected = read_weights(policy)
    monkeypatch.setenv(node_copies.VARIABLE, str(disk))
    copy = weights_folder(policy)
    assert copy.parent == disk
    assert provenance.file_hash(copy) == provenance.file_hash(policy.parent / "base")
    (policy.parent / "base" / "model.safetensors").unlink()
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
    assert [path.name for path in disk.glob("turncredit-*")]
    assert json.loads((after / "policy.json").read_text()) == {"base": "../base"}
    assert str(disk) not in (after / "adapter_config.json").read_text()


def test_jobs_that_start_together_make_one_copy(policy, disk):
    with ThreadPoolExecutor(4) as pool:
        copies = set(pool.map(lambda _: weights_folder(policy), range(8)))
    assert copies == set(disk.glob("turncredit-*"))
    assert not list(disk.glob("*.unfinished"))


def test_what_a_killed_job_has_copied_in_part_is_no_copy(policy, disk):
    copy = weights_folder(policy)
    copy.rename(disk / f".{copy.name}.unfinished")
    (disk / f".{copy.name}.unfinished" / "model.safetensors").unlink()
    assert (weights_folder(policy) / "model.safetensors").is_file()


@pytest.mark.usefixtures("disk")
def test_a_damaged_copy_is_found_before_it_is_read(policy):
    weights = weights_folder(policy) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(TableError, match=rf"^{weights}: not what was written there"):
        OpenPolicy(policy, dtype="float32").model()


def test_where_no_copy_can_be_made_the_base_is_read_and_a_line_says_so(policy, disk, capsys):
    disk.write_text("a file")
    assert weights_folder(policy) == policy.parent / "base"
    assert f"base is read where it is: no copy in {disk} (" in capsys.readouterr().err


def test_copies_that_no_job_has_used_for_a_week_make_room(policy, disk):
    copy = weights_folder(policy)
    old, recent = disk / "turncredit-base-old", disk / "turncredit-base-recent"
    for other, age in ((old, 8), (recent, 6)):
        other.mkdir()
        os.utime(other, (0, time.time() - age * 24 * 3600))
    shutil.rmtree(copy)
    assert weights_folder(policy) == copy
    assert recent.is_dir()
    assert not old.exists()
