"""Errors that a user can cause, each one clear line: what was wrong, where, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """A mistake that the user can fix. The command line prints only the message and exits with 2."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """` (did you mean 'x'?)` with the choice closest to `word`, or an empty string if none is close."""
    found = get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return f" (did you mean '{found[0]}'?)" if found else ""
