"""The grammar of actions: `put milk in fridge`, or VirtualHome's own `[PUTIN] <milk> (1) <fridge> (1)`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

#: verb of the package -> its text, with {} for an object. HIPIF's templates (figure 9), then the package's other verbs.
TEXTS = {
    "WALK": "walk to {}",
    "FIND": "find {}",
    "GRAB": "grab {}",
    "OPEN": "open {}",
    "CLOSE": "close {}",
    "PUTBACK": "put {} on {}",
    "PUTIN": "put {} in {}",
    "SWITCHON": "switch on {}",
    "SWITCHOFF": "switch off {}",
    "DRINK": "drink {}",
    "SIT": "sit on {}",
    "LIE": "lie on {}",
    "LOOKAT": "look at {}",
    "STANDUP": "stand up",
    "WATCH": "watch {}",
    "WIPE": "wipe {}",
    "TYPE": "type on {}",
    "PUTOFF": "take off {}",
    "WASH": "wash {}",
    "CUT": "cut {}",
    "EAT": "eat {}",
    "SLEEP": "sleep",
    "WAKEUP": "wake up",
    "PLUGIN": "plug in {}",
    "PLUGOUT": "plug out {}",
    "POUR": "pour {} into {}",
    "TURNTO": "turn to {}",
    "RUN": "run to {}",
    "PUTON": "put on {}",
    "PUTOBJBACK": "put back {}",
    "DROP": "drop {}",
    "RELEASE": "release {}",
    "READ": "read {}",
    "GREET": "greet {}",
    "TOUCH": "touch {}",
    "POINTAT": "point at {}",
    "RINSE": "rinse {}",
    "SCRUB": "scrub {}",
    "SQUEEZE": "squeeze {}",
    "PUSH": "push {}",
    "PULL": "pull {}",
    "MOVE": "move {}",
}
LONGEST = 200
"""Characters of the longest action that is read."""

# More literal text first: "put on coat" and "put back cup" are no "put {} ...".
_PATTERNS = tuple(
    (verb, re.compile(text.replace("{}", "(.+)")))
    for verb, text in sorted(TEXTS.items(), key=lambda item: -len(item[1].split("{}")[0]))
)
_OWN = re.compile(r"\[(\w+)\]((?:\s*<[^<>]+>\s*\([\d.]+\))*)\s*")
_OBJECT = re.compile(r"<\s*([^<>]+?)\s*>\s*\((?:\d+\.)?(\d+)\)")
_BY_NODE = re.compile(r"\(\d+\.\d+\)")
_NUMBERED = re.compile(r"(.+?) (\d+)")
_ARTICLE = re.compile(r"^(?:the|an?) (?=.)")


class Mention(NamedTuple):
    """An object as an action names it: a class and the number of one of its objects, or a node of the graph."""

    name: str
    number: int
    is_node: bool = False


@lru_cache(maxsize=1 << 14)
def parse(action: str) -> tuple[str, tuple[Mention, ...]] | None:
    """Verb and objects of an action, in upper or lower case; None where it has no known form."""
    if len(action) > LONGEST:
        return None
    if match := _OWN.fullmatch(action.strip()):
        return match[1].upper(), tuple(_mention(one[1], one[2], one[0]) for one in _OBJECT.finditer(match[2]))
    text = " ".join(action.lower().split())
    for verb, pattern in _PATTERNS:
        if match := pattern.fullmatch(text):
            return verb, tuple(mention(name) for name in match.groups())
    return None


def mention(text: str) -> Mention:
    """An object by its name in plain text: `fridge`, `the fridge`, `light 2`. Without a number it is number 1."""
    text = _ARTICLE.sub("", text)
    match = _NUMBERED.fullmatch(text)
    name, number = (match[1], int(match[2])) if match else (text, 1)
    return Mention(name.replace(" ", "_"), number)


def _mention(name: str, number: str, whole: str) -> Mention:
    return Mention(name.lower().replace(" ", "_"), int(number), bool(_BY_NODE.search(whole)))


def write(verb: str, *names: str) -> str:
    """An action as plain text."""
    return TEXTS[verb].format(*names)
