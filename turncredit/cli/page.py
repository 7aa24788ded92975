"""`turncredit page`: a rollout from any tables as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turncredit.config.layout import measures_beside
from turncredit.data import tables
from turncredit.data.output_paths import output_file
from turncredit.errors import UserError, nearest
from turncredit.views.pages.build import page as write_page
from turncredit.views.pages.data import Book, read_book


def page(
    turns: Annotated[Path, typer.Option(help="Parquet with group_id, rollout_id, turn, reward; texts are optional.")],
    credits: Annotated[
        list[Path], typer.Option(help="Parquet with the keys, advantage, and method if several; repeatable.")
    ],
    rollout: Annotated[str, typer.Option(help="The rollout: ROLLOUT, or GROUP/ROLLOUT.")],
    out: Annotated[Path, typer.Option(help="The page to write, such as rollout.html.")],
    branches: Annotated[
        Path | None, typer.Option(help="Parquet with the keys, advantage_true and advantage_true_se: the ground truth.")
    ] = None,
    labels: Annotated[list[Path] | None, typer.Option(help="Parquet with a judge's labels; repeatable.")] = None,
    values: Annotated[list[Path] | None, typer.Option(help="Parquet with a credit model's values; repeatable.")] = None,
    against: Annotated[str | None, typer.Option(help="Another rollout of its group to compare it with.")] = None,
    show: Annotated[str | None, typer.Option(help="The methods shown at first, such as gigpo,scpo.")] = None,
) -> None:
    """Write a rollout as a self-contained page: turn by turn, each method's credit next to the ground truth."""
    measures = measures_beside(turns)
    output_file(out, (".html", ".htm"), reads=[turns, measures, *credits, branches, *(labels or []), *(values or [])])
    book = read_book(
        turns=turns,
        measures=measures,
        credits=_named(credits, by_method=True),
        branches=branches,
        labels=_named(labels or []),
        values=_named(values or []),
    )
    wanted = pick(book, rollout, str(turns))
    other = pick(book, against, str(turns)) if against is not None else None
    if other is not None and (other == wanted or other not in book.siblings(wanted)):
        raise UserError(f"--against {against}: not in the group of {rollout}; give another rollout of that group")
    shown = show.split(",") if show else None
    for name in shown or ():
        if name not in book.credits:
            raise UserError(
                f"--show {name}: no credits of this method{nearest(name, book.credits)}; add its table with --credits"
            )
    write_page(book, wanted, against=other, out=out, shown=shown)
    print(f"{out}: {out.stat().st_size / 1000:.0f} kB")


def pick(book: Book, name: str, where: str) -> int:
    """The rollout called ROLLOUT or GROUP/ROLLOUT. Raises UserError, with the nearest name, if there is none."""
    for number, (group, rollout) in enumerate(book.ids_R):
        if name in {rollout, f"{group}/{rollout}"}:
            return number
    names = [rollout for _, rollout in book.ids_R]
    raise UserError(f"{where}: no rollout '{name}'{nearest(name, names) or f'; the first is {names[0]!r}'}")


def _named(paths: list[Path], *, by_method: bool = False) -> dict[str, Path]:
    """Each file by its own name or, for credits of one method, by the name of the method in the table."""
    path_of: dict[str, Path] = {}
    for path in paths:
        name = path.stem
        if by_method:
            table = tables.read(path)
            methods = table.column("method").unique().to_pylist() if "method" in table.column_names else []
            name = str(methods[0]) if len(methods) == 1 else name
        if name in path_of:
            raise UserError(f"{path}: '{name}' was given twice, first as {path_of[name]}; remove one")
        path_of[name] = path
    return path_of
