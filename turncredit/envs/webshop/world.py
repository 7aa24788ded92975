"""One rollout of shopping."""

from __future__ import annotations

from turncredit.envs.protocol import Step
from turncredit.envs.webshop import planner
from turncredit.envs.webshop.reward import Goal, Score, score
from turncredit.envs.webshop.settings import Settings
from turncredit.envs.webshop.shop import (
    SEARCH_FORM,
    SEP,
    START,
    START_PAGE,
    SUB_PAGES,
    Shop,
    State,
    parse,
    plain,
    squeezed,
    written,
)

_SUB_PAGES = {name.lower(): name for name in SUB_PAGES}


class WebShop:
    """One rollout. `step` takes `search[words]` on every page, and `click[text]` of what the page has, in any case."""

    def __init__(self, shop: Shop, goal: Goal, settings: Settings):
        self.shop, self.goal, self.settings = shop, goal, settings
        self._wanted = shop.by_asin[goal.asin]
        self._state = START

    def reset(self) -> str:
        """Start again; the page with the search bar."""
        self._state = START
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
        paid = float(won) if self.settings.reward == "success" else total
        return Step(self.page(), paid * self.settings.success_reward, True, won, True)

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
            total = f"{self.score().total:.4f}".rstrip("0")
            return SEP.join(
                ("Thank you for shopping with us!", "Your score (min 0.0, max 1.0)", total + "0" * total.endswith("."))
            )
        return self.shop.product_page(state.asin, state.page)

    def score(self) -> Score:
        """The score of a purchase now; all zero where no product is open."""
        state = self._state
        if not state.asin:
            return Score(0.0, 0, 0, 0, 0.0)
        product = self.shop.by_asin[state.asin]
        values = [value for _, value in state.options]
        return score(product, values, self.goal, self._wanted, original_colors=self.settings.original_colors)

    def task_score(self) -> float:
        """The score of the purchase; 0 without one. Papers report it times 100 as Score, beside the success rate."""
        return self.score().total if self._state.page == "done" else 0.0

    def progress(self) -> float:
        """The score of a purchase now, with the purchase itself as one more condition.

        With c conditions (attributes, options, price): score * c / (c + 1) before the purchase, the score after it. 1
        exactly if the purchase was perfect; 0 where no product is open.
        """
        conditions = self.goal.conditions
        return self.score().total * (conditions + (self._state.page == "done")) / (conditions + 1)

    def distance(self) -> int:
        """Actions of the shortest way to a perfect purchase; -1 after another purchase, or with too few turns left."""
        if self._state.page == "done":
            return 0 if self.score().total == 1.0 else -1
        plan = self._plan()
        left = self.settings.horizon - self._state.turns
        return len(plan) if plan is not None and len(plan) <= left else -1

    def oracle(self) -> list[str]:
        """The shortest way to a perfect purchase; empty once it is made, or out of reach."""
        plan = (self._plan() or []) if self.distance() > 0 else []
        return [written(action, self.settings.actions) for action in plan]

    def admissible(self) -> tuple[str, ...]:
        """What can be clicked; on the page with the search bar, the form of a search, as in verl-agent.

        A search is allowed on every page, with any words.
        """
        if self._ended:
            return ()
        actions = [SEARCH_FORM] if self._state.page == "search" else self.shop.clickable(self._state)
        return tuple(written(action, self.settings.actions) for action in actions)

    def snapshot(self) -> State:
        """The state, which is immutable."""
        return self._state

    def restore(self, state: State) -> None:
        """Continue from a snapshot of this task."""
        self._state = state

    def _plan(self) -> list[str] | None:
        colors = self.settings.original_colors
        return planner.plan(self.shop, self.goal, self._state, original_colors=colors)

    @property
    def _ended(self) -> bool:
        return self._state.page == "done" or self._state.turns >= self.settings.horizon

    def _after(self, action: str) -> State | None:
        """The state after an action, but for the count of turns; None where the action is refused."""
        verb, text = parse(plain(action, self.settings.actions))
        if verb == "search":
            return START._replace(page="results", query=text)
        return self._clicked(text) if verb == "click" else None

    def _clicked(self, text: str) -> State | None:
        state, shop = self._state, self.shop
        if state.page == "search":
            return None
        if text == "back to search":
            return START
        if state.page == "results":
            if text == "next >":
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
        value = squeezed(text)
        name = shop.values(state.asin).get(value)
        return None if name is None else state._replace(options=_with(state.options, name, value))


def _with(options: tuple[tuple[str, str], ...], name: str, value: str) -> tuple[tuple[str, str], ...]:
    """Selected options with another value of one, in the order of their names, so that equal states are equal."""
    return tuple(sorted({**dict(options), name: value}.items()))
