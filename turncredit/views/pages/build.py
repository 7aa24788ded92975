"""The pages of one audited round, and single pages of any tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from turncredit.credit import METHODS, Method
from turncredit.credit.parts.baselines import NOT_COMPARED
from turncredit.data.counts import number_of
from turncredit.data.files import write_text
from turncredit.stats.rank_correlation import FEWEST
from turncredit.views.pages import draw
from turncredit.views.pages.agreement import Agreement, agreement, disagreement_R, mean_ranks
from turncredit.views.pages.cells import rank_cell
from turncredit.views.pages.choose import choose
from turncredit.views.pages.choose import pairs as chosen_pairs
from turncredit.views.pages.data import Book
from turncredit.views.pages.formats import joined, number, one_line, plain
from turncredit.views.pages.frame import ON_ITS_OWN, Frame, render
from turncredit.views.pages.method_details import PROBES, gate_words, model_strips, walk
from turncredit.views.pages.strips import brackets, course, lanes, walk_view
from turncredit.views.pages.turn_details import alike_turns, marks, parting, side_by_side, steps_of, subgoals, turns_of
from turncredit.views.pages.verdict import verdict

#: the number of methods shown at first: the audited run's, those that follow A* best, and the one that follows it least
SHOWN = 6


@dataclass(frozen=True)
class Pages:
    """The data shared by all pages of a round.

    order     the methods' order: by mean rank correlation with A*, then as given
    off       indices of the methods whose columns are hidden at first
    methods   the methods by name, for their summaries and for SCPO's parameters
    files     rollout -> address; group -> address; (failed, successful) -> address
    index     the address of the list of rollouts; a page of its own has none
    frame     what is around the page
    """

    book: Book
    order: list[str]
    off: list[int]
    methods: Mapping[str, Method]
    ranks: dict[str, float]
    rollout_files: dict[int, str]
    group_files: dict[int, str]
    pair_files: dict[tuple[int, int], str]
    index: str | None = None
    frame: Frame = ON_ITS_OWN


#: The pages before and after a page.
Links = Mapping[str, str | None]
#: A single page has none.
ALONE: Links = {"prev": None, "next": None}


def pages(book: Book, methods: Mapping[str, Method], *, count: int, first: str | None, title: str) -> dict[str, str]:
    """The pages of one audited round by file name: `index.html`, a page for each of at most `count` rollouts, of
    their groups, and of each of them beside a sibling with the other outcome.

    `methods` are those whose credit the book has; `first` is shown first, if it is among them.
    """
    chosen = choose(book, count)
    apart_R = disagreement_R(book)
    nonzero_R, clear_R = _known_R(book)
    # The first page that a reader opens is one from which something can be read.
    chosen.sort(key=lambda r: (nonzero_R[r] < FEWEST, clear_R[r] == 0, -apart_R[r], book.ids_R[r]))
    pages = gather(book, chosen, methods, first=first)
    texts = {"index.html": render_index(pages, chosen, title)}
    kinds: list[tuple[Mapping[Any, str], Callable[[Pages, Any, Links], str]]] = [
        (pages.rollout_files, render_rollout),
        (pages.group_files, render_group),
        (pages.pair_files, render_pair),
    ]
    for names_of, page_of in kinds:
        names = list(names_of.values())
        for place, (key, name) in enumerate(names_of.items()):
            around = {"prev": names[place - 1] if place else None, "next": next(iter(names[place + 1 :]), None)}
            texts[name] = page_of(pages, key, around)
    return texts


def page(book: Book, rollout: int, *, against: int | None, out: str | Path, shown: Sequence[str] | None = None) -> None:
    """Write a page of `rollout`, or of it next to its sibling `against`, to the file `out`.

    If only one succeeded, the failure is on the left, whichever was named first.
    """
    if against is not None and book.success_R[rollout] and not book.success_R[against]:
        rollout, against = against, rollout
    chosen = [rollout] if against is None else [rollout, against]
    methods = {name: METHODS[name] for name in book.credits if name in METHODS}
    pages = gather(book, chosen, methods, first=None, shown=shown, alone=True)
    text = render_rollout(pages, rollout, ALONE) if against is None else render_pair(pages, (rollout, against), ALONE)
    write_text(out, text)


def gather(
    book: Book,
    chosen: Sequence[int],
    methods: Mapping[str, Method],
    *,
    first: str | None,
    shown: Sequence[str] | None = None,
    alone: bool = False,
) -> Pages:
    """The order of the methods, which are shown at first, and the files' names (none for a single page)."""
    ranks, order, off = columns(book, first, shown)
    used: set[str] = set()
    rollouts = [] if alone else list(chosen)
    groups = list(dict.fromkeys(int(book.turns.group_R[r]) for r in rollouts))
    paired = chosen_pairs(book, rollouts)
    names = {r: slug(book.ids_R[r][1]) for r in [*rollouts, *(r for pair in paired for r in pair)]}
    return Pages(
        book=book,
        order=order,
        off=off,
        methods=methods,
        ranks=ranks,
        rollout_files={r: file_name(names[r], used) for r in rollouts},
        group_files={g: file_name("group-" + slug(book.ids_R[int(book.turns.first_G[g])][0]), used) for g in groups},
        pair_files={pair: file_name(f"pair-{names[pair[0]]}-{names[pair[1]]}", used) for pair in paired},
        index="index.html" if rollouts else None,
    )


def columns(
    book: Book, first: str | None, shown: Sequence[str] | None = None
) -> tuple[dict[str, float], list[str], list[int]]:
    """Each method's mean rank correlation with A*, the methods in this order, and the indices of those hidden at first.

    Without `shown`, these are shown: `first`, those that agree best with A*, and the one that agrees least.
    """
    ranks = mean_ranks(book)
    order = sorted(book.credits, key=lambda name: -np.nan_to_num(ranks[name], nan=-2.0))
    if shown is None:
        preferred = [*([first] if first in book.credits else []), *order[: SHOWN - 2], *order[-1:], *order]
        shown = list(dict.fromkeys(preferred))[:SHOWN]
    return ranks, order, [number for number, name in enumerate(order) if name not in shown]


# Pages ---------------------------------------------------------------------------------------------------------------


def render_rollout(pages: Pages, rollout: int, links: Links, *, template: str = "rollout.html.j2", **more: Any) -> str:
    """One rollout's page; `template` extends that of the credit pages, with the values `more`."""
    book, rows = pages.book, pages.book.rows(rollout)
    group = pages.group_files.get(int(book.turns.group_R[rollout]))
    return _render(
        template,
        pages,
        **more,
        links={**links, "index": pages.index, "group": group, "pair": _pair_of(pages, rollout)},
        head=_head(book, rollout),
        verdict=verdict(book, rollout),
        lanes=lanes(book, rollout, pages.order, len(rows)),
        measured=len(book.branched(rollout)) > 0,
        brackets=brackets(book, rollout),
        subgoals={subgoal.last: subgoal for subgoal in subgoals(book, rollout)},
        course=course(book, rollout, len(rows)),
        strips=_strips(book, rollout),
        gates=_gates(book, rollout, pages.order),
        probes=_probes(book),
        start=one_line(book.cell("observation", int(rows[0]))),
        turns=turns_of(book, rollout, pages.order, components=True),
        stop_word="turn",
    )


def render_pair(pages: Pages, pair: tuple[int, int], links: Links) -> str:
    """Two rollouts of one group side by side, with SCPO's walk where one failed and the other was its reference."""
    book, (left, right) = pages.book, pair
    walks, drawn = [], {}
    for method in pages.order:
        scpo_walk = walk(book, method, pages.methods[method], left) if method in pages.methods else None
        if scpo_walk is not None and set(scpo_walk.reference.tolist()) <= set(book.rows(right).tolist()):
            walks.append(walk_view(book, scpo_walk, drawn))
    sides = [turns_of(book, rollout, pages.order, components=False) for rollout in (left, right)]
    return _render(
        "pair.html.j2",
        pages,
        links={**links, "index": pages.index, "group": pages.group_files.get(int(book.turns.group_R[left]))},
        goal=_goal(book, left),
        left=_side(pages, left),
        right=_side(pages, right),
        rows=side_by_side(*sides),
        verdict=[parting(*sides), *_fates(pages, left, right)],
        walks=walks,
        stop_word="turn",
    )


def render_group(pages: Pages, group: int, links: Links) -> str:
    """All siblings of a group: outcome, length, return and a strip for each method."""
    book = pages.book
    first = int(book.turns.first_G[group])
    rollouts = book.siblings(first).tolist()
    width = int(book.turns.length_R[rollouts].max())
    family = book.cell("family", int(book.turns.first_R[first]))
    ordered = sorted(rollouts, key=lambda r: (not book.success_R[r], r))
    steps = {rollout: steps_of(book, rollout) for rollout in ordered}
    siblings = [
        {
            **_side(pages, rollout),
            "result": plain(float(book.turns.return_R[rollout])),
            "marks": marks(book, rollout),
            "lanes": lanes(book, rollout, pages.order, width),
            "short": _short(book, rollout),
            "steps": steps[rollout],
            "parts_at": alike_turns(steps[rollout], steps[ordered[0]]),
        }
        for rollout in ordered
    ]
    return _render(
        "group.html.j2",
        pages,
        links={**links, "index": pages.index},
        name=book.ids_R[first][0],
        goal=_goal(book, first),
        facts=[str(family)] if family else [],
        won=int(book.success_R[rollouts].sum()),
        width=width,
        siblings=siblings,
        pairs=[
            {"link": file, "words": f"{_short(book, a)} beside {_short(book, b)}"}
            for (a, b), file in pages.pair_files.items()
            if a in rollouts
        ],
        stop_word="sibling",
    )


def render_index(pages: Pages, chosen: Sequence[int], title: str) -> str:
    """The list of the round's pages, those on which methods disagree most first."""
    book = pages.book
    branched_R = book.turns.sum_R(book.truth.branched_N) if book.truth else np.zeros(book.turns.rollouts)
    credit = book.credits[pages.order[0]]
    what, drawn_N, scale = (
        ("A*", book.truth.advantage_N, book.truth.scale) if book.truth else ("credit", credit.shown_N, credit.scale)
    )
    rows = []
    for rollout in chosen:
        at = book.rows(rollout)
        ranks = [rank_cell(method, agreement(book, method, rollout)) for method in pages.order]
        rows.append(
            {
                **_side(pages, rollout),
                "goal": _goal(book, rollout),
                "group": pages.group_files[int(book.turns.group_R[rollout])],
                "pair": _pair_of(pages, rollout),
                "branched": int(branched_R[rollout]),
                "picture": draw.strip(drawn_N[at], scale, width=len(at), label=what),
                "cells": ranks if book.truth else [],
            }
        )
    varied = {name for name, ranked in book.correlations.items() if ranked.varies_R.any()}
    compared = [name for name in pages.order if name not in NOT_COMPARED and name in varied]
    facts = [
        f"{number_of(book.turns.rollouts, 'rollout')} in {number_of(book.turns.groups, 'group')}",
        f"{100 * book.success_R.mean():.0f}% {book.success_words}",
        number_of(book.turns.n, "turn"),
    ]
    if book.truth:
        facts.append(f"{number_of(int(book.truth.branched_N.sum()), 'turn')} branched")
    means = [rank_cell(method, Agreement(pages.ranks[method], 0, 0, True)) for method in pages.order]
    return _render(
        "index.html.j2",
        pages,
        title=title,
        facts=facts,
        rows=rows,
        means=means,
        ranked=max((int(ranked.scored_R.sum()) for ranked in book.correlations.values()), default=0),
        best=_best(pages, compared, [name for name in pages.order if name in NOT_COMPARED and name in varied]),
        stop_word="rollout",
    )


def _known_R(book: Book) -> tuple[np.ndarray, np.ndarray]:
    """For each rollout, how many turns have an A* other than 0, and of how many its sign is known."""
    truth, sums = book.truth, book.turns.sum_R
    zero_R = np.zeros(book.turns.rollouts)
    return (zero_R, zero_R) if truth is None else (sums(truth.nonzero_N), sums(truth.clear_N))


def _best(pages: Pages, compared: Sequence[str], references: Sequence[str]) -> str:
    """Which of these methods agrees best with A*, beside the references; empty if that says nothing.

    All are in the order of their agreement, and have credit that varies within rollouts. Agreeing better than credit
    that is the same on every turn, or less badly than another method, does not count.
    """
    beside = [f"{name} ({NOT_COMPARED[name]}) {number(pages.ranks[name])}" for name in references]
    if not compared or (len(compared) == 1 and not beside) or not np.isfinite(pages.ranks[compared[0]]):
        return ""
    rank = number(pages.ranks[compared[0]])
    if len(compared) == 1:
        said = f"the rank correlation of {compared[0]} with A* is {rank}"
    elif pages.ranks[compared[0]] > 0:
        said = (
            "apart from references, noise and methods whose credit is the same on every turn, the credit of "
            f"{compared[0]} (mean {rank}) agrees best with A*"
        )
    else:
        return ""
    return f"Over all rollouts with ground truth, {said}" + (f"; for comparison {joined(beside)}." if beside else ".")


def _render(template: str, pages: Pages, **values: Any) -> str:
    return render(
        template,
        pages.frame,
        methods=[
            {
                "name": name,
                "summary": pages.methods[name].summary if name in pages.methods else name,
                "breakable": Markup("_<wbr>").join(name.split("_")),
            }
            for name in pages.order
        ],
        off=pages.off,
        truth=pages.book.truth is not None,
        sources=list(pages.book.sources.items()),
        **values,
    )


# Pieces --------------------------------------------------------------------------------------------------------------


def _head(book: Book, rollout: int) -> dict[str, Any]:
    rows = book.rows(rollout)
    group, name = book.ids_R[rollout]
    cells = [book.cell(key, int(rows[0])) for key in ("family", "policy_id")]
    facts = [number_of(len(rows), "turn"), f"return {plain(float(book.turns.return_R[rollout]))}"]
    invalid = sum(book.cell("valid", int(row)) is False for row in rows)
    facts += [f"{invalid} invalid"] if invalid else []
    facts += [str(fact) for fact in cells if fact is not None]
    return {
        "name": name,
        "goal": _goal(book, rollout),
        "won": bool(book.success_R[rollout]),
        "facts": [*facts, name],
        "length": len(rows),
        "marks": marks(book, rollout),
        "siblings": len(book.siblings(rollout)),
        "group": group,
    }


def _pair_of(pages: Pages, rollout: int) -> str | None:
    """The file of the first pair that the rollout is in."""
    return next((file for pair, file in pages.pair_files.items() if rollout in pair), None)


def _side(pages: Pages, rollout: int) -> dict[str, Any]:
    book = pages.book
    return {
        "name": book.ids_R[rollout][1],
        "won": bool(book.success_R[rollout]),
        "length": int(book.turns.length_R[rollout]),
        "link": pages.rollout_files.get(rollout),
    }


def _fates(pages: Pages, left: int, right: int) -> list[Markup]:
    """The turns that mattered most in each of the two, if known."""
    out = []
    for side, rollout in (("a", left), ("b", right)):
        sentences = verdict(pages.book, rollout)
        if sentences and marks(pages.book, rollout):
            which = "the failure" if not pages.book.success_R[rollout] else "the success"
            # The sentence links to a turn on the rollout's own page; here the turns' ids have the letter of their side.
            text = str(sentences[0]).replace('href="#t', f'href="#{side}')
            out.append(Markup("In {}: ").format(which) + Markup(text))
    return out


def _strips(book: Book, rollout: int) -> list[dict[str, Any]]:
    out = []
    for method, what, numbers, kind in model_strips(book, rollout):
        low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
        if what == "attention":
            picture = draw.levels(numbers, top=high or 1.0, width=len(numbers), label=f"attention of {method}")
        else:
            size = max(abs(low), abs(high)) or 1.0
            picture = draw.strip(numbers, size, width=len(numbers), label=f"V of {method}")
        out.append(
            {
                "name": f"{method}: {what}",
                "title": f"{what} of the {kind} model behind {method}, turn by turn",
                "picture": picture,
                "range": f"{plain(low)} to {plain(high)}",
            }
        )
    return out


def _gates(book: Book, rollout: int, order: Sequence[str]) -> list[dict[str, Any]]:
    """MGR's gated reward of each turn, with the gate of the rollout."""
    out = []
    rows = book.rows(rollout)
    for method in order:
        parts = book.credits[method].components
        if gate_words(parts, int(rows[0])) is None:
            continue
        reward, outcome, gate = (parts[name][rows] for name in ("reward_mgr", "outcome", "gate"))
        words = "gate kept" if gate[0] > 0 else "gate turned"
        if gate[0] == 0:
            words = f"no gate: {'the rollout succeeded' if outcome[0] > 0 else 'all rollouts of the group ended alike'}"
        size = float(np.abs(reward).max()) or 1.0
        out.append(
            {
                "name": f"{method}: reward",
                "words": words,
                "picture": draw.strip(reward, size, width=len(rows), label=f"gated reward of {method}"),
            }
        )
    return out


def _probes(book: Book) -> list[tuple[str, list[tuple[str, str]]]]:
    """(words, number) for each measure of a method's credit model, by method."""
    found = {
        method: [(words, plain(measures[name], 3)) for name, words in PROBES.items() if name in measures]
        for method, measures in book.probes.items()
    }
    return [(method, values) for method, values in found.items() if values]


def _goal(book: Book, rollout: int) -> str:
    return one_line(book.cell("goal", int(book.turns.first_R[rollout])))


def _short(book: Book, rollout: int) -> str:
    """A sibling's name without the prefix that it shares with its group's name."""
    group, name = book.ids_R[rollout]
    return name.removeprefix(group) or name


def slug(name: str) -> str:
    """A name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:60] or "rollout"


def file_name(stem: str, used: set[str]) -> str:
    """`stem.html`, or with a number if that is taken, also where a file system makes no difference of case."""
    name, number = stem, 2
    while name.lower() in {*used, "index"}:
        name, number = f"{stem}-{number}", number + 1
    used.add(name.lower())
    return f"{name}.html"
