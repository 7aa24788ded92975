"""Counts in sentences."""

from __future__ import annotations


def number_of(number: int, noun: str) -> str:
    """A number and what it counts: `1 turn`, `2 turns`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
