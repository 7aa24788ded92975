"""Conversations -> turns: every message that the policy wrote is one, and what came before it is its observation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from turncredit.bridges.importers.base import Context, Observation, Report, Skip, Turn
from turncredit.bridges.importers.message import read_message, role_of
from turncredit.bridges.importers.said import Said

Message = dict[str, Any]
Ours = Callable[[Message], bool]
#: What stands before the messages in an observation that shows the history (`_after`).
_DIGEST = re.compile(r"\A\[history [0-9a-f]{12}\]\n")

NO_TURN = "no turn: the policy wrote no message"
NOTHING = "a message in which the policy wrote nothing, and which nobody answered, is no turn"
NO_CALL = "a tool's result without a call before it"
NO_RESULT = "a tool call without a result, though the conversation goes on"


def turns_of(messages: Any, context: Context, where: str, ours: Ours | None = None) -> list[Turn]:
    """The turns of a conversation, in order: `observation`, `response_text`, `action`, `next_observation`.

    `ours` tells which messages the policy wrote; by default the role does. Raises Skip for messages that are none, and
    for a conversation in which the policy wrote nothing.
    """
    if not isinstance(messages, list):
        raise Skip("messages are not a list of objects with a role")
    said = []
    for message in messages:
        one = read_message(message, context.report.note)
        if ours is not None:
            one.ours = ours(message)
        said.append(one)
    if ours is None and not any(one.ours for one in said):
        roles = dict.fromkeys(role for message in messages if (role := role_of(message)))
        raise Skip(NO_TURN, f"its roles: {', '.join(roles)}"[:80])
    return turns_from(said, context, where)


def turns_from(said: Iterable[Said], context: Context, where: str) -> list[Turn]:
    """The turns of a conversation that has been read. Raises Skip where the policy wrote nothing."""
    messages = _joined(said)
    check_calls(messages, context.report, where)
    history = History(context.options.observation)
    turns: list[Turn] = []
    for message, after in zip(messages, [*messages[1:], None], strict=True):
        answered = after is not None and not after.ours  # neither tried again nor the end
        if not message.ours:
            history.hear(message.text())
        elif turn := history.turn(message, empty=answered):
            turns.append(turn)
        else:
            context.report.note(NOTHING)
    if not turns:
        raise Skip(NO_TURN)
    chain_replies(turns, history.reply())
    return turns


class History:
    """What has happened in a rollout so far, and what of it the next observation shows.

    observation   see `turncredit.bridges.importers.base.Observation`
    """

    def __init__(self, observation: Observation) -> None:
        self._shows = observation
        self._digest = hashlib.blake2b(digest_size=6)
        self._since: list[str] = []
        self._calls = ""
        self._called = self._begun = False

    def hear(self, text: str) -> None:
        """What somebody else wrote, or the environment answered."""
        if text:
            self._since.append(text)

    def reply(self) -> str:
        """The messages since the policy's last turn: what came back."""
        return "\n".join(self._since)

    def observation(self) -> str:
        """What the policy sees now: the messages since its last turn, and what the option adds."""
        text = self.reply()
        if not self._begun:
            return text
        if self._shows == "calls" and self._calls:
            return f"{self._calls}\n{text}"
        return _after(self._digest, text) if self._shows_digest() else text

    def _shows_digest(self) -> bool:
        return self._begun and (self._shows == "history" or (self._shows == "auto" and self._called))

    def turn(self, message: Said, *, empty: bool = False) -> Turn | None:
        """The turn in which the policy wrote `message`, which becomes history; None where it wrote nothing.

        empty   a message in which the policy wrote nothing is a turn, too: the environment answered it
        """
        response = message.response()
        if not response.whole and not message.columns and (response.results or not empty):
            self.hear(response.results)
            return None
        turn: Turn = {
            "observation": self.observation(),
            "response_text": response.whole,
            "action": response.action,
            "_reply": self.reply(),
            "_history": self._digest.digest(),
            "_shows_history": self._shows_digest(),
            "_says": bool(response.text) and not response.calls and "action" not in message.columns,
            "_empty": not response.action and "action" not in message.columns,
            "_thought": response.thought and not response.calls and "action" not in message.columns,
            **message.columns,
        }
        self._calls = response.calls
        self._called |= bool(response.calls)
        self._begun = True
        _add(self._digest, turn, turn["action"])
        self._since = []
        self.hear(response.results)
        return turn


def _add(digest: Any, turn: Turn, action: str) -> None:
    """Add a turn to the digest of the history: what came back before it, and the action."""
    digest.update(f"{turn['_reply']}\0{action}\0".encode(errors="replace"))


def _after(digest: Any, text: str) -> str:
    """A text after the digest of the history."""
    return f"[history {digest.hexdigest()}]\n{text}"


def without_history(observation: str) -> str:
    """An observation without the digest of the history."""
    return _DIGEST.sub("", observation)


def retold(turns: Sequence[Turn], column: str) -> list[Turn]:
    """`observation` and `_history` of each turn if `column` has its action; as they are where no history was kept."""
    if not all("_history" in turn for turn in turns):
        return list(turns)
    digest = hashlib.blake2b(digest_size=6)
    told: list[Turn] = []
    for turn in turns:
        observation = _after(digest, turn["_reply"]) if turn["_shows_history"] else turn["observation"]
        told.append({"observation": observation, "_history": digest.digest()})
        _add(digest, turn, turn[column] if column in turn else turn["action"])
    return told


def _joined(said: Iterable[Said]) -> list[Said]:
    """The messages, with neighbours that are parts of one response as one."""
    messages: list[Said] = []
    for one in said:
        last = messages[-1] if messages else None
        if last is not None and last.ours and one.ours and last.joins and last.joins == one.joins:
            last.pieces += one.pieces
            last.calls += one.calls
            last.answers += one.answers
            last.columns = {**last.columns, **one.columns}
        else:
            messages.append(one)
    return messages


def check_calls(messages: Sequence[Said], report: Report, where: str) -> None:
    """Count results without calls, and calls without results before the last response, as flaws of the rollout."""
    last = max((place for place, message in enumerate(messages) if message.ours), default=-1)
    made: set[str | None] = set()
    answered: set[str | None] = set()
    early: set[str | None] = set()
    for place, message in enumerate(messages):
        made.update(message.calls)
        if place < last and message.ours:
            early.update(message.calls)
        for answer in message.answers:
            if answer is not None and answer not in made and None not in made:
                report.flaw(where, NO_CALL, str(answer))
            answered.add(answer)
    missing = early - answered
    if missing and None not in answered and None not in early:
        report.flaw(where, NO_RESULT, str(sorted(map(str, missing))[0]))


def chain_replies(turns: Sequence[Turn], last: str) -> None:
    """Give every turn what came back, before the next one, as its `next_observation`; the last one gets `last`.

    Without what the option adds to observations, such as a digest of the history: judges and rules read replies.
    """
    for turn, after in zip(turns, [*(turn["_reply"] for turn in turns[1:]), last], strict=True):
        turn["next_observation"] = after


def prompt_of(messages: Sequence[Any]) -> str:
    """The text before the policy's first message, by which rollouts of a task are known where there is no group."""
    texts = []
    for message in messages:
        said = read_message(message, lambda _: None)
        if said.ours:
            break
        texts.append(said.text())
    return "\n".join(texts)
