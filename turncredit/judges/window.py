"""What a judge sees of a turn: the goal, the turn, and at most five turns on either side. Never the outcome.

Only `COLUMNS` of a table of turns are ever read (and, where there is no goal, what the policy read first), so success,
score, reward, progress and distance cannot leak in. What an environment's text reveals of the outcome is removed here,
by common patterns and by the environment's own rule (`Environment.redact`: a score on WebShop's last page, the reply to
an answer). One hint remains, as in TRIAGE: a window may end with the attempt's last turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from turncredit import envs
from turncredit.data.columns import as_table
from turncredit.data.tables import KEYS
from turncredit.data.transcript_markers import FAILED
from turncredit.data.turns import Turns
from turncredit.envs.judging import HIDDEN, Turn
from turncredit.errors import UserError, nearest

COLUMNS = (*KEYS, "env", "goal", "action", "next_observation")
#: of a log of several agents also these: who wrote a turn, and its place among all messages
LOG_COLUMNS = ("agent", "step")
#: The environment of a table that names none.
UNKNOWN = "unknown"
#: Characters of one text in a prompt: the task, an action or an observation. The middle of a longer one is left out (a
#: rule judge sees all of it).
TEXT_LIMIT = 2000

# Phrases in which environments reveal the outcome. Whole sentences, lines or [SEP] parts are removed.
_MARK = re.compile(
    r"""
      (?P<stars>\*{3}[^*\n]{0,80}\*{3})                                          # *** You have won ***
    | (?:\b(?:reward|score|success|won|is_correct|correct)\s*(?:\[SEP\]\s*)?[:=]
        |"(?:reward|won|is_correct)"\s*:)\s*(?:-?\d+(?:\.\d+)?|true|false)\b      # in JSON success is a tool's
    """,
    re.IGNORECASE | re.VERBOSE,
)
_VERDICT = (
    r"\b(?:you(?:'ve| have)? (?:won|lost|win|lose)\b|task (?:completed|complete|failed|succeeded)\b"
    r"|(?:goal|task) (?:was |has been |is )?(?:achieved|accomplished|reached)\b)"
)
_SENTENCE = re.compile(_VERDICT, re.IGNORECASE)
_TOLD = re.compile(rf"{_VERDICT}|\byour score\b", re.IGNORECASE)  # your score (min 0.0, max 1.0) ...: to the line's end
_END = re.compile(r"[.!?\n]|\Z")
_HINT = re.compile(r"won|lost|win|lose|score|task|goal|reward|success|correct|\*\*\*", re.IGNORECASE)


class Window(NamedTuple):
    """A turn and its neighbours, in order of time."""

    env: str
    goal: str
    before: tuple[Turn, ...]
    turn: Turn
    after: tuple[Turn, ...]


class Rollouts(NamedTuple):
    """A table's turns in sorted order, with no columns but `COLUMNS` and `LOG_COLUMNS`.

    `order_N[i]` is the input row at the sorted place i; `first_R`, `length_R` give each rollout's rows. `agent_N` is
    empty for a table without agents, and `step_N` is then the number of the turn.
    """

    keys: pa.Table
    env_N: list[str]
    goal_N: list[str]
    turn_N: list[Turn]
    order_N: np.ndarray
    first_R: np.ndarray
    length_R: np.ndarray
    agent_N: list[str]
    step_N: list[int]


def read_rollouts(table: Any, where: str = "turns") -> Rollouts:
    """The columns that a judge may see, sorted by rollout and turn.

    A table of another framework's rollouts may have no `env`, which is then unknown, and no `goal`: the task is then
    what the policy read before its first turn.

    Raises UserError for a missing column, a null or a text column of another type, and for keys that are not
    (group, rollout, 0, 1, 2, ...).
    """
    table = as_table(table, where)
    names = table.column_names
    task = "goal" if "goal" in names or "observation" not in names else "observation"
    if "env" not in names:
        table = table.append_column("env", pa.array([UNKNOWN] * table.num_rows, pa.string()))
    for name in (*KEYS, "env", task, "action", "next_observation"):
        if name not in table.column_names:
            hint = nearest(name, table.column_names)
            raise UserError(f"{where}: a judge needs the column '{name}', which the table does not have{hint}")
        if table.column(name).null_count:
            raise UserError(f"{where}: a judge needs the column '{name}', which has nulls")
    keys = table.select(KEYS)
    turns = Turns(keys.append_column("reward", pa.array(np.zeros(keys.num_rows))), where=where)
    env_N, goal_N, action_N, reply_N = (
        _texts(table, name, where, turns.order_N) for name in ("env", task, "action", "next_observation")
    )
    if task == "observation":
        goal_N = [goal_N[first] for first in turns.first_R[turns.rollout_N].tolist()]
    turn_N = [
        Turn(action, redact(env, action, reply.removesuffix(FAILED)))
        for env, action, reply in zip(env_N, action_N, reply_N, strict=True)
    ]
    agent_N, step_N = _places(table, where, turns)
    return Rollouts(keys, env_N, goal_N, turn_N, turns.order_N, turns.first_R, turns.length_R, agent_N, step_N)


def _places(table: pa.Table, where: str, turns: Turns) -> tuple[list[str], list[int]]:
    """Who wrote each turn, and its number in the log."""
    logged = all(name in table.column_names and not table.column(name).null_count for name in LOG_COLUMNS)
    if not logged or not pa.types.is_integer(table.schema.field("step").type):
        return [], turns.turn_N.tolist()
    return _texts(table, "agent", where, turns.order_N), table.column("step").take(turns.order_N).to_pylist()


def windows(rollouts: Rollouts, size: int) -> Iterator[Window]:
    """The window of each turn in sorted order, `size` turns to either side (fewer at a rollout's ends)."""
    for first, length in zip(rollouts.first_R.tolist(), rollouts.length_R.tolist(), strict=True):
        last = first + length
        turns = rollouts.turn_N
        for row in range(first, last):
            before = tuple(turns[max(first, row - size) : row])
            after = tuple(turns[row + 1 : min(last, row + 1 + size)])
            yield Window(rollouts.env_N[row], rollouts.goal_N[row], before, turns[row], after)


@lru_cache(maxsize=1 << 16)
def redact(env: str, action: str, observation: str) -> str:
    """`observation` without anything that reveals the outcome."""
    for hide in _redactions(env):
        hidden = hide(action, observation)
        if hidden != observation:
            return hidden
    if not _HINT.search(observation):
        return observation
    return _without_outcome(observation).strip() or HIDDEN


def _without_outcome(text: str) -> str:
    """`text` without the phrases that reveal the outcome.

    Not by one expression: that would begin anew at every letter of a sentence, and a reply may be one of 10,000.
    """
    kept, at = [], 0
    mark, told = _MARK.search(text), _TOLD.search(text)
    while mark or told:
        begin, end = _sentence(text, at, told) if told else (len(text), len(text))
        if mark and (mark.start() < begin or (mark.start() == begin and mark["stars"])):
            begin, end = mark.span()
        kept.append(text[at:begin])
        at = end
        mark = _MARK.search(text, at) if mark and mark.start() < at else mark
        told = _TOLD.search(text, at) if told and told.start() < at else told
    return "".join([*kept, text[at:]])


def _sentence(text: str, at: int, told: re.Match[str]) -> tuple[int, int]:
    """Where the sentence (from `at` on) begins and ends that tells the outcome; of a score, where the line ends."""
    begin = max(at, *(text.rfind(sign, at, told.start()) + 1 for sign in ".!?\n"))
    sign = _END.search(text, told.end())
    assert sign is not None
    if _SENTENCE.search(text, begin, sign.start()):
        return begin, sign.start() + (sign[0] in (".", "!", "?"))
    line = text.find("\n", told.end())
    return begin, line if line >= 0 else len(text)


@cache
def _redactions(env: str) -> tuple[Callable[[str, str], str], ...]:
    """The environment's own rule; for an unknown environment, all rules of the known ones."""
    environment = envs.find(env)
    described = [environment] if environment is not None else [envs.find(name) for name in envs.builtin()]
    return tuple(one.redact for one in described if one is not None and one.redact is not None)


def render(window: Window) -> str:
    """The window as the text of a prompt."""
    parts = [f"TASK\n{_clipped(window.goal)}"]
    if window.before:
        first = -len(window.before)
        parts.append("TURNS BEFORE\n" + "\n".join(_shown(turn, first + i) for i, turn in enumerate(window.before)))
    parts.append("TURN UNDER REVIEW\n" + _shown(window.turn, 0))
    if window.after:
        parts.append("TURNS AFTER\n" + "\n".join(_shown(turn, i) for i, turn in enumerate(window.after, 1)))
    return "\n\n".join(parts)


def render_logs(rollouts: Rollouts) -> Iterator[tuple[str, str]]:
    """For each turn the environment, and the text of a prompt with its whole rollout."""
    for first, length in zip(rollouts.first_R.tolist(), rollouts.length_R.tolist(), strict=True):
        lines = [f"TASK\n{_clipped(rollouts.goal_N[first])}\n\nSTEPS"]
        for row in range(first, first + length):
            turn, step = rollouts.turn_N[row], rollouts.step_N[row]
            agent = f"{rollouts.agent_N[row]}: " if rollouts.agent_N else ""
            # In a log of several agents, what one wrote is also the first of what the next one reads.
            reply = turn.observation.removeprefix(f"{agent}{turn.action}").strip() if agent else turn.observation
            lines.append(f"[{step}] {agent}{_clipped(turn.action)}")
            lines += [f"[{step}] came back: {_clipped(reply)}"] if reply else []
        yield from [(rollouts.env_N[first], "\n".join(lines))] * length


def _shown(turn: Turn, place: int) -> str:
    sign = f"{place:+d}" if place else "0"
    return f"[{sign}] action: {_clipped(turn.action)}\n[{sign}] observation: {_clipped(turn.observation)}"


@lru_cache(maxsize=1 << 14)
def _clipped(text: str) -> str:
    text = text.strip()
    if len(text) <= TEXT_LIMIT:
        return text
    half = TEXT_LIMIT // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters left out ...] {text[-half:]}"


def _texts(table: pa.Table, name: str, where: str, order_N: np.ndarray) -> list[str]:
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise UserError(f"{where}: column '{name}' must hold text, not {column.type}")
    values = column.to_pylist()
    return [values[row] for row in order_N.tolist()]
