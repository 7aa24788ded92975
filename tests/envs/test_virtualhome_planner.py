"""VirtualHome's planner: plans are carried out, and no action that the package allows leads closer than they say."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests import tiny
from tests.envs.conftest import needs_virtualhome
from turncredit.envs import load
from turncredit.envs.virtualhome import engine
from turncredit.envs.virtualhome.actions import TEXTS, write
from turncredit.envs.virtualhome.expert import random_command, slip_command
from turncredit.envs.virtualhome.generate import graph_of
from turncredit.envs.virtualhome.goals import Condition, Goal
from turncredit.envs.virtualhome.home import VirtualHome
from turncredit.envs.virtualhome.scene import Household, Moment
from turncredit.envs.virtualhome.settings import Settings
from turncredit.envs.virtualhome.tasks import make_tasks, open_task
from turncredit.errors import UserError
from turncredit.pipeline.checks import check
from turncredit.rollouts.tasks import Games

pytestmark = needs_virtualhome
SMALL = Settings(rooms=("kitchen", "living_room"), things=(3, 5), horizon=1000)
WHOLE = Settings(horizon=1000)

NODES = [
    ("kitchen", []), ("bedroom", []), ("character", []), ("fridge", ["CLOSED"]), ("kitchen_counter", []),
    ("milk", ["CLEAN"]), ("shirt", ["DIRTY"]), ("bed", []), ("tv", ["OFF", "PLUGGED_OUT"]),
]  # fmt: skip
EDGES = [
    (2, "INSIDE", 1), (3, "INSIDE", 0), (4, "INSIDE", 0), (5, "INSIDE", 3), (5, "INSIDE", 0), (6, "ON", 4),
    (6, "INSIDE", 0), (7, "INSIDE", 1), (8, "INSIDE", 1),
]  # fmt: skip
MILK_OUT = Goal("put milk on bed", ((5,), (7,)), (Condition("ON", 0, 1),))
SHIRT = Goal("wash shirt and put it in fridge", ((6,), (3,)), (Condition("CLEAN", 0), Condition("INSIDE", 0, 1)))
WATCH = Goal(
    "switch on tv and sit on bed",
    ((8,), (2,), (7,)),
    (Condition("ON", 0), Condition("SITTING", 1), Condition("ON", 1, 2)),
)


def opened(goal: Goal, *actions: str) -> VirtualHome:
    env = VirtualHome(Household(graph_of(NODES, EDGES), 0, hides=True), goal, WHOLE)
    env.reset()
    assert [action for action in actions if not env.step(action).valid] == []
    return env


def every_action(env: VirtualHome) -> Iterator[str]:
    """Every verb of the package with all that can be named and, of two objects, a held one first."""
    moment, names = env.snapshot(), env.household.names
    seen = [names[number] for number in sorted(moment.seen)]
    held = [names[number] for number in engine.held(moment.graph)]
    for verb, text in TEXTS.items():
        pairs = {0: [()], 1: [(name,) for name in seen], 2: [(one, other) for one in held for other in seen]}
        yield from (write(verb, *objects) for objects in pairs[text.count("{}")])


def wander(env: VirtualHome, rng: random.Random) -> None:
    """Up to 13 actions: of the plan, at random, or any verb with what is at hand; the goal is not reached."""
    env.reset()
    for _ in range(rng.randrange(14)):
        at_hand = [env.household.names[number] for number in env._near(env.snapshot().graph)] or ["kitchen"]
        verb = rng.choice(sorted(TEXTS))
        any_verb = write(verb, *(rng.choice(at_hand) for _ in range(TEXTS[verb].count("{}"))))
        options = (env.oracle()[0], slip_command(env, rng), random_command(env, rng), any_verb)
        before = env.snapshot()
        if env.step(rng.choice(options)).success or env.distance() == -1:
            env.restore(before)


@pytest.mark.parametrize(("settings", "seed"), [(SMALL, 1), (SMALL, 2), (WHOLE, 3)])
def test_no_action_of_the_package_leads_closer_than_the_plan_says(settings, seed):
    rng = random.Random(seed)
    shortcuts, plans = [], []
    for row in make_tasks("train", 18, seed, settings):
        env = open_task(row, settings)
        wander(env, rng)
        moment, distance, plan = env.snapshot(), env.distance(), env.oracle()
        plans.append(plan)
        assert len(plan) == distance > 0
        ends = [env.step(action) for action in plan]
        assert [(step.valid, step.success) for step in ends] == [(True, False)] * (distance - 1) + [(True, True)]
        env.restore(moment)
        for action in every_action(env):
            if env.step(action).valid:
                shortcuts += [(row["goal"], plan, action)] if 0 <= env.distance() < distance - 1 else []
            env.restore(moment)
    assert shortcuts == []
    assert len({len(plan) for plan in plans}) > 3


def breadth_first(env: VirtualHome) -> int:
    """The distance by trying all actions of all states, nearest first."""
    start = env.snapshot()
    states, seen = [start], {_key(start)}
    for distance in range(1, 9):
        after: list[Moment] = []
        for state in states:
            env.restore(state)
            for action in env.admissible():
                env.restore(state)
                if env.step(action).success:
                    return distance
                if _key(env.snapshot()) not in seen:
                    seen.add(_key(env.snapshot()))
                    after.append(env.snapshot())
        states = after
    raise AssertionError("no way in eight actions")


def _key(moment: Moment) -> tuple[object, ...]:
    found = moment.graph.to_dict()
    edges = frozenset((edge["from_id"], edge["relation_type"], edge["to_id"]) for edge in found["edges"])
    states = frozenset((node["id"], state) for node in found["nodes"] for state in node["states"])
    return edges, states, moment.seen


@pytest.mark.parametrize(
    ("goal", "actions", "distance"),
    [
        (MILK_OUT, ("walk to kitchen",), 5),
        (MILK_OUT, ("walk to kitchen", "walk to fridge", "open fridge"), 3),
        (SHIRT, ("walk to kitchen", "walk to kitchen_counter", "grab shirt"), 4),
        (WATCH, (), 5),
        (WATCH, ("walk to bed", "sit on bed"), 3),
    ],
)
def test_distances_are_those_of_a_breadth_first_search(goal, actions, distance):
    env = opened(goal, *actions)
    assert (env.distance(), breadth_first(opened(goal, *actions))) == (distance, distance)


def test_what_has_not_been_seen_takes_a_walk_into_its_room():
    assert opened(MILK_OUT).oracle()[0] == "walk to kitchen"
    assert opened(MILK_OUT).distance() == opened(MILK_OUT, "walk to kitchen").distance() + 1


def test_the_distance_is_0_where_the_goal_is_reached_and_does_not_count_the_turns_that_are_left():
    env = VirtualHome(Household(graph_of(NODES, EDGES), 0, hides=True), WATCH, Settings(horizon=1))
    env.reset()
    env.step("walk to kitchen")
    assert env.distance() == 5
    env = opened(WATCH, "walk to tv", "plug in tv", "switch on tv", "walk to bed", "sit on bed")
    assert (env.distance(), env.oracle()) == (0, [])


def test_clothes_that_were_put_on_put_the_goal_out_of_reach():
    env = opened(SHIRT, "walk to kitchen", "walk to kitchen_counter", "grab shirt", "put on shirt")
    assert (env.distance(), env.oracle()) == (-1, [])


def test_recorded_programs_have_no_distance_and_the_upper_bound_is_refused_there():
    environment = load("virtualhome")
    assert "distance" in environment.capabilities
    assert environment.with_settings({"source": "generated"}) is environment
    assert environment.capabilities - environment.with_settings({"source": "real"}).capabilities == {"distance"}
    made = {"rounds": 1, "methods": ["flat_grpo", "oracle_progress"], "audit": {"rounds": []}}
    check(tiny.experiment(env={"name": "virtualhome"}, **made))
    with pytest.raises(UserError, match="'oracle_progress' needs the environment's distance, which 'virtualhome' does"):
        check(tiny.experiment(env={"name": "virtualhome", "virtualhome": {"source": "real"}}, **made), installed=False)


@pytest.mark.parametrize(("source", "has"), [("generated", True), ("real", False)])
def test_distances_are_measured_in_generated_households_only(source, has):
    chosen = tiny.experiment(env={"name": "virtualhome", "virtualhome": {"source": source}}).env.chosen()
    assert Games(chosen, pa.table({"task_id": ["one"]})).can("distance") == has
