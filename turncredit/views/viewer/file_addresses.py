"""The addresses of pages that are files in one folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from turncredit.views.pages.build import file_name
from turncredit.views.viewer.addresses import Addresses

#: A page: its kind, then what it is about.
Key = tuple[str, ...]


class FileAddresses(Addresses):
    """The addresses of exported pages, relative to each other. A page that is not exported has none.

    `folders` are left out of the paths that pages show, so that they say nothing of the machine that made them.
    """

    live = False
    #: As the viewer's server sends it; `file:` because some browsers do not count a file beside a page as its own.
    policy = (
        "default-src 'none'; script-src 'self' file:; style-src 'self' file: 'unsafe-inline'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'"
    )

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self.names: dict[Key, str] = {}
        self._used: set[str] = set()
        self._folders = folders

    def add(self, key: Key, stem: str) -> None:
        """Plan the page `key`; the first one is the folder's index."""
        self.names[key] = "index.html" if not self.names else file_name(stem, self._used)

    def where(self, text: object) -> str:
        """A path, or a line with one, without the folders."""
        shown = str(text)
        for folder in self._folders:
            shown = shown.replace(f"{folder}/", "")
        return shown

    def asset(self, name: str) -> str:
        """A style sheet or a script."""
        return name

    def home(self) -> str | None:
        """The list of experiments and tables."""
        return self.names.get(("home",))

    def experiment(self, source: str) -> str | None:
        """An experiment's page."""
        return self.names.get(("experiment", source))

    def round(self, source: str, name: str, query: Mapping[str, str] | None = None) -> str | None:  # noqa: ARG002
        """The rollouts of a round."""
        return self.names.get(("round", source, name))

    def group(self, source: str, name: str, group: str) -> str | None:
        """The siblings of a group."""
        return self.names.get(("group", source, name, group))

    def rollout(
        self,
        source: str,
        name: str,
        group: str,
        rollout: str,
        query: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> str | None:
        """One rollout."""
        return self.names.get(("rollout", source, name, group, rollout))

    def pair(self, source: str, name: str, group: str, left: str, right: str) -> str | None:
        """Two siblings side by side."""
        return self.names.get(("pair", source, name, group, left, right))

    def compare(self, source: str, query: Mapping[str, str] | None = None) -> str | None:
        """Two methods, or two rounds; without them the first two rounds that are compared."""
        given = query or {}
        if not given:
            return next((page for key, page in self.names.items() if key[:2] == ("rounds", source)), None)
        kind = ("methods", source, given["round"]) if "round" in given else ("rounds", source)
        return self.names.get((*kind, given["a"], given["b"])) or self.names.get((*kind, given["b"], given["a"]))

    def compared(self, source: str, round_: str | None) -> list[tuple[str, str, str]] | None:
        """The pairs that are compared, each with its page: methods in a round, or rounds."""
        kind = ("methods", source, round_) if round_ else ("rounds", source)
        return [(key[-2], key[-1], page) for key, page in self.names.items() if key[: len(kind)] == kind]

    def trail(self, source: str, query: Mapping[str, str] | None = None) -> str | None:
        """What a number of the report or a file was made from, or without one all numbers."""
        given = query or {}
        if "file" in given:
            return self.names.get(("file", source, given["file"]))
        if "table" in given:
            return self.names.get(("number", source, given["table"], given["row"], given["column"]))
        return self.names.get(("numbers", source))

    def chosen(self, source: str, name: str) -> list[tuple[str, str]] | None:
        """The rollouts of a round that have a page."""
        return [(key[3], key[4]) for key in self.names if key[:3] == ("rollout", source, name)]
