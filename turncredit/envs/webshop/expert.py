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
from turncredit.envs.webshop.analysis import terms
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
    selectable,
    squeezed,
    written,
)
from turncredit.envs.webshop.wares import KINDS, in_catalogue_words

_PRICE = re.compile(r"\$([\d.]+)")
_CLICK = re.compile(r"click\[(.+)\]")
_PAGE = re.compile(r"Page (\d+) \(Total results: (\d+)\)")
_ASIN = re.compile(r"[A-Z0-9]{10}")
_NO_OPTION = 1_000
_FEATURES = SUB_PAGES[1]
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

    It searches with the words of the instruction (in the generated shop, with the catalogue's words for them) and opens
    what the price allows, in the order of the results. It rejects what lacks an option, and buys what has all options
    and names all attributes in its title, features or description. In a real catalogue, whose texts need not name every
    attribute, it buys the product with all options that lacks the fewest, once its turns run short.
    """

    def __init__(self, env: Task, _rng: Rng) -> None:
        self._goal, self._form = env.goal, env.settings.actions
        self._real = env.settings.source == "real"
        self._titles_tell = not self._real and env.settings.titles == "all"
        """Whether a product lacks what its title does not name."""
        self._left = env.settings.horizon
        """Turns that are left."""
        said = env.goal.instruction if self._real else in_catalogue_words(env.goal.instruction)
        self._queries = search_words(env.goal._replace(instruction=said))
        self._settled = False
        """Whether it takes the best that it has seen: it has tried everything, or has no turns for another product."""
        self._asked = 0
        """How many of its queries have been used up."""
        self._own_results = False
        self._parts: list[str] = []
        self._page_size = 0
        """Products on the longest page of results so far."""
        self._last = ""
        self._asin = ""
        """The product that is open."""
        self._title = ""
        self._read: dict[str, dict[str, str]] = {}
        """Product to the texts of its pages."""
        self._rejected: dict[str, int] = {}
        """Product to the number of attributes that its texts do not name; `_NO_OPTION` if it lacks an option."""
        self._selected: dict[str, str] = {}
        """Option name to value, of the open product."""

    def observe(self, observation: str, action: str | None = None) -> None:
        """See a page; `action` is given if another action than `act`'s was carried out."""
        before, self._parts = self._parts, observation.split(SEP)
        self._left -= bool(before)
        action = self._last if action is None else plain(action, self._form)
        clicked = match[1].lower() if (match := _CLICK.fullmatch(action)) else ""
        if self._is_results or self._parts[-1] == SEARCH:
            self._selected, self._asin = {}, ""
            self._page_size = max(self._page_size, sum(part.startswith("$") for part in self._parts))
            if action.startswith("search["):
                self._own_results = action == self._query
        elif self._is_item:
            if before[-1] == BUY and clicked in (options := self._options()):
                self._selected[options[clicked]] = clicked
            if _ASIN.fullmatch(clicked.upper()) and clicked.upper() in before:
                self._asin = clicked.upper()
            self._title = self._parts[self._price_at - 1]
        else:
            self._read.setdefault(self._asin, {})[clicked] = " ".join(self._parts[2:]).lower()

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
    def _buying(self) -> int:
        """Actions on the page of a product until it is bought."""
        return len(self._goal.options) + 1

    def _decide(self) -> str:
        if self._is_item:
            return self._inspect()
        if self._is_results and self._own_results:
            return self._choose()
        in_haste = self._real or self._left <= self._buying + 6
        if self._asin and not (in_haste and not self._settled and self._rejects()):
            return f"click[{PREV}]"
        return self._query  # where turns run short, one action instead of two steps back

    def _choose(self) -> str:
        """Open the next product of the page that may be right, or go on to the next page or the next query."""
        rows = zip(self._parts[2:], self._parts[3:], self._parts[4:], strict=False)
        listed = [
            (asin, title)
            for asin, title, price in rows
            if _ASIN.fullmatch(asin) and price.startswith("$") and _lowest(price) <= self._goal.limit
        ]
        fitting = [
            (asin, title)
            for asin, title in listed
            if asin not in self._rejected and not (self._titles_tell and self._unnamed(title))
        ]
        # To look at another product and come back takes a click, its features, a search and a click.
        self._settled = self._asked >= len(self._queries) or (self._real and self._left < self._buying + 4)
        if self._settled and listed:
            known = [asin for asin, _ in listed if self._rejected.get(asin, _NO_OPTION) < _NO_OPTION]
            best = min(known, key=self._rejected.__getitem__) if known else (fitting or listed)[0][0]
            return f"click[{best}]"
        if fitting:  # the first of the wanted kind, or else the best match
            return f"click[{next((asin for asin, title in fitting if self._is_kind(title)), fitting[0][0])}]"
        if self._has_more and not self._settled:
            return f"click[{NEXT}]"
        self._asked += 1
        return self._query

    @property
    def _has_more(self) -> bool:
        """Whether products follow on the next page: every page has a button to one."""
        match = _PAGE.fullmatch(self._parts[1])
        return match is not None and int(match[1]) * self._page_size < int(match[2])

    def _is_kind(self, title: str) -> bool:
        """Whether the title's last word, which is its kind of product in the generated shop, is in the query."""
        return self._real or title.lower().rsplit(" ", 1)[-1] in self._query[7:-1].split()

    def _unnamed(self, text: str) -> int:
        """How many of the goal's attributes a text does not name; in a real catalogue, in any form and order."""
        if self._real:
            said = set(terms(text))
            return sum(not said.issuperset(terms(attribute)) for attribute in self._goal.attributes)
        return sum(attribute not in text.lower() for attribute in self._goal.attributes)

    def _rejects(self) -> bool:
        """Note how many attributes the open product's title and features do not name; whether there are any."""
        unnamed = self._unnamed(" ".join((self._title, *self._read.get(self._asin, {}).values())))
        if unnamed:
            self._rejected[self._asin] = unnamed
        return unnamed > 0

    def _inspect(self) -> str:
        """On a product's page: reject it, read on, select what is still missing, or buy."""
        final = self._titles_tell or _FEATURES.lower() in self._read.get(self._asin, {})
        options = self._options()
        wanted = [(name, squeezed(value)) for name, value in self._goal.options]
        offered = [
            (n, v) for n, v in wanted if v in options and selectable(v) and (self._real or n in ("", options[v]))
        ]
        if not self._settled:
            if len(offered) < len(wanted):
                self._rejected[self._asin] = _NO_OPTION
                return f"click[{PREV}]"
            if not final and self._unnamed(self._title) and self._left >= self._buying + 2:
                return f"click[{_FEATURES}]"
            if final and self._rejects():
                return f"click[{PREV}]"
        for _, value in offered:
            if value not in self._selected.values():
                return f"click[{value}]"
        return f"click[{BUY}]"

    @property
    def _price_at(self) -> int:
        """Where the page of a product has its price, which follows the title."""
        return next((n for n, part in enumerate(self._parts) if part.startswith("Price: ")), 1)

    def _options(self) -> dict[str, str]:
        """Option values on the page of a product, with single spaces, and their names as far as it knows them."""
        names = _OPTION_NAMES | {name for name, _ in self._goal.options}
        out, name = {}, ""
        for part in self._parts[2 : self._price_at - 1]:
            if part in names:
                name = part
            else:
                out[squeezed(part)] = name
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
