"""Restore recorded rollouts: the environment's state and the agent before each of their turns.

The recorded actions are played once from the start, and then from every restored state to the rollout's end; the
results are compared with the recorded ones. Where states are restored by playing the actions again, the first of these
playthroughs is enough. Audits and methods that continue from the middle of rollouts need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from turncredit.agents import Agent, Parsed, Prompt
from turncredit.data.turns import CONTEXT_FULL, Turns
from turncredit.envs.protocol import State, Step
from turncredit.errors import UserError
from turncredit.rollouts.play import Checkpoint, Player
from turncredit.rollouts.tasks import Games

#: the columns of a turn that are read
COLUMNS = (
    "observation", "context_reset", "prompt_ids", "response_ids", "response_text", "action", "next_observation",
    "reward", "done",
)  # fmt: skip


#: of a rollout, the same in all of its turns
_OF_ROLLOUT = ("group_id", "rollout_id", "task_id")


@dataclass(frozen=True)
class RestoredRollout:
    """One recorded rollout: its game, its rows of the turns table in order, and the restored checkpoints."""

    task: dict
    turns: list[dict[str, Any]]
    checkpoints: list[Checkpoint]
    replayed: list[bool]

    @property
    def group_id(self) -> str:
        """The id of the rollout's group in the turns table."""
        return self.turns[0]["group_id"]

    @property
    def rollout_id(self) -> str:
        """The rollout's id in the turns table."""
        return self.turns[0]["rollout_id"]


def restored(
    view: Turns, rollouts: Iterable[int], player: Player, columns: Sequence[str] = ()
) -> list[RestoredRollout]:
    """These rollouts (numbers of `view`) with their states restored, and further `columns` of their turns.

    Raises UserError for a rollout of an unknown game, or whose states can't be restored.
    """
    games = player.games
    marks = [CONTEXT_FULL] if view.has(CONTEXT_FULL) else []
    names = list(dict.fromkeys([*_OF_ROLLOUT, "turn", *COLUMNS, *marks, *columns]))
    restored_rollouts = []
    for rollout in map(int, rollouts):
        task, turns = recorded(view, rollout, games, names)
        where = f"{view.where}: {view.rollout_name(rollout)}"
        states = restore(
            partial(games.open, task),
            player.new_agent(),
            turns,
            where,
            goal=task["goal"],
            admissible=games.admissible,
        )
        restored_rollouts.append(RestoredRollout(task, turns, *states))
    return restored_rollouts


def recorded(
    view: Turns, rollout: int, games: Games, names: Sequence[str]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The row of a rollout's game, and the columns `names` of its turns. Raises UserError for an unknown game."""
    first, length = int(view.first_R[rollout]), int(view.length_R[rollout])
    turns = view.table.select(names).take(pa.array(view.order_N[first : first + length])).to_pylist()
    return games.of_rollout(turns[0]["task_id"], f"{view.where}: {view.rollout_name(rollout)}"), turns


class Restored(NamedTuple):
    """A rollout's checkpoints, one before each turn, and whether the recorded turns were reproduced from each."""

    checkpoints: list[Checkpoint]
    replayed: list[bool]


def restore(
    open_env: Callable[[], Any],
    agent: Agent,
    turns: Sequence[Mapping[str, Any]],
    where: str = "turns",
    *,
    goal: str,
    admissible: Callable[[Any], Sequence[str]] = lambda env: env.admissible(),
) -> Restored:
    """Checkpoints of a recorded rollout, given a fresh `agent` and `turns`, its rows in order: `COLUMNS`, and
    `CONTEXT_FULL` if the table has it.

    `goal` is the task's, and `admissible` lists what an environment allows now, for agents that show it.

    `replayed[t]` means that observations, prompts and actions up to turn t were reproduced, and so were observations,
    rewards and end when the rest was played from the restored state. The model's context holds the recorded tokens in
    any case.

    Raises UserError, naming `where`, for a rollout without an end, or that ends differently when it is replayed: its
    states cannot be restored.
    """
    env = open_env()
    checkpoints: list[Checkpoint] = []
    as_before: list[bool] = []
    steps_as_recorded: list[bool] = []
    same = True
    walk = _replayed(env, agent, turns, goal, admissible)
    for number, (turn, (checkpoint, prompt, parsed, step)) in enumerate(zip(turns, walk, strict=True)):
        same = same and checkpoint.observation == turn["observation"] and _same_prompt(prompt, turn)
        checkpoints.append(checkpoint)
        as_before.append(same)
        same = same and parsed.action == turn["action"]
        if step.done != _ended(turns, number):
            raise UserError(
                f"{where}: replayed, the rollout {'ends' if step.done else 'goes on'} after turn "
                f"{number} of {len(turns)}; branching needs the env settings that the turns were recorded with"
            )
        steps_as_recorded.append(_same_step(step, turn))
        same = same and steps_as_recorded[-1]
    env.close()
    if getattr(env, "restores_by_replay", False):
        onward = [all(steps_as_recorded[checkpoint.turn :]) for checkpoint in checkpoints]
    else:
        env = open_env()
        onward = [_plays_on(env, checkpoint.state, turns[checkpoint.turn :]) for checkpoint in checkpoints]
        env.close()
    return Restored(checkpoints, [before and after for before, after in zip(as_before, onward, strict=True)])


def checkpoint_before_last(
    env: Any, agent: Agent, turns: Sequence[Mapping[str, Any]], *, goal: str, admissible: Callable[[Any], Sequence[str]]
) -> Checkpoint | None:
    """The checkpoint before the last of `turns`, which lead there from the start; None where another state is reached.

    The turns may be of several rollouts, each forked from the one before; a context is read where it was reset last.
    """
    *_, (checkpoint, *_) = _replayed(env, agent, turns, goal, admissible)
    env.close()
    return checkpoint if checkpoint.observation == turns[-1]["observation"] else None


def _replayed(
    env: Any,
    agent: Agent,
    turns: Sequence[Mapping[str, Any]],
    goal: str,
    admissible: Callable[[Any], Sequence[str]],
) -> Iterator[tuple[Checkpoint, Prompt, Parsed, Step]]:
    """Each turn played again: checkpoint and prompt before it, the action in its response, what the action led to."""
    observation = env.reset()
    prompt = agent.open(goal, observation, admissible(env))
    context: list[int] = []
    for number, turn in enumerate(turns):
        context = [*([] if turn["context_reset"] else context), *turn["prompt_ids"]]
        checkpoint = Checkpoint(number, observation, env.snapshot(), agent.fork(), context)
        parsed = agent.parse(turn["response_text"])
        step = env.step(turn["action"])
        yield checkpoint, prompt, parsed, step
        observation = step.observation
        context = [*context, *turn["response_ids"]]
        if not step.done:
            prompt = agent.follow(
                turn["response_ids"], replace(parsed, action=turn["action"]), observation, admissible(env)
            )


def _plays_on(env: Any, state: State, turns: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the recorded actions, played from the restored state, reproduce the recording."""
    env.restore(state)
    for number, turn in enumerate(turns):
        step = env.step(turn["action"])
        if not _same_step(step, turn) or step.done != _ended(turns, number):
            return False
    return True


def _ended(turns: Sequence[Mapping[str, Any]], number: int) -> bool:
    """Whether the environment ended the rollout with this turn."""
    return number == len(turns) - 1 and not turns[number].get(CONTEXT_FULL, False)


def _same_prompt(prompt: Prompt, turn: Mapping[str, Any]) -> bool:
    return prompt.reset == turn["context_reset"] and list(prompt.ids) == list(turn["prompt_ids"])


def _same_step(step: Step, turn: Mapping[str, Any]) -> bool:
    return step.observation == turn["next_observation"] and step.reward == turn["reward"]
