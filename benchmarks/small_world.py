"""The default experiment's games, a briefly trained policy of a chosen size, and a round of its rollouts."""

from __future__ import annotations

from pathlib import Path

import yaml

from turncredit.config import Experiment, from_mapping
from turncredit.config.warm_starts import SFT
from turncredit.data.seeding import derive_seed
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan, load
from turncredit.rollouts.play import Start
from turncredit.rollouts.rollout import round_tasks
from turncredit.rollouts.tasks import Games

ROOT = Path(__file__).resolve().parents[1]
#: The default experiment's policy, and one of 0.9 M parameters.
SIZES = {
    "0.14 M": {},
    "0.9 M": {"hidden": 128, "layers": 4, "heads": 4, "kv_heads": 2, "mlp": 384},
}
#: Rollouts of a game.
GROUP = 8


def settings(size: str, **sections: dict) -> Experiment:
    """The default experiment with that policy and little training. `sections` are merged over the configuration's."""
    config = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    config["policy"]["scratch"] |= SIZES[size]
    config["tasks"] |= {"train": 600, "eval": 8}
    config["demos"] |= {"count": 600}
    config["sft"] |= {"epochs": 1.0}
    config["eval"] |= {"games": 1}
    config["audit"] = {"rounds": []}
    for name, section in sections.items():
        config[name] |= section
    return from_mapping(config)


def make(experiment: Experiment, folder: Path) -> Plan:
    """Make games, demonstrations and the policy below `folder`. Returns the plan, which knows where they are."""
    plan = Plan(experiment, folder)
    for stage, at in (("tasks", JobKeys(split="train")), ("demos", JobKeys()), ("base", JobKeys()), ("sft", JobKeys())):
        load(stage).run(plan.job(stage, at))
    return plan


def play(plan: Plan) -> Path:
    """A round of rollouts of the policy. Returns the path of the turns."""
    job = plan.job("rollout", plan.turns_at(SFT, 0, 1))
    load("rollout").run(job)
    return Path(job.output["turns"])


def starts(games: Games, count: int) -> list[Start]:
    """The first round's rollouts of `count` games."""
    rows = [games.rows[number] for number in round_tasks(len(games), count, 0, 1)]
    return [
        Start(row["task_id"], f"{row['task_id']}#{copy}", row, derive_seed(0, "rollout", 1, row["task_id"], copy))
        for row in rows
        for copy in range(GROUP)
    ]
