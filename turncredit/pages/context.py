"""The values that the templates show: texts are made here, markup there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile, zip_longest
from typing import Any

import numpy as np
from markupsafe import Markup

from turncredit.pages import draw
from turncredit.pages.agreement import Agreement, agreement, clashes
from turncredit.pages.data import CLEAR, Book, noise_of_largest
from turncredit.pages.method_details import Walk, gate_words
from turncredit.pages.subgoals import Subgoal, charged, subgoals_of
from turncredit.terminal import visible

ROLES = {"D": "decisive", "E": "exploration", "N": "no progress", "R": "regression"}


@dataclass(frozen=True)
class Cell:
    """A number with its sign and size. `kind` is the style's classes; `share` of full colour; whisker: left, width."""

    name: str
    text: str
    kind: str
    share: str = "0"
    clash: bool = False
    title: str = ""
    error: str = ""
    whisker: tuple[float, float] | None = None


@dataclass(frozen=True)
class Lane:
    """One method's strip over a rollout, with its agreement with A*."""

    name: str
    kind: str
    title: str
    picture: Markup
    score: str = ""
    signs: str = ""


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


def marks(book: Book, rollout: int) -> dict[int, str]:
    """The turns of the largest A* above zero (decisive) and of the smallest below (fatal), by turn number."""
    if book.truth is None:
        return {}
    rows = book.branched(rollout)
    true = book.truth.advantage_N[rows]
    mark_of = {}
    if len(rows) and true.max() > 0:
        mark_of[int(book.turns.turn_N[rows[true.argmax()]])] = "decisive"
    if len(rows) and true.min() < 0:
        mark_of[int(book.turns.turn_N[rows[true.argmin()]])] = "fatal"
    return mark_of


def sign_of(value: float) -> str:
    """The style's class for a number's sign."""
    return "pos" if value > 0 else "neg" if value < 0 else "flat"


def credit_cell(book: Book, method: str, row: int, column: int) -> Cell:
    """One method's advantage of one turn."""
    credit = book.credits[method]
    value = float(credit.advantage_N[row])
    return Cell(
        name=method,
        text=draw.number(value, draw.decimals_for(credit.scale)),
        kind=f"c{column} {sign_of(value)}",
        share=f"{draw.share(value, credit.scale):.2f}",
        clash=clashes(book, method, row),
    )


def true_cell(book: Book, row: int) -> Cell | None:
    """A* of one turn with its standard error; the whisker is 1.96 of them, in the bar's units."""
    truth = book.truth
    if truth is None:
        return None
    value, se = float(truth.advantage_N[row]), float(truth.se_N[row])
    if not np.isfinite(value):
        return Cell(name="A*", text="·", kind="true none", title="not branched")
    ends = [50 + 48 * float(np.clip((value + k * se) / truth.scale, -1, 1)) for k in (-CLEAR, CLEAR)]
    places = draw.decimals_for(truth.scale)
    count = truth.of("continuations", row)
    return Cell(
        name="A*",
        text=draw.number(value, places),
        kind=f"true {sign_of(value)}",
        share=f"{draw.share(value, truth.scale):.2f}",
        error=draw.plain(se, places),
        title=f"{count:.0f} continuations from each state" if np.isfinite(count) else "",
        whisker=(round(ends[0], 1), round(ends[1] - ends[0], 1)),
    )


def turns_of(book: Book, rollout: int, order: list[str], *, components: bool) -> list[Turn]:
    """Every turn of a rollout. `order` is the methods' order; components only if requested."""
    mark_of = marks(book, rollout)
    begins = {subgoal.first: subgoal for subgoal in subgoals(book, rollout)}
    previous = None
    out = []
    for row in book.rows(rollout).tolist():
        number = int(book.turns.turn_N[row])
        saw, got = one_line(book.cell("observation", row)), one_line(book.cell("next_observation", row))
        action = book.cell("action", row)
        out.append(
            Turn(
                number=number,
                saw=saw if number and saw != previous else "",
                action=one_line(action if action is not None else book.cell("response_text", row)) or "(no action)",
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
                fault=one_line(book.cell("fault", row)),
                penalties=_penalties(book, row),
                components=_components(book, row, order) if components else [],
            )
        )
        previous = got
    return out


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


def lanes(book: Book, rollout: int, order: list[str], width: int) -> list[Lane]:
    """A*'s strip, if there is one, then every method's."""
    rows = book.rows(rollout)
    out = []
    if book.truth is not None:
        out.append(
            Lane(
                "A*, the truth",
                "truth",
                "how much each turn mattered, by branching; lines are 1.96 standard errors",
                draw.strip(
                    book.truth.advantage_N[rows],
                    book.truth.scale,
                    width=width,
                    se_T=book.truth.se_N[rows],
                    label="A* of each turn",
                ),
            )
        )
    for column, method in enumerate(order):
        credit = book.credits[method]
        score = agreement(book, method, rollout)
        out.append(
            Lane(
                method,
                f"c{column}",
                f"{method}: full bar {draw.plain(credit.scale, 3)}",
                Markup(f'<div class="c{column}">')
                + draw.strip(
                    credit.advantage_N[rows], credit.scale, width=width, label=f"credit of each turn by {method}"
                )
                + Markup("</div>"),
                score=rank_text(score) if book.truth else "",
                signs=f"{score.right} of {score.clear}" if score.clear else "",
            )
        )
    return out


def rank_text(score: Agreement) -> str:
    """The rank correlation; ∅ if a method's credit is constant, a dash if there is no order to find."""
    return draw.number(score.rank) if np.isfinite(score.rank) else "∅" if score.ranked else "–"


def rank_cell(method: str, score: Agreement) -> Cell:
    """A rank correlation as a cell of the index."""
    finite = bool(np.isfinite(score.rank))
    return Cell(
        name=method,
        text=rank_text(score),
        kind=sign_of(score.rank) if finite else "none",
        share=f"{abs(score.rank):.2f}" if finite else "0",
        title=f"{method}: {score.right} of {score.clear} known signs right" if score.clear else method,
    )


def verdict(book: Book, rollout: int) -> list[Markup]:
    """A short summary: which turn mattered most, by how much, and which methods credited it."""
    if book.truth is None:
        return []
    rows = book.branched(rollout)
    if not len(rows):
        return [Markup("No turn of this rollout was branched, so its true advantages are not known.")]
    true = book.truth.advantage_N[rows]
    won = bool(book.success_R[rollout])
    worst_first = [("decisive", true.argmax(), 1), ("fatal", true.argmin(), -1)]
    if not won:
        worst_first.reverse()
    sentences = [
        _mattered(book, rollout, word, int(rows[at]), sign) for word, at, sign in worst_first if true[at] * sign > 0
    ]
    if ranked := _ranked(book, rollout):
        sentences.append(ranked)
    return sentences


def _mattered(book: Book, rollout: int, word: str, row: int, sign: int) -> Markup:
    truth = book.truth
    assert truth is not None
    value, se = float(truth.advantage_N[row]), float(truth.se_N[row])
    places = draw.decimals_for(truth.scale)
    before, after = truth.of("v_true", row), truth.of("q_true", row)
    moved = ""
    if np.isfinite(before) and np.isfinite(after):
        what = "the chance of success" if book.is_chance else "the expected return"
        moved = f" {what} {'rose' if sign > 0 else 'fell'} from {_level(book, before)} to {_level(book, after)}"
    count = len(book.branched(rollout))
    doubt = f", within the noise of the largest of {count} turns" if abs(value) <= noise_of_largest(se, count) else ""
    text = Markup('<b class="{}">★ {}</b> was <a href="#t{}">turn {}</a>, <code>{}</code>:{} (A* {} ± {}{}).').format(
        "good" if sign > 0 else "bad",
        word.capitalize(),
        int(book.turns.turn_N[row]),
        int(book.turns.turn_N[row]),
        one_line(book.cell("action", row)) or "no action",
        moved,
        draw.number(value, places),
        draw.plain(se, places),
        doubt,
    )
    right = sum(bool(credit.advantage_N[row] * sign > 0) for credit in book.credits.values())
    saw = _who_saw(book, rollout, row, sign)
    does = "credit" if sign > 0 else "blame"
    most = f"{_and(saw)} {does}{'s' if len(saw) == 1 else ''} it most" if saw else f"none {does}s it most"
    return text + f" {right} of {len(book.credits)} methods {does} it; {most}."


def _who_saw(book: Book, rollout: int, row: int, sign: int) -> list[str]:
    """The methods that credit (or blame) this turn more than any other of the rollout, and not most turns alike."""
    rows = book.rows(rollout)
    methods = []
    for method, credit in book.credits.items():
        size = credit.advantage_N[rows] * sign
        mine = credit.advantage_N[row] * sign
        if mine > 0 and mine == size.max() and np.median(size) < mine:
            methods.append(method)
    return methods


def _ranked(book: Book, rollout: int) -> Markup | None:
    ranks = [(agreement(book, method, rollout).rank, method) for method in book.credits]
    ranks = sorted(((rank, method) for rank, method in ranks if np.isfinite(rank)), reverse=True)
    if len(ranks) < 2:
        return None
    (top, best), (low, worst) = ranks[0], ranks[-1]
    return Markup("Over its {} branched turns <b>{}</b> ranks most like A* ({}), <b>{}</b> least ({}).").format(
        len(book.branched(rollout)), best, draw.number(top), worst, draw.number(low)
    )


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
    picture = draw.course(
        before,
        se[0],
        after,
        se[1],
        [(f"l{place}", numbers) for place, (_, numbers) in enumerate(learned, start=1)],
        low=low,
        high=high,
        width=width,
        label="true value before and after each branched turn",
    )
    name = "chance of success" if book.is_chance else "expected return"
    return {
        "name": name,
        "low": _level(book, low),
        "high": _level(book, high),
        "picture": picture,
        "lines": ", ".join(
            f"{dash}: V of {method}" for dash, (method, _) in zip(("dashed", "dotted"), learned, strict=False)
        ),
    }


def side_by_side(left: list[Turn], right: list[Turn]) -> list[tuple[Turn | None, Turn | None, bool]]:
    """The turns of two rollouts on common lines, turn by turn; whether they belong to what the two have in common.

    Only up to where they part are they in the same state: an equal action later on is another decision.
    """
    alike = _alike(left, right)
    return [(one, other, turn < alike) for turn, (one, other) in enumerate(zip_longest(left, right))]


def _alike(left: list[Turn], right: list[Turn]) -> int:
    """The number of turns, from the start, in which two rollouts of one game do and see the same."""
    same = ((one.action, one.got) == (other.action, other.got) for one, other in zip(left, right, strict=False))
    return sum(1 for _ in takewhile(bool, same))


def parting(left: list[Turn], right: list[Turn]) -> Markup:
    """Where two rollouts of one game diverge."""
    alike = _alike(left, right)
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


def walk_view(book: Book, walk: Walk, drawn: dict[bytes, str]) -> dict[str, Any]:
    """SCPO's heatmap (`drawn`: see `draw.heatmap`) and the credited steps in words."""
    turn_N = book.turns.turn_N
    steps = []
    for step in walk.steps:
        if step.place < 0:
            continue
        like = int(walk.reference[step.place])
        steps.append(
            {
                "failed": int(turn_N[step.row]),
                "reference": int(turn_N[like]),
                "action": one_line(book.cell("action", step.row)),
                "like": one_line(book.cell("action", like)),
                "similarity": f"{step.similarity:.2f}",
                "credit": draw.number(step.credit),
            }
        )
    return {
        "method": walk.method,
        "theta": f"{walk.theta:g}",
        "picture": draw.heatmap(walk, turn_N, drawn),
        "steps": steps,
    }


def _components(book: Book, row: int, order: list[str]) -> list[dict[str, Any]]:
    out = []
    for column, method in enumerate(order):
        parts: Mapping[str, np.ndarray] = book.credits[method].components
        words = gate_words(parts, row)
        values = [(name, _significant(float(x_N[row]))) for name, x_N in parts.items()]
        if values:
            out.append({"column": column, "method": method, "numbers": values, "words": words})
    return out


def _penalties(book: Book, row: int) -> list[tuple[str, str]]:
    """HIPIF's penalties of a turn, in words, and the methods whose credit has them."""
    numbers = {
        method: {name: float(x_N[row]) for name, x_N in credit.components.items()}
        for method, credit in book.credits.items()
    }
    return [(f"penalty {draw.number(value)}: {words}", ", ".join(who)) for words, value, who in charged(numbers)]


def _facts(book: Book, row: int) -> list[str]:
    """Reward, progress, the planner's distance and tokens, if informative."""
    facts = []
    if reward := book.cell("reward", row):
        facts.append(f"reward {draw.plain(reward, 2)}")
    before, after = book.cell("distance_before", row), book.cell("distance", row)
    if after is not None:
        moved = f"{_steps(before)} to {_steps(after)}" if before is not None and before != after else _steps(after)
        facts.append(f"planner: {moved} left" if after >= 0 else f"planner: {moved}")
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
    out = []
    truth = book.truth
    if truth is not None and truth.branched_N[row]:
        v, q = truth.of("v_true", row), truth.of("q_true", row)
        if np.isfinite(v) and np.isfinite(q):
            out.append(
                f"V before {_significant(v)} ± {_significant(truth.of('v_se', row))}, "
                f"Q after {_significant(q)} ± {_significant(truth.of('q_se', row))}"
            )
        reference = truth.of("advantage_reference", row)
        if np.isfinite(reference):
            se = truth.of("advantage_reference_se", row)
            out.append(f"under the noisy expert A is {_significant(reference)} ± {_significant(se)}")
    for method, outputs in book.values.items():
        numbers = [
            f"{what} {_significant(float(numbers_N[row]))}"
            for what, numbers_N in (("V", outputs.value_N), ("attention", outputs.weight_N))
            if np.isfinite(numbers_N[row])
        ]
        if numbers:
            out.append(f"credit model of {method}: {', '.join(numbers)}")
    choices = book.cell("admissible", row)
    if choices:
        out.append(f"{len(choices)} admissible: {', '.join(one_line(choice) for choice in choices)}")
    return out


def _labels(book: Book, row: int) -> list[dict[str, str]]:
    """Each judge's label of a turn: a role, a score, its evidence, or why there is no label."""
    out = []
    for judge, side in book.labels.items():
        at = int(side.row_N[row])
        label = {
            name: side.table.column(name)[at].as_py() if side.has(name) else None
            for name in ("role", "score", "evidence", "reason")
        }
        parts = []
        if label["role"]:
            parts.append(ROLES.get(label["role"], label["role"]))
        if label["score"] is not None:
            parts.append(f"score {label['score']:.2g}")
        if label["evidence"]:
            parts.append(f"“{one_line(label['evidence'])}”")
        if not parts:
            parts.append(f"no label: {one_line(label['reason']) or 'no reason given'}")
        role = ROLES.get(label["role"], label["role"]) if label["role"] else ""
        repeated = any(earlier["role"] == role for earlier in out)
        out.append({"judge": judge, "role": "" if repeated else role, "words": ", ".join(parts)})
    return out


def _level(book: Book, value: float) -> str:
    return f"{100 * value:.0f}%" if book.is_chance else f"{value:.3g}"


def _significant(value: float) -> str:
    """Four significant digits; a dash if missing."""
    return f"{value:.4g}".replace("-", "−") if np.isfinite(value) else "–"


def one_line(text: object) -> str:
    """A text from the tables on one line, its control characters shown; empty for None."""
    return visible(" ".join(str(text).split())) if text is not None else ""


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
