"""The shortest way to a perfect purchase, found with full knowledge of the catalogue.

A perfect purchase has a score of 1; any product will do. On the product's own page it takes a click on each value that
is still to be selected and one on Buy Now. Only pages of results link to products, so from everywhere else there is a
click on such a link before, and another action before that where the page does not list the product. A search for the
product's own title will do: it is found on the first page, in generated shops with the default size of pages (it was
among the first four hits in shops of up to 20,000 products). Where it is not (a real catalogue), the plan turns pages,
and need not be the shortest way.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import product as combinations

from turncredit.envs.webshop.catalogue import Product
from turncredit.envs.webshop.reward import Goal, asked_options, has_attribute, kind_factor, matches
from turncredit.envs.webshop.shop import BUY, NEXT, PREV, SUB_PAGES, Shop, State, selectable

_WORD = re.compile(r"[^\W_]+")


def plan(shop: Shop, goal: Goal, state: State, *, original_colors: bool) -> list[str] | None:
    """The shortest way from a state to a perfect purchase; None if there is none."""
    plans = (_plan(shop, goal, state, product, original_colors) for product in _perfect(shop, goal, original_colors))
    return min((steps for steps in plans if steps is not None), key=len, default=None)


@lru_cache(maxsize=1 << 12)
def _perfect(shop: Shop, goal: Goal, original_colors: bool) -> tuple[Product, ...]:
    """The products that can be bought with a score of 1, of the shop's candidates."""
    wanted = shop.by_asin[goal.asin]
    payable = (product for product in shop.candidates(goal) if product.price <= goal.limit)
    alike = (product for product in payable if kind_factor(product, wanted) == 1)
    return tuple(
        product
        for product in alike
        if all(has_attribute(product, attribute) for attribute in goal.attributes)
        and _selection(shop, product, goal, (), original_colors) is not None
    )


def _plan(shop: Shop, goal: Goal, state: State, product: Product, original_colors: bool) -> list[str] | None:
    if state.asin == product.asin:
        way = [PREV] if state.page in SUB_PAGES else []
        selected = state.options
    else:
        selected = ()
        here = state.page == "results" and shop.position[product.asin] in shop.listed(state.query, state.number)
        way = [product.asin]
        if not here:
            query = " ".join(_WORD.findall(product.title.lower()))
            positions = shop.search(query)
            if shop.position[product.asin] not in positions:
                return None
            pages = positions.index(shop.position[product.asin]) // shop.page_size
            way = [f"search[{query}]", *[NEXT] * pages, product.asin]
    values = _selection(shop, product, goal, selected, original_colors)
    assert values is not None
    return [step if step.startswith("search[") else f"click[{step}]" for step in (*way, *values, BUY)]


@lru_cache(maxsize=1 << 14)
def _selection(
    shop: Shop, product: Product, goal: Goal, selected: tuple[tuple[str, str], ...], original_colors: bool
) -> tuple[str, ...] | None:
    """The fewest values to select, besides those that are, for all options of a goal to count; None: they cannot.

    Of each option the selected value stays, or another that counts for something is selected.
    """
    asked = asked_options(goal, original_colors)

    def counts_for(value: str) -> frozenset[int]:
        return frozenset(n for n, text in enumerate(asked) if matches(value, text))

    choices: dict[str, list[tuple[str, frozenset[int]]]] = {}
    for value, name in shop.values(product.asin).items():
        if selectable(value) and (counts := counts_for(value)):
            choices.setdefault(name, []).append((value, counts))
    kept = {name: counts_for(value) for name, value in selected}
    best: tuple[str, ...] | None = None
    options = [[("", kept.get(name, frozenset())), *values] for name, values in choices.items()]
    for chosen in combinations(*options):
        values = tuple(value for value, _ in chosen if value)
        counted = {n for _, counts in chosen for n in counts}
        if len(counted) == len(asked) and (best is None or len(values) < len(best)):
            best = values
    return best
