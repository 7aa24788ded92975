"""The planner's plans work and are as short as any."""

from __future__ import annotations

import json
import random

import pytest
from scenarios import NEW, SCENARIOS, drawn, shortest

from turncredit.envs.household.game import NOTHING, Game
from turncredit.envs.household.generate import draw, to_pddl
from turncredit.envs.household.goals import FAMILIES
from turncredit.envs.household.planner import distance, plan
from turncredit.envs.household.profile import PROFILES
from turncredit.envs.household.settings import Settings
from turncredit.envs.household.tasks import load_game


def wander(game: Game, rng: random.Random, states: int):
    """Worlds on a random walk that prefers handling things."""
    world = game.start
    for _ in range(states):
        yield world
        for _ in range(3):
            commands = [c for c in game.local(world).admissible if not c.startswith(("look", "inv", "help", "exam"))]
            handling = [c for c in commands if not c.startswith("go to")]
            world, _ = game.apply(world, rng.choice(handling if handling and rng.random() < 0.6 else commands))


def assert_optimal(game: Game, rng: random.Random) -> int:
    checked = 0
    for world in wander(game, rng, 4):
        best = shortest(game, world)
        if best is None:
            continue
        assert distance(game, world) == best
        commands = plan(game, world)
        if best == -1:
            assert commands is None
            continue
        after = world
        for command in commands:
            after, text = game.apply(after, command)
            assert text != NOTHING
        assert game.goal.won(after)
        assert len(commands) == best
        checked += 1
    return checked


@pytest.mark.parametrize("family", FAMILIES)
def test_plans_are_as_short_as_breadth_first_search_finds_in_generated_games(family):
    checked = 0
    for seed in range(25):
        rng = random.Random(f"{family}{seed}")
        settings = Settings(receptacles=(4, 4 + seed % 2), distractors=(0, 1 + seed % 2))
        game = Game(PROFILES[NEW], "", to_pddl(draw(rng, family, settings)))
        checked += assert_optimal(game, rng)
    assert checked > 90


@pytest.mark.parametrize("scenario", SCENARIOS[:8], ids=lambda s: s.name)
def test_plans_are_as_short_as_breadth_first_search_finds_with_shared_places_and_twice_listed_things(scenario):
    assert_optimal(scenario.game(), random.Random(scenario.name))


def test_the_distance_falls_by_one_along_a_plan_and_is_never_below_zero():
    game = Game(PROFILES[NEW], "", drawn("pick2", 3))
    world = game.start
    left = distance(game, world)
    for command in plan(game, world):
        world, _ = game.apply(world, command)
        assert distance(game, world) == (left := left - 1)
    assert left == 0
    assert plan(game, world) == []


def test_a_goal_without_its_target_is_out_of_reach():
    game = Game(PROFILES[NEW], "", drawn("pick", 3).replace("(canContain", "(cannotContain"))
    assert distance(game, game.start) == -1
    assert plan(game, game.start) is None


def test_plans_are_as_long_as_the_walkthroughs_of_released_games(released_games):
    paths = sorted(released_games.rglob("game.tw-pddl"))
    assert paths
    for path in paths:
        game = load_game(path)
        assert distance(game, game.start) == len(json.loads(path.read_text())["walkthrough"])
