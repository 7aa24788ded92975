"""How well do values know the outcome, before and after the group's other rollouts have calibrated them?

    python -m benchmarks.learned.calibration results/methods

For the runs of `turn_value` in an experiment: log-loss of each turn's value for its rollout's success, of the value as
`turn_value_calibrated` shifts it, and of the mean success of the group's other rollouts, with half a success added to
them, so that it is never certain. All turns of a rollout together count once. Lower is better; a coin has 0.693.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from turncredit.config.layout import Layout
from turncredit.credit.turn_value_calibrated import turn_value_calibrated
from turncredit.data import tables
from turncredit.data.turns import Turns

METHOD = "turn_value"


def log_loss(chance_N: np.ndarray, won_N: np.ndarray) -> np.ndarray:
    """-log of the chance that was given to what happened (N)."""
    chance_N = np.clip(chance_N, 1e-3, 1 - 1e-3)
    return -np.where(won_N > 0, np.log(chance_N), np.log(1 - chance_N))


def losses(turns: Turns) -> dict[str, tuple[float, float]]:
    """By estimate: the mean over rollouts of their turns' log-loss, and that of their first turns."""
    shifted = turn_value_calibrated(turns, best=1.0)
    others_R = turns.sum_G(turns.return_R)[turns.group_R] - turns.return_R
    estimates = {
        "turn_value": shifted["value"],
        "calibrated": shifted["value_calibrated"],
        "mean of the others": ((others_R + 0.5) / turns.size_G[turns.group_R])[turns.rollout_N],
    }
    won_N = turns.return_R[turns.rollout_N]
    loss = {name: log_loss(chance_N, won_N) for name, chance_N in estimates.items()}
    return {name: (turns.mean_R(x_N).mean(), x_N[turns.first_R].mean()) for name, x_N in loss.items()}


def main(folder: Annotated[Path, typer.Argument(help="An experiment's folder.")]) -> None:
    """Print a table: rounds x estimates, means over seeds."""
    layout, by_round = Layout(folder), defaultdict(list)
    for values in layout.find("values", method=METHOD, policy=METHOD):
        turns = layout.path("turns", values.keys)
        table = tables.read(turns, "turns", [*tables.KEYS, "reward"])
        side = tables.read(values.path, "values")
        if side.column("value").null_count == 0:
            by_round[int(values.keys["round"])].append(losses(Turns(table, {"values": side})))
    print("| round | seeds | estimate | all turns | before the first turn |\n|---:|---:|---|---:|---:|")
    for round, runs in sorted(by_round.items()):
        for name in runs[0]:
            every, first = np.mean([run[name] for run in runs], axis=0)
            print(f"| {round} | {len(runs)} | {name} | {every:.3f} | {first:.3f} |")


if __name__ == "__main__":
    typer.run(main)
