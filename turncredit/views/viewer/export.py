"""`turncredit view --export`: pages as files that need neither server nor network, within a stated size."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from turncredit.data.files import new_folder
from turncredit.errors import UserError
from turncredit.views.pages.build import file_name, slug
from turncredit.views.pages.choose import choose
from turncredit.views.viewer import rollouts
from turncredit.views.viewer.addresses import Addresses
from turncredit.views.viewer.books import Shelf
from turncredit.views.viewer.rollouts import Filter
from turncredit.views.viewer.sources import TABLE, Absent, Experiments, Source
from turncredit.views.viewer.viewer import Viewer

#: The file that says that a folder was made by this command, which may then replace it.
MARK = "turncredit-view.json"
MEGABYTE = 1_000_000

#: A page: its kind, then what it is about.
Key = tuple[str, ...]


class Files(Addresses):
    """The addresses of pages that are files in one folder. What is not exported has none."""

    live = False

    def __init__(self) -> None:
        self.names: dict[Key, str] = {}
        self._used: set[str] = set()

    def add(self, key: Key, stem: str) -> None:
        """Plan the page `key`."""
        self.names[key] = "index.html" if not self.names else file_name(stem, self._used)

    asset = None

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

    def pair(self, source: str, name: str, group: str, left: str, right: str) -> str | None:  # noqa: ARG002
        """Pairs are not exported: a group's page has its siblings side by side."""
        return None

    def compare(self, source: str, query: Mapping[str, str] | None = None) -> str | None:  # noqa: ARG002
        """Not exported: what is compared is chosen on the page."""
        return None

    def trail(self, source: str, query: Mapping[str, str] | None = None) -> str | None:  # noqa: ARG002
        """Not exported: it leads to files."""
        return None

    def chosen(self, source: str, name: str) -> list[tuple[str, str]] | None:
        """The rollouts of a round that have a page."""
        return [(key[3], key[4]) for key in self.names if key[:3] == ("rollout", source, name)]


def export(viewer: Viewer, out: Path, *, rounds: Sequence[str], count: int, megabytes: float) -> tuple[int, int, int]:
    """Write the pages into the folder `out`; the numbers of pages, of bytes, and of pages that did not fit.

    `rounds`: POLICY/seed0/round01 or SOURCE/POLICY/seed0/round01; by default those with ground truth, or the last of
    each run. Of each round at most `count` rollouts get a page, as for credit pages, and their groups. Raises UserError
    for a folder with other files, and if the lists alone are larger than `megabytes`.
    """
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or (out / MARK).is_file())):
        raise UserError(f"{out}: exists and was not written by this command; give another folder")
    addresses = Files()
    viewer.addresses = addresses
    chosen = _rounds(viewer.found, rounds)
    lists = _lists(viewer.found, chosen)
    for key, stem in (*lists, *_rollouts(chosen, count)):
        addresses.add(key, stem)
    planned, fitting = list(addresses.names), _fitting(viewer, addresses, megabytes * MEGABYTE)
    dropped = len(planned) - len(fitting)
    if len(fitting) < len(lists):
        raise UserError(f"--max-size {megabytes:g}: the lists of rollouts alone are larger; name fewer with --round")
    for key in planned:
        if key not in fitting:
            del addresses.names[key]
    with new_folder(out) as folder:
        total = 0
        for key, name in addresses.names.items():
            text = _page(viewer, key).encode()
            (folder / name).write_bytes(text)
            total += len(text)
        (folder / MARK).write_text(json.dumps({"pages": len(addresses.names), "left_out": dropped}))
    return len(addresses.names), total, dropped


def _fitting(viewer: Viewer, addresses: Files, most: float) -> set[Key]:
    """The pages, from the first on, that have room; a rollout's page and that of its group count alone."""
    kept, total = set(), 0
    for key in list(addresses.names):
        total += len(_page(viewer, key).encode())
        if total > most:
            break
        kept.add(key)
    return kept


def _page(viewer: Viewer, key: Key) -> str:
    kind, *about = key
    make: dict[str, Callable[[], str]] = {
        "home": viewer.home,
        "experiment": lambda: viewer.experiment(about[0]),
        "round": lambda: viewer.round(about[0], about[1], {}),
        "group": lambda: viewer.group(about[0], about[1], {"group": about[2]}),
        "rollout": lambda: viewer.rollout(about[0], about[1], {"group": about[2], "rollout": about[3]}),
    }
    return make[kind]()


Rounds = list[tuple[str, str, Source]]


def _rounds(found: Mapping[str, Source], wanted: Sequence[str]) -> Rounds:
    """(source, round, source's record) of the rounds that are exported. Raises UserError."""
    if not wanted:
        return [(name, one, source) for name, source in found.items() for one in _usual(source)]
    chosen = []
    for text in wanted:
        name, _, rest = text.partition("/")
        name, round_ = (name, rest or TABLE) if name in found else (next(iter(found)), text)
        found[name].files(round_)
        chosen.append((name, round_, found[name]))
    return chosen


def _usual(source: Source) -> list[str]:
    """The rounds with ground truth; without any, the last round of each run; a table's only one."""
    if not isinstance(source, Experiments):
        return [TABLE]
    layout = source.layout
    audited = [_name(one.keys) for one in layout.find("branches")]
    if audited:
        return audited
    last: dict[tuple[str, int], str] = {}
    for one in layout.find("turns"):
        last[str(one.keys["policy"]), int(one.keys["seed"])] = _name(one.keys)
    if not last:
        raise Absent(f"{source.name}: no rollouts yet")
    return list(last.values())


def _name(keys: Mapping[str, str | int]) -> str:
    return f"{keys['policy']}/seed{keys['seed']}/round{int(keys['round']):02d}"


def _lists(found: Mapping[str, Source], chosen: Rounds) -> list[tuple[Key, str]]:
    """The pages that lead to the rollouts, the first one first."""
    pages: list[tuple[Key, str]] = [(("home",), "home")] if len(found) > 1 else []
    pages += [(("experiment", name), name) for name, one in found.items() if isinstance(one, Experiments)]
    return pages + [(("round", name, round_), slug(f"{name}-{round_}")) for name, round_, _ in chosen]


def _rollouts(chosen: Rounds, count: int) -> Iterator[tuple[Key, str]]:
    """The most instructive rollouts of each round, each before its group: the first of every round, then the second."""
    shelf = Shelf()
    by_round = [list(_of_round(shelf, *one, count)) for one in chosen]
    return (page for nth in zip_longest(*by_round) for page in nth if page is not None)


def _of_round(shelf: Shelf, name: str, round_: str, source: Source, count: int) -> Iterator[tuple[Key, str]]:
    files = source.files(round_)
    first = rollouts.listed(files, Filter(), size=1).rows
    opened = shelf.open(files, first[0].group if first else "")
    groups = set()
    for rollout in choose(opened.book, count):
        group, called = opened.book.ids_R[rollout]
        yield ("rollout", name, round_, group, called), slug(called)
        if group not in groups:
            groups.add(group)
            yield ("group", name, round_, group), slug(f"group-{group}")
