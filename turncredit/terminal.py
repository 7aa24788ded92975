"""Tables in the terminal: coloured on a terminal, plain and not truncated in a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table

#: Width in characters if the output is not a terminal: more than any table has, so that nothing is truncated or
#: wrapped.
PLAIN_WIDTH = 10_000


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
