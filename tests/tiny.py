"""The tiny experiment of the tests: config/test/tiny.yaml over config.yaml, as the pipeline reads it.

tiny.experiment()                              the experiment
tiny.experiment(sft={"epochs": 0})             the same with a key changed
snakemake("-n", *tiny.ARGUMENTS)               the same on the command line
tiny.path("credits", "rloo", round=2)          where the pipeline puts an artifact
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from turncredit.config import Experiment, from_mapping, merge
from turncredit.config.layout import Layout, fill
from turncredit.config.warm_starts import SFT

ROOT = Path(__file__).resolve().parents[1]
CONFIG = "config/test/tiny.yaml"
#: For snakemake, in a folder that has the pipeline in it.
ARGUMENTS = ("--configfile", CONFIG)
LAYOUT = Layout("results/tiny")
#: the key `policy` of the turns of round 1, which all methods share
SHARED = "sft-t4k4T1.0"


def mapping(**changes: Any) -> dict[str, Any]:
    """The tiny experiment as plain data; `changes` are merged in key by key."""
    files = (yaml.safe_load((ROOT / name).read_text()) for name in ("config.yaml", CONFIG))
    return merge(*files, changes)


def experiment(**changes: Any) -> Experiment:
    """The tiny experiment with `changes` merged in key by key."""
    return from_mapping(mapping(**changes))


def keys(method: str = "", *, seed: int = 0, round: int = 1, **more: str) -> dict[str, str | int]:
    """The keys of what belongs to a round of the run of `method`; `policy` is what sampled its turns, unless given."""
    policy = SHARED if round == 1 else method
    return {"warm_start": SFT, "policy": policy, "method": method, "seed": seed, "round": round, **more}


def path(name: str, method: str = "", **given: Any) -> str:
    """The path of an artifact, in the folder in which the pipeline runs, with the `keys` of the round."""
    return LAYOUT.path(name, keys(method, **given))


def measured(folder: Path, stage: str, method: str = "", **given: Any) -> dict[str, float]:
    """What a job of the pipeline in `folder` measured."""
    return json.loads((folder / fill(LAYOUT.metrics(stage), keys(method, **given))).read_text())["metrics"]


def description(stage: str, method: str = "", **given: Any) -> str:
    """The path of what a job left to be repeated by hand with."""
    return fill(LAYOUT.log(stage), keys(method, **given)).removesuffix(".log") + ".job.json"


def job_inputs(folder: Path, stage: str, method: str = "", **given: Any) -> dict[str, Any]:
    """What a job of the pipeline in `folder` read, by name."""
    return json.loads((folder / description(stage, method, **given)).read_text())["input"]
