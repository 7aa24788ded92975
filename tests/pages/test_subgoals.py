"""Subgoals, folds, reflections, faults and penalties in the terminal and on credit pages, from SYNTHETIC turns."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests import planning
from tests.helpers import nonempty
from tests.pages.browser import Browser, find
from tests.rows import MADE_BY
from turncredit.credit import METHODS, compute
from turncredit.data import tables
from turncredit.data.turns import Turns
from turncredit.views.pages.build import page
from turncredit.views.pages.data import read_book
from turncredit.views.pages.subgoals import charged, subgoals_of
from turncredit.views.show import command
from turncredit.views.terminal import visible

PLAN = [("find a mug", 2), ("look for the unicorn", 6), ("wash the mug", 3)]
ESCAPES = "\x1b[31mred\x1b[0m \x07 \x9b31m \u202egnorw \x1b]0;title\x07"
MARKUP = "<img src=x onerror=\"document.title='caught'\"> & 'q'"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A rollout that repeats itself in its second subgoal, and one whose texts try to be markup or escapes."""
    folder = tmp_path_factory.mktemp("subgoals")
    rows = []
    for copy, plan in enumerate([PLAN, [(f"find {MARKUP}", 2), (f"take {ESCAPES}", 2)]]):
        for row in planning.rollout("game", f"game#{copy}", plan, success=copy == 1):
            row |= {"failed": False, "error_reply": False}
            if copy == 0 and 3 <= row["turn"] <= 6:
                row |= {"action": "go to shelf 9", "next_observation": "Nothing happens."}
            if copy == 0 and row["turn"] == 2:
                row |= {"fault": "two actions", "well_formed": False}
            if copy == 0 and row["turn"] == 5:
                row |= {"truncated_tokens": 1040}
            if copy == 1:
                row |= {"reflection": f"{MARKUP} {ESCAPES}", "fault": ESCAPES, "action": ESCAPES, "goal": ESCAPES}
                row |= {"next_observation": ESCAPES, "observation": ESCAPES}
            rows.append(row)
    table = planning.table(rows)
    tables.write(table, folder / "turns.parquet", "turns", MADE_BY)
    for method in ("hipif", "hipif_gigpo"):
        credit = compute(Turns(table), METHODS[method], seed=0)
        tables.write(credit, folder / f"{method}.parquet", "credits", MADE_BY)
    return folder


def shown(world: Path, capsys, rollout: str | None, turn: int | None = None) -> str:
    files = [] if rollout is None else [world / "hipif.parquet", world / "hipif_gigpo.parquet"]
    where = Path("nowhere")
    command.run(str(world / "turns.parquet"), rollout, turn, results=where, credit_files=files, components=False)
    return capsys.readouterr().out


def made(world: Path, out: Path, rollout: int, against: int | None = None) -> str:
    credits = {name: world / f"{name}.parquet" for name in ("hipif", "hipif_gigpo")}
    page(read_book(turns=world / "turns.parquet", credits=credits), rollout, against=against, out=out)
    return out.read_text(encoding="utf-8")


# From columns to subgoals --------------------------------------------------------------------------------------------


def test_a_subgoal_ends_where_the_next_one_starts_and_is_folded_if_that_turn_declared_it_complete():
    found = subgoals_of(planning.rollout("g", "g#0", PLAN, success=False))
    assert [(goal.number, goal.text, goal.span) for goal in found] == [
        (1, "find a mug", "turns 0 to 1"),
        (2, "look for the unicorn", "turns 2 to 7"),
        (3, "wash the mug", "turns 8 to 10"),
    ]
    task, step, folded = planning.TASK + planning.OBSERVATION, planning.OBSERVATION + planning.RESPONSE, planning.FOLDED
    assert [(goal.completed_at, goal.tokens, goal.at_end) for goal in found] == [
        (2, (task + 2 * step, task + folded), False),
        (8, (task + folded + 5 * step, task + 2 * folded), False),
        (None, None, True),
    ]
    assert found[2].end == "still open when the rollout ended"


def test_a_subgoal_can_be_left_without_being_declared_complete():
    rows = planning.rollout("g", "g#0", PLAN, success=False)
    rows[2]["completed"] = False
    first = subgoals_of(rows)[0]
    assert (first.completed_at, first.tokens, first.end) == (None, None, "left without being declared complete")


def test_turns_without_a_subgoal_are_in_none():
    rows = planning.rollout("g", "g#0", [("", 2), ("find a mug", 1), ("", 1)], success=False)
    assert [(goal.number, goal.first, goal.last) for goal in subgoals_of(rows)] == [(1, 2, 2)]
    assert subgoals_of([{"turn": 0, "action": "look"}]) == []
    assert subgoals_of([]) == []


def test_equal_penalties_of_several_methods_are_one():
    parts = {"a": {"r_format": -0.1, "r_execution": 0.0}, "b": {"r_format": -0.1}, "c": {"r_format": -0.2}, "d": {}}
    assert charged(parts) == [("malformed response", -0.1, ["a", "b"]), ("malformed response", -0.2, ["c"])]


# In the terminal -----------------------------------------------------------------------------------------------------


def test_the_terminal_shows_brackets_folds_reflections_faults_and_penalties(world, capsys):
    out = shown(world, capsys, "game#0")
    lines = out.splitlines()
    assert [line for line in lines if line.startswith("┌")] == [
        "┌ subgoal 1, turns 0 to 1: find a mug",
        "┌ subgoal 2, turns 2 to 7: look for the unicorn",
        "┌ subgoal 3, turns 8 to 10: wash the mug",
    ]
    ends = [line for line in lines if line.startswith(("└", "╎"))]
    assert ends[0].startswith("└ declared complete at turn 2, its history folded")
    assert ends[0].endswith("(context: 120, then 94 tokens)")
    assert ends[2] == "╎ still open when the rollout ended"
    assert len([line for line in lines if line.startswith("│") and "  > " in line]) == 11
    assert out.count("reflection: The subgoal is done") == 2
    assert out.count("malformed: two actions") == 1
    assert "context 140 tokens, 20 of them folded   1,040 tokens did not fit" in out
    penalties = [line.split("penalty ")[1] for line in lines if "penalty " in line]
    assert penalties == [
        "-0.1: ungrounded subgoal (hipif, hipif_gigpo)",
        "-0.1: malformed response (hipif, hipif_gigpo)",
        *["-0.1: repeated within the subgoal (hipif, hipif_gigpo)"] * 2,
    ]


def test_one_turn_in_full_has_the_agents_columns(world, capsys):
    out = shown(world, capsys, "game#0", 2)
    assert "subgoal: look for the unicorn" in out
    assert "prompt_tokens: 120" in out


@pytest.mark.parametrize(("rollout", "turn"), [(None, None), ("game#1", None), ("game#1", 1)])
def test_control_characters_of_texts_are_shown_in_the_terminal_and_not_obeyed(world, capsys, rollout, turn):
    out = shown(world, capsys, rollout, turn)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out)
    assert "␛[31mred␛[0m ␇ \\u009b31m \\u202egnorw ␛]0;title␇" in out


def test_ordinary_text_is_not_changed():
    text = "Öl, 油, 👩‍🚀, 'quoted' <b>\n\tnext line"
    assert visible(text) == text


def test_turns_without_the_columns_have_nothing_of_subgoals(world, tmp_path, capsys):
    plain = pq.read_table(world / "turns.parquet").drop_columns(list(planning.COLUMNS))
    pq.write_table(plain, tmp_path / "turns.parquet")
    command.run(str(tmp_path / "turns.parquet"), "game#0", None, results=tmp_path, credit_files=[], components=False)
    out = capsys.readouterr().out
    assert out.splitlines()[4] == "  0  > go to shelf 1"
    assert not re.search("subgoal|reflection|malformed|context|[┌└╎]", out)
    page(read_book(turns=tmp_path / "turns.parquet", credits={}), 0, against=None, out=tmp_path / "p.html")
    html = re.sub(r"<style>.*?</style>", "", (tmp_path / "p.html").read_text(), flags=re.DOTALL)
    assert not re.search(r'(?i)subgoal|reflection|class="(goal|brackets|fold|thought|starts)|malformed', html)


# On credit pages -----------------------------------------------------------------------------------------------------


class Sections(HTMLParser):
    """The turns' ids by the label of the section around them, and the texts of some elements."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.turns: dict[str, list[str]] = {}

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "section":
            self.open.append(given.get("aria-label") or "")
        if tag == "article":
            self.turns.setdefault(self.open[-1], []).append(given["id"])

    def handle_endtag(self, tag):
        if tag == "section":
            self.open.pop()


def test_a_page_brackets_the_turns_of_each_subgoal(world, tmp_path):
    html = made(world, tmp_path / "p.html", 0)
    found = Sections()
    found.feed(html)
    assert not found.open
    assert found.turns == {
        "Subgoal 1": ["t0", "t1"],
        "Subgoal 2": [f"t{turn}" for turn in range(2, 8)],
        "Subgoal 3": ["t8", "t9", "t10"],
    }
    # Over the columns of turns: as wide as their turns, the last one open.
    widths = re.findall(r'<a href="#t(\d+)" style="flex-grow:(\d+)"( class="open")?', html)
    assert widths == [("0", "2", ""), ("2", "6", ""), ("8", "3", ' class="open"')]


def test_a_page_says_in_words_what_it_draws(world, tmp_path):
    html = made(world, tmp_path / "p.html", 0)
    assert html.count('<p class="fold">') == 3
    assert html.count("declared complete at turn 2, its history folded to the subgoal and its last observation (c") == 2
    assert "Subgoal 3: still open when the rollout ended." in html
    assert html.count('<p class="thought"><b>Reflection</b>') == 11
    assert html.count(">malformed: two actions</span>") == 1
    assert html.count(">penalty −0.10: ungrounded subgoal</span>") == 1
    assert html.count('title="hipif, hipif_gigpo">penalty −0.10: repeated within the subgoal</span>') == 2
    assert "<span>1,040 tokens did not fit</span>" in html
    pair = made(world, tmp_path / "pair.html", 0, against=1)
    assert pair.count('<p class="starts">') == 5


def test_texts_of_agents_are_text_on_every_page(world, tmp_path):
    for name, against in (("p.html", None), ("pair.html", 0)):
        html = made(world, tmp_path / name, 1, against)
        assert "<img" not in html
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", html)
        assert "&lt;img src=x onerror=" in html


@pytest.mark.slow
@pytest.mark.skipif(find() is None, reason="no Chromium here (apt install chromium, or set CHROMIUM)")
def test_brackets_fit_a_phone_and_stand_over_their_turns(world, tmp_path):
    made(world, tmp_path / "p.html", 0)
    with Browser(find()) as browser:
        for width in (390, 1280):
            browser.look(width=width)
            browser.open(tmp_path / "p.html")
            assert browser.js("document.documentElement.scrollWidth <= innerWidth")
            ends = """(at, to) => [...document.querySelectorAll(at)].map(it => it.getBoundingClientRect()[to])"""
            spans = browser.js(f"({ends})('.brackets a', 'left')")
            turns = browser.js(f"({ends})('.lanes .numbers > a', 'left')")
            for span, first in nonempty(zip(spans, (0, 2, 8), strict=True)):
                assert span == pytest.approx(turns[first], abs=2.5)
        assert not browser.errors
