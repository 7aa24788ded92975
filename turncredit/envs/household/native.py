"""The native engine behind the environment protocol."""

from __future__ import annotations

from turncredit.envs.household.game import NOTHING, Game, as_typed
from turncredit.envs.household.planner import distance, plan
from turncredit.envs.household.profile import TASK_PREFIX
from turncredit.envs.household.world import World
from turncredit.envs.protocol import Step

_State = tuple[World, int, bool]


class NativeEnv:
    """One rollout of a game (see `turncredit.envs.protocol.Env`)."""

    __slots__ = ("_game", "_state", "family", "goal", "horizon", "intro", "put_command", "success_reward")

    def __init__(self, game: Game, horizon: int, success_reward: float = 1.0) -> None:
        """Share `game` with other rollouts; rollouts end after `horizon` commands, and a won one has this reward."""
        self._game = game
        self._state: _State | None = None
        self.goal = game.task.removeprefix(TASK_PREFIX)
        self.family = game.goal.family
        self.horizon = horizon
        self.success_reward = success_reward
        self.intro = game.intro
        self.put_command = game.profile.put_command

    def reset(self) -> str:
        """Start again; the first observation, without banner and task."""
        start = self._game.start
        self._state = (start, 0, self._game.goal.won(start))
        return self._game.room

    def step(self, action: str) -> Step:
        """Carry out one command. Raises RuntimeError when the rollout has ended or was never reset."""
        world, turn, won = self._running()
        if won or turn >= self.horizon:
            raise RuntimeError("the rollout has ended; reset the environment")
        after, text = self._game.apply(world, as_typed(action))
        if after is not world:
            won = self._game.goal.won(after)
        turn += 1
        self._state = (after, turn, won)
        return Step(text, self.success_reward if won else 0.0, won or turn >= self.horizon, won, text is not NOTHING)

    def close(self) -> None:
        """Nothing to release."""

    def admissible(self) -> tuple[str, ...]:
        """The commands that are allowed now, sorted."""
        return self._game.local(self._running()[0]).admissible

    def progress(self) -> float:
        """The fraction of the goal's conditions that hold now (`Goal.progress`)."""
        return self._game.goal.progress(self._running()[0])

    def distance(self) -> int:
        """The optimal number of further commands, -1 when the goal can no longer be reached."""
        return distance(self._game, self._running()[0])

    def oracle(self) -> list[str]:
        """An optimal plan from here; empty when won or out of reach."""
        return plan(self._game, self._running()[0]) or []

    def snapshot(self) -> _State:
        """World, turn and whether the goal holds: the tuple that the environment itself keeps."""
        return self._running()

    def restore(self, state: _State) -> None:
        """Continue from a snapshot of this task."""
        self._state = state

    def _running(self) -> _State:
        if self._state is None:
            raise RuntimeError("reset the environment first")
        return self._state
