"""Evaluate a policy on held-out games. Success is counted once per rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from turncredit.config import EvalMode
from turncredit.data import tables
from turncredit.data.progress import progress
from turncredit.data.seeding import derive_seed
from turncredit.data.turns import CONTEXT_FULL, TASK_SCORE
from turncredit.rollouts.play import Played, Player, Start


def evaluate(player: Player, modes: Sequence[EvalMode], rows: Sequence[int], common: Mapping[str, Any]) -> pa.Table:
    """Play the games `rows` (numbers of the player's games) in every mode; returns an `evals` table, one row per
    rollout.

    The games and the random numbers are the same for every method and seed: differences between policies are paired
    by game. `common` are the columns that are the same in every row: `policy_id`, `method`, `seed`, `round`.

    An agent that plays several trials is judged by its last one, and its turns and tokens are those of all trials; the
    column `trials` then says how many there were. Where a rollout had to end because its context had become longer than
    the model can read, the column `CONTEXT_FULL` marks it. `TASK_SCORE` is the score of an environment that has one.
    """
    games = [player.games.rows[number] for number in rows]
    played: list[tuple[str, Played]] = []
    for mode in modes:
        before = len(played)
        starts = [Start(game["task_id"], game["task_id"], game, _seed(mode, game)) for game in games]
        ended = player.play(
            starts,
            temperature=mode.temperature,
            on_done=lambda done, before=before: progress(before + done, len(rows) * len(modes)),  # type: ignore[misc]
        )
        played += [(mode.name, rollout) for rollout in ended]
    results = [
        {
            **common,
            "mode": mode,
            **{name: rollout.start.task[name] for name in ("split", "task_id", "family")},
            "repeat": 0,
            "success": rollout.success,
            "score": rollout.score,
            "turns": len(rollout.turns),
            "invalid": sum(not turn.valid for turn in rollout.turns),
            "tokens": rollout.tokens,
        }
        for mode, rollout in played
    ]
    table = pa.Table.from_pylist(results, schema=tables.schema("evals"))
    last = [rollout.turns[-1] for _, rollout in played]
    if player.agent.trials is not None:
        table = table.append_column("trials", pa.array([turn.columns.get("trial") for turn in last], pa.int32()))
    scores = [turn.task_score for turn in last]
    if any(score is not None for score in scores):
        table = table.append_column(TASK_SCORE, pa.array(scores, pa.float64()))
    full = [turn.context_full for turn in last]
    return table.append_column(CONTEXT_FULL, pa.array(full)) if any(full) else table


def _seed(mode: EvalMode, game: Mapping[str, Any]) -> int:
    return derive_seed("eval", mode.name, game["task_id"])
