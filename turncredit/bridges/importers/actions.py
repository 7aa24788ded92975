"""Where the action is within a response that is text: by the user's expression, or as all responses have it."""

from __future__ import annotations

import re

from turncredit.bridges.importers.base import Report, Turn
from turncredit.errors import UserError

#: Conventions that are looked for, in this order: a name, and an expression whose groups are the action.
CONVENTIONS: dict[str, re.Pattern[str]] = {
    "between <action> and </action>": re.compile(r"<action>\s*(.*?)\s*</action>", re.DOTALL),
    "after `Action:`": re.compile(
        r"^\s*Action(?:\s*\d+)?\s*:\s*(.+?)\s*$(?:\s*^\s*Action Input(?:\s*\d+)?\s*:\s*(.+?)\s*$)?", re.M
    ),
    "after `> `": re.compile(r"^> (.+?)\s*$", re.MULTILINE),
    "in the block of a shell": re.compile(
        r"^```(?:mswea_bash_command|bash|sh|shell)\s*\n(.*?)\n?```", re.DOTALL | re.MULTILINE
    ),
}


def expression(pattern: str | None, tag: str | None) -> re.Pattern[str] | None:
    """The expression of `--action` or `--action-tag`; None without either. Raises UserError if it is invalid."""
    if pattern is not None and tag is not None:
        raise UserError("--action and --action-tag both say where the action is; give one")
    if tag is not None:
        name = re.escape(tag.strip("<>/ "))
        return re.compile(rf"<{name}>\s*(.*?)\s*</{name}>", re.DOTALL)
    try:
        return None if pattern is None else re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise UserError(f"--action {pattern}: not a regular expression ({error}); correct it") from None


def action_in(text: str, pattern: re.Pattern[str]) -> str | None:
    """The last match in `text`: its groups, joined, or the whole of it; None without one."""
    matches = list(pattern.finditer(text))
    if not matches:
        return None
    last = matches[-1]
    groups = [group for group in last.groups() if group is not None]
    return " ".join(groups) if last.groups() else last[0]


class Finder:
    """Finds actions, turn by turn. Without an expression of the user, the first response decides for a convention.

    What a convention finds goes to `_found` of a turn: it counts only if it holds for all, which is known at the end.
    """

    def __init__(self, pattern: re.Pattern[str] | None, report: Report) -> None:
        self._pattern, self._report = pattern, report
        self._convention: str | None = None
        self._open = pattern is None

    def find(self, turn: Turn) -> None:
        """Look for the action of a turn."""
        if self._pattern is not None:
            text = turn.get("response_text") or turn.get("action")
            if isinstance(text, str):
                self._set(turn, action_in(text, self._pattern))
        elif self._open and turn.get("_says") and isinstance(turn.get("action"), str):
            self._look(turn)

    def _set(self, turn: Turn, found: str | None) -> None:
        if found is None:
            self._report.note("no action was found in a response, all of which is the action")
        else:
            turn["action"] = found

    def _look(self, turn: Turn) -> None:
        text = turn["action"]
        if self._convention is None:
            self._convention = next((name for name, known in CONVENTIONS.items() if known.search(text)), None)
        found = action_in(text, CONVENTIONS[self._convention]) if self._convention else None
        if found is None:
            self._open = False
        else:
            turn["_found"] = found

    @property
    def convention(self) -> str | None:
        """The convention that every response kept; None without one."""
        return self._convention if self._open else None
