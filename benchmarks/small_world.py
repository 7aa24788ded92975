"""The default experiment's games, a briefly trained policy of a chosen size, and a round of its rollouts."""

from __future__ import annotations

from pathlib import Path

import yaml

from turncredit.config import Experiment, from_mapping
from turncredit.policy.base import make_base
from turncredit.rollouts.demos import make_demos
from turncredit.rollouts.rollout import rollout
from turncredit.rollouts.tasks import make_tasks
from turncredit.training.sft import sft

ROOT = Path(__file__).resolve().parents[1]
#: The default experiment's policy, and one of 0.9 M parameters.
SIZES = {
    "0.14 M": {},
    "0.9 M": {"hidden": 128, "layers": 4, "heads": 4, "kv_heads": 2, "mlp": 384},
}


def settings(size: str, **sections: dict) -> Experiment:
    """The default experiment with that policy and little training. `sections` are laid over the configuration's."""
    made = yaml.safe_load((ROOT / "config.yaml").read_text())
    made["policy"]["scratch"] |= SIZES[size]
    made["tasks"] |= {"train": 600, "eval": 8}
    made["demos"] |= {"count": 600}
    made["sft"] |= {"epochs": 1.0}
    made["eval"] |= {"games": 1}
    made["audit"] = {"rounds": []}
    for name, section in sections.items():
        made[name] |= section
    return from_mapping(made)


def make(experiment: Experiment, folder: Path) -> Path:
    """Make games, demonstrations and the policy; the folder then has `train.parquet` and `policy`. Returns it."""
    make_tasks(experiment=experiment, split="train", out=folder / "train.parquet")
    make_demos(experiment=experiment, tasks=folder / "train.parquet", out=folder / "demos.parquet")
    make_base(experiment=experiment, demos=folder / "demos.parquet", out=folder / "base")
    files = {"base": folder / "base", "demos": folder / "demos.parquet"}
    sft(experiment=experiment, **files, out=folder / "policy", log=folder / "sft_log.parquet")
    return folder


def play(experiment: Experiment, folder: Path) -> Path:
    """A round of rollouts of the policy. Returns the table of turns."""
    turns = folder / "turns.parquet"
    names = {"method": "sft", "seed": 0, "round": 1}
    rollout(experiment=experiment, **names, policy=folder / "policy", tasks=folder / "train.parquet", out=turns)
    return turns
