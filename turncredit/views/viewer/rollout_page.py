"""The pages about single rollouts: one turn by turn, two side by side, and all of a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from turncredit.config import Experiment
from turncredit.views.pages.build import Pages, columns, render_group, render_pair, render_rollout
from turncredit.views.pages.choose import pairs
from turncredit.views.pages.data import Book
from turncredit.views.pages.frame import Place
from turncredit.views.viewer import rollouts
from turncredit.views.viewer.books import computable, methods_of, with_credit
from turncredit.views.viewer.context import Context, Query
from turncredit.views.viewer.rollouts import Filter
from turncredit.views.viewer.sources import Absent, Experiments
from turncredit.views.viewer.tokens import tokens_of


def rollout(context: Context, name: str, round_: str, query: Query) -> str:
    """One rollout turn by turn. Raises UserError."""
    also = [one for one in query.get("also", "").split(",") if one]
    pages, rollout, experiment = _pages(context, name, round_, query, also)
    group, called = pages.book.ids_R[rollout]
    wanted = Filter.of(query)
    files = context.given.source(name).files(round_, query.get("method") or context.own_method(round_))
    chosen = context.addresses.chosen(name, round_)
    near = (
        rollouts.neighbours(files, wanted, group, called, query.get("method"))
        if chosen is None
        else rollouts.among(chosen, (group, called))
    )
    keep = {**wanted.query, "also": ",".join(also), "method": query.get("method", "")}

    def link(at: tuple[str, str] | None) -> str | None:
        return context.addresses.rollout(name, round_, at[0], at[1], keep) if at else None

    first = int(pages.book.turns.group_R[rollout])
    links = {"prev": link(near.before) if near else None, "next": link(near.after) if near else None}
    where = f"{called} ({near.place} of {near.total})" if near else called
    places = [
        *context.above(name),
        context.round_place(name, round_, keep),
        Place(f"group {group}", pages.group_files.get(first)),
        Place(where, None),
    ]
    pages = replace(pages, frame=replace(pages.frame, places=places))
    return render_rollout(
        pages,
        rollout,
        links,
        template="view_rollout.html.j2",
        tokens=tokens_of(pages.book, rollout, _tokenizer(context, name, experiment, round_)),
        add=_more_methods(context, name, round_, pages.book, rollout, keep, also),
    )


def group(context: Context, name: str, round_: str, query: Query) -> str:
    """The siblings of a group, side by side. Raises UserError."""
    pages, rollout, _ = _pages(context, name, round_, query)
    group = int(pages.book.turns.group_R[rollout])
    places = [*context.above(name), context.round_place(name, round_), Place(f"group {query.get('group', '')}", None)]
    pages = replace(pages, frame=replace(pages.frame, places=places))
    return render_group(pages, group, {"prev": None, "next": None})


def pair(context: Context, name: str, round_: str, query: Query) -> str:
    """Two siblings side by side, the failure on the left. Raises UserError."""
    pages, left, _ = _pages(context, name, round_, {**query, "rollout": query.get("left", "")})
    right = _numbered(pages.book, query.get("group", ""), query.get("right", ""))
    places = [
        *context.above(name),
        context.round_place(name, round_),
        Place(f"group {query.get('group', '')}", pages.group_files.get(int(pages.book.turns.group_R[left]))),
        Place("two rollouts", None),
    ]
    pages = replace(pages, frame=replace(pages.frame, places=places))
    return render_pair(pages, (left, right), {"prev": None, "next": None})


def _pages(
    context: Context, name: str, round_: str, query: Query, also: list[str] | None = None
) -> tuple[Pages, int, Experiment | None]:
    """What the pages of a rollout (or the first of a group) have, its number in the book, and the experiment."""
    source = context.given.source(name)
    method = query.get("method") or context.own_method(round_)
    group = query.get("group", "")
    opened = context.shelf.open(source.files(round_, method), group)
    book, problems = with_credit(opened.book, also or [])
    problems = [*opened.problems, *problems]
    if opened.part:
        problems.append(
            f"This table is large, so only the group {group} was read: colours and methods that compare with the "
            "whole batch refer to this group."
        )
    rollout = _numbered(book, group, query.get("rollout"))
    experiment = source.config() if isinstance(source, Experiments) else None
    ranks, order, off = columns(book, also[0] if also else method)
    siblings = book.siblings(rollout).tolist()
    keep = {**Filter.of(query).query, "method": query.get("method", ""), "also": ",".join(also or [])}
    address = context.addresses
    pages = Pages(
        book=replace(book, sources={what: address.where(path) for what, path in book.sources.items()}),
        order=order,
        off=off,
        methods=methods_of(book, experiment),
        ranks=ranks,
        rollout_files=_given(
            {r: address.rollout(name, round_, book.ids_R[r][0], book.ids_R[r][1], keep) for r in siblings}
        ),
        group_files=_given({int(book.turns.group_R[rollout]): address.group(name, round_, group)}),
        pair_files=_given(
            {
                (a, b): address.pair(name, round_, group, book.ids_R[a][1], book.ids_R[b][1])
                for a, b in pairs(book, siblings if query.get("rollout") is None else [rollout])
            }
        ),
        index=address.round(name, round_, {**Filter.of(query).query, "method": query.get("method", "")}),
        frame=context.frame([], problems),
    )
    return pages, rollout, experiment


def _more_methods(
    context: Context, name: str, round_: str, book: Book, rollout: int, keep: Query, also: list[str]
) -> dict[str, Any] | None:
    """The methods whose credit can be computed here, with what a form has to send to see one."""
    if not context.addresses.live:
        return None
    group, called = book.ids_R[rollout]
    given = {key: value for key, value in keep.items() if value and key != "also"}
    return {
        "methods": computable(book),
        "hidden": {"group": group, "rollout": called, **given},
        "also": also,
        "action": (context.addresses.rollout(name, round_, "", "") or "").partition("?")[0],
    }


def _tokenizer(context: Context, name: str, experiment: Experiment | None, round_: str) -> Path | None:
    source = context.found[name]
    if experiment is None or not isinstance(source, Experiments):
        return None
    start = experiment.start_of(round_.partition("/")[0])
    return next((one.path for one in source.layout.find("base", warm_start=start)), None)


def _given(links: Mapping[Any, str | None]) -> dict[Any, str]:
    return {key: link for key, link in links.items() if link is not None}


def _numbered(book: Book, group: str, rollout: str | None) -> int:
    """The number of a rollout in the book, or of the first of its group. Raises Absent."""
    for number, ids in enumerate(book.ids_R):
        if ids[0] == group and rollout in (None, ids[1]):
            return number
    what = f"rollout {rollout} in group {group}" if rollout else f"group {group}"
    raise Absent(f"{book.turns.where}: there is no {what}")
