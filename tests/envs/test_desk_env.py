"""The desk's rollouts: replies, what is final, the exact distance, and both spellings of a call."""

from __future__ import annotations

import json
import random
from collections import deque
from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from turncredit import envs
from turncredit.data.tools import Call
from turncredit.envs.desk import Settings, make_tasks, open_task, random_command, slip_command
from turncredit.envs.desk import customer as customers
from turncredit.envs.desk import world as desk
from turncredit.envs.desk.commands import app
from turncredit.envs.desk.generate import METHODS
from turncredit.envs.desk.shop import Case, Customer, Item, Order, Request, Rules, Stock, from_text
from turncredit.envs.desk.tools import FINAL, SETTLES, TOOLS, TOPICS
from turncredit.envs.desk.world import Desk

ANA = Customer("Ana Kolb", False, ("bank", "card"), "Oak 10")
ORDERS = (
    Order("O10", 0, "pending", 0, (Item("lamp", "red", False), Item("rug", "grey", False)), "card", "Oak 10"),
    Order("O20", 0, "delivered", 20, (Item("lamp", "red", False), Item("rug", "blue", True)), "card", "Oak 10"),
    Order("O30", 1, "delivered", 5, (Item("lamp", "red", False),), "bank", "Elm 11"),
)
CASE = Case(
    rules=Rules(days=30, sale_returns=False, credit=False, transfer_business=True),
    customers=(ANA, Customer("Hugo Holm", True, ("bank",), "Elm 11")),
    stock={"lamp": Stock(("blue", "red"), ("green",)), "rug": Stock(("grey",), ("blue",))},
    orders=ORDERS,
    requests=(Request("refund", "O20", "lamp", "card"),),
    opening=(),
)
FOUND = ("ask name", "find customer Ana Kolb")
HEARD = (*FOUND, "ask order", "open order O20", "ask method")
SETTINGS = Settings(told=0.5)


def case(kind: str = "refund", order: str = "O20", product: str = "lamp", detail: str = "card", **changes) -> Case:
    fields = {name: getattr(CASE, name) for name in CASE.__dataclass_fields__}
    return Case(**{**fields, "requests": (Request(kind, order, product, detail),), **changes})


def opened(*actions: str, of: Case = CASE, **changes) -> Desk:
    env = Desk(of, Settings(**changes))
    assert env.reset() == desk.START
    for action in actions:
        assert env.step(action).valid, action
    return env


def replies(env: Desk, *actions: str) -> list[str]:
    return [env.step(action).observation for action in actions]


# ---------------------------------------------------------------- a conversation


def test_a_conversation_reads_as_the_page_shows_it():
    env = opened(of=case("exchange", detail="blue"))
    assert env.goal.startswith('help the customer, who says: "I want to exchange a lamp of an order." Return, refund')
    assert replies(
        env, "ask name", "find customer ana kolb", "ask order", "open order o20", "ask variant", "check stock of lamp"
    ) == [
        "Customer: I am Ana Kolb.",
        "Ana Kolb, private customer, lives at Oak 10, pays by bank, card. Orders: O10, O20.",
        "Customer: It is order O20.",
        "Order O20: delivered 20 days ago, paid by card, to Oak 10. Items: red lamp, blue rug on sale.",
        "Customer: The blue one, please.",
        "Stock of lamp: blue, red. Sold out: green.",
    ]
    change = "exchange lamp of order O20 for blue"
    assert replies(env, f"confirm {change}", change) == [customers.YES, desk.RECORDED]
    assert env.step("close") == (desk.OVER, 1.0, True, True, True)


@pytest.mark.parametrize(
    ("actions", "refused", "why"),
    [
        ((), "find customer Ana Kolb", desk.NO_NAME),  # a guess: nobody has told a name
        (FOUND[:1], "find customer Hugo Holm", desk.NO_NAME),
        ((), "open order O20", desk.NO_CUSTOMER),
        (FOUND, "open order O30", desk.NO_ORDER),  # another customer's, of which nobody has told
        (FOUND, "open order O99", desk.NO_ORDER),
        (FOUND, "refund lamp of order O20 to card", desk.NOT_OPENED),
        (HEARD, "refund chair of order O20 to card", desk.NO_ITEM),
        (HEARD, "refund lamp of order O20 to gold", desk.NO_METHOD),
        (HEARD, "exchange lamp of order O20 for blue", desk.NOT_CHECKED),
        ((*HEARD, "check stock of lamp"), "exchange lamp of order O20 for green", desk.NO_VARIANT),
        ((*HEARD, "check stock of lamp"), "exchange lamp of order O20 for pink", desk.NO_VARIANT),
        (HEARD, "change address of order O20 to nowhere", desk.NO_ADDRESS),
        (HEARD, "change address of order O20 to Elm 1000", desk.NO_ADDRESS),
        ((), "check stock of ship", desk.NO_PRODUCT),
        (HEARD[:-1], "refuse order O20", desk.NOT_HEARD),
        ((*HEARD, "open order O10"), "refuse order O10", desk.NO_REQUEST),
        ((*HEARD, "refuse order O20"), "transfer order O20", desk.SETTLED),
        ((), "confirm close", desk.NO_CHANGE),
        ((), "confirm anything", desk.NO_CHANGE),
    ],
)
def test_what_the_desk_cannot_do_is_refused_with_the_reason_and_changes_nothing(actions, refused, why):
    env = opened(*actions)
    before = env.snapshot()
    assert env.step(refused) == (why, 0.0, False, False, False)
    assert env.snapshot() == before._replace(turns=before.turns + 1)


def test_another_customer_s_order_can_be_opened_once_it_was_named_and_only_be_refused():
    env = opened(*FOUND, "ask order", of=case("cancel", "O30", "", ""))
    assert replies(env, "open order O30", "cancel order O30") == ["Order O30: of another customer.", desk.NOT_HERS]
    assert env.oracle() == ["refuse order O30", "close"]


@pytest.mark.parametrize(
    ("told", "proposed", "said"),
    [
        ((), "refund lamp of order O20 to card", customers.NOT_TOLD),
        (("order",), "refund lamp of order O20 to card", customers.NOT_TOLD),
        (("order",), "refund lamp of order O20 to bank", customers.NOT_TOLD),  # so a guess learns nothing
        (("order", "method"), "refund lamp of order O20 to card", customers.YES),
        (("order", "method"), "Refund LAMP of order o20 to CARD", customers.YES),
        (("order", "method"), "refund lamp of order O20 to bank", customers.NO),
        (("order", "method"), "refund lamp of order O10 to card", customers.NO),
        (("order", "method"), "return lamp of order O20", customers.NO),
    ],
)
def test_the_customer_agrees_only_to_what_she_wants_and_has_told(told, proposed, said):
    assert opened(*(f"ask {topic}" for topic in told)).step(f"confirm {proposed}").observation == said


def test_what_she_is_not_asked_about_does_not_matter_to_her():
    assert replies(opened(), "ask address", "ask variant") == [customers.NO_MATTER] * 2
    both = opened(of=case(requests=(*CASE.requests, Request("cancel", "O10", "", ""))))
    assert replies(both, "ask order") == ["Customer: The refund is order O20, the cancellation is order O10."]
    assert "get a refund for a lamp of an order and to cancel an order." in both.goal


# ---------------------------------------------------------------- rules and rewards


@pytest.mark.parametrize(
    ("wanted", "rules", "tool"),
    [
        (("cancel", "O10", "", ""), {}, "cancel_order"),
        (("cancel", "O20", "", ""), {}, "refuse_order"),
        (("address", "O10", "", "Elm 5"), {}, "change_address"),
        (("address", "O20", "", "Elm 5"), {}, "refuse_order"),
        (("return", "O20", "lamp", ""), {}, "return_item"),
        (("return", "O20", "lamp", ""), {"days": 14}, "refuse_order"),
        (("return", "O10", "lamp", ""), {}, "refuse_order"),
        (("return", "O20", "rug", ""), {}, "refuse_order"),
        (("return", "O20", "rug", ""), {"sale_returns": True}, "return_item"),
        (("refund", "O20", "rug", "card"), {}, "refund_item"),
        (("refund", "O20", "rug", "bank"), {}, "refuse_order"),
        (("refund", "O20", "rug", "credit"), {}, "refuse_order"),
        (("refund", "O20", "rug", "credit"), {"credit": True}, "refund_item"),
        (("exchange", "O20", "rug", "grey"), {}, "exchange_item"),
        (("exchange", "O20", "lamp", "green"), {}, "refuse_order"),
        (("return", "O30", "lamp", ""), {}, "refuse_order"),
    ],
)
def test_the_goal_is_what_the_written_rules_ask_for(wanted, rules, tool):
    asked = case(*wanted, rules=CASE.rules._replace(**rules))
    assert [entry.call.tool for entry in asked.entries] == [tool]
    business = case(*wanted, customers=(ANA._replace(business=True), CASE.customers[1]), rules=asked.rules)
    assert [entry.call.tool for entry in business.entries] == ["transfer_order"]
    served = case(*wanted, customers=business.customers, rules=asked.rules._replace(transfer_business=False))
    assert served.goal == asked.goal


WRONG = [
    ("refund lamp of order O20 to card", "not confirmed"),
    ("refund lamp of order O20 to bank", "to the wrong method"),
    ("refund rug of order O20 to card", "of the wrong item"),
    ("refund lamp of order O10 to card", "of the wrong order"),
    ("return lamp of order O20", "not asked for"),
    ("refuse order O20", "allowed, and refused"),
    ("transfer order O20", "allowed, and transferred"),
]


@pytest.mark.parametrize("change", [change for change, _ in WRONG], ids=[why for _, why in WRONG])
def test_a_wrong_change_is_final_and_the_conversation_goes_on(change):
    env = opened(*HEARD, "open order O10")
    assert env.distance() == 3
    assert env.step(change) == (desk.RECORDED, 0.0, False, False, True)
    assert (env.distance(), env.oracle()) == (-1, [])
    right = "refund lamp of order O20 to card"
    for action in (f"confirm {right}", right):
        env.step(action)
        assert env.distance() == -1
    assert env.step("close") == (desk.OVER, 0.0, True, False, True)
    assert env.progress() < 1


def test_the_score_counts_right_changes_less_wrong_ones_and_can_be_the_reward():
    both = case(requests=(*CASE.requests, Request("cancel", "O10", "", "")))
    env = opened(*HEARD, of=both, reward="score", success_reward=10)
    change = "refund lamp of order O20 to card"
    assert replies(env, f"confirm {change}", change) == [customers.YES, desk.RECORDED]
    assert env.score() == 0.5
    kept = env.snapshot()
    assert env.step("close") == (desk.OVER, 5.0, True, False, True)
    env.restore(kept)
    env.step("open order O10")
    env.step("return lamp of order O10")
    assert env.score() == 0.0


def test_a_rollout_without_turns_to_spare_is_lost():
    env = opened(*HEARD, families=("refund",), horizon=8)
    assert env.distance() == 3
    env.step("nonsense")
    assert (env.distance(), env.oracle()) == (-1, [])


# ---------------------------------------------------------------- the distance


@cache
def rows(count: int = 24) -> list[dict]:
    return make_tasks("train", count, 3, SETTINGS)


def every_action(env: Desk) -> list[str]:
    """Anything that could be done in a case, whatever was told: all names, orders, products, methods and variants."""
    one = env.case
    numbers = [order.number for order in one.orders]
    products = sorted({item.product for order in one.orders for item in order.items})
    addresses = sorted({request.detail for request in one.requests if request.kind == "address"} | {"Oak 99"})
    changes = [f"cancel order {number}" for number in numbers]
    changes += [f"change address of order {number} to {address}" for number, address in product(numbers, addresses)]
    for number, thing in product(numbers, products):
        changes.append(f"return {thing} of order {number}")
        changes += [f"refund {thing} of order {number} to {method}" for method in METHODS]
        changes += [f"exchange {thing} of order {number} for {v}" for vs in one.stock[thing] for v in vs]
    return [
        *(f"ask {topic}" for topic in TOPICS),
        *(f"find customer {who.name}" for who in one.customers),
        *(f"open order {number}" for number in numbers),
        *(f"check stock of {thing}" for thing in products),
        *(f"confirm {change}" for change in changes),
        *changes,
        *(f"{verb} order {number}" for verb in ("refuse", "transfer") for number in numbers),
        "close",
    ]


@settings(deadline=None, max_examples=30)
@given(row=st.integers(0, 23), seed=st.integers(0, 2**20), length=st.integers(0, 9), harm=st.booleans())
def test_the_distance_is_exact_no_action_leads_closer_than_one_and_what_is_lost_stays_lost(row, seed, length, harm):
    env, rng = open_task(rows()[row], SETTINGS), random.Random(seed)
    env.reset()
    for _ in range(length):
        plan = env.oracle()
        if plan and rng.random() < 0.7:
            if len(plan) > 1:
                env.step(plan[0])
        elif not env.step(rng.choice(env.admissible()[:-1]) if harm else slip_command(env, rng)).valid:
            raise AssertionError
    here, plan, kept = env.distance(), env.oracle(), env.snapshot()
    assert len(plan) == max(here, 0)
    for action in every_action(env):
        env.restore(kept)
        step = env.step(action)
        there = env.distance()
        assert (there == 0) == step.success
        assert there == -1 if here == -1 else there in (-1, here - 1, here), action
    env.restore(kept)
    for left, action in enumerate(plan, start=1):
        step = env.step(action)
        assert step.valid
        assert env.distance() == here - left
    assert step.success if plan else True


@pytest.mark.parametrize("family", ["cancel", "refund", "exchange"])
def test_the_distance_agrees_with_a_search_that_knows_nothing_of_it(family):
    made = Settings(families=(family,), told=0.8, orders=(2, 2))
    for row in make_tasks("train", 4, 1, made):
        env = open_task(row, made)
        env.reset()
        assert env.distance() == row["optimal_length"] == searched(env), row["goal"]


def searched(env: Desk) -> int:
    """The fewest actions to success, by breadth first."""
    actions = [action for action in every_action(env) if any(request.order in action for request in env.case.requests)]
    actions += [
        "ask name",
        "ask order",
        "ask method",
        "ask variant",
        f"find customer {env.case.customer.name}",
        "close",
    ]
    actions += [f"check stock of {request.product}" for request in env.case.requests if request.product]
    start = env.snapshot()
    queue, seen = deque([(start, 0)]), {start}
    while queue:
        state, steps = queue.popleft()
        for action in actions:
            env.restore(state)
            step = env.step(action)
            if step.success:
                env.restore(start)
                return steps + 1
            after = env.snapshot()._replace(turns=0)
            if step.valid and not step.done and after not in seen:
                seen.add(after)
                queue.append((after, steps + 1))
    return -1


def test_progress_only_grows_along_the_plan():
    for row in rows():
        env = open_task(row, SETTINGS)
        env.reset()
        seen = [env.progress()]
        for action in env.oracle():
            env.step(action)
            seen.append(env.progress())
        assert seen == sorted(seen)
        assert (seen[0], seen[-1]) == (0.0, 1.0)
        assert seen[-2] < 1.0


# ---------------------------------------------------------------- tools


def test_a_call_in_json_is_the_same_action_as_in_words():
    for row in rows(12):
        words, calls = open_task(row, SETTINGS), open_task(row, SETTINGS)
        words.reset(), calls.reset()
        for action in words.oracle():
            call = TOOLS.read(action)
            assert isinstance(call, Call)
            assert calls.step(TOOLS.json(call)) == words.step(action)
            assert calls.snapshot() == words.snapshot()


def test_the_environment_declares_its_tools_and_prompts_show_their_forms():
    environment = envs.load("desk")
    assert environment.words.tools is TOOLS
    assert environment.words.templates == tuple(tool.text for tool in TOOLS)
    assert environment.capabilities == {
        "progress", "distance", "snapshot", "admissible", "replay", "expert", "tasks_by_seed",
    }  # fmt: skip
    assert {tool.name for tool in TOOLS} >= {*FINAL, *SETTLES}


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ('{"name": "open_order", "arguments": {"order": 1042}}', "open_order: the argument 'order' must be text."),
        ('{"name": "open_order", "arguments": {}}', "open_order: the argument 'order' is missing."),
        ('{"name": "ask", "arguments": {"about": "weather"}}', "must be one of name, order"),
        ('{"name": "pay", "arguments": {}}', "Unknown tool."),
        ('{"name": "close", "arguments": {"why": ""}}', "It has none."),
        ('{"name": "close"}', "needs the keys"),
        ('{"name": "close", "arguments": []}', "must be an object"),
        ('{"name": ["close"], "arguments": {}}', "Unknown tool."),
        ("{" * 900, "it is not JSON"),
        ('{"name": "close", "arguments": {}} and then', "it is not JSON"),
        ("open order " + "O" * 2000, "Not understood."),
        ("open order \ud800", "open_order: the argument 'order' is no valid Unicode."),
        ("go to shelf 1", "Not understood."),
        ("", "Not understood."),
    ],
)
def test_a_malformed_call_has_a_defined_answer_that_repeats_nothing(action, why):
    step = opened(*FOUND).step(action)
    assert why in step.observation
    assert (step.valid, step.done, step.reward) == (False, False, 0.0)
    assert step.observation.isascii()
    json.dumps(step.observation).encode()


def test_the_tools_can_be_printed_as_chat_templates_take_them():
    shown = CliRunner().invoke(app, ["tools"])
    assert json.loads(shown.stdout) == TOOLS.declarations()


def test_noise_and_slips_are_never_final():
    rng = random.Random(0)
    for row in rows(8):
        env = open_task(row, Settings(horizon=200))
        env.reset()
        for number in range(60):
            if number % 4 == 0 and len(env.oracle()) > 3:
                env.step(env.oracle()[0])
            log = env.snapshot().log
            step = env.step((slip_command if number % 2 else random_command)(env, rng))
            assert not step.done
            assert env.snapshot().log == log


def test_a_case_is_the_same_after_it_was_written_and_read():
    for row in rows():
        assert from_text(row["game"]).text == row["goal"]
