"""WebShop's pages, what can be clicked on them, and the promises of the protocol."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turncredit.envs.webshop.catalogue import Product
from turncredit.envs.webshop.expert import Expert, random_command
from turncredit.envs.webshop.reward import Goal
from turncredit.envs.webshop.settings import Settings
from turncredit.envs.webshop.shop import START_PAGE, Shop, parse
from turncredit.envs.webshop.tasks import make_tasks, open_task
from turncredit.envs.webshop.world import WebShop

SETTINGS = Settings(products=120, horizon=40)
ROWS = make_tasks("train", 6, 0, SETTINGS)


def product(number: int, title: str, **changes) -> Product:
    given = {
        "asin": f"B0000000{number:02d}", "title": title, "description": "", "bullets": (), "prices": (9.5,),
        "options": {}, "attributes": ("soft",), "query": "hats", "path": "Clothing › Hats", "contents": title.lower(),
    }  # fmt: skip
    return Product(**{**given, **changes})


HAT = product(
    1, "Wool Hat", description="Warm.", bullets=("Soft", "Hand made"), prices=(8.0, 12.0), rating="5.0",
    options={"color": ("red", "white"), "trim": ("white", "description")}, attributes=("soft", "hand made"),
    reviews=(("Nice", "5", "I like it."),),
)  # fmt: skip
VASE = product(60, "Glass Vase", contents="the glass vase")
PRODUCTS = [HAT, *(product(n, f"Hat number{n}") for n in range(2, 60)), VASE]
GOAL = Goal(HAT.asin, "find me a hat", ("soft",), (("color", "red"),), 20.0)


def opened(*actions: str, settings: Settings = SETTINGS) -> WebShop:
    env = WebShop(Shop(PRODUCTS, settings.page_size), GOAL, settings)
    env.reset()
    for action in actions:
        assert env.step(action).valid, action
    return env


def test_the_first_page_is_the_search_bar_without_the_instruction():
    env = opened()
    assert env.reset() == START_PAGE == "WebShop [SEP] Search"
    assert GOAL.instruction not in env.step("search[hat]").observation


def test_a_page_of_results_lists_name_title_and_price():
    page = opened().step("search[wool hat]").observation
    assert page.startswith("Back to Search [SEP] Page 1 (Total results: 50) [SEP] Next > [SEP] ")
    assert f"{HAT.asin} [SEP] Wool Hat [SEP] $8.0 to $12.0 [SEP] B000000002 [SEP] Hat number2 [SEP] $9.5" in page
    assert page.count(" [SEP] $") == 10


def test_fifty_products_are_found_at_most_and_as_in_the_original_an_empty_page_follows_the_last():
    env, seen = opened("search[hat]"), []
    for _ in range(5):
        seen += [action for action in env.admissible() if action.startswith("click[B0")]
        env.step("click[Next >]")
    assert len(seen) == len(set(seen)) == 50
    assert env.page() == "Back to Search [SEP] Page 6 (Total results: 50) [SEP] < Prev [SEP] Next >"
    assert env.step("click[< prev]").observation.startswith(
        "Back to Search [SEP] Page 5 (Total results: 50) [SEP] < Prev [SEP] Next > [SEP] B0"
    )


ONE_PAGE = "Back to Search [SEP] Page 1"
LISTED = ("click[Back to Search]", "click[Next >]")


def test_the_first_page_has_no_prev_and_a_page_may_be_shorter():
    env = opened("search[vase]")
    assert env.page() == f"{ONE_PAGE} (Total results: 1) [SEP] Next > [SEP] B000000060 [SEP] Glass Vase [SEP] $9.5"
    assert not env.step("click[< prev]").valid
    env = opened("search[hat]", "click[next >]", settings=Settings(page_size=49))
    assert env.page().count("$") == 1


def test_a_search_without_known_words_finds_nothing():
    for query in ("zzz", " ", "the", "!?"):
        assert opened().step(f"search[{query}]") == (
            f"{ONE_PAGE} (Total results: 0) [SEP] Next >", 0.0, False, False, True,
        )  # fmt: skip


def test_searches_begin_with_the_product_that_has_the_most_words():
    assert opened("search[wool]").admissible() == (*LISTED, f"click[{HAT.asin}]")
    assert opened("search[hats of WOOL]").admissible()[2] == f"click[{HAT.asin}]"


@pytest.mark.parametrize(
    ("query", "found"),
    [  # what the original would give: ten random products, all, all, none, none
        ("<r>", ()),
        ("<a> soft", ()),
        ("<c> clothing", ()),
        ("<q> glass", ("click[B000000060]",)),
        ("<q> wool", (f"click[{HAT.asin}]",)),
    ],
)
def test_the_original_s_commands_in_searches_are_plain_words(query, found):
    assert opened(f"search[{query}]").admissible() == (*LISTED, *found)


ITEM = (
    "Back to Search [SEP] < Prev [SEP] color [SEP] red [SEP] white [SEP] trim [SEP] white [SEP] description [SEP] "
    "Wool Hat [SEP] Price: $8.0 to $12.0 [SEP] Rating: 5.0 [SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
)


def test_a_product_s_page_shows_options_price_and_rating_and_never_what_is_selected():
    env = opened("search[wool hat]")
    assert env.step(f"click[{HAT.asin.lower()}]").observation == ITEM
    assert env.step("click[RED]").observation == ITEM
    assert env.snapshot().options == (("color", "red"),)
    assert env.step("click[white]").observation == ITEM


def test_a_value_that_two_options_share_selects_the_last_and_buttons_win_over_values():
    env = opened("search[wool hat]", f"click[{HAT.asin}]", "click[white]")
    assert env.snapshot().options == (("trim", "white"),)
    assert env.step("click[description]").observation == "Back to Search [SEP] < Prev [SEP] Warm."


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("Description", "Warm."),
        ("Features", "Soft [SEP] Hand made"),
        ("Reviews", '"Nice" [SEP] 5 [SEP] I like it.'),
    ],
)
def test_pages_about_a_product_have_its_texts_or_as_in_the_original_buttons_alone(name, texts):
    env = opened("search[wool hat]", f"click[{HAT.asin}]", "click[red]", f"click[{name}]")
    assert env.page() == f"Back to Search [SEP] < Prev [SEP] {texts}"
    assert env.step("click[< Prev]").observation == ITEM
    assert env.snapshot().options == (("color", "red"),)
    env = opened("search[hat]", "click[B000000002]", f"click[{name}]")
    assert env.page() == "Back to Search [SEP] < Prev"


def test_results_and_the_search_page_forget_the_product_and_its_options():
    for back in ("click[< Prev]", "click[Back to Search]", "search[hat]"):
        there = (
            "search[hat]",
            "click[next >]",
            "click[< prev]",
            "search[wool hat]",
            f"click[{HAT.asin}]",
            "click[red]",
        )
        env = opened(*there, back)
        assert (env.snapshot().asin, env.snapshot().options) == ("", ())
        assert env.progress() == 0.0
    env = opened("search[hat]", "click[next >]")
    listed = env.page()
    env.step(env.admissible()[-1])
    assert env.step("click[< Prev]").observation == listed


def test_a_purchase_pays_the_score_and_ends_the_rollout():
    env = opened("search[wool hat]", f"click[{HAT.asin}]", "click[red]")
    assert env.step("click[Buy Now]") == (
        "Thank you for shopping with us! [SEP] Your score (min 0.0, max 1.0) [SEP] 1.0", 1.0, True, True, True,
    )  # fmt: skip
    assert env.progress() == 1.0
    assert env.admissible() == ()
    with pytest.raises(RuntimeError, match="ended"):
        env.step("search[hat]")
    env = opened("search[wool hat]", f"click[{HAT.asin}]")
    step = env.step("click[Buy Now]")
    assert (step.reward, step.done, step.success) == (pytest.approx(2 / 3), True, False)
    assert step.observation.endswith(" [SEP] 0.6667")


def test_progress_is_the_score_with_the_purchase_as_one_more_condition():
    env, found = opened("search[wool hat]"), []
    for action in (f"click[{HAT.asin}]", "click[red]", "click[buy now]"):
        found.append(env.progress())
        env.step(action)
    assert [*found, env.progress()] == pytest.approx([0, 2 / 4, 3 / 4, 1])


@pytest.mark.parametrize(
    ("actions", "left"),
    [
        ((), 4),  # search, open, red, buy
        (("search[wool]",), 3),
        (("search[glass]",), 4),
        (("search[glass]", "click[B000000060]"), 4),
        (("search[wool]", "click[B000000001]"), 2),
        (("search[wool]", "click[B000000001]", "click[white]"), 2),
        (("search[wool]", "click[B000000001]", "click[red]"), 1),
        (("search[wool]", "click[B000000001]", "click[red]", "click[reviews]"), 2),
        (("search[wool]", "click[B000000001]", "click[red]", "click[back to search]"), 4),
        (("search[wool]", "click[B000000001]", "click[red]", "click[buy now]"), 0),
        (("search[wool]", "click[B000000001]", "click[buy now]"), -1),
    ],
)
def test_the_distance_counts_the_actions_to_a_perfect_purchase(actions, left):
    assert opened(*actions).distance() == left


def test_a_perfect_purchase_is_out_of_reach_with_too_few_turns_left():
    settings = Settings(products=120, horizon=4)
    assert opened("search[wool]", settings=settings).distance() == 3
    late = opened("search[wool]", "search[wool]", settings=settings)
    assert (late.distance(), late.oracle()) == (-1, [])


@pytest.mark.parametrize(("value", "left"), [("small", 4), ("small]", 4), ("small [s]", -1), ("features", -1)])
def test_a_value_that_no_click_selects_is_out_of_reach_for_the_distance_and_given_up_by_the_expert(value, left):
    cap = product(61, "Felt Cap", options={"size": (value, "large")})
    goal = Goal(cap.asin, "find me a cap", ("soft",), (("size", value),), 20.0)
    env = WebShop(Shop([*PRODUCTS, cap], 10), goal, SETTINGS)
    env.reset()
    assert env.distance() == left
    assert [env.step(action).valid for action in env.oracle()] == [True] * max(left, 0)
    real = WebShop(Shop([*PRODUCTS, cap], 10), goal, Settings(source="real", horizon=40))
    expert = Expert(real, random.Random(0))
    expert.observe(real.reset())
    while not (step := real.step(expert.act())).done:  # without the value it buys the product in the end
        expert.observe(step.observation)
    assert (step.success, real.task_score() > 0) == (left > 0, True)


@given(row=st.sampled_from(ROWS), seed=st.integers(0, 10_000), length=st.integers(0, 12))
def test_no_action_comes_closer_by_more_than_one_and_the_plan_by_exactly_one_each(row, seed, length):
    rng, env = random.Random(seed), open_task(row, SETTINGS)
    env.reset()
    for _ in range(length):
        # half of the actions are the plan's, but for the purchase, so that all pages on the way are reached
        plan = env.oracle()
        noise = random_command(env, rng)
        env.step(rng.choice((plan[0], noise)) if len(plan) > 1 else noise)
        assert env.distance() >= len(plan) - 1
    plan = env.oracle()
    for left in range(len(plan), 0, -1):
        assert env.distance() == left
        last = env.step(plan[len(plan) - left])
        assert last.valid
    assert (last.success, env.distance(), env.oracle()) == (True, 0, [])


def test_rewards_can_be_verl_agent_s():
    settings = SETTINGS.model_copy(update={"reward": "success", "success_reward": 10.0})
    start = ("search[wool hat]", f"click[{HAT.asin}]")
    assert opened(*start, "click[red]", settings=settings).step("click[buy now]").reward == 10.0
    assert opened(*start, settings=settings).step("click[buy now]").reward == 0.0


@pytest.mark.parametrize(
    "action",
    [
        "", " ", "buy", "click", "click[", "click[]", "search[]", "]search[", "Seek[hat]", "search hat", "Press[red]",
        "click[ red ]", "click[blue]", "click[next >]", "click[search]", "buy[red]", "click[B000000002]",
        "please click[red]", "search[\nhat]", "\x00\x07\x1b[2J", "click[" + "a" * 10_000 + "]", "ä" * 10_000,
        "[" * 5_000 + "]" * 5_000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("page", [(), ("search[wool hat]", f"click[{HAT.asin}]")])
def test_whatever_is_refused_shows_the_page_again_and_costs_a_turn(action, page):
    env = opened(*page)
    before, turns = env.page(), env.snapshot().turns
    assert env.step(action) == (before, 0.0, False, False, False)
    assert env.snapshot().turns == turns + 1


def test_commands_are_read_as_the_original_reads_them():
    env = opened()
    assert env.step(" Search[wool hat]").valid
    assert env.step("search[wool hat] and more").valid  # what follows the last bracket is ignored
    assert not env.step("search[hat [wool]]").valid  # the verb is what stands before the last opening bracket
    assert env.step("search[" + "wool " * 2_000 + "]").observation.startswith(
        "Back to Search [SEP] Page 1 (Total results: 1)"
    )
    assert env.step("search[wool\x00hat\x1b]").valid


@given(st.text(alphabet="ab[] \n", max_size=12))
def test_commands_are_parsed_like_the_original_s_expression(text):
    found = re.match(r"(.+)\[(.+)\]", text)
    assert parse(text) == ((found[1].strip(), found[2]) if found else ("", ""))
