"""VirtualHome's actions, what is seen, and the promises of the protocol."""

from __future__ import annotations

import pytest

from tests.envs.conftest import needs_virtualhome
from turncredit.envs.virtualhome import engine
from turncredit.envs.virtualhome.actions import TEXTS, Mention, parse, write
from turncredit.envs.virtualhome.generate import graph_of
from turncredit.envs.virtualhome.goals import Condition, Goal
from turncredit.envs.virtualhome.home import REFUSED, VirtualHome
from turncredit.envs.virtualhome.scene import Household
from turncredit.envs.virtualhome.settings import Settings
from turncredit.errors import UserError

NODES = [
    ("bedroom", []), ("kitchen", []), ("character", []), ("bed", []), ("fridge", ["CLOSED"]), ("kitchen_counter", []),
    ("milk", ["CLEAN"]), ("cup", ["DIRTY"]), ("cup", ["CLEAN"]), ("toaster", ["OFF", "PLUGGED_OUT"]),
    ("shirt", ["CLEAN"]),
]  # fmt: skip
EDGES = [
    (2, "INSIDE", 0), (3, "INSIDE", 0), (4, "INSIDE", 1), (5, "INSIDE", 1), (6, "INSIDE", 4), (6, "INSIDE", 1),
    (7, "ON", 5), (7, "INSIDE", 1), (8, "ON", 5), (8, "INSIDE", 1), (9, "INSIDE", 1), (10, "ON", 3), (10, "INSIDE", 0),
]  # fmt: skip
MILK_OUT = Goal("put milk on kitchen_counter", ((6,), (5,)), (Condition("ON", 0, 1),))
CUP = Goal("wash cup and put it in fridge", ((7, 8), (4,)), (Condition("CLEAN", 0), Condition("INSIDE", 0, 1)))
pytestmark = needs_virtualhome


def opened(*actions: str, goal: Goal = CUP, hides: bool = True, horizon: int = 40) -> VirtualHome:
    env = VirtualHome(Household(graph_of(NODES, EDGES), 0, hides=hides), goal, Settings(horizon=horizon))
    env.reset()
    for action in actions:
        step = env.step(action)
        assert step.valid, (action, step.observation)
    return env


def test_the_first_observation_shows_the_room_and_names_the_others():
    env = opened()
    assert env.reset() == "You are in bedroom. You see bed, shirt. Rooms: bedroom, kitchen."


def test_a_room_shows_what_is_neither_held_nor_in_something_closed():
    env = opened("walk to bed", "grab shirt")
    assert env.step("walk to kitchen").observation == (
        "You walk to kitchen. You see cup 1, cup 2, fridge, kitchen_counter, toaster. You hold shirt."
    )
    assert env.step("Walk to the fridge").observation == "You walk to fridge. It is closed. You hold shirt."
    assert env.step("open fridge").observation == "You open fridge. In it: milk. You hold shirt."
    assert env.step("walk to kitchen_counter").observation == (
        "You walk to kitchen_counter. On it: cup 1, cup 2. You hold shirt."
    )
    assert env.step("walk to toaster").observation == "You walk to toaster. It is off and unplugged. You hold shirt."


def test_only_what_has_been_seen_can_be_named_unless_all_is_known():
    assert opened().step("walk to milk").observation == f"{REFUSED}you have seen no milk."
    assert opened(hides=False).step("walk to milk").valid
    env = opened("walk to kitchen", "walk to fridge")
    assert not env.step("grab milk").valid
    assert env.step("open fridge").valid
    assert env.step("grab milk").observation == "You grab milk. You hold milk."


def test_what_the_package_refuses_is_refused_with_its_reason_and_changes_nothing():
    env = opened("walk to kitchen")
    before = env.snapshot()
    step = env.step("open fridge")
    assert step == (f"{REFUSED}you are not close to fridge.", 0.0, False, False, False)
    assert env.snapshot() == before._replace(turns=before.turns + 1)
    assert opened("walk to kitchen", "walk to toaster").step("switch on toaster").observation == (
        f"{REFUSED}toaster is unplugged."
    )


def test_a_goal_is_reached_by_one_object_that_meets_all_conditions():
    env = opened()
    assert env.progress() == 0.5  # the clean cup
    for action in ("walk to kitchen", "walk to fridge", "open fridge", "walk to kitchen_counter"):
        env.step(action)
    dirty = next(name for name in ("cup 1", "cup 2") if "dirty" in env.step(f"walk to {name}").observation)
    for action in (f"grab {dirty}", "walk to fridge", f"put {dirty} in fridge"):
        assert not env.step(action).done
    assert env.progress() == 0.5  # one cup is clean, another one in the fridge
    env.step(f"grab {dirty}")
    env.step(f"wash {dirty}")
    step = env.step(f"put {dirty} in fridge")
    assert step == (f"You put {dirty} in fridge.", 1.0, True, True, True)
    assert env.progress() == 1.0
    assert env.admissible() == ()
    with pytest.raises(RuntimeError, match="ended"):
        env.step("stand up")


def test_what_is_carried_comes_along():
    env = opened("walk to kitchen", "walk to fridge", "open fridge", "grab milk", "walk to bed", goal=CUP)
    env.step("put milk on bed")
    assert "milk" in env.step("walk to bedroom").observation
    assert "milk" not in env.step("walk to kitchen").observation


def test_virtualhome_s_own_form_names_numbers_or_nodes():
    env = opened(goal=MILK_OUT)
    actions = ("[Walk] <kitchen> (1)", "[WALK] <fridge> (1.4)", "[OPEN] <fridge> (1)", "[GRAB] <milk> (1.6)")
    for action in (*actions, "[walk] <kitchen_counter> (1)"):
        assert env.step(action).valid, action
    assert env.step("[PUTBACK] <milk> (1) <kitchen_counter> (1)").success


def test_names_are_numbered_by_the_seed_and_a_name_without_number_is_number_1():
    orders = {Household(graph_of(NODES, EDGES), seed, hides=True).names[7] for seed in range(20)}
    assert orders == {"cup 1", "cup 2"}
    household = Household(graph_of(NODES, EDGES), 0, numbered=[8], hides=True)
    assert (household.names[8], household.names[7], household.names[4]) == ("cup 1", "cup 2", "fridge")
    assert household.node(Mention("cup", 1)) == 8
    assert [household.node(Mention("cup", number)) for number in (0, 3)] == [None, None]


def test_find_from_afar_walks_there():
    env = opened("walk to kitchen", "find fridge", "open fridge")
    assert not env.step("find bed 2").valid


def test_clothes_can_be_put_on_and_taken_off():
    env = opened("walk to bed", "grab shirt", "put on shirt", "take off shirt")
    assert env.step("take off shirt").observation == f"{REFUSED}shirt is not worn."


def test_putting_back_what_is_not_held_is_refused():
    assert not opened("walk to bed").step("put back shirt").valid
    env = opened("walk to bed", "grab shirt", "put back shirt")
    assert "shirt" in env.step("walk to bed").observation


@pytest.mark.parametrize(
    "action",
    [
        "", " ", "walk", "walk to", "walk to  ", "grab", "put cup in", "put in", "fly to bed", "[FLY] <bed> (1)",
        "[WALK] <bed>",
        "[WALK]", "[WALK] <bed> (9)", "[WALK] <bed> (1.99)", "[WALK] <bed> (1) <bed> (1)", "[PUTIN] <cup> (1)",
        "[LOOKAT_SHORT] <bed> (1)", "walk to bed 0", "walk to bed 99999999999999999999", "walk to ²",
        "[WALK] <bed> (..)",
        "\x00\x07\x1b[2J", "walk to bed\x00", "walk to " + "a" * 10_000, "put " + "a in " * 2_000, "[" * 5_000,
        "stand up", "sleep",
        "[WALK] <bed> (" + "1" * 150 + ")",
    ],
)  # fmt: skip
def test_whatever_is_refused_says_so_in_a_line_and_costs_a_turn(action):
    env = opened()
    step = env.step(action)
    assert (step.valid, step.done, step.reward) == (False, False, 0.0)
    assert step.observation.startswith(REFUSED)
    assert len(step.observation) < 300
    assert "\n" not in step.observation
    assert env.snapshot().turns == 1


@pytest.mark.parametrize("verb", sorted(TEXTS))
def test_every_action_is_read_as_it_is_written(verb):
    names = ("milk", "kitchen_counter 2")[: TEXTS[verb].count("{}")]
    own = f"[{verb}] " + " ".join(f"<{name.split()[0]}> ({name[-1] if ' ' in name else 1})" for name in names)
    expected = (verb, tuple(Mention(name.split()[0], 2 if " " in name else 1) for name in names))
    assert parse(write(verb, *names).upper().replace(" ", "  ")) == expected
    assert parse(own) == expected


def test_actions_required_by_a_goal_count_as_conditions():
    goal = CUP._replace(actions=("LOOKAT|TOUCH",))
    env = opened(goal=goal)
    assert env.progress() == pytest.approx(1 / 3)
    env.step("walk to bed")
    env.step("touch bed")
    assert env.progress() == pytest.approx(2 / 3)


def test_without_the_package_or_with_another_version_one_line_says_what_to_install(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(engine, "find_spec", lambda _: None)
        with pytest.raises(UserError, match=r"needs the package virtualhome 2\.3\.0: pip install"):
            engine.package.__wrapped__()
    monkeypatch.setattr(engine, "version", lambda _: "2.2.0")
    with pytest.raises(UserError, match=r"needs virtualhome 2\.3\.0, not 2\.2\.0: pip install --no-deps"):
        engine.package.__wrapped__()
