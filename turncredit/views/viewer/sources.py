"""What can be looked at: the experiments in the given folders, and the given tables with the files about them.

A name in an address is looked up here. It never becomes part of a path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from turncredit.config import Experiment
from turncredit.config.layout import Layout, named_round, of_sft
from turncredit.data import tables
from turncredit.errors import UserError, nearest
from turncredit.views.experiments import experiment_folders, read_config
from turncredit.views.show.find import Files, of_round

#: The name of the only round of a table.
TABLE = "table"
#: What a table is, by the column that only such a table has; the first that matches.
ABOUT_TURNS = {"advantage_true": "branches", "advantage": "credits", "prompt_hash": "labels", "reward": "turns"}


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


def sources_of(given: Sequence[Path]) -> dict[str, Source]:
    """The experiments and tables in what was given, by name.

    Files about turns (credits, ground truth, labels) belong to the table of turns before them. Raises UserError for a
    folder without an experiment, for a file that is no table about turns, and for two of one name.
    """
    found: dict[str, Source] = {}
    for path in given:
        if path.is_dir() or not path.exists():
            for folder in experiment_folders(path):
                _add(found, Experiments(folder.name, folder.resolve()), path)
        elif (kind := kind_of(path)) == "turns":
            _add(found, Table(path.stem, Files(path.resolve(), [], [], None)), path)
        else:
            last = next((source for source in reversed(found.values()) if isinstance(source, Table)), None)
            if last is None:
                raise UserError(f"{path}: a table of {kind}; give the table of its turns before it")
            found[last.name] = Table(last.name, _with(last.about, kind, path.resolve()))
    return found


def kind_of(path: Path) -> str:
    """What a table about turns is: turns, credits, branches or labels. Raises UserError for any other file."""
    schema = tables.metadata(path).get("schema")
    names = pq.read_schema(path).names
    kind = next((kind for column, kind in ABOUT_TURNS.items() if column in names), None)
    absent = [key for key in tables.KEYS if key not in names]
    if kind is None or absent:
        what = f"a '{schema}' table" if schema else f"a table with the columns {', '.join(names[:8])}"
        raise UserError(
            f"{path}: {what}, not one about turns; those have {', '.join(tables.KEYS)} and reward, advantage, "
            "advantage_true or prompt_hash (`turncredit import` makes one of another framework's rollouts)"
        )
    return kind


def _add(found: dict[str, Source], source: Source, path: Path) -> None:
    if source.name in found:
        raise UserError(f"{path}: '{source.name}' was given twice; rename one of them, or give one at a time")
    found[source.name] = source


def _with(files: Files, kind: str, path: Path) -> Files:
    if kind == "branches":
        return Files(files.turns, files.credits, files.labels, path)
    credits, labels = [*files.credits], [*files.labels]
    (credits if kind == "credits" else labels).append(path)
    return Files(files.turns, credits, labels, files.branches)


def source(found: dict[str, Source], name: str) -> Source:
    """The source called `name`. Raises Absent with the nearest name."""
    if name not in found:
        raise Absent(f"nothing here is called '{name}'{nearest(name, found)}")
    return found[name]


def experiment_called(found: dict[str, Source], name: str) -> Experiments:
    """The experiment called `name`. Raises Absent where there is none."""
    one = source(found, name)
    if not isinstance(one, Experiments):
        raise Absent(f"{name} is a table, not an experiment")
    return one


def method_of(name: str) -> str | None:
    """The method whose run sampled the turns of the round `name`; None for turns that methods share."""
    parts = named_round(name)
    return None if parts is None or of_sft(parts[0]) else parts[0]
