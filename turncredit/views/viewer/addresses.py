"""The addresses of the pages: of a server that makes them when they are asked for, or of files beside each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import quote, urlencode

#: The files that every page of the viewer has.
STYLES, SCRIPTS = ("style.css", "view.css"), ("script.js", "view.js")


class Addresses:
    """The addresses of a server's pages. An address stays the same as long as its artifacts have their names."""

    live = True  # whether pages are made when they are asked for, so that lists can be filtered
    policy = ""  # the pages' content security policy, where no server sends it

    @property
    def asset(self) -> Callable[[str], str] | None:
        """From the name of a style sheet or a script to its address; None where they are written into the pages."""
        return lambda name: f"/static/{name}"

    def where(self, text: object) -> str:
        """A path, or a line with one, as pages show it."""
        return str(text)

    def compared(self, source: str, round_: str | None) -> list[tuple[str, str, str]] | None:  # noqa: ARG002
        """What is compared on pages: methods in a round, or rounds, each with its address; None: what one chooses."""
        return None

    def chosen(self, source: str, name: str) -> list[tuple[str, str]] | None:  # noqa: ARG002
        """The rollouts of a round that have a page, by group and name; None: all of them."""
        return None

    def home(self) -> str | None:
        """The list of experiments and tables."""
        return "/"

    def experiment(self, source: str) -> str | None:
        """An experiment's page."""
        return f"/experiment/{quote(source)}"

    def round(self, source: str, name: str, query: Mapping[str, str] | None = None) -> str | None:
        """The rollouts of a round."""
        return f"/round/{quote(source)}/{name}{_query(query)}"

    def group(self, source: str, name: str, group: str) -> str | None:
        """The siblings of a group."""
        return f"/group/{quote(source)}/{name}{_query({'group': group})}"

    def rollout(
        self, source: str, name: str, group: str, rollout: str, query: Mapping[str, str] | None = None
    ) -> str | None:
        """One rollout; `query` has the filter of the list that it was reached from."""
        return f"/rollout/{quote(source)}/{name}{_query({'group': group, 'rollout': rollout, **(query or {})})}"

    def pair(self, source: str, name: str, group: str, left: str, right: str) -> str | None:
        """Two siblings side by side."""
        return f"/pair/{quote(source)}/{name}{_query({'group': group, 'left': left, 'right': right})}"

    def compare(self, source: str, query: Mapping[str, str] | None = None) -> str | None:
        """Two methods, or two rounds of a run."""
        return f"/compare/{quote(source)}{_query(query)}"

    def trail(self, source: str, query: Mapping[str, str] | None = None) -> str | None:
        """What a number of the report was made from, or without one all numbers."""
        return f"/trail/{quote(source)}{_query(query)}"


def _query(values: Mapping[str, str] | None) -> str:
    given = {name: value for name, value in (values or {}).items() if value != ""}
    return f"?{urlencode(given)}" if given else ""
