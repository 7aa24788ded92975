"""The shop: pages, what can be clicked on them, and one rollout of shopping.

Pages read as the original's in its mode `text`: the visible texts, joined by ` [SEP] `, without the instruction, which
agents have from the task (verl-agent cuts it out as well). The last page has the score and not the goal, which the
original's has in a part that browsers hide.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from turncredit.envs.bm25 import Index
from turncredit.envs.protocol import Step
from turncredit.envs.webshop.catalogue import Product
from turncredit.envs.webshop.reward import Goal, Score, score
from turncredit.envs.webshop.search import index
from turncredit.envs.webshop.settings import Settings

SEP = " [SEP] "
SEARCH, BACK, PREV, NEXT, BUY = "Search", "Back to Search", "< Prev", "Next >", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews")
START_PAGE = SEP.join(("WebShop", SEARCH))

_SEARCHES_KEPT = 4096
_SUB_PAGES = {name.lower(): name for name in SUB_PAGES}


class Shop:
    """A catalogue with its search index. Shared by all rollouts; nothing of a rollout is in it but cached pages."""

    def __init__(self, products: Sequence[Product], page_size: int):
        self.products, self.page_size = tuple(products), page_size
        self.by_asin = {product.asin: product for product in products}
        self._by_link = {product.asin.lower(): product for product in products}
        self._rows = [SEP.join((p.asin, p.title.strip(), p.price_tag)) for p in products]
        self._links = [f"click[{p.asin}]" for p in products]
        self.search = lru_cache(_SEARCHES_KEPT)(self._search)
        """The positions of the products that a query finds, the best first."""
        self._pages: dict[tuple[str, str], str] = {}
        self._values: dict[str, dict[str, str]] = {}

    @cached_property
    def _index(self) -> Index:
        return index([product.contents for product in self.products])

    def _search(self, query: str) -> tuple[int, ...]:
        return self._index.search(query)

    def listed(self, query: str, number: int) -> tuple[int, ...]:
        """The positions of the products on a page of results; pages count from 1."""
        return self.search(query)[(number - 1) * self.page_size : number * self.page_size]

    def linked(self, link: str, query: str, number: int) -> str | None:
        """The product to which a page of results has a link with this text (in lower case); None: it has no such."""
        product = self._by_link.get(link)
        if product is None or all(self.products[n] is not product for n in self.listed(query, number)):
            return None
        return product.asin

    def has_more(self, query: str, number: int) -> bool:
        """Whether there is a page of results after this one."""
        return number * self.page_size < len(self.search(query))

    def results_page(self, query: str, number: int) -> str:
        """A page of results: how many there are, then name, title and price of each."""
        parts = [BACK, f"Page {number} (Total results: {len(self.search(query))})", *self.result_buttons(query, number)]
        return SEP.join((*parts, *(self._rows[n] for n in self.listed(query, number))))

    def result_buttons(self, query: str, number: int) -> list[str]:
        """The buttons to the pages of results before and after this one."""
        return [PREV] * (number > 1) + [NEXT] * self.has_more(query, number)

    def product_page(self, asin: str, name: str) -> str:
        """A product's own page (`name` is "item") or one of `SUB_PAGES`. Selected options cannot be seen on it."""
        page = self._pages.get((asin, name))
        if page is None:
            write = _item_page if name == "item" else _sub_page
            page = self._pages[asin, name] = write(self.by_asin[asin], name)
        return page

    def values(self, asin: str) -> dict[str, str]:
        """A product's option values and their names. Where two options share a value, a click selects the last."""
        known = self._values.get(asin)
        if known is None:
            options = self.by_asin[asin].options.items()
            known = self._values[asin] = {value: name for name, values in options for value in values}
        return known

    def clickable(self, state: State) -> list[str]:
        """The admissible clicks of a state, in the page's order."""
        if state.page == "results":
            buttons = [BACK, *self.result_buttons(state.query, state.number)]
            links = [self._links[n] for n in self.listed(state.query, state.number)]
            return [f"click[{button}]" for button in buttons] + links
        if state.page == "item":
            return [f"click[{text}]" for text in (BACK, PREV, *self.values(state.asin), *SUB_PAGES, BUY)]
        return [f"click[{BACK}]", f"click[{PREV}]"] if state.page in SUB_PAGES else []


def _item_page(product: Product, _name: str) -> str:
    options = [text for name, values in product.options.items() for text in (name, *values)]
    about = (product.title.strip(), f"Price: {product.price_tag}", f"Rating: {product.rating}")
    return SEP.join((BACK, PREV, *options, *about, *SUB_PAGES, BUY))


def _sub_page(product: Product, name: str) -> str:
    if name == "Description":
        texts = [product.description.strip()]
    elif name == "Features":
        texts = [bullet.strip() for bullet in product.bullets]
    else:
        texts = [text for title, stars, body in product.reviews for text in (f'"{title}"', stars, body)]
    missing = {"Description": "No Description", "Features": "No Features", "Reviews": "No reviews found"}[name]
    return SEP.join((BACK, PREV, *(list(filter(None, texts)) or [missing])))


def parse(action: str) -> tuple[str, str]:
    """Verb and text of an action such as `search[red hat]`, the text in lower case; two empty texts for any other.

    As the original's expression `(.+)\\[(.+)\\]` reads it: in the first line, the text is between the last closing
    bracket and the last opening one before it; what follows is ignored.
    """
    line = action.partition("\n")[0]
    end = line.rfind("]")
    start = line.rfind("[", 0, max(end - 1, 0))
    return (line[:start], line[start + 1 : end].lower()) if start > 0 else ("", "")


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


_START = State("search", "", 1, "", (), 0)


class WebShop:
    """One rollout. `step` takes `search[words]` on every page, and `click[text]` of what the page has, in any case."""

    def __init__(self, shop: Shop, goal: Goal, settings: Settings):
        self.shop, self.goal, self._settings = shop, goal, settings
        self._wanted = shop.by_asin[goal.asin]
        self._state = _START
        self._searches = [f"search[{words}]" for words in search_words(goal)]

    def reset(self) -> str:
        """Start again; the page with the search bar."""
        self._state = _START
        return START_PAGE

    def step(self, action: str) -> Step:
        """Carry out one action. Any other text changes nothing: the page is shown again, `valid` is false."""
        if self._ended:
            raise RuntimeError("the rollout has ended; call reset or restore")
        after = self._after(action)
        valid = after is not None
        self._state = state = (after or self._state)._replace(turns=self._state.turns + 1)
        if state.page != "done":
            return Step(self.page(), 0.0, self._ended, False, valid)
        total = self.score().total
        won = total == 1.0
        paid = float(won) if self._settings.reward == "success" else total
        return Step(self.page(), paid * self._settings.success_reward, True, won, True)

    def close(self) -> None:
        """Nothing to release."""

    def page(self) -> str:
        """The text of the page."""
        state = self._state
        if state.page == "results":
            return self.shop.results_page(state.query, state.number)
        if state.page == "search":
            return START_PAGE
        if state.page == "done":
            said = f"{self.score().total:.4f}".rstrip("0")
            return SEP.join(
                ("Thank you for shopping with us!", "Your score (min 0.0, max 1.0)", said + "0" * said.endswith("."))
            )
        return self.shop.product_page(state.asin, state.page)

    def score(self) -> Score:
        """The score of a purchase now; all zero where no product is open."""
        state = self._state
        if not state.asin:
            return Score(0.0, 0, 0, 0, 0.0)
        product = self.shop.by_asin[state.asin]
        values = [value for _, value in state.options]
        return score(product, values, self.goal, self._wanted, original_colors=self._settings.original_colors)

    def progress(self) -> float:
        """The score of a purchase now, with the purchase itself as one more condition.

        With c conditions (attributes, options, price): score * c / (c + 1) before the purchase, the score after it. 1
        exactly if the purchase was perfect; 0 where no product is open.
        """
        conditions = self.goal.conditions
        return self.score().total * (conditions + (self._state.page == "done")) / (conditions + 1)

    def admissible(self) -> tuple[str, ...]:
        """What can be clicked; on the page with the search bar, two searches with words of the instruction.

        A search is allowed on every page, with any words.
        """
        if self._ended:
            return ()
        if self._state.page == "search":
            return tuple(self._searches)
        return tuple(self.shop.clickable(self._state))

    def snapshot(self) -> State:
        """The state, which is immutable."""
        return self._state

    def restore(self, state: State) -> None:
        """Continue from a snapshot of this task."""
        self._state = state

    @property
    def _ended(self) -> bool:
        return self._state.page == "done" or self._state.turns >= self._settings.horizon

    def _after(self, action: str) -> State | None:
        """The state after an action, but for the count of turns; None where the action is refused."""
        verb, text = parse(action)
        if verb == "search":
            return _START._replace(page="results", query=text)
        return self._clicked(text) if verb == "click" else None

    def _clicked(self, text: str) -> State | None:
        state, shop = self._state, self.shop
        if state.page == "search":
            return None
        if text == "back to search":
            return _START
        if state.page == "results":
            if text == "next >" and shop.has_more(state.query, state.number):
                return state._replace(number=state.number + 1)
            if text == "< prev" and state.number > 1:
                return state._replace(number=state.number - 1)
            asin = shop.linked(text, state.query, state.number)
            return None if asin is None else state._replace(page="item", asin=asin)
        if text == "< prev":
            if state.page == "item":  # results forget the product and its options
                return state._replace(page="results", asin="", options=())
            return state._replace(page="item")
        if state.page != "item":
            return None
        if text == "buy now":
            return state._replace(page="done")
        if text in _SUB_PAGES:  # before options: the original's buttons win over values of the same text
            return state._replace(page=_SUB_PAGES[text])
        name = shop.values(state.asin).get(text)
        return None if name is None else state._replace(options=_with(state.options, name, text))


def _with(options: tuple[tuple[str, str], ...], name: str, value: str) -> tuple[tuple[str, str], ...]:
    """Selected options with another value of one, in the order of their names, so that equal states are equal."""
    return tuple(sorted({**dict(options), name: value}.items()))


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
