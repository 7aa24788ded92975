"""Does a method's advantage tell actions of one state apart, or only states?

    python -m benchmarks.learned.within_states results/methods agentprm agentprm_td

For every recorded round of a method's runs from the second on, over its turns:

    between actions   what is between turns with the same game and history, so with the same prompt, of which the
                      group has played several actions: their variance as a share of that of all turns
    refused           the advantage of refused actions less that of accepted ones, in deviations: over all turns, and
                      within histories where the group has played both
    outcome, turn     correlation of the advantage with the rollout's success and with the turn's number

Means over rounds, with 95% intervals over seeds. The last table has the first share for the true Q of `turncredit
score`'s rollouts: the mean square of A* where the group has played several actions, without the error of its
continuations.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from turncredit.audit.score.rollout_set import built_in
from turncredit.config.layout import Layout
from turncredit.data import tables
from turncredit.data.turns import SideTable, Turns
from turncredit.stats.intervals import mean_of_seeds

COLUMNS = ("observation", "action", "valid")
MEASURES = ("between actions", "refused, all turns", "refused, same history", "outcome", "turn")


def histories(turns: Turns) -> np.ndarray:
    """A number for each turn (N), the same for turns of a group with the same observations and actions before them."""
    seen_N, acted_N = turns.codes("observation"), turns.codes("action")
    numbers: dict[tuple[int, ...], int] = {}
    history_N = np.zeros(turns.n, int)
    for first, length, group in zip(turns.first_R, turns.length_R, turns.group_R, strict=True):
        key: tuple[int, ...] = (-1, int(group))
        for row in range(first, first + length):
            history_N[row] = numbers.setdefault((*key, int(seen_N[row])), len(numbers))
            key = (int(history_N[row]), int(acted_N[row]))
    return history_N


def several(turns: Turns, history_N: np.ndarray) -> np.ndarray:
    """Whether the group has played several actions after a turn's history (N)."""
    actions = pd.Series(turns.codes("action")).groupby(history_N)
    return actions.transform("nunique").to_numpy() > 1


def measures(turns: Turns, advantage_N: np.ndarray) -> dict[str, float]:
    """The measures of one round; NaN where the round has nothing to compare."""
    valid_N = turns.truths("valid")
    history_N = histories(turns)
    by_history = pd.DataFrame({"advantage": advantage_N, "valid": valid_N}).groupby(history_N)
    within_N = advantage_N - by_history.advantage.transform("mean").to_numpy()
    several_N = several(turns, history_N)
    both_N = by_history.valid.transform("nunique").to_numpy() > 1
    deviation = float(np.std(advantage_N))

    def refused(x_N: np.ndarray, of_N: np.ndarray) -> float:
        return float(x_N[of_N & ~valid_N].mean() - x_N[of_N & valid_N].mean()) / deviation

    numbers = (
        float(np.mean(within_N[several_N] ** 2)) / deviation**2,
        refused(advantage_N, np.full(turns.n, True)),
        refused(within_N, both_N),
        float(np.corrcoef(advantage_N, (turns.return_R > 0)[turns.rollout_N])[0, 1]),
        float(np.corrcoef(advantage_N, turns.turn_N)[0, 1]),
    )
    return dict(zip(MEASURES, numbers, strict=True))


def of_runs(folder: Path, method: str) -> dict[int, list[dict[str, float]]]:
    """By seed: the measures of the rounds of a method's runs, without the first, in which no model is trained."""
    layout, by_seed = Layout(folder), defaultdict(list)
    for found in layout.find("credits", method=method, policy=method):
        table = tables.read(layout.path("turns", found.keys), "turns", [*tables.KEYS, "reward", *COLUMNS])
        credits = tables.read(found.path, "credits")
        turns = Turns(table, {"credits": credits})
        by_seed[int(found.keys["seed"])].append(measures(turns, turns.side["credits"].numbers("advantage")))
    return by_seed


def true_shares() -> dict[str, float]:
    """For each part of the scored rollouts: the mean square of A*, where actions differ, over the variance of Q*."""
    shares = {}
    for part in built_in().parts:
        truth = SideTable(part.view, part.branches, "truth", partial=True)
        several_N = several(part.view, histories(part.view))[truth.has_N]
        halves = ("advantage_first_half", "advantage_second_half")
        first_N, second_N, q_N, error_N = (truth.numbers(name)[truth.has_N] for name in (*halves, "q_true", "q_se"))
        square = np.mean((first_N * second_N)[several_N])
        shares[part.name] = square / (np.var(q_N, ddof=1) - np.mean(error_N**2))
    return shares


def main(
    folder: Annotated[Path, typer.Argument(help="An experiment's folder.")],
    methods: Annotated[list[str], typer.Argument(help="Methods with recorded credits.")],
) -> None:
    """Print the tables."""
    print(f"| | {' | '.join(MEASURES)} |\n|---{'|---:' * len(MEASURES)}|")
    for method in methods:
        by_seed = of_runs(folder, method)
        if not by_seed:
            raise SystemExit(f"{folder}: no credits of {method} after round 1; it takes a run's own folder")
        seeds = pd.DataFrame([pd.DataFrame(rounds).mean() for rounds in by_seed.values()])
        cells = []
        for name in MEASURES:
            mean = mean_of_seeds(seeds[name].to_numpy(), 1, 1)
            interval = "" if np.isnan(mean.low) else f" ({mean.low:+.2f} to {mean.high:+.2f})"
            cells.append(f"{mean.value:+.2f}{interval}")
        print(f"| `{method}` | {' | '.join(cells)} |")
    print("\n| scored rollouts | between actions, of the true Q |\n|---|---:|")
    for name, share in true_shares().items():
        print(f"| {name} | {share:.2f} |")


if __name__ == "__main__":
    typer.run(main)
