"""Figures over the turns of a rollout, with their texts: credit, subgoals, the true value, SCPO's walk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from turncredit.views.pages import draw
from turncredit.views.pages.agreement import agreement
from turncredit.views.pages.cells import rank_text
from turncredit.views.pages.data import Book
from turncredit.views.pages.formats import level, number, one_line, plain
from turncredit.views.pages.method_details import Walk
from turncredit.views.pages.subgoals import Subgoal
from turncredit.views.pages.turn_details import subgoals


@dataclass(frozen=True)
class Lane:
    """One method's strip over a rollout, with its agreement with A*."""

    name: str
    kind: str
    title: str
    picture: Markup
    score: str = ""
    signs: str = ""


def lanes(book: Book, rollout: int, order: list[str], width: int) -> list[Lane]:
    """A*'s strip, if there is one, then every method's. Where no turn was branched, that is said in its place."""
    rows, truth, out = book.rows(rollout), book.truth, []
    measured = len(book.branched(rollout)) > 0
    if truth is not None:
        how = "how much each turn mattered, by branching; lines are 1.96 standard errors"
        drawn = {"width": width, "se_T": truth.se_N[rows], "label": "A* of each turn"}
        strip = draw.strip(truth.advantage_N[rows], truth.scale, **drawn)
        missing = Markup('<span class="muted">not measured: no turn of this rollout was branched</span>')
        out.append(Lane("A*, the truth", "truth", how, strip if measured else missing))
    for column, method in enumerate(order):
        credit, score = book.credits[method], agreement(book, method, rollout)
        label = f"credit of each turn by {method}"
        strip = draw.strip(credit.shown_N[rows], credit.scale, width=width, label=label)
        out.append(
            Lane(
                method,
                f"c{column}",
                f"{method}: full bar {plain(credit.scale, 3)}",
                Markup(f'<div class="c{column}">') + strip + Markup("</div>"),
                score=rank_text(score) if measured else "",
                signs=f"{score.right} of {score.clear}" if score.clear else "",
            )
        )
    return out


def brackets(book: Book, rollout: int) -> dict[str, Any] | None:
    """The subgoals as brackets over the columns of turns, with the tokens of the context below them, if recorded."""
    rollout_subgoals = subgoals(book, rollout)
    if not rollout_subgoals:
        return None
    # Stretches from left to right, those without a subgoal between them.
    parts: list[tuple[int, Subgoal | None]] = []
    turn = 0
    for subgoal in rollout_subgoals:
        parts += [(subgoal.first - turn, None)] if subgoal.first > turn else []
        parts.append((subgoal.last - subgoal.first + 1, subgoal))
        turn = subgoal.last + 1
    rows = book.rows(rollout)
    parts += [(len(rows) - turn, None)] if turn < len(rows) else []
    tokens_T = np.array([book.cell("prompt_tokens", int(row)) for row in rows], dtype=np.float64)
    context = None
    if np.isfinite(tokens_T).all() and tokens_T.max() > 0:
        context = {
            "picture": draw.levels(tokens_T, top=tokens_T.max(), width=len(rows), label="context tokens at each turn"),
            "low": f"{tokens_T.min():,.0f}",
            "high": f"{tokens_T.max():,.0f}",
        }
    folded = sum(subgoal.completed_at is not None for subgoal in rollout_subgoals)
    return {"parts": parts, "count": len(rollout_subgoals), "folded": folded, "context": context}


def course(book: Book, rollout: int, width: int) -> dict[str, Any] | None:
    """The true value over the rollout, with the values of learned models that estimate the same thing."""
    truth = book.truth
    rows = book.rows(rollout)
    if truth is None or not {"v_true", "q_true"} <= set(truth.extra):
        return None
    before, after = truth.extra["v_true"][rows], truth.extra["q_true"][rows]
    if not np.isfinite(before).any():
        return None
    missing = np.full(len(rows), np.nan)
    se = [truth.extra[name][rows] if name in truth.extra else missing for name in ("v_se", "q_se")]
    learned = [
        (method, outputs.value_N[rows])
        for method, outputs in book.values.items()
        if outputs.kind == "turn_value" and np.isfinite(outputs.value_N[rows]).any()
    ][:2]
    values = np.concatenate([before, after])
    low, high = (0.0, 1.0) if book.is_chance else (float(np.nanmin(values)), float(np.nanmax(values)))
    lines = [(f"l{place}", numbers) for place, (_, numbers) in enumerate(learned, start=1)]
    label = "true value before and after each branched turn"
    dashes = zip(("dashed", "dotted"), learned, strict=False)
    return {
        "name": "chance of success" if book.is_chance else "expected return",
        "low": level(book, low),
        "high": level(book, high),
        "picture": draw.course(before, se[0], after, se[1], lines, low=low, high=high, width=width, label=label),
        "lines": ", ".join(f"{dash}: V of {method}" for dash, (method, _) in dashes),
    }


def walk_view(book: Book, walk: Walk, drawn: dict[bytes, str]) -> dict[str, Any]:
    """SCPO's heatmap (`drawn`: see `draw.heatmap`) and the credited steps in words."""
    turn_N = book.turns.turn_N
    credited = [(step, int(walk.reference[step.place])) for step in walk.steps if step.place >= 0]
    steps = [
        {
            "failed": int(turn_N[step.row]),
            "reference": int(turn_N[like]),
            "action": one_line(book.cell("action", step.row)),
            "like": one_line(book.cell("action", like)),
            "similarity": f"{step.similarity:.2f}",
            "credit": number(step.credit),
        }
        for step, like in credited
    ]
    picture = draw.heatmap(walk, turn_N, drawn)
    return {"method": walk.method, "theta": f"{walk.theta:g}", "picture": picture, "steps": steps}
