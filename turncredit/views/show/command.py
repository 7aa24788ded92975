"""The command: the list of rollouts, one rollout, or one turn of it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from turncredit.config.layout import Layout, measures_beside
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.views.show import lines
from turncredit.views.show.find import find
from turncredit.views.show.read import pick, read_tables, read_turns
from turncredit.views.terminal import console, visible


def run(
    what: str,
    rollout: str | None,
    turn: int | None,
    *,
    results: Path,
    credit_files: Sequence[Path],
    components: bool,
    make_layout: Callable[[Path], Layout] = Layout,
) -> None:
    """Print the list of rollouts, one rollout, or one turn of it.

    `make_layout` makes the layout of an experiment's folder, which says which of its artifacts are shown. Raises
    UserError if something cannot be found, and for an option about a rollout's credit where no rollout is named.
    """
    files = find(what, results, make_layout)
    turns = read_turns(files.turns)
    truth = None if files.branches is None else tables.read(files.branches, "branches")
    screen = console()
    if rollout is None:
        ids = lines.listed(turns, truth)
        names = lines.names_of(ids)
        example = _example(what, names[ids[0]] if ids else "GROUP/ROLLOUT", results)
        given = "--components" if components else "--credits" if credit_files else None
        if given is not None:
            raise UserError(
                f"{given} is about the credit of one rollout; add its name, as in {example} "
                f"(without {given}, all are listed)"
            )
        first = lines.first_of(ids, truth) if screen.is_terminal else ids
        screen.print(lines.rollout_list(turns, truth, str(files.turns), first, names))
        if more := len(ids) - len(first):
            screen.print(
                visible(f"and {more} more; all of them: {_example(what, None, results)} | cat"), soft_wrap=True
            )
        screen.print(visible(f"One of them, turn by turn: {example}"), soft_wrap=True)
        return
    rows = pick(turns, rollout, files.turns)
    measures, credits = measures_beside(files.turns), credit_files or files.credits
    rows, about = read_tables(rows, measures=measures, credits=credits, labels=files.labels, truth=truth)
    numbers = [row["turn"] for row in rows]
    if turn is not None and turn not in numbers:
        raise UserError(f"{files.turns}: rollout '{rollout}' has the turns 0 to {max(numbers)}, not {turn}")
    for line in lines.rollout_head(rows):
        screen.print(line)
    shown = lines.rollout_turns(rows, about, components) if turn is None else lines.turn_in_full(rows, about, turn)
    for line in shown:
        screen.print(line)


def _example(what: str, rollout: str | None, results: Path) -> str:
    """The command that shows a rollout of those that are listed, or lists them."""
    where = [] if results == Path("results") else ["--results", str(results)]
    return f"turncredit show {shlex.join([what, *([] if rollout is None else [rollout]), *where])}"
