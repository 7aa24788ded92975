"""The native engine prints what the unpatched reference engine printed (see record_transcripts.py)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from scenarios import NEW, scenarios

from turncredit.envs.household.game import Game
from turncredit.envs.household.profile import PROFILES, UnsupportedGame, identify

TRANSCRIPTS: list[dict[str, Any]] = json.loads(
    gzip.decompress(Path(__file__).with_name("transcripts.json.gz").read_bytes())
)
SCENARIOS = scenarios()


def test_there_is_a_transcript_of_each_of_the_twenty_scenarios():
    assert [t["name"] for t in TRANSCRIPTS] == [s.name for s in SCENARIOS]
    assert len(TRANSCRIPTS) == 20


@pytest.mark.parametrize(("transcript", "scenario"), list(zip(TRANSCRIPTS, SCENARIOS, strict=True)))
def test_every_text_list_and_outcome_is_the_reference_s(transcript, scenario):
    game = scenario.game()
    world, text = game.start, game.intro
    for n, (command, expected, listed, won) in enumerate(transcript["steps"]):
        if n:
            world, text = game.apply(world, command)
        assert text == expected, (n, command)
        assert list(game.local(world).admissible) == transcript["admissible"][listed], (n, command)
        assert game.goal.won(world) is won, (n, command)


@pytest.mark.parametrize(
    "part",
    [
        "Available commands:\n  look:",
        ", and sinkbasin 1. Next to it, you see a ",
        "You put the ",
        "You arrive at loc ",
        "You move the ",
        "This is a hot and clean sliced ",
        "This is a cold ",
        "This is a normal plate 1. In it, you see a apple 2, and a knife 1.",
        " is on.",
        "You turn on the ",
        "You sliced the ",
        "You are carrying: a ",
        "Nothing happens.",
    ],
)
def test_the_transcripts_show(part):
    assert any(part in step[1] for t in TRANSCRIPTS for step in t["steps"])


def test_the_transcripts_take_an_object_that_stays_listed_elsewhere_while_it_is_held():
    twice = next(t for t in TRANSCRIPTS if t["name"] == "an object listed twice at one place")
    texts = [step[1] for step in twice["steps"]]
    taken = texts.index("You pick up the mug 2 from the countertop 1.")
    back = texts.index("You move the mug 2 to the countertop 1.")
    assert "You open the cabinet 2. The cabinet 2 is open. In it, you see a mug 2." in texts[taken:back]


def test_numbers_are_handed_out_from_the_highest_in_the_order_of_ids():
    game = SCENARIOS[0].game()
    assert game.receptacle_names == ["cabinet 2", "cabinet 1", "countertop 1", "fridge 1", "microwave 1", "sinkbasin 1"]


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
