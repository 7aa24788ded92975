"""Which edition of ALFWorld's domain and grammar a game contains.

A game file holds the full text of its PDDL domain and of its text grammar. The native engine does not
interpret them: it knows the published editions by their SHA-256 (the grammar's with the task sentence cut
out) and refuses all others, because a text that differs anywhere could print or allow something else.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace

from turncredit.errors import UserError


class UnsupportedGame(UserError):
    """A game that the native engine cannot be sure to play correctly."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The texts and tool types in which the editions differ."""

    name: str
    clean_tools: frozenset[str]
    """Receptacle types (lower case, with the suffix `type`) that clean."""
    arrive: str
    """Printed on arrival, before the receptacle's own text; `{r}` receptacle, `{l}` location."""
    put_command: str
    """`{o}` object, `{r}` receptacle."""
    put_text: str
    help: str | None
    """None where the edition has no `help` command."""


HEAT_TOOLS = frozenset({"microwavetype"})
COOL_TOOLS = frozenset({"fridgetype"})
KNIVES = frozenset({"knifetype", "butterknifetype"})

# The engine's text parser skips white space at the start of a text, so the leading newline never shows.
_HELP = """Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""

_BASIN = frozenset({"sinkbasintype"})
_NEW = {
    "arrive": "You arrive at {r}. ",
    "put_command": "move {o} to {r}",
    "put_text": "You move the {o} to the {r}.",
    "help": _HELP,
}
# the domain and grammar inside the packages alfworld 0.2.2 to 0.3.5
_OLD = Profile(
    "alfworld-0.3",
    clean_tools=_BASIN,
    arrive="You arrive at {l}. ",
    put_command="put {o} in/on {r}",
    put_text="You put the {o} in/on the {r}.",
    help=None,
)
PROFILES = {
    profile.name: profile
    for profile in (
        # the games that `alfworld-download` fetches today
        Profile("alfworld-games-2.1.1", clean_tools=_BASIN | {"sinktype"}, **_NEW),
        # the domain and grammar inside the packages alfworld 0.4.0 to 0.4.2
        Profile("alfworld-0.4", clean_tools=_BASIN, **_NEW),
        _OLD,
        # the first games that were released (2020; ETO and AgentTuning played them): a sink cleans, too
        replace(_OLD, name="alfworld-games-2020", clean_tools=_BASIN | {"sinktype"}),
    )
}
PACKAGE_PROFILE = "alfworld-0.4"
"""The edition of the pinned reference packages, which generated games use."""

_EDITIONS = {  # (SHA-256 of the domain, SHA-256 of the grammar without the task sentence) -> profile
    (
        "0af55e7f92d12b09d28515aa730e4d03fddd17228ef1fd7b18a3ee8ba49b27b9",
        "0597b9bb89eb98597ef8313a9316d62a29f39e81bf5dbcf048bad4da675eecde",
    ): "alfworld-games-2.1.1",
    (
        "f1473041ed01da514de1f87adfd7ef0804862361f83ccf63c75e43633b0eb280",
        "d425fe0f52e3875dc1bcbc143669a83079734dddf3e14416f82ee02efa9bba9c",
    ): "alfworld-0.4",
    (
        "e64e8c0002648c403e05adedc25be5ea8b9863924f32cc7611051bed1f386e46",
        "d5f44ba1e4b0b4727e1378592f15eca5bee802fe23ab030c9c227558b07e0228",
    ): "alfworld-0.3",
    (
        "34172c333dff7e62eb90e85367fa5519b5f31b3849e56123d96dbc0deda50e27",
        "d5f44ba1e4b0b4727e1378592f15eca5bee802fe23ab030c9c227558b07e0228",
    ): "alfworld-games-2020",
}

_TASK = re.compile(r'"task"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*("(?:[^"\\]|\\.)*")')
BANNER = "-= Welcome to TextWorld, ALFRED! =-"
TASK_PREFIX = "Your task is to: "


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def split_grammar(grammar: str) -> tuple[str, str]:
    """The grammar without its task sentence, and the task sentence (`Your task is to: ...`)."""
    match = _TASK.search(grammar)
    if match is None:
        raise UnsupportedGame("the game's grammar has no task sentence; is it an ALFWorld game?")
    return grammar[: match.start(1)] + grammar[match.end(1) :], json.loads(match.group(1))


def identify(domain: str, grammar: str) -> tuple[Profile, str]:
    """The profile of a game's domain and grammar, and the game's task sentence.

    Raises UnsupportedGame, naming both hashes, for an edition that has not been checked against the
    reference engine.
    """
    bare, task = split_grammar(grammar)
    key = _sha256(domain), _sha256(bare)
    if key not in _EDITIONS:
        raise UnsupportedGame(
            f"unknown edition of the ALFWorld domain ({key[0][:12]}) or grammar ({key[1][:12]}); known are "
            f"{', '.join(PROFILES)}: download the games again with `alfworld-download`"
        )
    return PROFILES[_EDITIONS[key]], task
