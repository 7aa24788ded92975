"""A rollout's turns with all that the tables say of them, and two rollouts beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile, zip_longest
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from turncredit.judges.rubric import ROLE_NAMES
from turncredit.views.pages.cells import Cell, credit_cell, true_cell
from turncredit.views.pages.data import Book, extremes
from turncredit.views.pages.formats import number, one_line, plain, significant
from turncredit.views.pages.method_details import gate_words
from turncredit.views.pages.subgoals import Subgoal, charged, subgoals_of


@dataclass(frozen=True)
class Turn:
    """One turn as the pages show it. `begins`: the subgoal that starts with it; `penalties`: words and methods."""

    number: int
    saw: str
    action: str
    valid: bool
    got: str
    mark: str
    facts: list[str]
    labels: list[dict[str, str]]
    more: list[str]
    true: Cell | None
    cells: list[Cell]
    begins: Subgoal | None = None
    reflection: str = ""
    fault: str = ""
    penalties: list[tuple[str, str]] = field(default_factory=list)
    components: list[dict[str, Any]] = field(default_factory=list)


class Step(NamedTuple):
    """What was done in a turn and what came of it."""

    action: str
    got: str
    valid: bool


def steps_of(book: Book, rollout: int) -> list[Step]:
    """The turns of a rollout in brief."""
    return [
        Step(_action(book, row), one_line(book.cell("next_observation", row)), book.cell("valid", row) is not False)
        for row in book.rows(rollout).tolist()
    ]


def _action(book: Book, row: int) -> str:
    action = book.cell("action", row)
    return one_line(action if action is not None else book.cell("response_text", row)) or "(no action)"


def turns_of(book: Book, rollout: int, order: list[str], *, components: bool) -> list[Turn]:
    """Every turn of a rollout. `order` is the methods' order; components only if requested."""
    mark_of = marks(book, rollout)
    begins = {subgoal.first: subgoal for subgoal in subgoals(book, rollout)}
    previous = None
    out = []
    for row in book.rows(rollout).tolist():
        number = int(book.turns.turn_N[row])
        saw, got = one_line(book.cell("observation", row)), one_line(book.cell("next_observation", row))
        out.append(
            Turn(
                number=number,
                saw=saw if number and saw != previous else "",
                action=_action(book, row),
                valid=book.cell("valid", row) is not False,
                got=got,
                mark=mark_of.get(number, ""),
                facts=_facts(book, row),
                labels=_labels(book, row),
                more=_more(book, row) if components else [],
                true=true_cell(book, row),
                cells=[credit_cell(book, method, row, column) for column, method in enumerate(order)],
                begins=begins.get(number),
                reflection=one_line(book.cell("reflection", row)),
                fault=one_line(book.cell("fault", row) or book.cell("tool_error", row)),
                penalties=_penalties(book, row),
                components=_components(book, row, order) if components else [],
            )
        )
        previous = got
    return out


def marks(book: Book, rollout: int) -> dict[int, str]:
    """The most `useful` and the most `harmful` turn of a rollout (`extremes`), by turn number."""
    if book.truth is None:
        return {}
    rows = book.branched(rollout).tolist()
    return extremes({int(book.turns.turn_N[row]): float(book.truth.advantage_N[row]) for row in rows})


def subgoals(book: Book, rollout: int) -> list[Subgoal]:
    """The subgoals of a rollout; none where the turns have no such columns."""
    names = ("subgoal", "subgoal_index", "completed", "prompt_tokens")
    present = [name for name in names if book.turns.has(name)]
    rows = book.rows(rollout).tolist()
    return subgoals_of(
        [
            {"turn": int(book.turns.turn_N[row])}
            | {name: one_line(book.cell(name, row)) if name == "subgoal" else book.cell(name, row) for name in present}
            for row in rows
        ]
    )


def _components(book: Book, row: int, order: list[str]) -> list[dict[str, Any]]:
    out = []
    for column, method in enumerate(order):
        parts: Mapping[str, np.ndarray] = book.credits[method].components
        if values := [(name, significant(float(x_N[row]))) for name, x_N in parts.items()]:
            out.append({"column": column, "method": method, "numbers": values, "words": gate_words(parts, row)})
    return out


def _penalties(book: Book, row: int) -> list[tuple[str, str]]:
    """HIPIF's penalties of a turn, in words, and the methods whose credit has them."""
    numbers = {
        method: {name: float(x_N[row]) for name, x_N in credit.components.items()}
        for method, credit in book.credits.items()
    }
    return [(f"penalty {number(value)}: {words}", ", ".join(who)) for words, value, who in charged(numbers)]


def _facts(book: Book, row: int) -> list[str]:
    """Reward, progress, the exact distance to the goal and tokens, if informative."""
    facts = []
    if reward := book.cell("reward", row):
        facts.append(f"reward {plain(reward, 2)}")
    before, after = book.cell("distance_before", row), book.cell("distance", row)
    if after is not None:
        moved = f"{_steps(before)} → {_steps(after)}" if before is not None and before != after else _steps(after)
        facts.append(f"shortest plan: {moved}" + f" action{'s' * (after != 1)}" * (after >= 0))
    before, after = book.cell("progress_before", row), book.cell("progress", row)
    if after is not None and before is not None and before != after:
        facts.append(f"progress {before:.2g} to {after:.2g}")
    if (tokens := book.cell("prompt_tokens", row)) is not None:
        folded = book.cell("folded_tokens", row)
        facts.append(f"context {tokens:,} tokens" + (f", {folded:,} of them folded" if folded else ""))
    if cut := book.cell("truncated_tokens", row):
        facts.append(f"{cut:,} tokens did not fit")
    return facts


def _steps(distance: int) -> str:
    return "out of reach" if distance < 0 else f"{distance}"


def _more(book: Book, row: int) -> list[str]:
    """Details of a turn: values by branching, by the reference policy and by credit models; admissible actions."""
    out, truth = [], book.truth
    if truth is not None and truth.branched_N[row]:
        known = {}
        for value, se in (("v_true", "v_se"), ("q_true", "q_se"), ("advantage_reference", "advantage_reference_se")):
            x, error = truth.of(value, row), truth.of(se, row)
            known[value] = f"{significant(x)} ± {significant(error)}" if np.isfinite(x) else None
        v, q, reference = known.values()
        out += [f"V before {v}, Q after {q}"] if v and q else []
        out += [f"under the noisy expert A is {reference}"] if reference else []
    for method, outputs in book.values.items():
        both = (("V", outputs.value_N[row]), ("attention", outputs.weight_N[row]))
        if numbers := [f"{what} {significant(float(x))}" for what, x in both if np.isfinite(x)]:
            out.append(f"credit model of {method}: {', '.join(numbers)}")
    if choices := book.cell("admissible", row):
        out.append(f"{len(choices)} admissible: {', '.join(one_line(choice) for choice in choices)}")
    return out


def _labels(book: Book, row: int) -> list[dict[str, str]]:
    """Each judge's label of a turn: a role, a score, its evidence, or why there is no label."""
    out: list[dict[str, str]] = []
    for judge, side in book.labels.items():
        at = int(side.row_N[row])
        names = ("role", "score", "evidence", "reason")
        role, score, evidence, reason = (
            side.table.column(name)[at].as_py() if side.has(name) else None for name in names
        )
        role = ROLE_NAMES.get(role, role) if role else ""
        parts = [role] if role else []
        parts += [] if score is None else [f"score {score:.2g}"]
        parts += [f"“{one_line(evidence)}”"] if evidence else []
        parts = parts or [f"no label: {one_line(reason) or 'no reason given'}"]
        repeated = any(earlier["role"] == role for earlier in out)
        out.append({"judge": judge, "role": "" if repeated else role, "words": ", ".join(parts)})
    return out


def side_by_side(left: list[Turn], right: list[Turn]) -> list[tuple[Turn | None, Turn | None, bool]]:
    """The turns of two rollouts on common lines, turn by turn; whether they belong to what the two have in common.

    Only up to where they part are they in the same state: an equal action later on is another decision.
    """
    alike = alike_turns(left, right)
    return [(one, other, turn < alike) for turn, (one, other) in enumerate(zip_longest(left, right))]


def alike_turns(left: Sequence[Turn | Step], right: Sequence[Turn | Step]) -> int:
    """The number of turns, from the start, in which two rollouts of one game do and see the same."""
    same = ((one.action, one.got) == (other.action, other.got) for one, other in zip(left, right, strict=False))
    return sum(1 for _ in takewhile(bool, same))


def parting(left: list[Turn], right: list[Turn]) -> Markup:
    """Where two rollouts of one game diverge."""
    alike = alike_turns(left, right)
    if alike == min(len(left), len(right)):
        return Markup("They take the same actions until the shorter one ends.")
    start = (
        "They part at once" if not alike else f"They are alike for {alike} turn{'s' if alike > 1 else ''}, then part"
    )
    one, other = left[alike], right[alike]
    if one.action == other.action:
        return Markup("{}: both do <code>{}</code>, and see different things.").format(start, one.action)
    return Markup("{}: the first does <code>{}</code>, the second <code>{}</code>.").format(
        start, one.action, other.action
    )
