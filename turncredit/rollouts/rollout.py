"""Groups of rollouts of one policy, as a table of turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from turncredit.config import RolloutConfig
from turncredit.data import provenance, tables
from turncredit.data.progress import progress
from turncredit.data.seeding import derive_seed, generator
from turncredit.data.turns import CONTEXT_FULL, same_return
from turncredit.errors import UserError
from turncredit.rollouts.play import REDONE, Played, Player, Start


def rollout(player: Player, settings: RolloutConfig, *, seed: int, round: int) -> list[Played]:
    """`settings.tasks` groups of `settings.group_size` rollouts of the player's policy.

    Games and random numbers depend on the seed and the round only, so that methods are compared on the same games with
    the same random numbers.
    """
    games = player.games
    starts = [
        Start(
            group_id=games.rows[number]["task_id"],
            rollout_id=f"{games.rows[number]['task_id']}#{copy}",
            task=games.rows[number],
            seed=derive_seed(seed, "rollout", round, games.rows[number]["task_id"], copy),
        )
        for number in round_tasks(len(games), settings.tasks, seed, round)
        for copy in range(settings.group_size)
    ]
    return player.play(starts, temperature=settings.temperature, on_done=lambda done: progress(done, len(starts)))


def round_tasks(games: int, count: int, seed: int, round: int) -> list[int]:
    """The games of a round: `count` of them, and none twice in a pass over all games.

    A pass over the games is a random order cut into rounds; a remainder that does not fill a round is skipped.
    """
    sweep, at = divmod(round - 1, games // count)
    order = generator(seed, "round tasks", sweep).permutation(games)
    return [int(number) for number in order[at * count : (at + 1) * count]]


def turn_table(
    played: Sequence[Played], common: dict, own_columns: Mapping[str, pa.DataType] | None = None
) -> pa.Table:
    """Played rollouts as a `turns` table; `common` gives the columns that are the same in every row.

    `own_columns` are the agent's, with their types; they follow the table's own. Where a context was full, the column
    `CONTEXT_FULL` marks the turn; where a rollout was begun again, the column `REDONE` says how often. Raises UserError
    for a value of another type.
    """
    pairs = [(rollout, number, turn) for rollout in played for number, turn in enumerate(rollout.turns)]
    schema = tables.schema("turns")
    columns: dict[str, list] = {
        "group_id": [rollout.start.group_id for rollout, _, _ in pairs],
        "rollout_id": [rollout.start.rollout_id for rollout, _, _ in pairs],
        "turn": [number for _, number, _ in pairs],
        "context_reset": [turn.prompt.reset for _, _, turn in pairs],
        "prompt_ids": [turn.prompt.ids for _, _, turn in pairs],
        "response_ids": [turn.response.ids for _, _, turn in pairs],
        "response_logprobs": [turn.response.logprobs for _, _, turn in pairs],
        "response_text": [turn.text for _, _, turn in pairs],
        "success": [rollout.success for rollout, _, _ in pairs],
        "score": [rollout.score for rollout, _, _ in pairs],
    }
    for name in ("split", "task_id", "family", "goal"):
        columns[name] = [rollout.start.task[name] for rollout, _, _ in pairs]
    for name in (
        "observation", "admissible", "action", "valid", "well_formed", "next_observation", "reward", "done", "failed",
        "error_reply",
    ):  # fmt: skip
        columns[name] = [getattr(turn, name) for _, _, turn in pairs]
    for name, value in {"created_by": provenance.code_version(), **common}.items():
        columns[name] = [value] * len(pairs)
    table = pa.table({field.name: pa.array(columns[field.name], field.type) for field in schema}, schema=schema)
    for name, kind in (own_columns or {}).items():
        try:
            values = pa.array([turn.columns[name] for _, _, turn in pairs], kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise UserError(
                f"turns: the agent's column '{name}' is not {kind}, as it says in turn_columns: {error}"
            ) from None
        table = table.append_column(name, values)
    redone = [rollout.turns[-1].redone for rollout, _, _ in pairs]
    if any(redone):
        table = table.append_column(pa.field("redone", REDONE["redone"]), pa.array(redone, REDONE["redone"]))
    full = [turn.context_full for _, _, turn in pairs]
    return table.append_column(CONTEXT_FULL, pa.array(full)) if any(full) else table


def summary(played: Sequence[Played]) -> dict[str, float]:
    """Success, length, invalid actions and dead groups of a set of rollouts."""
    turns = sum(len(rollout.turns) for rollout in played)
    groups: dict[str, list[Played]] = {}
    for rollout in played:
        groups.setdefault(rollout.start.group_id, []).append(rollout)
    last = [rollout.turns[-1] for rollout in played]
    redone = [turn.columns.get("redone", turn.redone) for turn in last if "redone" in turn.columns or turn.redone]
    full = sum(rollout.turns[-1].context_full for rollout in played)
    return {
        **({CONTEXT_FULL: float(full)} if full else {}),
        **({"redone": float(np.count_nonzero(redone))} if redone else {}),
        "rollouts": float(len(played)),
        "turns": float(turns),
        "success": float(np.mean([rollout.success for rollout in played])),
        "invalid": sum(not turn.valid for rollout in played for turn in rollout.turns) / turns,
        "turns_per_rollout": turns / len(played),
        "tokens": float(sum(rollout.tokens for rollout in played)),
        "dead_groups": sum(map(_dead, groups.values())) / len(groups),
    }


def _dead(group: Sequence[Played]) -> bool:
    """Whether all of a group's rollouts have the same return (`Turns.dead_G`)."""
    scores = [rollout.score for rollout in group]
    added = max(sum(abs(turn.reward) for turn in rollout.turns) for rollout in group)
    return same_return(min(scores), max(scores), added)
