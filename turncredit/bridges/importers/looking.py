"""What `turncredit import --look` shows of a file: its structure, three turns as they would come out, a `--map`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from turncredit.bridges.importers.actions import CONVENTIONS, Finder
from turncredit.bridges.importers.base import NO_REWARD, Context, Format, Options, Rollout, Turn
from turncredit.bridges.importers.jsonl import USUAL, fields_of, inside, is_conversation
from turncredit.bridges.importers.unknown import UNKNOWN, why_not
from turncredit.data.counts import number_of

WIDTH = 96
DEEPEST = 4
#: fields of an object, and items of a list, that are shown
MOST = 12
#: Records that are turns among which a reward is looked for: most formats have it on a rollout's last one.
SEARCHED = 200


def structure(value: Any, indent: int = 1) -> list[str]:
    """The fields of a record, a line each, with the type of their values and how they begin."""
    lines = []
    margin = "  " * indent
    for name, inner in islice(value.items(), MOST):
        lines.append(f"{margin}{name}: {_kind(inner)}"[:WIDTH])
        item = inner[0] if isinstance(inner, list) and inner else inner
        if isinstance(item, dict) and indent < DEEPEST:
            lines += structure(item, indent + 1)
    if len(value) > MOST:
        lines.append(f"{margin}... {len(value) - MOST} more")
    return lines


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return f"object of {len(value)}"
    if isinstance(value, list):
        return f"list of {len(value)}{f', of which the first is {_kind(value[0])}' if value else ''}"
    if isinstance(value, str):
        return f"text of {len(value)}: {value!r}"
    return "null" if value is None else f"{type(value).__name__} {value}"


def turns_shown(rollouts: Iterable[Rollout], context: Context) -> list[str]:
    """Three turns, of the first rollouts."""
    finder = Finder(context.options.action, context.report)
    lines: list[str] = []
    shown = 0
    for rollout in rollouts:
        number = "" if rollout.part else f" ({number_of(len(rollout.turns), 'turn')})"
        head = f"  group {rollout.group_id}, rollout {rollout.rollout_id}{number}"
        lines += [head] if head not in lines else []
        for turn in rollout.turns[: 3 - shown]:
            finder.find(turn)
            if finder.convention is not None and "_found" in turn:
                turn["action"] = turn["_found"]
            lines += _turn(turn, rollout.columns)
        shown += len(rollout.turns[: 3 - shown])
        if shown == 3:
            break
    if finder.convention is not None and finder.convention in CONVENTIONS:
        lines.append(f"  the action is what stands {finder.convention}, if all responses have it")
    return lines


def _turn(turn: Turn, columns: Mapping[str, Any]) -> list[str]:
    shown = {**columns, **{name: value for name, value in turn.items() if not name.startswith("_")}}
    return [f"    {name:<17} {_begin(value)}" for name, value in shown.items() if value is not None] + ["    --"]


def _begin(value: Any) -> str:
    text = f"{len(value)} tokens" if isinstance(value, list) else " ".join(str(value).split())
    return text if len(text) <= WIDTH - 22 else f"{text[: WIDTH - 26]} ..."


def given(name: str | None, options: Options) -> list[str]:
    """The words of a command that say what the user decided."""
    words = {"--from": name, "--join": options.join, "--template": options.template}
    if options.observation != "auto":
        words["--observation"] = options.observation
    if options.action is not None:  # a tag became an expression whose dot matches lines' ends
        every = "(?s)" if options.action.flags & re.DOTALL else ""
        words["--action"] = f"{every}{options.action.pattern.removeprefix('(?s)')}"
    found = [word for option, value in words.items() if value is not None for word in (option, value)]
    found += [word for key, field in options.mapping.items() for word in ("--map", f"{key}={field}")]
    switches = {"--reward-once": options.reward_once, "--allow-skips": options.allow_skips}
    return [*found, *(switch for switch, on in switches.items() if on)]


#: Fields whose values begin anew with each task.
COUNTED = ("trial", "attempt", "sample", "repeat")
#: Names that are only suggested, beside the usual ones: they often mean something else.
LOOKED_FOR = {"group_id": ("task",), "rollout_id": COUNTED}


def mapping_of(record: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, str]:
    """KEY -> FIELD of `--map` for the keys that a record seems to have a field for, under their usual names.

    known   the mapping that the user gave

    A record has messages or is a turn: one of `messages` and `turn` would have it read as the other.
    """
    names = dict(zip(fields_of(record), fields_of(record), strict=True))
    mapping: dict[str, str] = {}
    for key in ("messages", "turn", "group_id", "rollout_id", "reward", "success"):
        other = {"messages": "turn", "turn": "messages"}.get(key, key)
        if any(one in has for one in (key, other) for has in (record, known, mapping)):
            continue
        usual = (*USUAL.get(key, ()), key, *LOOKED_FOR.get(key, ()))
        found = next((name for one in usual for name in names if one == name or name.endswith(f".{one}")), None)
        if key == "rollout_id" and found is not None and isinstance(inside(record, found), (dict, list)):
            found = None
        if key == "messages":
            found = next((name for name, value in record.items() if is_conversation(value)), None)
        if key == "rollout_id" and found in COUNTED and "group_id" in mapping:
            found = f"{mapping['group_id']},{found}"
        if found is not None:
            mapping[key] = found
    return mapping


def guess(record: Mapping[str, Any], format_: Format, known: Mapping[str, str]) -> dict[str, str]:
    """The suggested mapping of a record in `jsonl`, or in an unknown format with messages or turns; else empty."""
    if format_ is not UNKNOWN and format_.name != "jsonl":
        return {}
    mapping = mapping_of(record, known)
    return {} if format_ is UNKNOWN and not mapping.keys() & {"messages", "turn"} else mapping


def look(
    first: Mapping[str, Any] | None,
    format_: Format,
    context: Context,
    rollouts: Any,
    command: Sequence[str],
    *,
    guessed: bool = False,
    rewarded: bool = False,
) -> list[str]:
    """What a file holds, as lines.

    first     its first record
    command   the words of the import that was asked for
    guessed   whether the format is unknown, and the options have the mapping by which `guess` reads it
    rewarded  whether a file of rewards was given
    """
    lines = [context.source.name]
    if first is None:
        return [*lines, "  no record that can be read"]
    lines += ["the first record:", *structure(first)]
    if format_ is UNKNOWN:
        return [*lines, f"format: unknown: {why_not(first)}"]
    name = "unknown; with the command below" if guessed else f"{format_.name};"
    first_ones = list(islice(rollouts, 3))
    lines += [f"format: {name} the first turns as they would come out:", *turns_shown(first_ones, context)]
    suggested = []
    if not rewarded and not _rewarded(first_ones, rollouts):
        context.report.notes.setdefault(NO_REWARD, len({one.rollout_id for one in first_ones}))
        suggested = [] if "reward" in context.options.mapping else ["--map", "reward=FIELD"]
    lines.append(f"start from: {shlex.join([*command, *suggested, '--out', 'turns.parquet'])}")
    lines += [line for line in context.report.lines()[1:] if line.startswith(("note", "flaw", "skipped"))]
    return lines


def _rewarded(first_ones: Sequence[Rollout], others: Iterator[Rollout]) -> bool:
    """Whether a rollout that was read has a reward. A record that is a turn may be followed by the one that has it."""
    more = islice(others, SEARCHED) if any(one.part for one in first_ones) else ()
    found = (turn for one in chain(first_ones, more) for turn in one.turns)
    return not first_ones or any(turn.get("reward") is not None for turn in found)
