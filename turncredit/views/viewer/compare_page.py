"""The page that compares: two methods on the rollouts of a round, or two rounds of runs."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from turncredit.config.layout import named_round, round_name
from turncredit.data.credits import credit_names
from turncredit.errors import UserError
from turncredit.views.pages.formats import decimals_for, number, plain
from turncredit.views.pages.frame import Place, render
from turncredit.views.viewer import compare, rollouts
from turncredit.views.viewer.context import Context, Query
from turncredit.views.viewer.sources import Absent, Experiments


def page(context: Context, name: str, query: Query) -> str:
    """Two methods on the rollouts of a round, or two rounds of runs. Raises UserError."""
    return _methods(context, name, query) if "round" in query else _rounds(context, name, query)


def _methods(context: Context, name: str, query: Query) -> str:
    round_ = query["round"]
    files = context.given.source(name).files(round_)
    names = rollouts.credited(files)
    if len(names) < 2:
        raise Absent(f"{context.round_words(name, round_)}: credit of {names[0] if names else 'no method'} alone")
    a, b = (query.get(key) or names[at] for at, key in enumerate("ab"))
    found = compare.methods(files, a, b)

    def turn_link(row: compare.TurnDifference) -> str | None:
        page = context.addresses.rollout(name, round_, row.group, row.rollout, {"method": a})
        return page and f"{page}#t{row.turn}"

    return _compared(
        context,
        name,
        f"{a} and {b} on the rollouts of {context.round_words(name, round_)}",
        [context.round_place(name, round_)],
        found.problems,
        {"a": a, "b": b, "round": round_, "choices": names, "found": found},
        turn_link=turn_link,
        true_text=partial(_true_text, found),
        other_link=context.addresses.compare(name) if isinstance(context.found[name], Experiments) else None,
        other_words="two rounds instead",
    )


def _true_text(found: compare.Methods, row: compare.TurnDifference) -> str:
    """A* with its standard error; a dot where it was not measured."""
    if row.true is None or found.judged is None:
        return "·"
    places = decimals_for(found.judged.scale)
    return number(row.true, places) + ("" if row.se is None else f" ± {plain(row.se, places)}")


def _rounds(context: Context, name: str, query: Query) -> str:
    source = context.given.experiment(name)
    runs = context.overview(source).runs
    turns_of = {
        round_name(method, seed, cell.round): cell.turns
        for (method, seed), cells in runs.items()
        for cell in cells
        if cell.state != "missing"
    }
    options = list(turns_of)
    if len(options) < 2:
        raise Absent(f"{name}: there are not yet two rounds to compare")
    a, b = (query.get(key) or usual for key, usual in zip("ab", _two_of(options), strict=True))
    for one in (a, b):
        if one not in turns_of:
            raise Absent(f"{one}: not a round of a run that has rollouts")
    tasks = compare.rounds(source.files(turns_of[a]), source.files(turns_of[b]))
    one, other = named_round(a), named_round(b)
    games, notes = None, []
    try:
        games = compare.evaluated(source.layout, one, other, source.config().eval.primary) if one and other else None
    except UserError as error:
        notes.append(str(error))
    cells = [cell for of_run in runs.values() for cell in of_run]
    shared = _with_methods(
        source, [turns_of[a], turns_of[b], *(one.turns for one in cells if one.branched), cells[0].turns]
    )
    return _compared(
        context,
        name,
        f"{a} and {b}",
        [],
        notes,
        {"a": a, "b": b, "options": options, "tasks": tasks, "games": games},
        other_link=context.addresses.compare(name, {"round": shared}) if shared and context.addresses.live else None,
        other_words="two methods instead",
        group_link=lambda one, group: context.addresses.group(name, turns_of[one], group),
    )


def _with_methods(source: Experiments, candidates: list[str]) -> str | None:
    """The first of these rounds in which several methods have credit; None if there is none."""
    for one in dict.fromkeys(candidates):
        with suppress(Absent):
            if len(credit_names(source.files(one).credits)) > 1:
                return one
    return None


def _compared(
    context: Context, name: str, title: str, places: list[Place], notes: list[str], values: dict[str, Any], **links: Any
) -> str:
    given = {"choices": None, "found": None, "tasks": None, "games": None, "options": []}
    return render(
        "compare.html.j2",
        context.frame([*context.above(name), *places, Place("compare", None)], notes),
        title=title,
        live=context.addresses.live,
        compared=context.addresses.compared(name, values.get("round")) or [],
        **{**given, "round": "", **values},
        **{"turn_link": None, "true_text": None, "group_link": None, **links},
    )


def _two_of(rounds: list[str]) -> tuple[str, str]:
    """The rounds that are compared at first: two methods in the last round that both have, where tasks are the same."""
    first_of: dict[str, dict[str, str]] = {}  # round -> method -> the name of its first seed's
    for one in rounds:
        first_of.setdefault(one.rpartition("/")[2], {}).setdefault(one.partition("/")[0], one)
    both = [list(of.values()) for _, of in sorted(first_of.items(), key=lambda item: (len(item[0]), item[0]))]
    one, other, *_ = next((names for names in reversed(both) if len(names) > 1), [rounds[0], rounds[-1]])
    return one, other
