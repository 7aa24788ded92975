"""Texts of a server or a model as tables, files and one-line messages can hold them."""

from __future__ import annotations


def in_one_line(text: str) -> str:
    """`text` in one line, as UTF-8 can hold it."""
    return " ".join(as_utf8(text).split())


def as_utf8(text: str) -> str:
    """`text` with `?` for each half of a surrogate pair: JSON can hold one, a table or a file cannot."""
    return text.encode(errors="replace").decode()
