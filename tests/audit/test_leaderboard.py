"""docs/leaderboard.md is what the command gives, has every method, and its gains are those of the result pages."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import nonempty
from turncredit.audit.score.card import Card, Summary, score, summarise
from turncredit.audit.score.leaderboard import Scored, leaderboard
from turncredit.audit.score.rollout_set import built_in
from turncredit.audit.score.running import can_score
from turncredit.audit.score.worth import PARTS, Gain, Worth, gains, verdict, worth
from turncredit.credit import METHODS
from turncredit.credit.parts.baselines import BASELINE
from turncredit.views.score import words
from turncredit.views.score.leaderboard import markdown

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "leaderboard.md"
#: Methods that are scored again by the fast tests: each takes a few seconds.
FAST = ("flat_grpo", "has_progressive", "gigpo")
NUMBER = r"\**([+-][\d.]+) \(([+-][\d.]+) to ([+-][\d.]+)\)\**"


def rows(text: str) -> dict[str, list[str]]:
    """The cells of each method's row."""
    return {name: rest.split(" | ") for name, rest in re.findall(r"^\| \*?`(\w+)`\*? \| (.*?) \|$", text, re.MULTILINE)}


def test_every_method_is_on_the_page_with_the_numbers_that_it_can_have():
    text = PAGE.read_text()
    nowhere = re.findall(r"`(\w+)`", text.partition("Scored on neither:")[2].partition("\n")[0])
    assert sorted([*rows(text), *nowhere]) == sorted(METHODS)
    exact = {name for name, cells in rows(text).items() if cells[0]}
    assert exact == {name for name, method in METHODS.items() if can_score(method) is None}
    assert all(cells[0] or cells[2] for cells in rows(text).values())


@pytest.mark.slow
def test_the_page_is_what_the_command_gives_for_a_few_methods():
    _agree(
        rows(markdown(leaderboard([METHODS[name] for name in FAST], rollout_set=built_in()))), rows(PAGE.read_text())
    )


@pytest.mark.long
def test_the_page_is_what_the_command_gives():
    text = markdown(leaderboard(rollout_set=built_in()))
    _agree(rows(text), rows(PAGE.read_text()))
    assert list(rows(text)) == list(rows(PAGE.read_text()))
    assert text.partition("- *rank*")[2] == PAGE.read_text().partition("- *rank*")[2]


def _agree(again: dict[str, list[str]], page: dict[str, list[str]]) -> None:
    """Each cell is the same, or a number that differs by rounding: other processors sum in another order."""
    for name, cells in nonempty(again.items()):
        for cell, committed in zip(cells, page[name], strict=True):
            if cell != committed:
                number = r"[-+]?\d+\.?\d*"
                assert re.sub(number, "", cell) == re.sub(number, "", committed), name
                numbers = [list(map(float, re.findall(number, text))) for text in (cell, committed)]
                assert numbers[0] == pytest.approx(numbers[1], abs=1.01 if "%" in cell else 0.0101), name


def published() -> dict[str, dict[str, tuple[float, ...]]]:
    """Gains over flat GRPO with their intervals, by setting and built-in method, as the result pages have them."""
    methods = (ROOT / "benchmarks" / "methods" / "RESULTS.md").read_text()
    first, second = (
        methods.partition(f"## From {which} SFT policy\n")[2].partition("\n## ")[0].partition("\n### ")[0]
        for which in ("the first", "a second")
    )
    worlds = (ROOT / "benchmarks" / "worlds" / "RESULTS.md").read_text()
    found = {}
    for setting, text in (
        ("household 1", first),
        ("household 2", second),
        *(
            (world, worlds.partition(f"## {world}\n")[2].partition("\n## ")[0])
            for world in ("WebShop", "Search-QA", "Sokoban", "Desk", "VirtualHome")
        ),
    ):
        rows = re.findall(rf"^\| `(\w+)` \| [^|]* \| {NUMBER} \|", text, re.MULTILINE)
        found[setting] = {name: tuple(map(float, numbers)) for name, *numbers in rows if name in METHODS}
    return {setting: gains for setting, gains in found.items() if gains}


def test_gains_are_those_of_the_result_pages():
    """After these pages change, `python -m tests.audit.test_leaderboard` writes the gains again."""
    pages = published()
    assert set(pages) == set(gains())
    for setting, listed in pages.items():
        assert len(listed) >= 6
        assert {name: gain for name, gain in gains()[setting].items() if name != BASELINE} == listed


#: A card without anything that was measured.
BARE = Card("none", "", (), (), None, None, rollouts=0, seed=0, density=0.5)


def summary(**numbers: float) -> Summary:
    return Summary(**{**dict.fromkeys(Summary._fields, 0.0), "where": "early", **numbers})


def scored(part: str, order: int) -> list[Scored]:
    """The families of household 1 with a part that follows their gain (order 1) or runs against it (-1)."""
    gain = gains()["household 1"]
    return [
        Scored(METHODS[name], BARE, summary(**{part: order * gain[name].value}))
        for name in ("flat_grpo", "rloo", "gigpo_similar", "gigpo", "hgpo", "scpo", "step_grpo", "oracle_progress")
    ]


def test_a_part_that_follows_the_gains_is_found_over_families_and_without_references():
    found = {(one.part, one.setting): one for one in worth(scored("rank", 1))}
    one = found["rank", "household 1"]
    assert one.rho == pytest.approx(1)
    assert one.families == 6  # gigpo_similar is of gigpo's family, the oracle a reference
    assert "rank in household 1 (+1.00" in verdict(list(found.values()))


def test_a_family_is_known_by_the_method_that_it_is_named_after():
    board = scored("rank", 1)
    assert board[2].method.name == "gigpo_similar"
    board[2] = board[2]._replace(summary=summary(rank=-99.0))
    assert next(one for one in worth(board) if one.part == "rank").rho == pytest.approx(1)


def test_what_is_paid_for_going_on_counts_by_its_size():
    board = scored("rank", 1)
    sizes = [10 - one.summary.rank for one in board]  # the more a method gained, the less it pays or charges
    paid = [
        one._replace(summary=summary(going_on=size * (-1) ** number))
        for number, (one, size) in enumerate(zip(board, sizes, strict=True))
    ]
    assert min(sizes) > 0
    assert next(one for one in worth(paid) if one.part == "going_on").rho == pytest.approx(1)


@pytest.mark.parametrize(
    ("rho", "low", "p", "says"),
    [
        (0.9, 0.5, 0.001, "Shown to predict gains, with p corrected for 2 correlations (Holm): rank in desk (+0.90)."),
        (0.9, 0.5, 0.04, "With an interval above zero: rank in desk (+0.90, p 0.08);"),
        (0.3, -0.2, 0.04, "None of the 2 numbers is shown to predict gains in training."),
    ],
)
def test_a_number_is_shown_to_predict_gains_where_its_p_is_small_among_all(rho, low, p, says):
    others = {"families": 6, "right": 3, "elsewhere": None, "most": 3}
    one = Worth("rank", "desk", rho=rho, low=low, high=0.95, p=p, **others)
    two = Worth("top", "desk", rho=0.0, low=-0.5, high=0.5, p=0.9, **others)
    said = verdict([one, two])
    assert says in said
    assert said.count("rank") == (low > 0)


def test_a_number_of_recorded_rollouts_is_named_in_words():
    assert "top on recorded rollouts in household 1 (+1.00" in verdict(worth(scored("real_top", 1)))


def test_a_card_tells_the_gains_that_were_measured():
    card = score(METHODS["gigpo"], worlds=("stop",), rollouts=64)
    paid = summarise(card, card)
    assert paid.going_on == card.worlds[0].going_on[8].value
    assert np.isnan(paid.going_on_paid)  # there is no world in which turns are paid before the end
    value, low, high = gains()["household 1"]["gigpo"]
    said = " ".join(words.verdict(card, summarise(card, card)))
    assert f"{value:+.1f} ({low:+.1f} to {high:+.1f}) in household 1" in said


def test_less_noise_counts_as_better_and_never_as_the_worst():
    one = next(one for one in worth(scored("noise", -1)) if one.part == "noise")
    assert one.rho == pytest.approx(1)
    board = scored("noise", -1)
    again = worth(
        [
            each._replace(summary=each.summary._replace(noise=np.inf)) if each.method.name == "scpo" else each
            for each in board
        ]
    )
    assert next(one for one in again if one.part == "noise").rho < 0.5


def test_parts_that_are_the_same_for_all_predict_nothing():
    found = worth(scored("rank", 0))
    assert {one.part for one in found} == set(PARTS)
    assert f"None of the {len(PARTS)} numbers" in verdict(found)
    assert verdict([]).startswith("Too few")


if __name__ == "__main__":
    lines = [",".join(("setting", "method", *Gain._fields))]
    for setting, listed in published().items():
        lines += [",".join((setting, name, *(f"{number:g}" for number in gain))) for name, gain in listed.items()]
    (ROOT / "turncredit" / "audit" / "score" / "gains.csv").write_text("\n".join(lines) + "\n")
