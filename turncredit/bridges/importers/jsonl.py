"""`jsonl`: anybody's records, one for each turn or one for each rollout, by a mapping and by the usual names.

`--map KEY=FIELD` says which field of a record is `group_id`, `rollout_id`, `reward`, and either `messages` (a record is
a rollout) or `turn` and the columns of a turn (a record is a turn); a field within another one is written `a.b`, which
is also one whose own name is `a.b`, and an id of several fields `a,b`. A key that is not mapped is the field of its own
name, then one of `USUAL`, which is noted. The reward of a rollout's record is its return, or a list with a number for
each turn; that of a turn's record is the turn's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from turncredit.bridges.importers.base import (
    BY_FILE,
    About,
    Context,
    Format,
    Part,
    Record,
    Report,
    Rollout,
    Skip,
    Turn,
    each,
    finite_or_none,
    group_of,
    id_of,
    needed_id,
    outcome,
    truth,
)
from turncredit.bridges.importers.message import is_message
from turncredit.bridges.importers.messages import prompt_of, turns_of
from turncredit.bridges.importers.parts import flat
from turncredit.bridges.importers.said import spoken

TEXTS = ("observation", "response_text", "action", "next_observation")
IDS = ("task_id", "goal")
TRUTHS = ("success", "done")
MOST_FIELDS = 1000  # that are remembered for a message
KEYS = ("group_id", "rollout_id", "reward", "messages", "turn", *TEXTS, *IDS, *TRUTHS)
#: What other projects call these, in the order in which they are looked for.
USUAL: dict[str, tuple[str, ...]] = {
    "messages": (
        "conversations",
        "conversation",
        "chat",
        "history",
        "traj",
        "trajectory",
        "transcript",
        "dialogue",
        "dialog",
        "contents",
        "message_log",
        "full_messages",
    ),
    "group_id": ("group", "task_id", "instance_id", "problem_id", "prompt_id", "question_id", "example_id"),
    "rollout_id": (
        "trajectory_id",
        "episode_id",
        "trial",
        "trial_id",
        "attempt",
        "attempt_id",
        "sample_id",
        "session_id",
        "sessionId",
        "uuid",
        "id",
    ),
    "reward": ("score", "return", "total_reward", "final_reward", "final_score"),
    "task_id": ("instance_id", "problem_id", "question_id", "example_id"),
    "success": ("is_correct", "correct", "resolved", "solved"),
}


def read(records: Iterable[Record], context: Context) -> Iterator[Rollout]:
    """The rollouts of a file, or, where records are turns, their parts."""
    report = context.report
    found = Found(context.options.mapping, report)
    usual: set[int] = set()

    def line(where: str, row: dict[str, Any]) -> Iterator[Rollout]:
        found.check(row)
        columns: dict[str, Any] = {
            key: flat(value, report.note) for key in IDS if (value := found.value(row, key)) not in (None, "", [], {})
        }
        success, done = (truth(found.value(row, key), key) for key in TRUTHS)
        if success is not None:
            columns["success"] = success
        messages = _with_system(found.messages(row), row)
        if messages is not None:
            turns = turns_of(messages, context, where)
            rewards(turns, found.value(row, "reward"))
            group = found.id(row, "group_id")
            rollout = found.id(row, "rollout_id")
            if group is None:
                group = group_of(prompt_of(messages), place_of(where, context), report)
            if rollout is None:
                report.note(BY_FILE)
                rollout = place_of(where, context)
            elif not found.names_itself(row, "rollout_id"):
                if hash((group, rollout)) in usual:  # it may be a task's id, so nothing is dropped for it
                    report.note("an id that is read as rollout_id came before: the record's place is added to it")
                    rollout = f"{rollout}/{place_of(where, context)}"
                usual.add(hash((group, rollout)))
            yield Rollout(group, rollout, turns, where, done, columns, record=row)
            return
        yield _turn(where, row, found, columns, done)

    def part_of(row: dict[str, Any]) -> Part | None:
        if found.messages(row) is not None:
            return None
        return Part(id_of(found.value(row, "rollout_id")), id_of(found.value(row, "group_id")))

    yield from each(records, report, line, part_of)


def _turn(where: str, row: dict[str, Any], found: Found, columns: dict[str, Any], done: bool | None) -> Rollout:
    number = found.value(row, "turn")
    if number is None:
        names = (found.names.get(key, key) for key in ("messages", "turn"))
        raise Skip("neither '{}' nor '{}' in a line".format(*names))
    group, rollout = (needed_id(found.value(row, key), found.names.get(key, key)) for key in ("group_id", "rollout_id"))
    turn: Turn = {"turn": turn_number(number), "reward": finite_or_none(found.value(row, "reward"))}
    texts = {key: value for key in TEXTS if (value := found.value(row, key)) is not None}
    turn.update({key: flat(value, found.report.note) for key, value in texts.items()})
    if "action" not in turn and "response_text" in turn:
        turn.update(spoken(turn["response_text"]))
    if done is not None:
        turn["done"] = done
    return Rollout(group, rollout, [turn], where, None, columns, part=True)


def turn_number(value: Any) -> Any:
    """A turn's number, which may be written as `1.0` or as text."""
    if isinstance(value, str) and value.strip().isdigit() and len(value) < 10:
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e9 else value


def rewards(turns: list[Turn], reward: Any) -> None:
    """Give the turns their rewards: a number is the rollout's, on its last turn; a list has one for each turn."""
    if not isinstance(reward, list):
        outcome(turns, finite_or_none(reward))
        return
    if len(reward) != len(turns):
        raise Skip("a list of rewards with more or fewer numbers than turns", f"{len(reward)} and {len(turns)}")
    for turn, value in zip(turns, reward, strict=True):
        turn["reward"] = finite_or_none(value) or 0.0


def place_of(where: str, context: Context) -> str:
    """A name for the rollout at `where` in its file: the file's label, and the record's place where it has several."""
    place = where.removeprefix(context.source.name).lstrip(":!")
    return f"{context.source.label}:{place}" if place else context.source.label


class Found:
    """Which field of a record is which: by `--map`, by its own name, or by one of the usual names."""

    def __init__(self, mapping: Mapping[str, str], report: Report) -> None:
        self.names = dict(mapping)
        self.report = report

    def check(self, row: Mapping[str, Any]) -> None:
        """Note which mapped fields a record lacks, and remember what it has."""
        for key, names in self.names.items():
            for name in names.split(",") if key in JOINED else [names]:
                if not has(row, name):
                    self.report.note(f"--map {key}={names}: a record has no '{name}'")
                    left = MOST_FIELDS - len(self.report.fields)
                    self.report.fields.update(dict.fromkeys(islice(fields_of(row), left)))
                else:
                    self.report.mapped.add(key)

    def value(self, row: Mapping[str, Any], key: str) -> Any:
        """The value of `key`; None where the record has none."""
        if key in self.names:
            return joined(row, self.names[key], key)
        if row.get(key) is not None:
            return row[key]
        usual = next((name for name in USUAL.get(key, ()) if row.get(name) is not None), None)
        if usual is None:
            return None
        if key in ("reward", "success"):
            self.report.note(f"'{usual}' is read as {key}")
        return row[usual]

    def id(self, row: Mapping[str, Any], key: str) -> str | None:
        """An id; None where the record has no field for it. Raises Skip for a field that holds none."""
        value = self.value(row, key)
        name = self.names.get(key, key)
        if value is None and key not in self.names and key not in row:
            return None
        return needed_id(value, name)

    def names_itself(self, row: Mapping[str, Any], key: str) -> bool:
        """Whether `--map` or a field of that name says `key`, and no other usual name."""
        return key in self.names or key in row

    def messages(self, row: Mapping[str, Any]) -> Any:
        """The messages of a record; None where it is a turn."""
        if "turn" in self.names and "messages" not in self.names:
            return None
        if "messages" in self.names or row.get("messages") is not None:
            return self.value(row, "messages")
        if row.get("turn") is not None:
            return None
        return next((row[name] for name in USUAL["messages"] if is_conversation(row.get(name))), None)


def _with_system(messages: Any, row: Mapping[str, Any]) -> Any:
    """The messages after the record's `system`, which Anthropic's API and ShareGPT have beside them."""
    system = row.get("system")
    if not system or not isinstance(system, str | list) or not isinstance(messages, list):
        return messages
    return [{"role": "system", "content": system}, *messages]


#: keys whose field may be several, joined or (`reward`) summed
JOINED = ("group_id", "rollout_id", "task_id", "reward")


def joined(row: Mapping[str, Any], names: str, key: str) -> Any:
    """The field that `--map KEY=names` says: fields of an id joined by `/`, of a reward summed."""
    if key not in JOINED or "," not in names or has(row, names):
        return inside(row, names)
    values = [inside(row, name) for name in names.split(",")]
    if key == "reward":
        given = [finite_or_none(value) for value in values if value is not None]
        return sum(value for value in given if value is not None) if given else None
    ids = [id_of(value) for value in values]
    return None if None in ids else "/".join(str(one) for one in ids)


def inside(row: Any, name: str) -> Any:
    """The field `name`, or `b` in `a` for `a.b`; None where there is neither."""
    if name in row or "." not in name:
        return row.get(name)
    for inner in name.split("."):
        row = row.get(inner) if isinstance(row, dict) else None
    return row


def has(row: Any, name: str) -> bool:
    """Whether there is the field that `inside` reads, be it null."""
    *outer, last = [name] if name in row else name.split(".")
    for inner in outer:
        row = row.get(inner) if isinstance(row, dict) else None
    return isinstance(row, dict) and last in row


def fields_of(row: Mapping[str, Any]) -> Iterator[str]:
    """The names of the fields and of those within them, as `--map` has them."""
    for name, value in row.items():
        yield name
        if isinstance(value, dict):
            yield from (f"{name}.{inner}" for inner in value)


def is_conversation(value: Any) -> bool:
    """Whether a value is a list of messages."""
    return isinstance(value, list) and bool(value) and is_message(value[0])


def _matches(record: Mapping[str, Any]) -> bool:
    if "turn" in record and "rollout_id" in record:
        return True
    if {"group_id", "rollout_id"} <= set(record):
        return True
    return any(is_conversation(record.get(name)) for name in ("messages", *USUAL["messages"]))


FORMAT = Format(
    "jsonl",
    _matches,
    read,
    takes=KEYS,
    about=About(
        files="any other records with messages, or a record for each turn",
        group="--map group_id=FIELD, else the first messages",
        turns="messages, or a record with turn",
        reward="--map reward=FIELD",
        checked="hand-made records, and what public projects ship (benchmarks/import/public_files.csv)",
    ),
)
