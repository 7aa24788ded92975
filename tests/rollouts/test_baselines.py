"""What policies without learning win, and the command that says it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from tests import tiny
from tests.envs.conftest import needs_virtualhome
from tests.helpers import nonempty
from turncredit import envs
from turncredit.cli.env import app
from turncredit.config import EnvSlice
from turncredit.envs.obvious_rule import Rule
from turncredit.errors import UserError
from turncredit.rollouts.baselines import Baseline, _Replay, baselines, table

#: small games, and what the rule wins of them at least and at most
WORLDS = {
    "household": ({"families": ["pick", "heat"]}, 0.3, 0.7),
    "webshop": ({"products": 120}, 0.5, 1.0),
    "searchqa": ({"hops": (1, 2)}, 0.4, 0.6),
    "virtualhome": ({}, 0.1, 0.6),
}
ANY = [pytest.param(name, marks=needs_virtualhome if name == "virtualhome" else ()) for name in WORLDS]


def measured(name: str, settings: dict, **changes) -> dict[str, Baseline]:
    given = {"split": "eval", "count": 24, "train_split": "train", "train": 60, "seed": 0, **changes}
    return {row.name: row for row in baselines(EnvSlice(name=name, settings=settings), **given)}


@pytest.mark.parametrize("name", ANY)
def test_in_every_world_chance_wins_nothing_the_expert_everything_and_the_rule_some(name):
    settings, least, most = WORLDS[name]
    found = measured(name, settings)
    assert found["random"].success < 0.1
    assert found["expert"].success == found["expert"].score == 1.0
    assert least <= found["rule"].success <= most
    assert found["replay"].success <= 0.3
    lists = "admissible" in envs.load(name).capabilities
    assert ("first admissible" in found) == lists
    assert measured(name, settings) == found


@pytest.mark.parametrize("name", ANY)
def test_replaying_the_tasks_that_were_demonstrated_wins_them_all(name):
    """So a replay that loses, loses because the task is another."""
    assert measured(name, WORLDS[name][0], split="train", train=24)["replay"].success == 1.0


def test_the_most_similar_sentence_is_the_one_that_shares_most_of_both_ones_words():
    goals = ["put a big red mug in the drawer of the desk", "Put A mug", "put a mug", "heat an egg"]
    replay = _Replay(SimpleNamespace(rows=[{"goal": goal} for goal in goals]))
    replay._plans = {number: [goal] for number, goal in enumerate(goals)}
    assert [replay.of(goal)("") for goal in ("put a cup", "put a mug", "heat an apple")] == [
        goals[1],
        goals[2],
        goals[3],
    ]


def test_an_environment_without_expert_rule_or_admissible_actions_has_only_what_it_can(tmp_path):
    file = tmp_path / "doors.py"
    file.write_text("from tests.envs.own import ENVIRONMENT\n")
    with pytest.raises(UserError, match=r"no baseline can play 'doors'"):
        measured(str(file), {})
    counting = measured(str(tiny.ROOT / "examples" / "counting_env.py"), {})
    assert counting.keys() == {"random", "first admissible", "replay", "expert"}


def test_scores_are_shares_of_a_success():
    settings, *_ = WORLDS["webshop"]
    found = [measured("webshop", {**settings, "success_reward": reward}) for reward in (1.0, 10.0)]
    for name in nonempty(found[0]):
        assert found[1][name].score == pytest.approx(found[0][name].score)


def test_a_rule_that_has_ended_acts_no_more():
    def script():
        yield ""
        yield "look"

    rule = Rule(script())
    actions = []
    for observation in ("a", "b", "c"):
        rule.observe(observation)
        actions.append(rule.act())
    assert actions == ["look", "", ""]


def test_the_command_prints_the_table_and_refuses_what_the_environment_does_not_take():
    run = CliRunner().invoke(
        app, ["baselines", "searchqa", "--settings", "{hops: [1, 2]}", "--count", "8", "--train", "20"]
    )
    assert run.output.splitlines()[0] == "| policy | success | score | turns |"
    assert [line.split(" | ")[0] for line in run.output.splitlines()[2:]] == [
        "| random",
        "| replay",
        "| rule",
        "| expert",
    ]
    for arguments in (["--settings", "[1]"], ["--split", "evil"]):
        with pytest.raises(UserError, match=r"mapping|unknown split"):
            CliRunner().invoke(app, ["baselines", "searchqa", *arguments], catch_exceptions=False)


def test_a_table_has_a_line_for_each_policy():
    assert table([Baseline("random", 0.125, 0.5, 3.25)]).splitlines()[2:] == ["| random | 12.5% | 50.0% | 3.2 |"]
