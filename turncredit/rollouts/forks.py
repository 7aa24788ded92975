"""Forks: rollouts that leave a state of another rollout, for a tree of each task (CARL)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from turncredit.data.columns import only_value
from turncredit.data.progress import progress
from turncredit.data.seeding import derive_seed
from turncredit.data.turns import Turns
from turncredit.errors import UserError
from turncredit.rollouts.play import Checkpoint, Played, Player, Start
from turncredit.rollouts.restore import COLUMNS, checkpoint_before_last, recorded
from turncredit.rollouts.rollout import turn_table

#: the columns of a turn that the tree keeps
KEPT = (*COLUMNS, "response_logprobs")


@dataclass
class State:
    """A node of the tree: the state before a turn of a rollout, and the actions that were sampled there.

    surprise   the sum over them of the mean -log pi of their tokens
    actions    how many there are
    """

    rollout: TreeRollout
    turn: int
    surprise: float = 0.0
    actions: int = 0

    def add(self, turn: Mapping[str, Any]) -> None:
        """Count an action that was sampled here."""
        self.surprise -= float(np.mean(turn["response_logprobs"]))
        self.actions += 1

    @property
    def priority(self) -> float:
        """H / n: the estimated entropy per action sampled here."""
        return self.surprise / self.actions**2

    def path(self) -> list[Mapping[str, Any]]:
        """The turns from the task's start to this state, and one that leaves it."""
        own = list(self.rollout.turns[: self.turn + 1])
        return [*self.rollout.left.path()[:-1], *own] if self.rollout.left else own


@dataclass(frozen=True)
class TreeRollout:
    """A rollout of the tree: its turns, and the state that it left; None for one from the task's start."""

    rollout_id: str
    turns: Sequence[Mapping[str, Any]]
    left: State | None = None


class Tree:
    """The tree of one task: rollouts from its start, then forks, each from the state with the largest H / n."""

    def __init__(self, task: dict, group_id: str, rollouts: Sequence[TreeRollout]):
        self.task, self.group_id = task, group_id
        self.states = [State(rollouts[0], 0)]  # the start, which all of them share
        for rollout in rollouts:
            self.add(rollout)

    def choose(self) -> State:
        """The state to fork next; among equals the one that has been in the tree longest."""
        return max(self.states, key=lambda state: state.priority)

    def add(self, rollout: TreeRollout) -> None:
        """Add a rollout with its states. Its first turn leaves a state of the tree."""
        (rollout.left or self.states[0]).add(rollout.turns[0])
        for number, turn in enumerate(rollout.turns[1:], start=1):
            self.states.append(State(rollout, number))
            self.states[-1].add(turn)


def forks(
    player: Player,
    turns: pa.Table,
    per_task: int,
    *,
    seed: int,
    round: int,
    common: Mapping[str, Any],
    where: str = "turns",
) -> tuple[pa.Table, dict[str, float]]:
    """A `forks` table: `per_task` forks of the rollouts of each task, by the policy that sampled them.

    Every fork goes on from the state of its task's tree with the largest H / n, H the mean over the n actions sampled
    there of their mean -log pi per token (length-normalised, at the sampling temperature). Forks of one task are chosen
    one after the other; those of different tasks are played side by side. Their random numbers depend on the seed, the
    round and the task. `common` gives the columns that are the same in every row.

    Raises UserError for rollouts of several policies, of unknown games, or that replay differently.
    """
    temperature = only_value(turns, "temperature", where, "forking")
    only_value(turns, "policy_id", where, "forking")
    trees = _trees(player, Turns(turns, where=where))
    played: list[list[tuple[Played, State]]] = [[] for _ in trees]
    replayed = 0
    for number in range(per_task):
        chosen = [tree.choose() for tree in trees]
        replayed += sum(len(state.path()) - 1 for state in chosen)
        starts = [
            Start(
                group_id=tree.group_id,
                rollout_id=f"{tree.task['task_id']}#fork{number}",
                task=tree.task,
                seed=derive_seed(seed, "forks", round, tree.task["task_id"], number),
                checkpoint=_checkpoint(player, tree, state, where),
            )
            for tree, state in zip(trees, chosen, strict=True)
        ]
        new_forks = player.play(starts, temperature=temperature)
        for tree, state, fork, own in zip(trees, chosen, new_forks, played, strict=True):
            rows = turn_table([fork], dict(common)).select(KEPT).to_pylist()
            tree.add(TreeRollout(fork.start.rollout_id, rows, state))
            own.append((fork, state))
        progress(number + 1, per_task)
    pairs = [pair for own in played for pair in own]
    table = turn_table([fork for fork, _ in pairs], dict(common), player.turn_columns)
    parents = [(state.rollout.rollout_id, state.turn) for fork, state in pairs for _ in fork.turns]
    names, places = zip(*parents, strict=True)
    table = table.append_column("parent_rollout_id", pa.array(names, pa.string()))
    table = table.append_column("parent_turn", pa.array(places, pa.int32()))
    branching = [state for tree in trees for state in tree.states if state.actions > 1]
    return table, {
        "forks": float(len(pairs)),
        "turns": float(table.num_rows),
        "tokens": float(sum(fork.tokens for fork, _ in pairs)),
        "success": float(np.mean([fork.success for fork, _ in pairs])),
        "states": float(sum(len(tree.states) for tree in trees)),
        "branching_states": float(len(branching)),
        "replayed_turns": float(replayed),
    }


def _trees(player: Player, view: Turns) -> list[Tree]:
    """The tree of each group, before its first fork."""
    of_group: dict[int, tuple[dict[str, Any], str, list[TreeRollout]]] = {}
    names = ["group_id", "rollout_id", "task_id", *KEPT]
    for rollout in range(view.rollouts):
        task, rows = recorded(view, rollout, player.games, names)
        group = of_group.setdefault(int(view.group_R[rollout]), (task, rows[0]["group_id"], []))
        group[2].append(TreeRollout(rows[0]["rollout_id"], rows))
    return [Tree(*group) for group in of_group.values()]


def _checkpoint(player: Player, tree: Tree, state: State, where: str) -> Checkpoint:
    games = player.games
    checkpoint = checkpoint_before_last(
        games.open(tree.task), player.new_agent(), state.path(), goal=tree.task["goal"], admissible=games.admissible
    )
    if checkpoint is None:
        raise UserError(
            f"{where}: group '{tree.group_id}', rollout '{state.rollout.rollout_id}', turn {state.turn}: what was "
            "recorded is not reproduced when its actions are replayed; forks need an environment whose steps are "
            "deterministic, with the settings that the turns were recorded with"
        )
    return checkpoint
