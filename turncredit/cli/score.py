"""`turncredit score`: any credit method in a minute, on exact worlds and on recorded rollouts with true advantages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from turncredit.audit.score import rollout_set
from turncredit.audit.score.card import ROLLOUTS, Card, as_json, full_card, score, summarise
from turncredit.audit.score.leaderboard import leaderboard
from turncredit.audit.score.worlds import DENSITY
from turncredit.credit import METHODS
from turncredit.credit.parts.baselines import BASELINE
from turncredit.credit.parts.lookup import resolve
from turncredit.data import tables
from turncredit.data.files import write_json, write_text
from turncredit.data.output_paths import output_file
from turncredit.errors import UserError
from turncredit.views.score.card import print_card
from turncredit.views.score.leaderboard import markdown as as_markdown
from turncredit.views.score.leaderboard import print_leaderboard
from turncredit.views.terminal import console

#: How the name of a file with rollouts may end.
_TABLES = (".parquet", ".jsonl", ".json", ".csv")


def score_method(
    method: Annotated[str | None, typer.Argument(help="A method's name, or FILE.py:NAME.", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="Score all methods: the leaderboard.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="A set of recorded rollouts with true advantages.", show_default="built in")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Parquet with a judge's labels of the set's turns, in place of the set's own.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write all numbers to this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the card as one self-contained page.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="With --all: write the leaderboard to this file.")] = None,
    rollouts: Annotated[
        int, typer.Option(min=64, help="Rollouts drawn in each world, for each group size.")
    ] = ROLLOUTS,
    density: Annotated[float, typer.Option(help="Share of decisive turns in the world `dead`.")] = DENSITY,
    seed: Annotated[int, typer.Option(help="Seed of the rollouts, and of methods that draw random numbers.")] = 0,
) -> None:
    """Score a credit method on exact worlds and recorded rollouts: does it find the turns, is its gradient right?"""
    if (method is None) == (not every):
        raise UserError("give one method, such as `turncredit score gigpo`, or --all")
    if markdown is not None and not every:
        raise UserError("--markdown writes the leaderboard of all methods; give --all instead of a method")
    if method is not None and Path(method).suffix in _TABLES:
        raise UserError(
            f"{method}: score takes a method, not a table of turns; `turncredit credit` computes credit for one, and "
            "`turncredit fidelity` compares it with true advantages"
        )
    for path, suffixes in ((json, (".json",)), (html, (".html", ".htm")), (markdown, (".md",))):
        if path is not None:
            output_file(path, suffixes, reads=[data, labels])
    of = rollout_set.built_in() if data is None else rollout_set.load(data)
    if labels is not None:
        of = of.with_labels(tables.read(labels, columns=[*tables.KEYS], optional=("role", "score")))
    settings = {"rollout_set": of, "rollouts": rollouts, "density": density, "seed": seed}
    if method is None:
        _all(settings, json, html, markdown)
    else:
        _one(method, settings, json, html)


def _one(name: str, settings: dict[str, Any], json: Path | None, html: Path | None) -> None:
    card = full_card(resolve(name), **settings)
    if card.nowhere is not None:
        raise UserError(f"{card.method}: {card.nowhere}")
    summary = summarise(card, card if name == BASELINE or not card.worlds else _flat(settings))
    if json is not None:
        write_json(json, as_json(card, summary))
    if html is not None:
        from turncredit.views.score.page import card_page

        write_text(html, card_page(card, summary))
    print_card(card, summary, console())


def _flat(settings: dict[str, Any]) -> Card:
    return score(METHODS[BASELINE], **{name: value for name, value in settings.items() if name != "rollout_set"})


def _all(settings: dict[str, Any], json: Path | None, html: Path | None, markdown: Path | None) -> None:
    board = leaderboard(**settings, progress=lambda name: print(f"scoring {name}", file=sys.stderr))
    if json is not None:
        write_json(json, {one.method.name: as_json(one.card, one.summary) for one in board.scored})
    if html is not None:
        from turncredit.views.score.page import leaderboard_page

        write_text(html, leaderboard_page(board))
    if markdown is not None:
        write_text(markdown, as_markdown(board))
    print_leaderboard(board, console())
