"""The native engine prints what the unpatched reference engine printed (see record_transcripts.py)."""

from __future__ import annotations

import pytest
from scenarios import NEW, SCENARIOS

from turncredit.envs.household.game import Game
from turncredit.envs.household.profile import PROFILES, UnsupportedGame, identify


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_text_list_and_outcome_is_the_reference_s(scenario):
    game = scenario.game()
    world, text = game.start, game.intro
    for n, (command, expected, listed, won) in enumerate(scenario.steps):
        if n:
            world, text = game.apply(world, command)
        assert text == expected, (n, command)
        assert list(game.local(world).admissible) == scenario.admissible[listed], (n, command)
        assert game.goal.won(world) is won, (n, command)


def test_the_transcripts_show_every_kind_of_text():
    shown = "\n".join(step[1] for scenario in SCENARIOS for step in scenario.steps)
    for part in (
        "Available commands:\n  look:", ", and sinkbasin 1. Next to it, you see a ", "You put the ", "You sliced the ",
        "You arrive at loc ", "You move the ", "This is a hot and clean sliced ", "This is a cold ", " is on.",
        "This is a normal plate 1. In it, you see a apple 2, and a knife 1.", "You turn on the ", "Nothing happens.",
        "You are carrying: a ", "You open the cabinet 2. The cabinet 2 is open. In it, you see a mug 2.",
    ):  # fmt: skip
        assert part in shown


def test_an_unknown_edition_is_refused_by_hash_and_says_what_to_do():
    grammar = '"task": [{"rhs": "Your task is to: put a mug in shelf."}]'
    with pytest.raises(UnsupportedGame, match=r"unknown edition .*\([0-9a-f]{12}\).*alfworld-download"):
        identify("(define (domain other))", grammar)
    with pytest.raises(UnsupportedGame, match="no task sentence"):
        identify("(define (domain other))", "{}")


def test_an_unknown_goal_is_refused():
    scenario = SCENARIOS[0]
    other = scenario.problem.replace("ishot ?o", "issliced ?o")
    with pytest.raises(UnsupportedGame, match="goal is none of pick, look"):
        Game(PROFILES[NEW], scenario.task, other)


def test_two_pairs_of_types_in_a_pick2_goal_are_refused():
    scenario = next(s for s in SCENARIOS if s.name == "a small game, pick2")
    head, goal = scenario.problem.split("(:goal")
    kind = goal.split("(objecttype ?o2 ")[1].split(")")[0]
    other = f"{head}(:goal{goal.replace(f'?o2 {kind}', '?o2 KnifeType')}"
    with pytest.raises(UnsupportedGame, match="goal"):
        Game(PROFILES[NEW], scenario.task, other)


def test_a_receptacle_at_two_places_is_refused():
    scenario = SCENARIOS[0]
    other = scenario.problem.replace("(:init\n", "(:init\n(receptacleAtLocation Cabinet_bar_01 loc_bar_3)\n")
    with pytest.raises(UnsupportedGame, match="two locations"):
        Game(PROFILES[NEW], scenario.task, other)
