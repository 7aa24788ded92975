"""The description of an environment: all that the pipeline, agents, judges and commands need to know about it.

An environment's package declares it as `ENVIRONMENT`. Two things are needed to play: `open_task`, and tasks. All other
fields are optional; leaving one out removes a capability (`Environment.capabilities`) or selects a simple default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import Any

import pyarrow as pa
from pydantic import BaseModel

from turncredit.data.env_wording import Words
from turncredit.data.strict_model import Closed
from turncredit.envs.failures import FailureRule
from turncredit.envs.judging import TRIAGE, Grammar, Rubric
from turncredit.envs.protocol import METHODS_OF, Env, Expert, Rng, Step
from turncredit.errors import UserError

Row = Mapping[str, Any]
"""A row of the tasks table."""


class NoSettings(Closed):
    """The settings of an environment that has none."""


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Mean tokens of an environment's texts, for estimates of memory and time; the defaults are assumed.

    goal         the task's instruction
    first        the first observation
    observation  a later one
    action       an action
    admissible   the list of admissible actions; 0 where there is none
    """

    goal: int = 60
    first: int = 200
    observation: int = 200
    action: int = 10
    admissible: int = 100


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The description of an environment.

    name            in the configuration and in the column `env` of the tables
    summary         one line for `turncredit env list`
    aliases         other names under which tables made elsewhere call it

    Playing:
    Settings        pydantic model of `env.<name>`, such as a subclass of `turncredit.data.strict_model.Closed`
    open_task       (row, settings) -> a fresh `Env`; may be a class. None: known from tables only (judges, failures)
    env_class       the class of what `open_task` returns, whose methods are the environment's capabilities; only
                    needed where `open_task` is a function
    make_tasks      (split, count, seed, settings) -> that many rows; a larger count only adds rows at the end
    read_tasks      (split, settings) -> all rows of the split, from files; the pipeline shuffles them by the seed
    held_out_split  a split of tasks to evaluate on, for commands that are not told one
    task_key        (row) -> a text that rows share exactly if their tasks have the same instruction and layout, to keep
                    evaluation apart from training (`turncredit.rollouts.held_out`, which has the default)
    least_actions   (settings) -> by kind of task, the fewest actions that any such task takes; a setting `horizon` that
                    is smaller is refused before any job
    plan_length     (row) -> the actions of the plan that a row has, where its `optimal_length` is not known; the job
                    that makes the tasks warns of those that are longer than `horizon`
    multiline       whether actions are code of several lines; agents that give one line are then refused before any job
    lacks           (settings) -> the capabilities of its class that it does not have with these settings
    deterministic   whether the same actions in a task always lead to the same steps. Progress, distance and ground
                    truth are computed by replaying recorded actions, and so are the states of an environment that
                    cannot save them; they are refused where this is false
    guarded         for a built-in environment whose engine is another process: its calls are timed and checked like
                    those of other people's environments (`turncredit.envs.guard`)
    release         () -> None, of a guarded one: ends that process, also while it hangs; the call that hangs, and the
                    next one, then start another. Servers of the environment need it (`turncredit env serve`)
    remote          (settings) -> whether its calls wait for another machine; servers of the environment then answer
                    others meanwhile
    before_steps    (rollouts, actions) -> None, called before the steps of rollouts that are played in parallel: it can
                    send one request for all of them. For built-in environments; not called with several trials
    served          settings that servers of the environment have unless others are given: without what only
                    demonstrations need
    check_installed (settings) -> a line about what is there, or None; raises UserError where something that playing
                    needs is not installed, or its files are unusable. Called before any job

    A row needs `task_id` (unique) and `goal`; `family`, `source`, `optimal_length` and `game` (the text from which the
    task can be opened again) are optional, further columns are kept.

    Demonstrations:
    expert          (env, rng) -> an `Expert`; with a keyword `skip`, one that can forget a step (`demos.skip`)
    expert_columns  columns of the demonstrations, beyond the table's own, in which the expert writes its plan for
                    agents to learn from: name to Arrow type; it then has a method `columns` (protocol.Plans)
    random_command  (env, rng) -> a random action, possibly a wrong one; default: any admissible action
    slip_command    (env, rng) -> an admissible action off the path; default: any admissible action

    Baselines:
    rule            (goal) -> what an obvious rule does that sees the goal and observations only, with the methods of an
                    `Expert` (`turncredit env baselines`)

    Answers:
    gold_answer     (row, settings) -> an action that gives the right answer, and the answer as it stands in this
                    action, for methods that ask how likely a policy makes it; only where tasks are questions

    Words:
    words           its wording in agents' prompts
    rubric          what an LLM judge is told about it
    judge           the module with the rule judge's grammar (`turncredit.envs.judging.Grammar`), as text
    redact          (action, observation) -> the observation without what it reveals of the outcome, in addition to the
                    judges' own patterns
    failures        what counts as a failed action; None: a step that was not valid

    Around it:
    lengths         (settings) -> mean tokens of its texts, as measured (benchmarks/env/lengths.py)
    commands        `module:app`, a typer app for `turncredit env <name>`
    conda           (settings) -> the name of a file in envs_conda/ that playing needs, or None for the core one
    """

    name: str
    summary: str = ""
    aliases: tuple[str, ...] = ()

    Settings: type[BaseModel] = NoSettings
    open_task: Callable[[Row, Any], Env] | None = None
    env_class: type | None = None
    make_tasks: Callable[[str, int, int, Any], Sequence[Row]] | None = None
    read_tasks: Callable[[str, Any], Sequence[Row]] | None = None
    lacks: Callable[[Any], Collection[str]] | None = None
    held_out_split: str = "eval"
    task_key: Callable[[Row], str] | None = None
    least_actions: Callable[[Any], Mapping[str, int]] | None = None
    plan_length: Callable[[Row], int | None] | None = None
    multiline: bool = False
    deterministic: bool = True
    guarded: bool = False
    release: Callable[[], None] | None = None
    remote: Callable[[Any], bool] | None = None
    before_steps: Callable[[Sequence[Any], Sequence[str]], None] | None = None
    served: Mapping[str, Any] = field(default_factory=dict)
    check_installed: Callable[[Any], str | None] | None = None

    expert: Callable[..., Expert] | None = None
    expert_columns: Mapping[str, pa.DataType] = field(default_factory=dict)
    random_command: Callable[[Any, Rng], str] | None = None
    slip_command: Callable[[Any, Rng], str] | None = None

    rule: Callable[[str], Expert] | None = None

    gold_answer: Callable[[Row, Any], tuple[str, str]] | None = None

    words: Words = field(default_factory=Words)
    rubric: Rubric = TRIAGE
    judge: str | None = None
    redact: Callable[[str, str], str] | None = None
    failures: FailureRule | None = None

    lengths: Callable[[Any], Lengths] = field(default=lambda _: Lengths())
    commands: str | None = None
    conda: Callable[[Any], str | None] | None = None

    _lost: frozenset[str] = frozenset()
    """Capabilities that settings have taken away (`with_settings`)."""

    @cached_property
    def capabilities(self) -> frozenset[str]:
        """What the environment can do, as names of `turncredit.envs.protocol.CAPABILITIES`."""
        have = {name for name, methods in METHODS_OF.items() if all(hasattr(self._class, method) for method in methods)}
        for name, value in (
            ("expert", self.expert),
            ("gold_answers", self.gold_answer),
            ("tasks_by_seed", self.make_tasks),
            ("tasks_from_files", self.read_tasks),
        ):
            if value is not None:
                have.add(name)
        return frozenset(have | {"replay", "snapshot"} if self.deterministic else have) - self._lost

    def with_settings(self, settings: Mapping[str, Any]) -> Environment:
        """The environment as it is with these valid settings, without the capabilities that they take away."""
        lost = frozenset(self.lacks(self.Settings.model_validate(settings))) if self.lacks else frozenset()
        return replace(self, lacks=None, _lost=lost) if lost else self

    @cached_property
    def restores_by_replay(self) -> bool:
        """Whether its states are restored by playing the actions again (`turncredit.envs.replaying`): it saves none."""
        return self.deterministic and not all(hasattr(self._class, method) for method in METHODS_OF["snapshot"])

    @cached_property
    def counts_redone(self) -> bool:
        """Whether rollouts say how often they were redone (`turncredit.envs.protocol.Redone`)."""
        return hasattr(self._class, "redone")

    @cached_property
    def concurrent(self) -> bool:
        """Whether steps are coroutines, so that those of several rollouts run concurrently."""
        return inspect.iscoroutinefunction(getattr(self._class, "step", None))

    @property
    def _class(self) -> type | None:
        if self.env_class is not None:
            return self.env_class
        return self.open_task if isinstance(self.open_task, type) else None

    def check(self, where: str) -> None:
        """Raise UserError, naming `where` it was declared, if the description cannot be played."""
        if self.open_task is None:
            raise UserError(f"{where}: the environment '{self.name}' cannot be played: it has no open_task")
        if self._class is None:
            raise UserError(
                f"{where}: open_task of '{self.name}' is a function; give the class it returns as env_class"
            )
        missing = [method for method in ("reset", "step", "close") if not callable(getattr(self._class, method, None))]
        if missing:
            raise UserError(
                f"{where}: {self._class.__name__} has no method {' and no '.join(missing)}; reset, step and close are "
                "needed"
            )
        if self.make_tasks is None and self.read_tasks is None:
            raise UserError(f"{where}: the environment '{self.name}' has no tasks; give make_tasks or read_tasks")

    def grammar(self) -> Grammar | None:
        """The rule judge's grammar, imported now; None where there is none."""
        return import_module(self.judge) if self.judge else None  # type: ignore[return-value]

    def failed(self, step: Step) -> tuple[bool, bool]:
        """Whether an action has failed and whether its reply is an error: the columns `failed`, `error_reply`."""
        if self.failures is None:
            return not step.valid, not step.valid
        failed = self.failures.failed(step.observation)
        if self.failures.error_reply is None:
            return failed, failed
        return failed, self.failures.error_reply(step.observation)

    def takes_skip(self) -> bool:
        """Whether the expert can forget a step on request."""
        return self.expert is not None and "skip" in inspect.signature(self.expert).parameters

    @property
    def acts_at_random(self) -> bool:
        """Whether there are random actions: `random_command`, or a list of admissible actions."""
        return self.random_command is not None or "admissible" in self.capabilities

    def random_action(self, env: Any, rng: Rng) -> str:
        """A random action, for noise."""
        return self.random_command(env, rng) if self.random_command else self._any_admissible(env, rng)

    def slip(self, env: Any, rng: Rng) -> str:
        """An admissible action that an agent might take by mistake."""
        return self.slip_command(env, rng) if self.slip_command else self._any_admissible(env, rng)

    def _any_admissible(self, env: Any, rng: Rng) -> str:
        actions = env.admissible()
        if not actions:
            raise UserError(
                f"environment '{self.name}': admissible() lists no action before the end of a rollout, so noise has "
                "none to choose from; list one, or give random_command and slip_command"
            )
        return actions[int(rng.random() * len(actions))]
