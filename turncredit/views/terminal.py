"""Tables in the terminal: coloured on a terminal, plain and not truncated in a file or a pipe."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table

#: Width in characters if the output is not a terminal: more than any table has, so that nothing is truncated or
#: wrapped.
PLAIN_WIDTH = 10_000

#: Control characters but newline and tab, line separators, and marks that change the direction of writing.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


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
