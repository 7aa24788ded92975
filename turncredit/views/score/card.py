"""The card in the terminal."""

from __future__ import annotations

from rich.console import Console

from turncredit.audit.score.card import SIZE, SIZES, Card, Summary
from turncredit.views.score.words import COLUMNS, deviations, honesty, row, verdict
from turncredit.views.terminal import plain_table


def print_card(card: Card, summary: Summary, to: Console) -> None:
    """Print the sentences, a row for each world, what going on is paid, and what the method depends on."""
    to.print(f"{card.method}: {card.about}\n")
    for sentence in verdict(card, summary):
        to.print(f"  {sentence}")
    to.print()
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
    to.print("What these numbers are worth in training: docs/leaderboard.md.")
    if exact:
        to.print(f"All groups of {SIZES[0]} were enumerated, so that their numbers are exact, in {', '.join(exact)}.")
