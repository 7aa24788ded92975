"""The native engine against the packages alfworld and textworld, where they are installed."""

from __future__ import annotations

import json
import random
from importlib.util import find_spec

import pytest
from scenarios import SCENARIOS

from turncredit.envs.household import Settings, conformance, domain, export_game, make_tasks, open_task, textworld
from turncredit.envs.household.goals import match_goal
from turncredit.envs.household.tasks import load_game
from turncredit.errors import UserError

MISSING = [name for name in ("alfworld", "textworld") if find_spec(name) is None]
pytestmark = [
    pytest.mark.reference,
    pytest.mark.skipif(bool(MISSING), reason="the reference engine (alfworld, textworld) is not installed"),
]

NATIVE = Settings(receptacles=(5, 8), distractors=(3, 8), horizon=40)
REFERENCE = NATIVE.model_copy(update={"engine": "textworld"})


def whole_report(games, steps):
    textworld.speed_up()
    report = conformance.compare(games, steps, seed=3)
    assert report.differences == 0, json.dumps(report.examples, indent=1)
    return report


def test_the_engines_agree_on_generated_games_of_all_sizes():
    report = whole_report(conformance.generated_games(12, seed=3), steps=60)
    assert report.games == report.walkthroughs_won == 12
    assert report.steps > 12 * 75


def test_the_engines_agree_on_released_games(released_games):
    paths = conformance.real_games(released_games, sample=3, seed=3)
    report = whole_report(conformance.load_games(paths), steps=60)
    assert report.games == report.walkthroughs_won == 3


def test_a_difference_is_found_and_shown(monkeypatch):
    textworld.speed_up()
    monkeypatch.setattr(conformance.Game, "_inventory", lambda _self, world, *_: (world, "You carry nothing."))
    report = conformance.compare(conformance.generated_games(1, seed=3), 60, seed=3)
    assert report.differences > 0
    assert report.examples[0]["native"] == {"text": "You carry nothing."}
    assert report.examples[0]["commands"][-1] == "inventory"


def test_the_speeded_up_reference_prints_what_the_unpatched_one_printed():
    scenario = SCENARIOS[0]
    textworld.speed_up()
    domain, grammar = textworld.package_texts()
    engine = textworld.Reference()
    grammar = grammar.replace("UNKNOWN GOAL.", scenario.task.removeprefix("Your task is to: "))
    engine.load({"pddl_domain": domain, "grammar": grammar, "pddl_problem": scenario.problem})
    for n, (command, text, listed, won) in enumerate(scenario.steps):
        shown = engine.step(command) if n else engine.reset()
        assert shown == (text, tuple(scenario.admissible[listed]), won), (n, command)


@pytest.mark.parametrize("row", make_tasks("train", 6, 2, NATIVE), ids=lambda row: row["family"])
def test_both_engines_behave_alike_behind_the_protocol(row):
    native, reference = open_task(row, NATIVE), open_task(row, REFERENCE)
    assert native.reset() == reference.reset()
    assert (native.intro, native.goal, native.family) == (reference.intro, reference.goal, reference.family)
    rng = random.Random(0)
    kept = None
    for turn in range(20):
        assert native.admissible() == reference.admissible()
        assert (native.progress(), native.distance()) == (reference.progress(), reference.distance())
        assert native.oracle() == reference.oracle()
        if turn == 8:
            kept = native.snapshot(), reference.snapshot()
        command = native.oracle()[0] if rng.random() < 0.3 else rng.choice([*native.admissible(), "xyzzy"])
        steps = native.step(command), reference.step(command)
        assert steps[0] == steps[1]
        if steps[0].done:
            break
    assert kept is not None, "the game was over before its state was kept"
    native.restore(kept[0])
    reference.restore(kept[1])
    for command in native.oracle():
        assert native.admissible() == reference.admissible()
        assert native.step(command) == reference.step(command)


@pytest.mark.parametrize(("game", "error"), [("{", "damaged"), ("{}", "unknown keys")])
def test_a_damaged_row_is_the_same_error_on_both_engines(game, error):
    for settings in (NATIVE, REFERENCE):
        with pytest.raises(UserError, match=f"a generated game in the tasks table .*{error}.*; delete the table"):
            open_task({"source": "generated", "game": game}, settings)


def test_an_exported_game_is_a_full_game_file(tmp_path):
    row = make_tasks("train", 1, 0, NATIVE)[0]
    path = export_game(row, tmp_path)
    assert path.name == "game.tw-pddl"
    data = json.loads(path.read_text())
    assert len(data["walkthrough"]) == row["optimal_length"]
    assert load_game(path).task == f"Your task is to: {row['goal']}"


def test_our_tables_are_those_of_the_package():
    from alfworld.gen import constants

    for receptacle, kinds in domain.CONTAINS.items():
        theirs = {kind for kind in constants.VAL_RECEPTACLE_OBJECTS[receptacle] if not kind.endswith("Sliced")}
        assert kinds == theirs, receptacle
    for ours, theirs in (("heatable", "Heatable"), ("coolable", "Coolable"), ("cleanable", "Cleanable")):
        whole = {kind for kind in constants.VAL_ACTION_OBJECTS[theirs] if not kind.endswith("Sliced")}
        assert domain.AFFORDANCES[ours] == whole
    assert domain.AFFORDANCES["sliceable"] == set(constants.VAL_ACTION_OBJECTS["Sliceable"])
    assert domain.AFFORDANCES["toggleable"] == set(domain.LAMPS) == set(constants.VAL_ACTION_OBJECTS["Toggleable"])
    assert domain.AFFORDANCES["isReceptacleObject"] == set(constants.MOVABLE_RECEPTACLES_SET)
    assert set(domain.CONTAINS) & set(constants.OPENABLE_CLASS_SET) == domain.OPENABLE


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("pick", "pick_and_place_simple"),
        ("look", "look_at_obj_in_light"),
        ("clean", "pick_clean_then_place_in_recep"),
        ("heat", "pick_heat_then_place_in_recep"),
        ("cool", "pick_cool_then_place_in_recep"),
        ("pick2", "pick_two_obj_and_place"),
    ],
)
def test_our_goals_and_sentences_are_those_of_the_package(family, name):
    from alfworld.gen.goal_library import gdict

    filled = gdict[name]["pddl"].format(obj="Mug", recep="Shelf", toggle="DeskLamp").replace("#", "-").lower()
    target = "desklamptype" if family == "look" else "shelftype"
    assert match_goal(" ".join(filled.split())) == (family, "mugtype", target)
    theirs = [t.format(obj="{o}", recep="{r}", toggle="{r}") + "." for t in gdict[name]["templates"]]
    assert list(domain.SENTENCES[family]) == theirs
