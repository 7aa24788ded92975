"""What several tests of training read. Tests must not change it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file

from turncredit.data import provenance, tables
from turncredit.policy import models


@pytest.fixture(scope="session")
def credits(world, tmp_path_factory) -> Path:
    """A credits table with a random advantage for every turn of the world's first rollouts."""
    path = tmp_path_factory.mktemp("credits") / "credits.parquet"
    turns = tables.read(world.path("turns"), "turns")
    advantage_N = np.random.default_rng(0).normal(size=turns.num_rows)
    columns = {key: turns.column(key) for key in tables.KEYS}
    table = pa.table({**columns, "method": ["random"] * turns.num_rows, "advantage": advantage_N})
    tables.write(table, path, "credits", provenance.record("test"))
    return path


@pytest.fixture(scope="session")
def hub_model(world, tmp_path_factory) -> Path:
    """A policy's folder with weights in bfloat16, as on the hub."""
    folder, sft = tmp_path_factory.mktemp("hub") / "policy", world.path("sft_policy")
    models.save_model(models.load_model(sft, dtype="bfloat16"), folder, base=sft, final=folder)
    assert {tensor.dtype for tensor in load_file(folder / "model.safetensors").values()} == {torch.bfloat16}
    return folder
