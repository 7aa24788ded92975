"""Ground truth for the credit of a turn.

We sample the policy that played a rollout many more times from the state before each of its turns. The mean return
from there is V; the state after a turn is the state before the next one, so Q(s_t, a_t) = r_t + V(s_{t+1}), and the
true advantage of the turn is Q - V, each with its standard error. docs/audit.md says how the turns are chosen and
how many continuations each state gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from turncredit.audit.estimates import Continuation, Values, estimate
from turncredit.audit.noisy_expert import has_reference, reference_values
from turncredit.config import BranchConfig
from turncredit.data import tables
from turncredit.data.columns import only_value
from turncredit.data.seeding import derive_seed, generator
from turncredit.data.turns import THIRDS, Turns, thirds
from turncredit.rollouts.continuations import continued
from turncredit.rollouts.play import Play, Player
from turncredit.rollouts.restore import RestoredRollout, restored
from turncredit.rollouts.tasks import Games

_PER_ROLLOUT = ("family", "success")


def branch(
    player: Player,
    turns: pa.Table,
    settings: BranchConfig,
    *,
    measures: pa.Table | None = None,
    seed: int,
    round: int,
    where: str = "turns",
) -> tuple[pa.Table, dict[str, float]]:
    """A `branches` table for about `settings.turns` turns of the rollouts `turns`, whole rollouts each.

    The player's policy must be the one that sampled them; continuations use the same temperature. Which turns are
    chosen and all random numbers depend on the seed, the round and the turns. `measures` are those of these turns, if
    there are any: the change of the planner's distance is written beside the truth.

    Raises UserError for rollouts of several policies, of unknown games, or whose states cannot be restored.
    """
    temperature = only_value(turns, "temperature", where, "branching")
    policy_id = only_value(turns, "policy_id", where, "branching")
    games = player.games
    view = Turns(turns, {} if measures is None else {"measures": measures}, where=where)
    chosen_K = choose(view, settings.turns, generator(seed, "branch turns", round))
    have = [name for name in tables.MEASURES["distance"] if view.has(name)]
    rollouts = restored(view, chosen_K, player, columns=(*_PER_ROLLOUT, *have))
    low, high = _range(view, games.success_reward)
    seeds = derive_seed(seed, "branch", round)
    values = true_values(rollouts, player.at(temperature), settings, seed=seeds, low=low, high=high)
    columns = advantages(rollouts, values)
    columns.update(_reference(games, rollouts, settings, seeds, low, high))
    common = {"policy_id": policy_id, "temperature": temperature}
    return branch_table(rollouts, columns, common), _summary(rollouts, columns, settings, values.wanted)


# ---------------------------------------------------------------- which turns


def choose(view: Turns, count: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers (K) of rollouts of `view` that together have about `count` turns: whole rollouts until there are enough.

    Whole rollouts, because credit is compared within a rollout and because neighbouring turns share a state. Successes
    and failures alternate, and so do the task families within each; within a family the choice is random, but prefers
    groups that have none yet. With whole rollouts, all positions are represented.
    """
    row_R = view.order_N[view.first_R]
    rows = view.table.select(_PER_ROLLOUT).take(pa.array(row_R)).to_pydict()
    strata: dict[tuple[bool, str], list[int]] = {}
    for rollout in rng.permutation(view.rollouts):
        strata.setdefault((rows["success"][rollout], rows["family"][rollout]), []).append(int(rollout))
    waiting: dict[bool, list[list[int]]] = {True: [], False: []}
    for at in rng.permutation(len(strata)):
        outcome, family = sorted(strata)[at]
        waiting[outcome].append(strata[outcome, family])
    chosen: list[int] = []
    groups: set[int] = set()
    turns = 0
    while any(waiting.values()):
        for families in (families for families in waiting.values() if families):
            if turns >= count:
                return np.array(chosen)
            family = families.pop(0)
            fresh = [rollout for rollout in family if view.group_R[rollout] not in groups]
            rollout = (fresh or family)[0]
            family.remove(rollout)
            if family:
                families.append(family)
            chosen.append(rollout)
            groups.add(view.group_R[rollout])
            turns += int(view.length_R[rollout])
    return np.array(chosen)


# ---------------------------------------------------------------- their values


def true_values(
    rollouts: Sequence[RestoredRollout],
    play: Play,
    settings: BranchConfig,
    *,
    seed: int,
    low: float,
    high: float,
) -> Values:
    """Values of the states before all turns of `rollouts`, one rollout after the other (S).

    Copy 7 of one state and copy 7 of the next draw the same numbers in the same turns (`continued`), so that chance
    cancels in differences.
    """
    follows_S = np.array(
        [checkpoint.turn < len(rollout.turns) - 1 for rollout in rollouts for checkpoint in rollout.checkpoints]
    )

    def draw(first_S2: np.ndarray, count_S2: np.ndarray) -> Iterator[Continuation]:
        copies_S = [
            [(half, copy) for half in (0, 1) for copy in range(first_2[half], count_2[half])]
            for first_2, count_2 in zip(first_S2, count_S2, strict=True)
        ]
        for state, (half, copy), played in continued(rollouts, play, copies_S, seed=seed):
            yield Continuation(state, half, copy, played.score, len(played.turns))

    return estimate(
        draw,
        follows_S,
        target=settings.target_se,
        least=settings.min_continuations,
        most=settings.max_continuations,
        budget=settings.budget_turns,
        low=low,
        high=high,
    )


def advantages(rollouts: Sequence[RestoredRollout], values: Values) -> dict[str, np.ndarray]:
    """Columns for each turn, computed from the values of the states before the turns: V, Q and Q - V, with standard
    errors.

    Q(s_t, a_t) = r_t + V(s_{t+1}); after a rollout's last turn it is the reward, exactly. The error of Q - V is below
    that of independent V and Q, because their copies share random numbers. Errors of neighbouring turns are not
    independent either: the error of the state between them enters one with a plus and the other with a minus.
    """
    q_S, q_error_S, q_half_S2 = (np.zeros_like(part) for part in (values.value_S, values.error_S, values.half_S2))
    at = 0
    for rollout in rollouts:
        here, after = slice(at, at + len(rollout.turns) - 1), slice(at + 1, at + len(rollout.turns))
        q_S[here], q_error_S[here], q_half_S2[here] = (
            values.value_S[after], values.error_S[after], values.half_S2[after],
        )  # fmt: skip
        at += len(rollout.turns)
    reward_S = np.array([turn["reward"] for rollout in rollouts for turn in rollout.turns])
    half_S2 = reward_S[:, None] + q_half_S2 - values.half_S2
    return {
        "v_true": values.value_S,
        "v_se": values.error_S,
        "q_true": reward_S + q_S,
        "q_se": q_error_S,
        "advantage_true": reward_S + q_S - values.value_S,
        "advantage_true_se": values.step_error_S,
        "advantage_first_half": half_S2[:, 0],
        "advantage_second_half": half_S2[:, 1],
        "continuations": values.count_S,
        "turns_played": values.turns_S,
    }


def _reference(
    games: Games, rollouts: Sequence[RestoredRollout], settings: BranchConfig, seed: int, low: float, high: float
) -> dict[str, np.ndarray]:
    """The same under the noisy expert; empty if the environment has no expert, or if it is switched off."""
    if not settings.reference_continuations or not has_reference(games):
        return {}
    parts: dict[str, list[np.ndarray]] = {}
    for rollout in rollouts:
        value_T, error_T = reference_values(
            games,
            rollout.task,
            [turn["action"] for turn in rollout.turns],
            rollout.checkpoints,
            noise=settings.reference_noise,
            count=settings.reference_continuations,
            seed=derive_seed(seed, rollout.rollout_id),
            low=low,
            high=high,
        )
        reward_T = np.array([turn["reward"] for turn in rollout.turns])
        q_T = reward_T + np.append(value_T[1:], 0.0)
        columns = {
            "v_reference": value_T,
            "q_reference": q_T,
            "advantage_reference": q_T - value_T,
            "advantage_reference_se": np.hypot(error_T, np.append(error_T[1:], 0.0)),
        }
        for name, part_T in columns.items():
            parts.setdefault(name, []).append(part_T)
    return {name: np.concatenate(part) for name, part in parts.items()}


# ---------------------------------------------------------------- the table


def branch_table(
    rollouts: Sequence[RestoredRollout], columns: dict[str, np.ndarray], common: dict[str, Any]
) -> pa.Table:
    """A `branches` table: keys, stratum, the planner's change of distance, and the columns already found."""
    turns = [turn for rollout in rollouts for turn in rollout.turns]
    column_of: dict[str, Any] = {name: [turn[name] for turn in turns] for name in tables.KEYS}
    column_of.update({name: [value] * len(turns) for name, value in common.items()})
    column_of["stratum"] = [stratum(turn, len(rollout.turns)) for rollout in rollouts for turn in rollout.turns]
    column_of["distance_change"] = [_distance_change(turn) for turn in turns]
    column_of["replayed"] = [same for rollout in rollouts for same in rollout.replayed]
    column_of.update(columns)
    schema = tables.schema("branches")
    absent = {name: [None] * len(turns) for name in schema.names if name not in column_of}
    extra = [name for name in column_of if name not in schema.names]
    typed = {field.name: pa.array({**absent, **column_of}[field.name], field.type) for field in schema}
    return pa.table({**typed, **{name: pa.array(column_of[name], pa.float64()) for name in extra}})


def stratum(turn: dict[str, Any], length: int) -> str:
    """Outcome, family and third of the rollout, such as `failure:pick:early`."""
    third = THIRDS[int(thirds(turn["turn"], length))]
    return f"{'success' if turn['success'] else 'failure'}:{turn['family']}:{third}"


def _distance_change(turn: dict[str, Any]) -> float | None:
    """The decrease of the distance to the goal over the turn; None if it is unknown or the goal cannot be reached."""
    before, after = (turn.get(name) for name in tables.MEASURES["distance"])
    return None if before is None or after is None or before < 0 or after < 0 else float(before - after)


def _range(view: Turns, success: float) -> tuple[float, float]:
    """The range of returns: from 0 to that of a `success`, widened to the recorded ones."""
    return min(0.0, float(view.return_R.min())), max(success, float(view.return_R.max()))


def _summary(
    rollouts: Sequence[RestoredRollout], columns: dict[str, np.ndarray], settings: BranchConfig, wanted: int
) -> dict[str, float]:
    error_S, advantage_S = columns["advantage_true_se"], columns["advantage_true"]
    return {
        "turns": float(len(error_S)),
        "rollouts": float(len(rollouts)),
        "not_replayed": float(sum(not same for rollout in rollouts for same in rollout.replayed)),
        "continuations": float(columns["continuations"].sum()),
        "continuations_wanted": float(wanted),
        "turns_played": float(columns["turns_played"].sum()),
        "budget_turns": float(settings.budget_turns),
        "advantage_se": float(np.sqrt(np.mean(error_S**2))),
        "within_target": float(np.mean(error_S <= settings.target_se)),
        # The variance of the estimates beyond their own errors.
        "signal": max(0.0, 1.0 - float(np.mean(error_S**2) / max(float(np.var(advantage_S)), 1e-12))),
    }
