"""Tables in a terminal of any width: no number and no name is broken, and what has no room is named."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from turncredit.views.terminal import plain_table, print_table

NAMES = ["sft", "oracle_progress", "random_credit"]
NUMBERS = ["53.5% [48.2, 58.8]", "+16.9 [+11.6, +22.2]", "+11.3 [+2.8, +19.8]"]
WORDS = "the first turn decides, the reward comes late"


def printed(width: int, optional: tuple[str, ...] = (), words: str = WORDS) -> str:
    table = plain_table(
        ["method", "final success", "above SFT", "above flat_grpo", "notes"], [False, *[True] * 3, False]
    )
    for name in NAMES:
        table.add_row(name, *NUMBERS, words)
    screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    print_table(table, screen, optional)
    return screen.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120, 160])
@pytest.mark.parametrize("optional", [(), ("notes",)])
def test_no_number_and_no_name_is_broken_at_any_width(width, optional):
    words = printed(width, optional).split()
    assert {*NAMES, *" ".join(NUMBERS).split()} <= set(words)
    assert "…" not in words


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_a_table_is_at_most_as_wide_as_its_terminal_if_its_numbers_have_room(width):
    assert max(map(len, printed(width, ("notes",)).splitlines())) <= width


def test_columns_move_closer_before_anything_wraps():
    lines = printed(84, words="").splitlines()
    assert any(re.search(r"oracle_progress +53.5% \[48.2, 58.8\] +\+16.9 \[\+11.6, \+22.2\]", line) for line in lines)


def test_a_column_that_is_left_out_is_named_and_shown_where_there_is_room():
    assert "No room for notes: a wider terminal or a pipe has all columns." in printed(86, ("notes", "of no column"))
    assert WORDS in printed(160, ("notes",))
    assert "No room" not in printed(160, ("notes",))


def test_an_interval_moves_below_its_number_before_a_table_is_wider_than_the_terminal():
    lines = printed(60, ("notes",)).splitlines()
    assert max(map(len, lines)) <= 60
    row = next(at for at, line in enumerate(lines) if "oracle_progress" in line)
    assert "+16.9 " in lines[row]
    assert "[+11.6, +22.2]" in lines[row + 1]


def test_a_table_without_room_is_printed_whole():
    assert max(map(len, printed(20).splitlines())) > 20
