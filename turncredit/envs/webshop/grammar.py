"""The rule judge's grammar of WebShop (`search[...]`, `click[...]`, text pages whose parts are joined by [SEP]).

Whether a product matches is judged by what its title and price say: a price above the limit does not, nor does a
title with none of the words for the kind of product and less than a third of the goal's words. Options and the
purchase are judged on the product that was opened last in the window; a product that was opened before it counts as
the right one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from turncredit.envs.bag_of_words import words
from turncredit.envs.judging import Turn
from turncredit.envs.webshop.shop import parse
from turncredit.envs.webshop.wares import in_catalogue_words

_BUTTON = re.compile(r"\[(?:clicked )?button_?\]|\n")
_PRODUCT = re.compile(r"^(?=.*\d)[a-z0-9]{10}$")
_NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
_PRICE = re.compile(rf"\$\s*{_NUMBER}")
# No comma before the number: after "under fifty dollars, in size 10" ten is no price.
_PRICE_CLAUSE = re.compile(
    rf",?\s*(?:and\s+)?(?:price|cost|priced)\b[^$\d]*?(?:lower|less|below|under)[^$\d,]*\$?\s*{_NUMBER}[^,]*",
    re.IGNORECASE,
)
_KIND_ENDS = re.compile(r"\s(?:with|for|that|which|in|of|made|to|and)\s|[,.:]", re.IGNORECASE)
_OPTION_NAMES = frozenset(
    {
        *("color", "colour", "size", "style", "shape", "scent", "flavor", "material", "pattern", "configuration"),
        *("flavor name", "scent name", "size name", "style name", "fit type", "material type", "pattern name"),
        *("item shape", "special size", "number of items", "item package quantity", "unit count", "hair type"),
    }
)
_READ = frozenset({"description", "features", "reviews", "attributes"})
_SEARCH_PAGE = "back to search"
_BACK = "< prev"
_LEAST_OVERLAP = 1 / 3


class Goal(NamedTuple):
    """The instruction: its words, those of the kind of product (before "with", "for", ...), the highest price.

    Words of the generated catalogue are added for their synonyms.

    A price in words ("under fifty dollars") is not read: there is then no highest one.
    """

    words: frozenset[str]
    kind: frozenset[str]
    limit: float | None


class Act(NamedTuple):
    """A command and the page it led to: the products it lists with title and price, and the options it offers."""

    verb: str
    text: str
    page: str
    listed: dict[str, tuple[str, float | None]]
    options: dict[str, str]


class Scene(NamedTuple):
    """A window, with the product that was opened last (empty: before the window) and what was done to it since."""

    goal: Goal
    before: Sequence[Act]
    now: Act
    product: str
    since: Sequence[Act]
    wrong: str


@lru_cache(maxsize=4096)
def read_goal(text: str) -> Goal:
    """The goal of an instruction."""
    text = text.rpartition("Instruction:")[2].replace("[SEP]", " ").strip().lower()
    price = _PRICE_CLAUSE.search(text)
    rest = _PRICE_CLAUSE.sub("", text)
    start = re.sub(r"^.*?\b(?:find me|looking for|look for|need|want|buy|get me)\b", "", rest)
    kind = next(filter(words, _KIND_ENDS.split(start)), "")
    said, named = (words(text) | words(in_catalogue_words(text)) for text in (rest, kind))
    return Goal(said, named, _number(price.group(1)) if price else None)


@lru_cache(maxsize=1 << 14)
def read_turn(turn: Turn) -> Act:
    """The search or click of a turn, and the page that it leads to."""
    verb, text = parse(turn.action)
    if verb not in ("search", "click"):
        verb, text = "", turn.action
    parts = [part.strip() for part in _BUTTON.sub("[SEP]", turn.observation).split("[SEP]")]
    parts = [part for part in parts if part]
    return Act(verb, " ".join(text.lower().split()), " ".join(parts), _listed(parts), _options(parts))


def knows(turn: Turn) -> bool:
    """Whether a turn's action has a form that the environment knows."""
    return bool(read_turn(turn).verb)


def judge(goal: Goal, before: Sequence[Act], now: Act, after: Sequence[Act]) -> tuple[str, str]:
    """The role of `now`, and the evidence for it."""
    del after  # what comes later does not change what a click was
    if any(_bought(act) for act in before):
        if now.verb == "click" and now.text != "buy now" and any(act.text == now.text for act in before):
            return "R", f"clicks '{now.text}' again, after the purchase"
        return "N", "the purchase was made already"
    if now.verb == "search":
        return _search(before, now)
    if now.verb != "click":
        repeated = any(act.text == now.text for act in before)
        return ("R", "repeats an action that is not possible") if repeated else ("N", "the action is not possible")
    scene = _scene(goal, before, now)
    if now.text == "buy now":
        return _buy(scene)
    if now.text in (_SEARCH_PAGE, _BACK):
        leaving = len(before) > 1 and before[-2].text in _READ  # from a page about a product, over it, to the results
        repeated = before and before[-1].text == now.text and not leaving
        return ("R", f"'{now.text}' twice in a row") if repeated else ("N", f"'{now.text}' shows nothing new")
    if now.text == "next >":
        repeated = any(act.page == now.page for act in before)
        return ("R", "a page of results that was shown before") if repeated else ("E", "a new page of results")
    if now.text in _READ:
        repeated = any(act.text == now.text for act in scene.since)
        return ("R", f"reads '{now.text}' again") if repeated else ("E", f"first look at '{now.text}'")
    if _PRODUCT.match(now.text):
        return _open(scene)
    return _option(scene)


def _search(before: Sequence[Act], now: Act) -> tuple[str, str]:
    for act in before:
        if act.verb == "search" and (act.text == now.text or words(act.text) == words(now.text)):
            return "R", "repeats a search that was made before"
    first = not any(act.verb == "search" for act in before)
    return "E", "first search" if first else "a search in other words"


def _open(scene: Scene) -> tuple[str, str]:
    name = scene.now.text
    if wrong := _mismatch(scene.goal, name, (*scene.before, scene.now)):
        return "R", f"opens {name}: {wrong}"
    opened = [act.text for act in scene.before if act.verb == "click" and _PRODUCT.match(act.text)]
    if opened and opened[-1] == name:
        return "R", f"opens {name} again, with no other product looked at in between"
    return "E", f"opens {name} again to compare" if name in opened else f"first look at {name}"


def _option(scene: Scene) -> tuple[str, str]:
    value, options = scene.now.text, _offered(scene)
    if any(act.text == value for act in scene.since):
        return "R", f"'{value}' is selected already"
    if options and value not in options:
        repeated = any(act.text == value for act in scene.before)
        return (
            ("R", f"'{value}' again, which is not on the page") if repeated else ("N", f"'{value}' is not on the page")
        )
    if scene.wrong:
        return "R", f"selects '{value}' on a product that does not match: {scene.wrong}"
    if _asked(scene.goal, value):
        return "D", f"selects '{value}', which the task asks for"
    name = options.get(value)
    better = [other for other, kind in options.items() if kind == name and _asked(scene.goal, other)]
    if better:
        return "R", f"selects '{value}' where the task asks for '{better[0]}'"
    return "N", f"the task does not mention '{value}'"


def _buy(scene: Scene) -> tuple[str, str]:
    if scene.wrong:
        return "R", f"buys a product that does not match: {scene.wrong}"
    if scene.product:
        selected = {act.text for act in scene.since}
        options = _offered(scene)
        for name in sorted(set(options.values())):
            wanted = [value for value, kind in options.items() if kind == name and _asked(scene.goal, value)]
            if wanted and not selected & set(wanted):
                return "R", f"buys without selecting '{wanted[0]}', which the task asks for"
    return "D", "buys a product that matches as far as the window shows"


def _scene(goal: Goal, before: Sequence[Act], now: Act) -> Scene:
    at = next(
        (i for i in range(len(before) - 1, -1, -1) if before[i].verb == "click" and _PRODUCT.match(before[i].text)),
        None,
    )
    if at is None:
        return Scene(goal, before, now, "", before, "")
    name = before[at].text
    return Scene(goal, before, now, name, before[at + 1 :], _mismatch(goal, name, before))


def _mismatch(goal: Goal, name: str, acts: Sequence[Act]) -> str:
    """Why the product does not match, as far as a list of results in the window tells; empty where it does."""
    listing = next((act.listed[name] for act in acts if name in act.listed), None)
    if listing is None:
        return ""
    title, price = listing
    if goal.limit is not None and price is not None and price > goal.limit:
        return f"it costs ${price:g}, the limit is ${goal.limit:g}"
    have = words(title)
    if goal.words and not have & goal.kind and len(have & goal.words) < _LEAST_OVERLAP * len(goal.words):
        return f"'{title[:60]}' is another kind of product"
    return ""


def _offered(scene: Scene) -> dict[str, str]:
    """Option values (and their names) on the product's page, as far as the window shows one."""
    return next((act.options for act in reversed(scene.before) if act.options), {})


def _asked(goal: Goal, value: str) -> bool:
    have = words(value)
    return bool(have) and have <= goal.words


def _bought(act: Act) -> bool:
    # Where the button is still there, the click was not accepted.
    return act.verb == "click" and act.text == "buy now" and "buy now" not in act.page.lower()


def _listed(parts: Sequence[str]) -> dict[str, tuple[str, float | None]]:
    """Products of a page of results: name -> (title, lowest price)."""
    listed = {}
    for name, title, price in zip(parts, parts[1:], parts[2:], strict=False):
        if _PRODUCT.match(name.lower()) and "$" in price:
            lowest = _PRICE.search(price)
            listed[name.lower()] = (title, _number(lowest[1]) if lowest else None)
    return listed


def _options(parts: Sequence[str]) -> dict[str, str]:
    """Options of an item page: value -> option name. They stand between "< Prev" and the title."""
    lower = [part.lower() for part in parts]
    if "buy now" not in lower or _BACK not in lower:
        return {}
    end = next((i for i, part in enumerate(lower) if part.startswith("price:")), len(lower))
    options, name = {}, ""
    for part in lower[lower.index(_BACK) + 1 : max(end - 1, 0)]:
        if part in _OPTION_NAMES:
            name = part
        elif name:
            options[part] = name
    return options


def _number(text: str) -> float:
    return float(text.replace(",", ""))
