"""The tiny experiment of the tests: config/test/tiny.yaml over config.yaml, as the pipeline reads it.

tiny.experiment()                              the experiment
tiny.experiment(sft={"epochs": 0})             the same with a key changed
snakemake("-n", *tiny.ARGUMENTS)               the same on the command line
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from turncredit.config import Experiment, from_mapping, merge

ROOT = Path(__file__).resolve().parents[1]
CONFIG = "config/test/tiny.yaml"
#: For snakemake, in a folder that has the pipeline in it.
ARGUMENTS = ("--configfile", CONFIG)


def mapping(**changes: Any) -> dict[str, Any]:
    """The tiny experiment as plain data; `changes` are merged in key by key."""
    files = (yaml.safe_load((ROOT / name).read_text()) for name in ("config.yaml", CONFIG))
    return merge(*files, changes)


def experiment(**changes: Any) -> Experiment:
    """The tiny experiment with `changes` merged in key by key."""
    return from_mapping(mapping(**changes))
