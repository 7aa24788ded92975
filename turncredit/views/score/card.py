"""The card in the terminal."""

from __future__ import annotations

from rich.console import Console

from turncredit.audit.score.agreement import RolloutScore
from turncredit.audit.score.card import SIZE, SIZES, Card, Summary
from turncredit.views.score.words import (
    COLUMNS,
    RECORDED_COLUMNS,
    deviations,
    honesty,
    recorded_about,
    recorded_mean,
    recorded_row,
    row,
    verdict,
)
from turncredit.views.terminal import plain_table


def print_card(card: Card, summary: Summary, to: Console) -> None:
    """Print the sentences, a row for each world, what going on is paid, what the method depends on, and a row for each
    part of the recorded rollouts."""
    to.print(f"{card.method}: {card.about}\n")
    for sentence in verdict(card, summary):
        to.print(f"  {sentence}")
    to.print()
    if card.worlds:
        _print_worlds(card, to)
    if isinstance(card.recorded, RolloutScore):
        _print_recorded(card.recorded, to)
    to.print("What these numbers are worth in training: docs/leaderboard.md.")


def _print_recorded(found: RolloutScore, to: Console) -> None:
    table = plain_table(["recorded rollouts", *RECORDED_COLUMNS], [False, *[True] * len(RECORDED_COLUMNS)])
    for one in found.parts:
        table.add_row(one.part, *recorded_row(one))
    table.add_row("mean, 95%", *recorded_mean(found))
    to.print(table)
    to.print("`a of b`: the truth itself would score b. In brackets: the share of A*. Columns: docs/score_data.md.")
    to.print(recorded_about(found))


def _print_worlds(card: Card, to: Console) -> None:
    table = plain_table(["world", *COLUMNS, "difficulty"], [False, *[True] * len(COLUMNS), False])
    for one in card.scored():
        table.add_row(one.world, *row(one), one.difficulty)
    to.print(table)
    sizes = [f"groups of {size}" for size in SIZES]
    paid = plain_table(["going on", *sizes, "difficulty"], [False, *[True] * len(SIZES), False])
    for one in card.worlds:
        if not one.matters:
            paid.add_row(one.world, *(deviations(one.going_on[size]) for size in SIZES), one.difficulty)
    if paid.rows:
        to.print(paid)
    for world, reason in card.left_out:
        to.print(f"not scored in {world}, which {reason}")
    facts = plain_table(["", ""], [False, False])
    for name, text in honesty(card):
        facts.add_row(name, text)
    to.print(facts)
    to.print(f"{card.rollouts:,} rollouts drawn in each world (seed {card.seed}). Without a size: groups of {SIZE}.")
    exact = [one.world for one in card.worlds if one.validity[SIZES[0]].enumerated]
    if exact:
        to.print(f"All groups of {SIZES[0]} were enumerated, so that their numbers are exact, in {', '.join(exact)}.")
