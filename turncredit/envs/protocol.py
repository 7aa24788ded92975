"""The interface of a running environment: three methods, and optional capabilities.

Every environment has the methods of `Env`: `reset`, `step`, `close`. Everything else is optional and has a name
(`CAPABILITIES`); a method, an agent or an audit that needs a capability which the environment lacks is refused before
any job starts. `reset`, `step` and `close` may be coroutine functions: the steps of rollouts that are played in
parallel then run concurrently.

`turncredit.envs.environment.Environment` describes an environment as a whole: its tasks, prompts, expert and commands.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

State = Any
"""An immutable snapshot. Opaque: hand it back to `restore` of an environment on the same task."""


class Step(NamedTuple):
    """The result of one action.

    `reward` is the environment's own (the household's: `success_reward`, 1.0 by default, on the winning step, else
    0.0); `done` is true once the rollout is over (goal reached, lost, or out of turns); `success` says whether the goal
    is reached; `valid` whether the action was understood and allowed.
    """

    observation: str
    reward: float
    done: bool
    success: bool = False
    valid: bool = True


class Env(Protocol):
    """One running task. Not thread-safe; many may share one task's static data."""

    def reset(self) -> str | Awaitable[str]:
        """Start again and return the first observation, without the text of the task (the row's `goal`)."""
        ...

    def step(self, action: str) -> Step | Awaitable[Step]:
        """Carry out one action, which may be any text. Never called after a step that was `done`."""
        ...

    def close(self) -> Awaitable[None] | None:
        """Release all resources. Called once, at the end, even after an error."""
        ...


# ---------------------------------------------------------------- capabilities of a running environment


class HasProgress(Protocol):
    """`progress`: how much of the goal is reached. Read by has_progressive and, for TurnRD's losses, has_turnrd."""

    def progress(self) -> float:
        """The fraction of the goal's conditions that hold now; 1.0 if and only if the goal is reached."""
        ...


class HasDistance(Protocol):
    """`distance`: the exact distance to the goal, and a plan. Read by oracle_progress (the privileged reference)."""

    def distance(self) -> int:
        """The optimal number of further actions, -1 when the goal can no longer be reached."""
        ...

    def oracle(self) -> list[str]:
        """An optimal plan from here, found with full knowledge. Empty when won or out of reach."""
        ...


class HasSnapshot(Protocol):
    """`snapshot`: the state can be saved and restored.

    Audits and methods with continuations or forks need it to continue from the middle of a rollout. An environment with
    deterministic steps can do without: its states are restored by playing the actions again.
    """

    def snapshot(self) -> State:
        """The whole state, including the number of turns played."""
        ...

    def restore(self, state: State) -> None:
        """Continue from a snapshot of this task, possibly taken by another environment on the same task."""
        ...


class HasAdmissible(Protocol):
    """`admissible`: the actions that are allowed now can be listed."""

    def admissible(self) -> Sequence[str]:
        """The actions that are allowed now, in an order that depends on the state alone."""
        ...


class Redone(Protocol):
    """Marks environments that may restart a rollout, for external reasons. It is no capability."""

    @property
    def redone(self) -> int:
        """How often that has happened since `reset`, such as after the death of a process that the environment uses."""
        ...


class Scored(Protocol):
    """Marks built-in environments for which papers report a score beside success. It is no capability."""

    def task_score(self) -> float:
        """The score of the rollout, 0 to 1, whatever the settings make of rewards. Read when it has ended."""
        ...


#: capabilities of a running environment: name -> the methods of its class that make it
METHODS_OF = {
    "progress": ("progress",),
    "distance": ("distance", "oracle"),
    "snapshot": ("snapshot", "restore"),
    "admissible": ("admissible",),
}

#: every capability, and its wording in error messages
CAPABILITIES = {
    "progress": "progress",
    "distance": "distance",
    "snapshot": "snapshot and restore",
    "admissible": "list of admissible actions",
    "replay": "deterministic steps",
    "expert": "expert",
    "gold_answers": "gold answers",
    "tasks_by_seed": "tasks by seed (make_tasks)",
    "tasks_from_files": "tasks from files (read_tasks)",
}


class Expert(Protocol):
    """Plays one rollout for demonstrations, from its observations. Made by `Environment.expert(env, rng)`."""

    def observe(self, observation: str, action: str | None = None) -> None:
        """Observe what the environment printed; `action` is given if another action than `act`'s was carried out."""
        ...

    def act(self) -> str:
        """The next action."""
        ...


def tell(expert: Expert, observation: str, action: str, chosen: str) -> None:
    """Show an expert, whose `act` has chosen an action, what the environment printed after `action`."""
    expert.observe(observation, None if action == chosen else action)


class Plans(Protocol):
    """The additional method of an expert whose environment has `expert_columns`."""

    def columns(self) -> Mapping[str, Any]:
        """The plan behind `act`'s action, such as a subgoal: one value for each of `expert_columns`."""
        ...


class Rng(Protocol):
    """Uniform draws from [0, 1): `random.Random` and `numpy.random.Generator` both work."""

    def random(self) -> float:
        """The next draw."""
        ...
