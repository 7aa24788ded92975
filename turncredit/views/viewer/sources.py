"""What can be looked at: an experiment's folder, or a table of turns with the files about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from turncredit.config import Experiment
from turncredit.config.layout import Layout, named_round, of_sft
from turncredit.errors import UserError
from turncredit.views.experiments import read_config
from turncredit.views.show.find import Files, of_round

#: The name of the only round of a table.
TABLE = "table"


class Absent(UserError):
    """What an address names is not there."""


@dataclass(frozen=True)
class Experiments:
    """An experiment's folder."""

    name: str
    folder: Path

    @property
    def layout(self) -> Layout:
        """Every artifact in the folder, also those that the configuration would not make."""
        return Layout(self.folder)

    def config(self) -> Experiment:
        """Its configuration. Raises UserError where it cannot be read."""
        return read_config(self.folder)

    def files(self, name: str, method: str | None = None) -> Files:
        """The files of the round `name` (POLICY/seed0/round01), the credit of `method` first. Raises Absent."""
        parts = named_round(name)
        found = None
        if parts is not None:
            policy, seed, number = parts
            found = next(self.layout.find("turns", policy=policy, seed=seed, round=number), None)
        if found is None:
            raise Absent(f"{self.name}: no turns of a round {name} yet; the experiment's page lists those there are")
        return of_round(self.layout, found.keys | ({"method": method} if method else {}))


@dataclass(frozen=True)
class Table:
    """A table of turns and the files about them, as given on the command line."""

    name: str
    about: Files

    def files(self, name: str, method: str | None = None) -> Files:  # noqa: ARG002
        """The files. Raises Absent for any name but `TABLE`."""
        if name != TABLE:
            raise Absent(f"{self.name}: a table has no round {name}")
        return self.about


Source = Experiments | Table


def method_of(name: str) -> str | None:
    """The method whose run sampled the turns of the round `name`; None for turns that methods share."""
    parts = named_round(name)
    return None if parts is None or of_sft(parts[0]) else parts[0]
