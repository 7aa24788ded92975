"""The shop: its pages, and what can be clicked on them.

Pages read as the original's in its mode `text`: the visible texts, joined by ` [SEP] `, without the instruction, which
agents have from the task (verl-agent cuts it out as well). The last page has the score and not the goal, which the
original's has in a part that browsers hide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from turncredit.envs.webshop.catalogue import Product
from turncredit.envs.webshop.reward import Goal
from turncredit.envs.webshop.search import Index, index
from turncredit.envs.webshop.store import Stored

SEP = " [SEP] "
SEARCH, BACK, PREV, NEXT, BUY = "Search", "Back to Search", "< Prev", "Next >", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews")
START_PAGE = SEP.join(("WebShop", SEARCH))
_ITEM_BUTTONS = frozenset(name.lower() for name in (BACK, PREV, BUY, *SUB_PAGES))
"""What a click on a product's page means before it can mean an option."""
SEARCH_FORM = "search[<your query>]"
"""What verl-agent lists where there is a search bar (its agent_system/environments/env_manager.py)."""

_SEARCHES_KEPT = 4096
_ROWS_KEPT = _PAGES_KEPT = 1 << 14


class Shop:
    """A catalogue with its search index. Shared by all rollouts; nothing of a rollout is in it but cached pages."""

    def __init__(self, products: Sequence[Product] | Stored, page_size: int):
        self.page_size = page_size
        self.products: Sequence[Product] = products if isinstance(products, Stored) else tuple(products)
        self.position: Mapping[str, int] = (
            products.positions()
            if isinstance(products, Stored)
            else {product.asin: n for n, product in enumerate(products)}
        )
        self.by_asin: Mapping[str, Product] = _ByAsin(self.products, self.position)
        self._row = lru_cache(_ROWS_KEPT)(self._new_row)
        self.search = lru_cache(_SEARCHES_KEPT)(self._search)
        """The positions of the products that a query finds, the best first."""
        self._pages: dict[tuple[str, str], str] = {}
        self._values: dict[str, dict[str, str]] = {}

    @cached_property
    def _index(self) -> Index:
        if isinstance(self.products, Stored):
            return self.products.index()
        return index([product.contents for product in self.products], [product.asin for product in self.products])

    def _search(self, query: str) -> tuple[int, ...]:
        return self._index.search(query)

    def _new_row(self, position: int) -> str:
        product = self.products[position]
        return SEP.join((product.asin, product.title.strip(), product.price_tag))

    def candidates(self, goal: Goal) -> Iterable[Product]:
        """The products among which a perfect purchase is looked for: all, or in a stored catalogue the goal's own and
        what searches for its title, its instruction and its attributes find."""
        if not isinstance(self.products, Stored):
            return self.products
        own = self.position[goal.asin]
        queries = (self.products[own].title, goal.instruction, " ".join(goal.attributes))
        found = {own, *(n for query in queries for n in self.search(query))}
        return [self.products[n] for n in sorted(found)]

    def listed(self, query: str, number: int) -> tuple[int, ...]:
        """The positions of the products on a page of results; pages count from 1."""
        return self.search(query)[(number - 1) * self.page_size : number * self.page_size]

    def linked(self, link: str, query: str, number: int) -> str | None:
        """The product to which a page of results has a link with this text (in lower case); None: it has no such."""
        names = (self.products[n].asin for n in self.listed(query, number))
        return next((name for name in names if name.lower() == link), None)

    def results_page(self, query: str, number: int) -> str:
        """A page of results: how many there are, then name, title and price of each."""
        parts = [BACK, f"Page {number} (Total results: {len(self.search(query))})", *self.result_buttons(number)]
        return SEP.join((*parts, *(self._row(n) for n in self.listed(query, number))))

    def result_buttons(self, number: int) -> list[str]:
        """The buttons to the pages of results before and after this one; as in the original, the last page has both."""
        return [PREV] * (number > 1) + [NEXT]

    def product_page(self, asin: str, name: str) -> str:
        """A product's own page (`name` is "item") or one of `SUB_PAGES`. Selected options cannot be seen on it."""
        page = self._pages.get((asin, name))
        if page is None:
            if len(self._pages) >= _PAGES_KEPT:
                self._pages.clear()
            write = _item_page if name == "item" else _sub_page
            page = self._pages[asin, name] = write(self.by_asin[asin], name)
        return page

    def values(self, asin: str) -> dict[str, str]:
        """A product's option values and their names. Where two options share a value, a click selects the last.

        Keys have single spaces: some values of the original's have two, which agents do not write.
        """
        name_of = self._values.get(asin)
        if name_of is None:
            if len(self._values) >= _PAGES_KEPT:
                self._values.clear()
            options = self.by_asin[asin].options.items()
            name_of = self._values[asin] = {squeezed(value): name for name, values in options for value in values}
        return name_of

    def clickable(self, state: State) -> list[str]:
        """The admissible clicks of a state, in the page's order.

        As the original does, it lists a value with an opening bracket, too, which no action can name (`parse`).
        """
        if state.page == "results":
            buttons = [BACK, *self.result_buttons(state.number)]
            links = [f"click[{self.products[n].asin}]" for n in self.listed(state.query, state.number)]
            return [f"click[{button}]" for button in buttons] + links
        if state.page == "item":
            return [f"click[{text}]" for text in (BACK, PREV, *self.values(state.asin), *SUB_PAGES, BUY)]
        return [f"click[{BACK}]", f"click[{PREV}]"] if state.page in SUB_PAGES else []


class _ByAsin(Mapping[str, Product]):
    """Products by their names."""

    def __init__(self, products: Sequence[Product], positions: Mapping[str, int]):
        self._products, self._positions = products, positions

    def __getitem__(self, name: str) -> Product:
        return self._products[self._positions[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._products)


def _item_page(product: Product, _name: str) -> str:
    options = [text.strip() for name, values in product.options.items() for text in (name, *values)]
    about = (*filter(None, [product.title.strip()]), f"Price: {product.price_tag}", f"Rating: {product.rating}")
    return SEP.join((BACK, PREV, *options, *about, *SUB_PAGES, BUY))


def _sub_page(product: Product, name: str) -> str:
    if name == "Description":
        texts = [product.description.strip()] if product.description else []
    elif name == "Features":
        texts = [bullet.strip() for bullet in product.bullets]  # an empty one is an empty part of the page
    else:
        texts = [text for title, stars, body in product.reviews for text in (f'"{title}"', stars, body)]
    return SEP.join((BACK, PREV, *texts))


def parse(action: str) -> tuple[str, str]:
    """Verb and text of an action such as `search[red hat]`, the text in lower case; two empty texts for any other.

    As the original's expression `(.+)\\[(.+)\\]` reads it: in the first line, the text is between the last closing
    bracket and the last opening one before it; what follows is ignored. A verb may be in upper case (`Search[x]`).
    """
    line = action.partition("\n")[0]
    end = line.rfind("]")
    start = line.rfind("[", 0, max(end - 1, 0))
    return (line[:start].strip().lower(), line[start + 1 : end].lower()) if start > 0 else ("", "")


def selectable(value: str) -> bool:
    """Whether a click can select an option's value: no button has its text, and no bracket in it cuts the action."""
    return value not in _ITEM_BUTTONS and parse(f"click[{value}]") == ("click", value)


def squeezed(text: str) -> str:
    """A text without repeated spaces."""
    return re.sub(r"\s+", " ", text)


def written(action: str, form: str) -> str:
    """An action such as `click[red]` in a form (the setting `actions`): as it is, or spaced, `click[ red]`.

    With the space a tokenizer built from scratch has the same tokens for a text in an action and on a page.
    """
    return action.replace("[", "[ ", 1) if form == "spaced" else action


def plain(action: str, form: str) -> str:
    """The action that `written` has written."""
    return action.replace("[ ", "[", 1) if form == "spaced" else action


class State(NamedTuple):
    """Where a rollout is: a page, what it shows, the selected options (name, value), how much has been played."""

    page: str
    """"search", "results", "item", one of `SUB_PAGES`, or "done"."""
    query: str
    number: int
    """Of the page of results."""
    asin: str
    options: tuple[tuple[str, str], ...]
    turns: int


START = State("search", "", 1, "", (), 0)


_PRICE_CLAUSE = re.compile(r",? and price lower than [\d.]+ dollars$")
_OPENING = re.compile(r"^(?:i am looking for|i'm looking for|find me|i want to buy|i need|i want|buy)(?: an?\b)? ")
_FILLERS = re.compile(r"\b(?:that is|and|with)\b|,")


def search_words(goal: Goal) -> tuple[str, str]:
    """Two queries made of the instruction: its words without price and names of options, and those without options."""
    text = _OPENING.sub("", _PRICE_CLAUSE.sub("", goal.instruction.lower()))
    plain = text
    if all(name for name, _ in goal.options) and goal.options:
        plain = text.rpartition(f" with {goal.options[0][0]}: ")[0] or text
        for name, _ in goal.options:
            text = text.replace(f"{name}: ", " ")
    return tuple(" ".join(_FILLERS.sub(" ", words).split()) for words in (text, plain))  # type: ignore[return-value]
