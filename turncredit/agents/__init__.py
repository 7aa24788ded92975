"""Agents: what the model sees of a rollout, and how its text becomes an action.

An agent is described by an `AgentSpec` (`AGENT` in its module): its settings, the columns it writes, and how to make
one. It is made once per rollout: `open` gives the first prompt, `parse` the action in a response, `follow` the next
prompt. A prompt either extends the context (the model keeps what it has read) or replaces it, at any turn; an engine
reads a replaced context only from the first token that differs. docs/agents.md shows how to add one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, Protocol

import pyarrow as pa

from turncredit.data import plugins, tables
from turncredit.data.env_wording import Words
from turncredit.data.strict_model import Closed
from turncredit.errors import UserError, nearest

#: The entry points through which other packages provide agents: name = "package.module:AGENT".
GROUP = "turncredit.agents"
BUILT_IN = {
    "code": "turncredit.agents.code:AGENT",
    "hipif": "turncredit.agents.hipif:AGENT",
    "transcript": "turncredit.agents.transcript:AGENT",
    "verl_agent": "turncredit.agents.verl_agent:AGENT",
    "window": "turncredit.agents.window:AGENT",
    "react": "turncredit.agents.react:AGENT",
    "reflexion": "turncredit.agents.reflexion:AGENT",
    "reflexion_window": "turncredit.agents.reflexion:WINDOW",
    "reflexion_transcript": "turncredit.agents.reflexion:TRANSCRIPT",
    "tools": "turncredit.agents.tools:AGENT",
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """Tokens for the model to read: all of its context (`reset`), or what follows its last response."""

    ids: list[int]
    reset: bool


@dataclass(frozen=True, slots=True)
class Parsed:
    """A parsed response: the action, whether it follows the agent's format, and the agent's columns of the turn.

    `columns` has a value (or None) for each of the agent's `turn_columns`.
    """

    action: str
    well_formed: bool
    columns: Mapping[str, Any] = field(default_factory=dict)


class Encoder(Protocol):
    """The part of a tokenizer that an agent uses."""

    eos_id: int
    has_chat_template: bool
    special_tokens: tuple[str, ...]

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, special tokens recognised, none added."""

    def chat(self, messages: list[dict[str, Any]], *, tools: list[dict[str, Any]] | None = None) -> str:
        """Messages rendered by the model's chat template with these tools, ready for the assistant's reply."""


class Agent(Protocol):
    """The agent's side of one rollout."""

    def open(self, goal: str, observation: str, admissible: Sequence[str]) -> Prompt:
        """The first prompt, all of the context (`reset`)."""

    def parse(self, text: str) -> Parsed:
        """Parse a response. Must not change the agent's state: the result is passed to `follow`."""

    def follow(
        self, response_ids: Sequence[int], parsed: Parsed, observation: str, admissible: Sequence[str]
    ) -> Prompt:
        """The prompt after a turn, from the model's response, its parsed form and the new observation."""

    def target(self, turn: Mapping[str, Any]) -> str:
        """The response that a demonstrated turn teaches, such that `parse` finds the same action in it.

        `turn` is a row of the demonstrations: `action`, the agent's `demo_columns`, and the rest.
        """

    def fork(self) -> Agent:
        """An independent copy that has seen the same so far."""


class AgentSettings(Closed):
    """Base class of an agent's settings. An unknown key is an error."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What an agent's prompts show of a rollout, for estimates of memory and time.

    turns      earlier turns that it shows whole, the last ones; None: all
    responses  whether these have the model's whole response, or the action alone
    folded     tokens that it keeps of each turn before these
    own        tokens of its own text: the instruction and the chat's markup
    """

    turns: int | None = None
    responses: bool = True
    folded: int = 0
    own: int = 60


def _all_turns(_settings: Any, _words: Words) -> Shown:
    return Shown()


@dataclass(frozen=True)
class AgentSpec:
    """The description of an agent.

    name              as written in the column `agent` of the turns
    make              (encoder, settings, words) to a function that makes a fresh agent for each rollout
    Settings          `agent.<name>` of the configuration
    turn_columns      columns, beyond the table's own, that it writes for each turn: name to Arrow type
    demo_columns      columns of the demonstrations, beyond the table's own, that `target` reads; the environment's
                      expert must write them
    optional_columns  further columns of the demonstrations that `target` reads where the expert writes them
    vocabulary        texts of its own format, such as <plan>, or a function of the words that returns them; a tokenizer
                      built from scratch has one token for each
    hindsight         (goal, outcome) to the goal as its prompts show it once the outcome is known, for methods that
                      read turns in hindsight; None: its prompts cannot show it
    shows_goal        (words) -> whether its prompts show the goal, without which `hindsight` has no place; None: always
    shows_admissible  whether its prompts may list the admissible actions; only then is it given them, if the
                      environment can list them, and are they stored with the turns
    lists             (settings, words) -> whether its prompts do list them; None: by its setting `show_admissible`, or
                      if it has none, always
    plays             (words) -> whether it can play in the environment with this wording; None: in every one
    multiline         whether its actions may have several lines, which an environment of code needs
    append_only       whether its context only grows within a trial, so that a rollout is one sequence and not one a
                      turn; only estimates of costs read it, the stages look at `context_reset`
    shown             (settings, words) -> what its prompts show of a rollout; only estimates of costs read it
    trials            settings to the number of trials that a rollout has at most, for an agent that learns from a
                      failed trial and starts again (`turncredit.envs.trials`); it writes the column `trial`, from 1
                      on. None: a rollout is one trial
    """

    name: str
    make: Callable[[Encoder, Any, Words], Callable[[], Agent]]
    Settings: type[AgentSettings] = AgentSettings
    turn_columns: Mapping[str, pa.DataType] = field(default_factory=dict)
    demo_columns: Mapping[str, pa.DataType] = field(default_factory=dict)
    optional_columns: tuple[str, ...] = ()
    vocabulary: tuple[str, ...] | Callable[[Words], tuple[str, ...]] = ()
    hindsight: Callable[[str, str], str] | None = None
    shows_goal: Callable[[Words], bool] | None = None
    shows_admissible: bool = False
    lists: Callable[[Any, Words], bool] | None = None
    plays: Callable[[Words], bool] | None = None
    multiline: bool = False
    append_only: bool = False
    shown: Callable[[Any, Words], Shown] = _all_turns
    trials: Callable[[Any], int] | None = None

    def trials_of(self, settings: Mapping[str, Any]) -> int:
        """The number of trials that a rollout has at most, with `settings` as configured."""
        return 1 if self.trials is None else self.trials(self.Settings.model_validate(settings))

    def vocabulary_in(self, words: Words) -> tuple[str, ...]:
        """The texts of its format in an environment with this wording."""
        return self.vocabulary(words) if callable(self.vocabulary) else self.vocabulary

    def lists_admissible(self, settings: Mapping[str, Any], words: Words) -> bool:
        """Whether its prompts list the admissible actions, with `settings` as configured."""
        own = self.Settings.model_validate(settings)
        if self.lists is not None:
            return self.lists(own, words)
        return self.shows_admissible and getattr(own, "show_admissible", True)

    def looks_back(self, words: Words) -> bool:
        """Whether its prompts in an environment with this wording can show a rollout's outcome."""
        return self.hindsight is not None and (self.shows_goal is None or self.shows_goal(words))

    def check(self, parsed: Parsed, where: str) -> None:
        """Raise UserError, naming `where`, unless `parsed` has exactly the declared columns."""
        if parsed.columns.keys() == self.turn_columns.keys():
            return
        for column in parsed.columns:
            if column not in self.turn_columns:
                hint = nearest(column, self.turn_columns)
                raise UserError(f"{where}: agent '{self.name}' wrote '{column}', not one of its turn_columns{hint}")
        missing = next(column for column in self.turn_columns if column not in parsed.columns)
        raise UserError(f"{where}: agent '{self.name}' wrote no '{missing}'; use None for no value")

    def check_actions(self, multiline: bool, environment: str, key: str = "agent") -> None:
        """Raise UserError if the actions of `environment` have several lines (`multiline`) and this agent's have one.

        `key` is where the configuration names the agent.
        """
        if multiline and not self.multiline:
            raise UserError(
                f"config: {key}: actions of '{environment}' are code of several lines, and '{self.name}' gives one "
                f"line (AgentSpec.multiline); set {key}.name to code"
            )

    def cannot_look_back(self, key: str = "agent") -> str:
        """Why this agent's turns can't be read in hindsight, and what to do: the end of an error message.

        `key` is where the configuration names the agent.
        """
        return (
            f"the agent '{self.name}' does not say how its prompts show a rollout's outcome (AgentSpec.hindsight); "
            f"choose another agent ({key}.name), or another method"
        )

    def opened(
        self, agent: Agent, goal: str, observation: str, admissible: Sequence[str], where: str = "the first prompt"
    ) -> Prompt:
        """The first prompt of a rollout. Raises UserError if it is not the whole context."""
        prompt = self.call(agent, "open", goal, observation, admissible, where=where)
        if not prompt.reset:
            raise UserError(f"agent '{self.name}': open must return the whole context: Prompt(ids, reset=True)")
        return prompt

    def call(self, agent: Agent, method: str, *arguments: Any, where: str) -> Any:
        """The result of a method of the agent: a Prompt (`open`, `follow`), a Parsed (`parse`) or a text (`target`).

        Raises UserError, naming `where`, for a result of another type, and for an exception in somebody's own agent.
        """
        of = f"{where}: agent '{self.name}': {method}()"
        try:
            result = getattr(agent, method)(*arguments)
        except UserError:
            raise
        except Exception as error:
            if self.name in BUILT_IN and load(self.name) is self:
                raise
            raise UserError(f"{of} raised {type(error).__name__}: {' '.join(str(error).split())}") from error
        kind = {"parse": Parsed, "target": str}.get(method, Prompt)
        if not isinstance(result, kind):
            raise UserError(f"{of} must return a {kind.__name__}, not a {type(result).__name__}")
        if isinstance(result, Parsed) and not isinstance(result.action, str):
            raise UserError(f"{of} must give a text as action, not {result.action!r}")
        if isinstance(result, Parsed) and not isinstance(result.columns, Mapping):
            raise UserError(f"{of} must give a mapping as columns, not {result.columns!r}")
        if isinstance(result, Prompt):
            if result.reset and not result.ids:
                raise UserError(f"{of} returned a context without a token")
            if not all(isinstance(token, Integral) for token in result.ids[:1]):
                raise UserError(f"{of} must return token ids, which are whole numbers, not {result.ids[0]!r}")
        return result


def outcome_after_goal(goal: str, outcome: str) -> str:
    """The goal with a rollout's outcome after it: `hindsight` of agents whose every context shows the goal."""
    return f"{goal} In the end: {outcome}"


def load(name: str) -> AgentSpec:
    """The agent called `name`: built-in, from an installed package, or from a file (`path.py`, `path.py:NAME`).

    A file declares it as `AGENT`, or as NAME. Raises UserError for an unknown name, with the nearest, and for an
    invalid description.
    """
    own = plugins.own_file(name)
    if own is None:
        return _checked(plugins.load("agent", GROUP, BUILT_IN, name), f"agent '{name}'")
    path, attribute = own[0], own[1] or "AGENT"
    module = plugins.from_file("an agent", path)
    if not hasattr(module, attribute):
        raise UserError(f"{path}: has no {attribute}; declare it as {attribute} = AgentSpec(...)")
    return _checked(getattr(module, attribute), str(path))


def agent_factory(spec: AgentSpec, encoder: Encoder, settings: Mapping[str, Any], words: Words) -> Callable[[], Agent]:
    """A function that makes a fresh agent for each rollout; `settings` as configured, `words` the environment's.

    Special tokens in observations and responses are broken with a space, so text cannot fake an end of turn.
    Tables keep the texts as they were.
    """
    make = spec.make(encoder, spec.Settings.model_validate(settings), words)
    special = sorted(filter(None, encoder.special_tokens), key=len, reverse=True)
    if not special:
        return make
    pattern = re.compile("|".join(map(re.escape, special)))
    return lambda: _Shielded(make(), lambda text: pattern.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text))


class _Shielded:
    """An agent whose texts go through `plain` first."""

    def __init__(self, agent: Agent, plain: Callable[[str], str]):
        self._agent, self._plain = agent, plain

    def open(self, goal: str, observation: str, admissible: Sequence[str]) -> Prompt:
        """The agent's first prompt."""
        plain = self._plain
        return self._agent.open(plain(goal), plain(observation), [plain(action) for action in admissible])

    def parse(self, text: str) -> Parsed:
        """The agent's reading of a response."""
        return self._agent.parse(self._plain(text))

    def follow(
        self, response_ids: Sequence[int], parsed: Parsed, observation: str, admissible: Sequence[str]
    ) -> Prompt:
        """The agent's next prompt. A recorded action is as it was parsed, and passes through once more."""
        plain = self._plain
        parsed = replace(parsed, action=plain(parsed.action))
        return self._agent.follow(response_ids, parsed, plain(observation), [plain(action) for action in admissible])

    def target(self, turn: Mapping[str, Any]) -> str:
        """The response that a demonstrated turn teaches."""
        return self._agent.target(turn)

    def fork(self) -> Agent:
        """An independent copy."""
        return _Shielded(self._agent.fork(), self._plain)


def _checked(spec: Any, where: str) -> AgentSpec:
    if not isinstance(spec, AgentSpec):
        raise UserError(f"{where}: is described by a {type(spec).__name__}, not by an AgentSpec")
    if not (isinstance(spec.Settings, type) and issubclass(spec.Settings, AgentSettings)):
        raise UserError(f"{where}: its Settings must inherit from turncredit.agents.AgentSettings")
    taken = [column for column in spec.turn_columns if column in tables.schema("turns").names]
    if taken:
        raise UserError(f"{where}: turn_columns: the turns have a column '{taken[0]}' already; give it another name")
    if spec.trials is not None and "trial" not in spec.turn_columns:
        raise UserError(f"{where}: an agent with several trials writes which one it is: add 'trial' to turn_columns")
    return spec
