"""Which pages an export has, the most important ones first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from turncredit.config.layout import round_name
from turncredit.errors import UserError
from turncredit.views.pages.build import slug
from turncredit.views.pages.choose import choose, pairs
from turncredit.views.viewer import rollouts, trail
from turncredit.views.viewer.context import Context
from turncredit.views.viewer.file_addresses import Key
from turncredit.views.viewer.records import Overview
from turncredit.views.viewer.rollouts import Filter
from turncredit.views.viewer.sources import TABLE, Absent, Experiments, Source

#: A page, and what its file is called.
Planned = tuple[Key, str]
#: (source, round, source's record) of the rounds that are exported.
Rounds = list[tuple[str, str, Source]]


def rounds_of(found: Mapping[str, Source], wanted: Sequence[str]) -> Rounds:
    """The rounds that are exported; without `wanted` those with ground truth or the last of each run. UserError."""
    if not found:
        raise Absent("there is nothing to export yet")
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
    return round_name(str(keys["policy"]), int(keys["seed"]), int(keys["round"]))


def lists(found: Mapping[str, Source], chosen: Rounds) -> list[Planned]:
    """The pages that lead to the rollouts, the first one first."""
    pages: list[Planned] = [(("home",), "home")] if len(found) > 1 else []
    pages += [(("experiment", name), name) for name, one in found.items() if isinstance(one, Experiments)]
    return pages + [(("round", name, round_), slug(f"{name}-{round_}")) for name, round_, _ in chosen]


def others(context: Context, chosen: Rounds, count: int) -> Iterator[Planned]:
    """The other pages: of comparisons, rollouts and numbers in turn, so that each kind gets a part of a small size."""
    kinds = (_comparisons(context, chosen), _rollouts(context, chosen, count), _numbers(chosen))
    return iter(dict.fromkeys(page for nth in zip_longest(*kinds) for page in nth if page is not None))


def _comparisons(context: Context, chosen: Rounds) -> Iterator[Planned]:
    """The first method of each round with each other; then rounds of runs."""
    for name, round_, source in chosen:
        first, *rest = rollouts.credited(source.files(round_, context.own_method(round_))) or [""]
        for other in rest:
            yield ("methods", name, round_, first, other), slug(f"{round_}-{first}-{other}")
    for name, source in {name: source for name, _, source in chosen}.items():
        if isinstance(source, Experiments):
            turns = {round_ for one, round_, _ in chosen if one == name}
            for a, b in _rounds_to_compare(context.overview(source), turns):
                yield ("rounds", name, a, b), slug(f"{a}-{b}")


def _rounds_to_compare(overview: Overview, turns: set[str]) -> Iterator[tuple[str, str]]:
    """The first method with each other in a round, and the first round of a run with each later one.

    These are rounds of runs that learned from the turns `turns`.
    """
    runs = [
        (method, seed, cell.round)
        for (method, seed), cells in overview.runs.items()
        for cell in cells
        if cell.turns in turns and cell.state != "missing"
    ]
    for alike in (slice(1, None), slice(None, 2)):  # the same seed and round, then the same method and seed
        first: dict[object, tuple[str, int, int]] = {}
        for one in runs:
            other = first.setdefault(one[alike], one)
            if other != one:
                yield round_name(*other), round_name(*one)


def _rollouts(context: Context, chosen: Rounds, count: int) -> Iterator[Planned]:
    """The most instructive rollouts of each round, each before its group: the first of every round, then the second."""
    by_round = [list(_of_round(context, *one, count)) for one in chosen]
    return (page for nth in zip_longest(*by_round) for page in nth if page is not None)


def _of_round(context: Context, name: str, round_: str, source: Source, count: int) -> Iterator[Planned]:
    files = source.files(round_, context.own_method(round_))
    first = rollouts.listed(files, Filter(), size=1).rows
    book = context.shelf.open(files, first[0].group if first else "").book
    chosen, groups = choose(book, count), set()
    for rollout in chosen:
        group, called = book.ids_R[rollout]
        yield ("rollout", name, round_, group, called), slug(called)
        if group not in groups:
            groups.add(group)
            yield ("group", name, round_, group), slug(f"group-{group}")
        for left, right in pairs(book, [rollout]):
            sides = book.ids_R[left][1], book.ids_R[right][1]
            yield ("pair", name, round_, group, *sides), slug(f"pair-{sides[0]}-{sides[1]}")


def _numbers(chosen: Rounds) -> Iterator[Planned]:
    """The numbers of each report, each followed by the files that it was made from."""
    for name, source in {name: source for name, _, source in chosen}.items():
        if not isinstance(source, Experiments):
            continue
        layout = source.layout
        try:
            numbers = trail.numbers(layout)
        except UserError:  # there is no report, or none that can be read
            continue
        yield ("numbers", name), slug(f"{name}-numbers")
        for one in numbers:
            yield ("number", name, one.table, one.row, one.column), slug(f"{one.table}-{one.row}-{one.column}")
            files, _ = trail.files_of(layout, one.path)
            for shown, _ in trail.lineage(layout, files):
                yield from ((("file", name, made.path), slug(made.path)) for made in shown)
