"""Tables in the terminal: coloured on a terminal, plain and not truncated in a file or a pipe."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table

#: Width in characters if the output is not a terminal: more than any table has, so that nothing is truncated or
#: wrapped.
PLAIN_WIDTH = 10_000

#: Longest word in characters that is never broken in a column of words.
_WORD = 40
#: Width in characters below which an optional column of words is left out.
_WORDS = 24
#: Longest number in characters whose brackets stay on its line.
_NUMBER = 12

#: Control characters but newline and tab, line separators, and marks that change the direction of writing.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


#: Where the brackets of a number begin.
_BRACKET = re.compile(r" (?=[\[(])")


def visible(text: str) -> str:
    """`text` with its control characters shown and not obeyed: an escape is ␛, others are ␀ to ␡ or \\u202e.

    A text from an agent could otherwise recolour or rewrite the terminal, or reorder the text around it.
    """
    return _CONTROL.sub(_shown, text)


def folded(text: str, most: int = 1200) -> str:
    """A text of at most `most` characters as it is; of a longer one the start and the end, and how much is left out.

    System prompts, documents and results of tools have thousands of characters, which hide the turns.
    """
    if len(text) <= most:
        return text
    start, end = text[: most * 2 // 3], text[-(most // 6) :]
    return f"{start} [... {len(text) - len(start) - len(end):,} characters ...] {end}"


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else f"\\u{code:04x}"


def console(file: TextIO | None = None) -> Console:
    """A console for stdout (or `file`). Markup and highlighting are off: table contents are data, not markup."""
    stream = file or sys.stdout
    width = None if stream.isatty() else PLAIN_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=False)


def plain_table(columns: Sequence[str], numeric: Sequence[bool], title: str | None = None) -> Table:
    """An empty table with a rule under its header; numbers are right-aligned."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, title_style="bold")
    for name, is_number in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    return table


def print_table(table: Table, to: Console, optional: Sequence[str] = ()) -> None:
    """Print a table of `plain_table` in the width of `to`; no number and no name is ever broken.

    Where room is short, columns move closer, headings and texts wrap at words, and columns in `optional` are left out,
    the last one first; a line below the table names them. Then intervals move below their numbers. A table that needs
    still more room is wider than the terminal.
    """
    headings = [str(column.header) for column in table.columns]
    optional = [heading for heading in optional if heading in headings]
    for below in (False, True):
        for kept in range(len(optional), -1, -1):
            shown = _copy(table, without=optional[kept:], below=below)
            if _fitted(shown, to.width, optional) or (below and kept == 0):
                to.print(shown, crop=False)
                if kept < len(optional):
                    to.print(f"No room for {', '.join(optional[kept:])}: a wider terminal or a pipe has all columns.")
                return


def _copy(table: Table, without: Sequence[str], below: bool) -> Table:
    """The table without some of its columns; with `below`, `36.6% [33.2, 40.0]` has its interval on a second line."""
    columns = [column for column in table.columns if column.header not in without]
    numeric = [_is_numeric(column) for column in columns]
    title = None if table.title is None else str(table.title)
    copy = plain_table([str(column.header) for column in columns], numeric, title)
    for row in zip(*(column.cells for column in columns), strict=True):
        cells = zip(map(str, row), numeric, strict=True)
        copy.add_row(
            *(_BRACKET.sub("\n", text) if below and of and len(text) > _NUMBER else text for text, of in cells)
        )
    return copy


def _fitted(table: Table, width: int, optional: Sequence[str]) -> bool:
    """Whether the table has room in `width` characters, in which its columns are given their widths, else the least."""
    least, most = zip(*(_widths(column, optional) for column in table.columns), strict=True)
    gaps = len(least) - 1
    for gap, of_columns in ((3, most), (2, most), (2, least), (1, least)):
        room = width - 2 - gap * gaps - sum(of_columns)  # the box has a space on either side
        table.collapse_padding, table.padding = gap == 2, (0, int(gap > 1))
        if room >= 0:
            break
    wider = _shared_out(room, of_columns, most, first=[not _is_numeric(column) for column in table.columns])
    for column, characters in zip(table.columns, wider, strict=True):
        column.width = characters
    table.width = sum(wider) + gap * gaps + 2
    return room >= 0


def _widths(column: Column, optional: Sequence[str]) -> tuple[int, int]:
    """Characters that a column needs at least, and without a line break. Numbers need the same, but for the heading."""
    heading, cells = str(column.header), [line for cell in column.cells for line in str(cell).split("\n")]
    whole = max(map(cell_len, cells), default=0)
    most, heading_word = max(cell_len(heading), whole), max(map(cell_len, heading.split()), default=0)
    if _is_numeric(column):
        return max(heading_word, whole), most
    words = (min(cell_len(word), _WORD) for cell in cells for word in cell.split())
    return max(heading_word, *words, min(most, _WORDS) if heading in optional else 1), most


def _shared_out(room: int, widths: Sequence[int], most: Sequence[int], first: Sequence[bool]) -> list[int]:
    """The widths and `room` more characters: for the columns of words, the narrowest first, then for headings."""
    wider = list(widths)
    for _ in range(room):
        open_columns = [at for at in range(len(wider)) if wider[at] < most[at]]
        if not open_columns:
            break
        wider[min(open_columns, key=lambda at: (not first[at], wider[at]))] += 1
    return wider


def _is_numeric(column: Column) -> bool:
    return column.justify == "right"
