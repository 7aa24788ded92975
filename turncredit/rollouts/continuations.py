"""Continuations: a policy continues from the states of recorded rollouts, several times from each.

Ground truth (`turncredit.audit.branch`) samples them for some turns of an audited round, as many as each needs. A
method whose credit is made from continuations (VinePPO) takes the same number from every state of its rollouts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from turncredit.config import ContinuationsConfig
from turncredit.data import tables
from turncredit.data.columns import only_value
from turncredit.data.progress import progress
from turncredit.data.seeding import derive_seed
from turncredit.data.turns import Turns
from turncredit.errors import UserError
from turncredit.rollouts.play import Play, Played, Player, Start
from turncredit.rollouts.restore import RestoredRollout, restored

#: what tells the continuations of one state apart: a number, or several
Copy = tuple[int, ...]


def continued(
    rollouts: Sequence[RestoredRollout], play: Play, copies_S: Sequence[Sequence[Copy]], *, seed: int
) -> Iterator[tuple[int, Copy, Played]]:
    """(state, copy, continuation) of these copies of each state, each as soon as it has ended.

    S states: those before all turns of `rollouts`, one rollout after the other. The random numbers of a copy depend on
    the seed, the rollout and the copy, and a continuation begins with the numbers of its own turn: so copy 7 of one
    state and copy 7 of the next draw the same numbers in the same turns.
    """
    states = [(rollout, checkpoint) for rollout in rollouts for checkpoint in rollout.checkpoints]
    # Long continuations first, so that no slot is busy alone at the end; and contexts of like length together.
    order = sorted(range(len(states)), key=lambda state: states[state][1].turn)
    starts, whose = [], []
    for state in order:
        rollout, checkpoint = states[state]
        for copy in copies_S[state]:
            numbers = derive_seed(seed, rollout.rollout_id, *copy)
            starts.append(Start(rollout.group_id, rollout.rollout_id, rollout.task, numbers, checkpoint))
            whose.append((state, copy))
    for done, (number, played) in enumerate(play(starts), start=1):
        progress(done, len(starts))
        yield (*whose[number], played)


def state_returns(
    player: Player, turns: pa.Table, settings: ContinuationsConfig, *, seed: int, round: int, where: str = "turns"
) -> tuple[pa.Table, dict[str, float]]:
    """A `continuations` table: the returns of the player's policy from the state before every turn of `turns`.

    The policy must be the one that sampled the turns; it continues at their temperature, with random numbers that
    depend on the seed, the round and the rollouts. Returns of continuations are undiscounted.

    Raises UserError for rollouts of several policies, of unknown games, or that replay differently.
    """
    temperature = only_value(turns, "temperature", where, "continuing")
    policy_id = only_value(turns, "policy_id", where, "continuing")
    view = Turns(turns, where=where)
    rollouts = restored(view, range(view.rollouts), player)
    _check_replayed(view, rollouts)
    totals = play_equally(rollouts, player.at(temperature), settings, seed=derive_seed(seed, "continuations", round))
    columns = {name: pa.array(view.restore(x_N)) for name, x_N in totals.items()}
    table = pa.table(
        {
            **{key: turns.column(key) for key in tables.KEYS},
            "policy_id": pa.repeat(policy_id, view.n),
            "temperature": pa.repeat(temperature, view.n),
            **columns,
        }
    )
    return table, _summary(totals, settings, replayed_turns=view.n)


def play_equally(
    rollouts: Sequence[RestoredRollout], play: Play, settings: ContinuationsConfig, *, seed: int
) -> dict[str, np.ndarray]:
    """The same number of continuations from each of the S states: sums over them, each (S).

    `per_state` of them, or as many as `budget_turns` allows, at least one: the first from every state shows the cost of
    one more for each, and as many as fit are then played. So a budget never gives one state fewer than another, and the
    number does not depend on how any single state's continuations ended.
    """
    states = sum(len(rollout.checkpoints) for rollout in rollouts)
    totals: dict[str, np.ndarray] = {
        "continuations": np.zeros(states, np.int32),
        "return_sum": np.zeros(states),
        "return_square_sum": np.zeros(states),
        "turns_played": np.zeros(states, np.int32),
        "tokens": np.zeros(states, np.int64),
    }

    def add(first: int, last: int) -> None:
        copies = [(copy,) for copy in range(first, last)]
        # In a fixed order: a sum of floats depends on it, and continuations end in another one in each set-up.
        score_SC = np.zeros((states, len(copies)))
        for state, (copy,), played in continued(rollouts, play, [copies] * states, seed=seed):
            score_SC[state, copy - first] = played.score
            totals["turns_played"][state] += len(played.turns)
            totals["tokens"][state] += played.tokens
        totals["continuations"] += len(copies)
        totals["return_sum"] += score_SC.sum(axis=1)
        totals["return_square_sum"] += (score_SC**2).sum(axis=1)

    assert settings.per_state is not None
    if settings.budget_turns is None:
        add(0, settings.per_state)
        return totals
    add(0, 1)
    affordable = settings.budget_turns // int(totals["turns_played"].sum())
    add(1, max(1, min(settings.per_state, affordable)))
    return totals


def _check_replayed(view: Turns, rollouts: Sequence[RestoredRollout]) -> None:
    """Raise UserError where a state is not the recorded one: its continuations would be those of another state."""
    for number, rollout in enumerate(rollouts):
        if not all(rollout.replayed):
            raise UserError(
                f"{view.where}: {view.rollout_name(number)}, turn {rollout.replayed.index(False)}: what was recorded "
                "is not reproduced when its actions are replayed; continuations need an environment whose steps "
                "are deterministic, with the settings that the turns were recorded with"
            )


def _summary(totals: dict[str, np.ndarray], settings: ContinuationsConfig, replayed_turns: int) -> dict[str, float]:
    budget = {} if settings.budget_turns is None else {"budget_turns": float(settings.budget_turns)}
    return {
        **budget,
        "states": float(len(totals["continuations"])),
        "continuations": float(totals["continuations"].sum()),
        "per_state": float(totals["continuations"].min()),
        "per_state_wanted": float(settings.per_state or 0),
        "turns": float(totals["turns_played"].sum()),
        "tokens": float(totals["tokens"].sum()),
        "replayed_turns": float(replayed_turns),
        "value": float(totals["return_sum"].sum() / totals["continuations"].sum()),
    }
