"""Nothing is loaded by pickle: a loaded file can hold code, and rollouts, models and tables come from anywhere."""

from __future__ import annotations

import ast
import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch

from tests.helpers import nonempty
from turncredit.config import LoraConfig, ScratchConfig
from turncredit.errors import UserError
from turncredit.policy import models
from turncredit.views.redact import redacted

ROOT = Path(__file__).resolve().parents[1]
#: modules that run code found in a file, and calls that do unless told otherwise
LOADERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
CALLS = {("torch", "load"), ("np", "load"), ("numpy", "load"), ("pd", "read_pickle"), ("yaml", "unsafe_load")}


class Planted:
    """Makes the file `path` when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def plant(file: Path, mark: Path) -> None:
    file.write_bytes(pickle.dumps(Planted(mark)))


@pytest.fixture
def world(tmp_path):
    """A model's folder, and an adapter of it."""
    sizes = ScratchConfig(hidden=16, layers=1, heads=2, kv_heads=1, mlp=16, vocab=300)
    model = models.new_model(sizes, 300, pad_id=0, eos_id=1, bos_id=2)
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    models.save_model(model, base, base=_tokenizer(tmp_path), final=base)
    models.save_model(models.add_lora(model, LoraConfig(rank=2), 0), adapter, base=base, final=adapter)
    return tmp_path


def _tokenizer(folder: Path) -> Path:
    made = folder / "tokenizer"
    made.mkdir()
    (made / "tokenizer.json").write_text("{}")
    return made


def calls_of(tree: ast.AST) -> list[tuple[str, str]]:
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        (func.value.id, func.attr)
        for func in called
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name)
    ]


def modules_of(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        found |= {name.name for name in node.names} if isinstance(node, ast.Import) else set()
        found |= {node.module or ""} if isinstance(node, ast.ImportFrom) else set()
    return {name.partition(".")[0] for name in found}


@pytest.mark.slow
def test_no_code_of_the_project_unpickles():
    files = nonempty([*(ROOT / "turncredit").rglob("*.py"), *(ROOT / "workflow_scripts").rglob("*.py")])
    trees = {path: ast.parse(path.read_text()) for path in files}
    assert [path for path, tree in trees.items() if modules_of(tree) & LOADERS] == []
    assert [path for path, tree in trees.items() if CALLS & set(calls_of(tree))] == []
    trusting = [path for path in files if "trust_remote_code" in path.read_text()]
    assert trusting == []


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt.index"])
def test_weights_in_a_pickle_are_not_loaded(name, world):
    (world / "base" / "model.safetensors").unlink()
    plant(world / "base" / name, world / "mark")
    with pytest.raises(UserError, match="no weights as safetensors"):
        models.load_model(world / "base", dtype="float32")
    assert not (world / "mark").exists()


def test_an_index_that_names_pickles_is_not_followed(world):
    plant(world / "base" / "part.bin", world / "mark")
    index = {"metadata": {}, "weight_map": {"model.embed_tokens.weight": "part.bin"}}
    (world / "base" / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    loaded = models.load_model(world / "base", dtype="float32")
    assert torch.isfinite(next(loaded.parameters())).all()
    assert not (world / "mark").exists()


def test_an_adapter_in_a_pickle_is_not_loaded(world):
    (world / "adapter" / "adapter_model.safetensors").unlink()
    plant(world / "adapter" / "adapter_model.bin", world / "mark")
    with pytest.raises(UserError, match=r"no adapter_model\.safetensors"):
        models.load_model(world / "adapter", dtype="float32")
    assert not (world / "mark").exists()


def test_pickles_beside_the_weights_are_not_read(world):
    names = ("optimizer.pt", "training_args.bin", "scheduler.pt", "rng_state.pth", "tokenizer.bin")
    for name in names:
        plant(world / "base" / name, world / "mark")
    shutil.copy(world / "base" / "training_args.bin", world / "adapter")
    assert models.load_model(world / "adapter", dtype="float32") is not None
    assert not (world / "mark").exists()


def test_a_password_with_an_at_sign_is_not_shown_either():
    shown = redacted({"uri": "https://ann:p@ss@host:5000/x@y", "block": ["http://host/ a@b"]})
    assert shown == {"uri": "https://host:5000/x@y", "block": ["http://host/ a@b"]}
