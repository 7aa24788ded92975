"""Credit for rollouts that a trainer has in memory as conversations, with the importers' reading of them."""

from __future__ import annotations

from collections.abc import Sequence

from turncredit.bridges.importers.base import Rollout
from turncredit.credit.parts.compose import Method, compute
from turncredit.data.turns import Turns
from turncredit.errors import UserError

#: what turns of conversations have beside keys and rewards
COLUMNS = ("observation", "action", "next_observation", "response_text")


def advantages(
    rollouts: Sequence[Rollout], method: Method, where: str, columns: Sequence[str] = COLUMNS
) -> list[list[float]]:
    """The advantage of each turn of each rollout. Raises UserError, naming `where`, for a rollout without a reward."""
    for rollout in rollouts:
        if rollout.turns[-1]["reward"] is None:
            raise UserError(f"{where}: rollout '{rollout.rollout_id}': reward is missing or null")
    rows = [
        {"group_id": rollout.group_id, "rollout_id": rollout.rollout_id, "turn": number, **turn}
        for rollout in rollouts
        for number, turn in enumerate(rollout.turns)
    ]
    if not rows:
        return []
    names = ("group_id", "rollout_id", "turn", "reward", *columns)
    table = {name: [row.get(name) for row in rows] for name in names if any(name in row for row in rows)}
    advantage = iter(compute(Turns(table, where=where), method)["advantage"].to_pylist())
    return [[next(advantage) for _ in rollout.turns] for rollout in rollouts]
