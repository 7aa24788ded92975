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
    recorded_row,
    row,
    share,
    two,
    verdict,
)
from turncredit.views.terminal import plain_table, print_table

#: Columns of the recorded rollouts that a narrow terminal lacks, the last one first.
OPTIONAL = ("chance", "between rollouts", "turn's number", "refused", "dead groups")


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
    for name, of in (("mean", "value"), ("95% from", "low"), ("95% to", "high")):
        table.add_row(name, *_means(found, of))
    print_table(table, to, optional=OPTIONAL)
    to.print("`a of b`: the truth itself would score b. In brackets: the share of A*. Columns: docs/score_data.md.")
    to.print(recorded_about(found))


def _means(found: RolloutScore, of: str) -> list[str]:
    """The means over parts, or an end of their intervals, in the order of `RECORDED_COLUMNS`: three lines, as one with
    `+0.11 (+0.08 to +0.14)` would be the widest of the table."""
    rank, sign, top, alignment = (
        getattr(number, of) for number in (found.rank, found.sign, found.top, found.alignment)
    )
    chance = share(found.chance) if of == "value" else ""
    return [two(rank), share(sign), share(top), chance, two(alignment), *[""] * 4]


def _print_worlds(card: Card, to: Console) -> None:
    table = plain_table(["world", *COLUMNS, "difficulty"], [False, *[True] * len(COLUMNS), False])
    for one in card.scored():
        table.add_row(one.world, *row(one), one.difficulty)
    print_table(table, to, optional=["difficulty"])
    sizes = [f"groups of {size}" for size in SIZES]
    paid = plain_table(["going on", *sizes, "difficulty"], [False, *[True] * len(SIZES), False])
    for one in card.worlds:
        if not one.matters:
            paid.add_row(one.world, *(deviations(one.going_on[size]) for size in SIZES), one.difficulty)
    if paid.rows:
        print_table(paid, to, optional=["difficulty"])
    for world, reason in card.left_out:
        to.print(f"not scored in {world}, which {reason}")
    facts = plain_table(["", ""], [False, False])
    for name, text in honesty(card):
        facts.add_row(name, text)
    print_table(facts, to)
    to.print(f"{card.rollouts:,} rollouts drawn in each world (seed {card.seed}). Without a size: groups of {SIZE}.")
    exact = [one.world for one in card.worlds if one.validity[SIZES[0]].enumerated]
    if exact:
        to.print(f"All groups of {SIZES[0]} were enumerated, so that their numbers are exact, in {', '.join(exact)}.")
