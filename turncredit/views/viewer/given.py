"""What was given to look at, looked at again while the viewer runs: experiments and tables come and go.

A name in an address is looked up here. It never becomes part of a path.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import pyarrow.parquet as pq

from turncredit.data import tables
from turncredit.data.tables import TableError
from turncredit.errors import UserError, nearest
from turncredit.views.experiments import experiment_folders
from turncredit.views.show.find import Files
from turncredit.views.viewer.sources import Absent, Experiments, Source, Table

#: Seconds after which the folders are looked at again.
AGAIN = 2.0
#: What a table is, by the column that only such a table has; the first that matches.
ABOUT_TURNS = {"advantage_true": "branches", "advantage": "credits", "prompt_hash": "labels", "reward": "turns"}


@dataclass
class _Look:
    """What is there now; `mistakes` are lines on what can only have been meant otherwise, `problems` on the rest."""

    found: dict[str, Source] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    #: The table of turns that the next files are about; whether it is one that cannot be read yet.
    owner: Table | None = None
    unread: bool = False

    def add(self, source: Source, path: Path) -> bool:
        """Add a source, unless there is one of its name."""
        if source.name in self.found:
            self.mistakes.append(f"{path}: '{source.name}' was given twice; rename one of them, or give one at a time")
            return False
        self.found[source.name] = source
        return True

    def tell(self, table: Table, kind: str, path: Path) -> None:
        """Add a file about the turns of a table."""
        files = self.found[table.name].about  # type: ignore[union-attr]
        credits, labels = [*files.credits], [*files.labels]
        if kind != "branches":
            (credits if kind == "credits" else labels).append(path.resolve())
        branches = path.resolve() if kind == "branches" else files.branches
        self.found[table.name] = Table(table.name, Files(files.turns, credits, labels, branches))


class Given:
    """The experiments and tables in paths: results folders, experiments' folders, tables of turns and about them.

    In a row of files, those about turns (credits, ground truth, labels) belong to the table of turns before them; in a
    folder, to its only table of turns, or to the one whose name theirs begins with. Raises UserError for a path that is
    not there, a file that is no table about turns, two of one name, and if there is nothing to look at.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = [*paths]
        self._kinds: dict[Path, tuple[tuple[int, int], str]] = {}
        self._seen: dict[str, Path] = {}
        self._lock = Lock()
        self._now = self._look()
        self._looked = time.monotonic()
        if self._now.mistakes:
            raise UserError(self._now.mistakes[0])
        if self._paths and not self._now.found and not any(path.is_dir() for path in paths):
            raise UserError(self._now.problems[0])

    def found(self) -> Mapping[str, Source]:
        """The experiments and tables that are there now, by name."""
        return self._again().found

    def problems(self) -> list[str]:
        """A line for each that is gone, cannot be read or has not begun."""
        now = self._again()
        return [*now.mistakes, *now.problems]

    def source(self, name: str) -> Source:
        """The experiment or table called `name`. Raises Absent, with the nearest name."""
        found = self.found()
        if name in found:
            return found[name]
        if name in self._seen:
            raise Absent(_gone(name, self._seen[name]))
        raise Absent(f"nothing here is called '{name}'{nearest(name, found)}")

    def experiment(self, name: str) -> Experiments:
        """The experiment called `name`. Raises Absent where there is none."""
        one = self.source(name)
        if not isinstance(one, Experiments):
            raise Absent(f"{name} is a table, not an experiment")
        return one

    def _again(self) -> _Look:
        with self._lock:
            if time.monotonic() - self._looked > AGAIN:
                self._now = self._look()
                self._looked = time.monotonic()
            return self._now

    def _look(self) -> _Look:
        look = _Look()
        for path in self._paths:
            if path.is_dir():
                self._folder(look, path)
            elif path.exists():
                self._file(look, path)
            elif path not in self._seen.values():
                line = "no such folder; run an experiment first, or give the folder of its results"
                look.mistakes.append(f"{path}: {'no such file' if path.suffix == '.parquet' else line}")
        look.problems += [
            _gone(name, path) for name, path in self._seen.items() if name not in look.found and not path.exists()
        ]
        self._seen |= {
            name: source.folder if isinstance(source, Experiments) else source.about.turns
            for name, source in look.found.items()
        }
        return look

    def _folder(self, look: _Look, path: Path) -> None:
        """The experiments in a folder, and the tables directly in it."""
        before = len(look.found)
        try:
            os.listdir(path)
            folders = experiment_folders(path)
        except UserError:  # none yet
            folders = []
        except OSError as error:
            look.problems.append(f"{path}: {(error.strerror or str(error)).lower()}")
            return
        for folder in folders:
            look.add(Experiments(folder.name, folder.resolve()), folder)
        if path not in folders:
            self._tables(look, path)
        if len(look.found) == before:
            look.problems.append(f"{path}: nothing here yet; an experiment or a table of turns appears once it begins")

    def _tables(self, look: _Look, folder: Path) -> None:
        kinds = dict(self._about_turns(look, folder))
        turns = [path for path, kind in kinds.items() if kind == "turns"]
        owners = {path: table for path in turns if look.add(table := _table(path), path)}
        for path, kind in kinds.items():
            if kind == "turns":
                continue
            names = [one for one in owners if len(turns) == 1 or path.stem.startswith(one.stem)]
            if names:
                look.tell(owners[max(names, key=lambda one: len(one.stem))], kind, path)
            else:
                look.problems.append(f"{path}: a table of {kind}; begin its name with that of its table of turns")

    def _about_turns(self, look: _Look, folder: Path) -> Iterator[tuple[Path, str]]:
        """The tables about turns in a folder, which may have any others."""
        for path in sorted(folder.glob("*.parquet")):
            try:
                yield path, self._kind(path)
            except TableError as error:
                look.problems.append(str(error))
            except UserError:
                continue

    def _file(self, look: _Look, path: Path) -> None:
        """A table that was given."""
        try:
            kind = self._kind(path)
        except TableError as error:
            look.problems.append(str(error))
            look.owner, look.unread = None, True
            return
        except UserError as error:
            look.mistakes.append(str(error))
            return
        if kind == "turns":
            table = _table(path)
            look.owner, look.unread = (table if look.add(table, path) else None), False
        elif look.owner is not None:
            look.tell(look.owner, kind, path)
        elif not look.unread:
            look.mistakes.append(f"{path}: a table of {kind}; give the table of its turns before it")

    def _kind(self, path: Path) -> str:
        """As `kind_of`; of a table that cannot be read any more what it was before."""
        try:
            found = os.stat(path)
        except OSError as error:
            raise TableError(f"{path}: {error.strerror}") from None
        stamp, known = (found.st_mtime_ns, found.st_size), self._kinds.get(path)
        if known is None or known[0] != stamp:
            try:
                known = stamp, kind_of(path)
            except TableError:
                if known is None:
                    raise
            self._kinds[path] = known
        return known[1]


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


def _table(path: Path) -> Table:
    return Table(path.stem, Files(path.resolve(), [], [], None))


def _gone(name: str, path: Path) -> str:
    return f"{name}: {path} is gone; its pages are back when it is"
