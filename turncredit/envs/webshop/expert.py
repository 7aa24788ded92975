"""A hand-written shopper that knows only the instruction and the pages, and plausible noise.

It searches with the words of the instruction, opens the first product that can be right by title and price, reads its
features where the title does not name every attribute, goes back where one is missing, selects the options and buys.
In a shop whose titles name all attributes (`titles: all`) it opens what has them by its title, and reads no features.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from turncredit.envs.protocol import Rng
from turncredit.envs.webshop.reward import Goal
from turncredit.envs.webshop.settings import Settings
from turncredit.envs.webshop.shop import (
    BUY,
    NEXT,
    PREV,
    SEARCH,
    SEARCH_FORM,
    SEP,
    SUB_PAGES,
    plain,
    search_words,
    written,
)
from turncredit.envs.webshop.wares import KINDS

_PRICE = re.compile(r"\$([\d.]+)")
_CLICK = re.compile(r"click\[(.+)\]")
_ASIN = re.compile(r"[A-Z0-9]{10}")
_OPTION_NAMES = frozenset(name for kind in KINDS for name in kind.options)


class Task(Protocol):
    """What the expert may know of an environment: the goal as its instruction states it, and what titles name here."""

    goal: Goal
    settings: Settings


class Browser(Task, Protocol):
    """The part of an environment that noise needs."""

    def admissible(self) -> tuple[str, ...]:
        """The actions that are allowed now."""
        ...


class Expert:
    """Shops for one goal. Call `observe` with each page, and `act` for the next action; `rng` decides nothing.

    In the generated shop it finds what it looks for. In a real catalogue, whose titles and features need not name
    every attribute, it takes the first product that it had rejected once it has tried everything.
    """

    def __init__(self, env: Task, _rng: Rng) -> None:
        self._goal = env.goal
        self._form = env.settings.actions
        self._titles_tell = env.settings.source == "generated" and env.settings.titles == "all"
        """Whether a product lacks what its title does not name."""
        self._queries = search_words(env.goal)
        self._asked = 0
        """How many of its queries have been used up."""
        self._own_results = False
        self._parts: list[str] = []
        self._last = ""
        self._asin = ""
        """The product that is open."""
        self._read: dict[str, str] = {}
        """Product to the text of its features."""
        self._rejected: set[str] = set()
        self._selected: dict[str, str] = {}
        """Option name to value, of the open product."""

    def observe(self, observation: str, action: str | None = None) -> None:
        """See a page; `action` is given if another action than `act`'s was carried out."""
        before, self._parts = self._parts, observation.split(SEP)
        action = self._last if action is None else plain(action, self._form)
        clicked = match[1].lower() if (match := _CLICK.fullmatch(action)) else ""
        if self._is_results or self._parts[-1] == SEARCH:
            self._selected, self._asin = {}, ""
            if action.startswith("search["):
                self._own_results = action == self._query
        elif self._is_item:
            if before[-1] == BUY and clicked in (options := self._options()):
                self._selected[options[clicked]] = clicked
            if _ASIN.fullmatch(clicked.upper()) and clicked.upper() in before:
                self._asin = clicked.upper()
        elif clicked == "features":
            self._read[self._asin] = " ".join(self._parts[2:]).lower()

    def act(self) -> str:
        """The next action."""
        self._last = self._decide()
        return written(self._last, self._form)

    @property
    def _is_results(self) -> bool:
        return len(self._parts) > 1 and self._parts[1].startswith("Page ")

    @property
    def _is_item(self) -> bool:
        return self._parts[-1] == BUY

    @property
    def _query(self) -> str:
        return f"search[{self._queries[self._asked % len(self._queries)]}]"

    @property
    def _settles(self) -> bool:
        """Whether it has tried everything, and takes what there is."""
        return self._asked >= len(self._queries)

    def _decide(self) -> str:
        if self._is_results and self._own_results:
            return self._choose()
        if self._is_item:
            return self._inspect()
        return f"click[{PREV}]" if self._asin else self._query

    def _choose(self) -> str:
        """Open the first product of the page that may be right, or go on to the next page or the next query."""
        rows = zip(self._parts[2:], self._parts[3:], self._parts[4:], strict=False)
        fitting = [
            (asin, title)
            for asin, title, price in rows
            if _ASIN.fullmatch(asin) and price.startswith("$") and _lowest(price) <= self._goal.limit
            if self._settles or (asin not in self._rejected and not (self._titles_tell and self._unnamed(title)))
        ]
        if fitting:  # one of the wanted kind, or else the best match
            return f"click[{next((asin for asin, title in fitting if self._is_kind(title)), fitting[0][0])}]"
        if NEXT in self._parts[2:4] and not self._settles:
            return f"click[{NEXT}]"
        self._asked += 1
        return self._query

    def _is_kind(self, title: str) -> bool:
        """Whether the title's last word, which is its kind of product, is in the instruction."""
        return title.lower().rsplit(" ", 1)[-1] in self._goal.instruction.lower().split()

    def _unnamed(self, text: str) -> bool:
        """Whether a text lacks one of the goal's attributes."""
        return any(attribute not in text.lower() for attribute in self._goal.attributes)

    def _inspect(self) -> str:
        """On a product's page: reject it, read on, select what is still missing, or buy."""
        unseen = self._unnamed(f"{self._parts[self._price_at - 1]} {self._read.get(self._asin, '')}")
        final = self._titles_tell or self._asin in self._read
        options = self._options()
        offered = [(n, v) for n, v in self._goal.options if v in options and n in ("", options[v])]
        if not self._settles:
            if len(offered) < len(self._goal.options) or (unseen and final):
                self._rejected.add(self._asin)
                return f"click[{PREV}]"
            if unseen:
                return f"click[{SUB_PAGES[1]}]"
        for _, value in offered:
            if value not in self._selected.values():
                return f"click[{value}]"
        return f"click[{BUY}]"

    @property
    def _price_at(self) -> int:
        """Where the page of a product has its price, which follows the title."""
        return next((n for n, part in enumerate(self._parts) if part.startswith("Price: ")), 1)

    def _options(self) -> dict[str, str]:
        """Option values on the page of a product, and their names as far as it knows them."""
        names = _OPTION_NAMES | {name for name, _ in self._goal.options}
        out, name = {}, ""
        for part in self._parts[2 : self._price_at - 1]:
            if part in names:
                name = part
            else:
                out[part] = name
        return out


def _lowest(price: str) -> float:
    match = _PRICE.search(price)
    return float(match[1]) if match else 0.0


def slip_command(env: Browser, rng: Rng) -> str:
    """A random admissible action, but for the purchase: the shopper acts, but not towards its goal.

    On the page with the search bar, a search for words of the instruction.
    """
    form = env.settings.actions
    choices = [action for action in env.admissible() if action != written(f"click[{BUY}]", form)]
    if choices == [written(SEARCH_FORM, form)]:
        choices = [written(f"search[{words}]", form) for words in search_words(env.goal)]
    return _pick(choices, rng)


def random_command(env: Browser, rng: Rng) -> str:
    """A random action: in half the cases an admissible one (never the purchase), in the others one that is refused or
    finds something else."""
    action = slip_command(env, rng)
    if rng.random() < 0.5:
        return action
    words = env.goal.instruction.split()
    forms = (
        f"search[{_pick(words, rng)}]",
        f"click[{_pick(words, rng)}]",
        f"click[{_pick((BUY, NEXT, PREV, *SUB_PAGES), rng)} now]",
        plain(action, env.settings.actions).removesuffix("]"),
        _pick(words, rng),
    )
    return written(_pick(forms, rng), env.settings.actions)


def _pick(options: Sequence[str], rng: Rng) -> str:
    return options[int(rng.random() * len(options))]
