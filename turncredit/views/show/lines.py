"""What `turncredit show` prints: lines of text. Control characters in the tables are shown, not obeyed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table
from rich.text import Text

from turncredit.credit.parts.baselines import NOT_COMPARED
from turncredit.data import tables
from turncredit.data.counts import number_of
from turncredit.data.turns import rollout_name
from turncredit.judges.rubric import ROLE_NAMES
from turncredit.stats.rank_correlation import rounded, within
from turncredit.views.pages.data import extremes, noise_of_largest, too_few_to_rank
from turncredit.views.pages.subgoals import Subgoal, charged, subgoals_of
from turncredit.views.show.read import RolloutCredit, RolloutTables, Row, rollouts_of
from turncredit.views.terminal import folded, plain_table, visible

#: Cells of a bar on each side of zero.
BAR = 12
#: Rollouts that a terminal lists, or more if more have ground truth.
LISTED = 20


def listed(turns: pa.Table, truth: pa.Table | None) -> list[tuple[str, str]]:
    """(group, rollout) of all rollouts in the order of the list: those with ground truth first."""
    branched = _branched(truth)
    return sorted(rollouts_of(turns), key=lambda one: one not in branched)


def names_of(ids: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """By (group, rollout) what a rollout is called: ROLLOUT where no other has this id, else GROUP/ROLLOUT."""
    count = Counter(rollout for _, rollout in ids)
    return {(group, rollout): rollout if count[rollout] == 1 else f"{group}/{rollout}" for group, rollout in ids}


def first_of(ids: Sequence[tuple[str, str]], truth: pa.Table | None) -> Sequence[tuple[str, str]]:
    """Those of `listed` that a terminal has room for: the ones with ground truth, and at least `LISTED`."""
    branched = _branched(truth)
    return ids[: max(LISTED, sum(one in branched for one in ids))]


def rollout_list(
    turns: pa.Table, truth: pa.Table | None, where: str, ids: Sequence[tuple[str, str]], names: dict
) -> Table:
    """One line for each of `ids`, called by `names`, with its number of turns with ground truth, if there are any."""
    optional = [name for name in ("family", "success", "score", "goal") if name in turns.column_names]
    if {"success", "score"} <= set(optional) and _same(turns.column("success"), turns.column("score")):
        optional.remove("score")
    numeric = {"score", "turns", "return", "branched", "invalid"}
    with_return = "success" not in optional and "reward" in turns.column_names
    branched = _branched(truth)
    counted = ["branched"] * (truth is not None) + ["invalid"] * ("valid" in turns.column_names)
    columns = ["rollout", "turns", *["return"] * with_return, *counted, *optional]
    grid = plain_table(columns, [name in numeric for name in columns], where)
    grid.collapse_padding = True
    for column in grid.columns:
        column.no_wrap = column.header != "goal"  # a name is never broken: where there is no room, the goal is cut
    grid.columns[0].min_width = max((len(visible(names[one])) for one in ids), default=0)
    rows_of = rollouts_of(turns)
    valid = turns.column("valid").to_pylist() if "valid" in turns.column_names else [True] * turns.num_rows
    for group, rollout in ids:
        rows = rows_of[group, rollout]
        last = turns.select(optional).slice(rows[-1], 1).to_pylist()[0] if optional else {}
        invalid = sum(not valid[row] for row in rows)
        counts = {"branched": branched[group, rollout], "invalid": invalid}
        returns = [_return(turns.column("reward").slice(rows[0], len(rows)))] if with_return else []
        numbers = [str(len(rows)), *returns, *(str(counts[name]) for name in counted)]
        texts = (names[group, rollout], *numbers, *(_value(last[name]) for name in optional))
        grid.add_row(*(Text(visible(text), no_wrap=True, overflow="ellipsis") for text in texts))
    return grid


def _return(rewards: pa.ChunkedArray) -> str:
    """A rollout's rewards summed, or none where no turn has one."""
    return _value(pc.sum(rewards.cast(pa.float64())).as_py())


def _same(success: pa.ChunkedArray, score: pa.ChunkedArray) -> bool:
    """Whether the score is 1 for every success and 0 for every failure."""
    known = pa.types.is_boolean(success.type) and pa.types.is_floating(score.type)
    return known and score.equals(success.cast(score.type))


def _branched(truth: pa.Table | None) -> Counter[tuple[str, str]]:
    """The number of turns with ground truth of each (group, rollout)."""
    ids = (
        (truth.column(key).cast(pa.string()).to_pylist() for key in tables.KEYS[:2]) if truth is not None else ([], [])
    )
    return Counter(zip(*ids, strict=True))


def rollout_head(rows: Sequence[Row]) -> Iterator[Text]:
    """The rollout's name, goal and outcome, and the first observation."""
    last = rows[-1]
    yield _text(rollout_name(last["group_id"], last["rollout_id"]), "bold")
    facts = [
        f"{name} {_value(last[name])}" for name in ("goal", "family", "success", "score", "policy_id") if name in last
    ]
    yield _text("; ".join([*facts, number_of(len(rows), "turn")]))
    if "observation" in last:
        yield _text(folded(str(rows[0]["observation"]).strip()), "dim")
    yield Text()


def rollout_turns(rows: Sequence[Row], about: RolloutTables, components: bool) -> Iterator[Text]:
    """All turns of a rollout, in the brackets of its subgoals."""
    yield from _agreement(about)
    subgoals = subgoals_of(rows)
    for row in rows:
        under = next((goal for goal in subgoals if goal.first <= row["turn"] <= goal.last), None)
        yield from _bracketed(_turn(row, about, components), under, row["turn"])


def turn_in_full(rows: Sequence[Row], about: RolloutTables, turn: int) -> Iterator[Text]:
    """Every column of one turn but the tokens, then every component of every method."""
    row = next(row for row in rows if row["turn"] == turn)
    for name, value in row.items():
        if name in ("prompt_ids", "response_ids", "response_logprobs", *tables.KEYS):
            continue
        text = "\n  ".join(str(part) for part in value) if isinstance(value, list) else _value(value)
        yield Text.assemble((f"{visible(name)}: ", "dim"), visible(text))
    yield from _truth_line(row["turn"], about)
    for judge, labels in about.labels:
        if row["turn"] in labels:
            yield Text.assemble((f"label by {judge}: ", "dim"), visible(_label(labels[row["turn"]])))
    yield Text()
    width = max((len(credit.method) for credit in about.credits), default=0)
    for credit in about.credits:
        yield _credit_line(credit, row["turn"], width)
        for name, value in credit.components[row["turn"]].items():
            yield Text(f"       {name} {value:+.4f}", style="dim")


def _agreement(about: RolloutTables) -> Iterator[Text]:
    """Rank correlation of each credit with the ground truth in this rollout, as in the fidelity measures, and over all.

    Noise and references come last. None where fewer than three turns have ground truth other than 0, or all the same;
    0 for a constant credit.
    """
    turns, one_rollout = sorted(about.truth), np.zeros(len(about.truth), dtype=np.int64)
    truth_T = np.array([about.true[turn] for turn in turns])
    if too_few := too_few_to_rank(len(turns), int((rounded(truth_T) != 0).sum())):
        yield Text(too_few)
        yield Text()
        return
    ranks = {}
    for credit in about.credits:
        ranked = within(np.array([credit.advantage[turn] for turn in turns]), truth_T, one_rollout, 1)
        if ranked.scored_R[0]:
            ranks[credit.method] = float(ranked.rho_R[0])
    if not ranks:
        return
    over = {credit.method: credit.over_all for credit in about.credits}
    rollouts = max(found.rollouts for found in over.values())
    parts = []
    for name, value in sorted(ranks.items(), key=lambda item: (item[0] in NOT_COMPARED, -item[1])):
        kind = f" ({NOT_COMPARED[name]})" if name in NOT_COMPARED else ""
        parts.append(f"{name}{kind} {value:+.2f}" + (f" ({over[name].mean:+.2f})" if rollouts > 1 else ""))
    beside = f" (and over {rollouts} rollouts)" if rollouts > 1 else ""
    yield Text(f"Rank correlation with A* over {len(turns)} turns of this rollout alone{beside}: {', '.join(parts)}")
    yield Text()


def _text(text: str, style: str = "") -> Text:
    """A text from the tables as a line of its own. Control characters in it are shown, not interpreted."""
    return Text(visible(text), style=style)


def _turn(row: dict, about: RolloutTables, components: bool) -> Iterator[Text]:
    """The lines of one turn: the action and its result, its ground truth, then one line for each method."""
    number = row["turn"]
    line = Text(f"{number:>3}  ", style="dim")
    action = visible(folded(str(row.get("action", row.get("response_text", "")))))
    line.append("> " + action.replace("\n", "\n" + " " * len("000  > ")), style="bold")
    line.append("".join(f"   {fact}" for fact in _facts(row)), style="dim")
    if not row.get("valid", True):
        line.append("   invalid", style="red")
    if row.get("fault"):
        line.append(f"   malformed: {visible(str(row['fault']))}", style="red")
    if row.get("tool_error"):
        line.append(f"   {visible(str(row['tool_error']))}", style="red")
    yield line
    if row.get("reflection"):
        yield _text(f"     reflection: {' '.join(str(row['reflection']).split())}", "dim")
    if "next_observation" in row:
        yield _text(f"     {folded(' '.join(str(row['next_observation']).split()))}")
    yield from _truth_line(number, about)
    for judge, labels in about.labels:
        if number in labels:
            yield _text(f"     {judge}: {_label(labels[number])}", "dim")
    for words, value, methods in charged({credit.method: credit.components[number] for credit in about.credits}):
        yield Text(f"     penalty {value:+g}: {words} ({', '.join(methods)})")
    width = max((len(credit.method) for credit in about.credits), default=0)
    for credit in about.credits:
        yield _credit_line(credit, number, width)
        if components:
            parts = ", ".join(f"{name} {value:+.3f}" for name, value in credit.components[number].items())
            yield Text(f"     {'':{width}}  {parts}", style="dim")
    yield Text()


def _bracketed(lines: Iterator[Text], subgoal: Subgoal | None, turn: int) -> Iterator[Text]:
    """A turn's lines with the bracket of its subgoal before them: its text at the first turn, its end at the last."""
    if subgoal is None:
        yield from lines
        return
    if turn == subgoal.first:
        head = Text(f"┌ subgoal {subgoal.number}, {subgoal.span}: ")
        yield head.append(visible(" ".join(subgoal.text.split())), style="bold")
    for line in lines:
        yield Text.assemble("│", line)
    if turn == subgoal.last:
        # A bracket that nobody closed stays open.
        yield Text(f"{'└' if subgoal.completed_at is not None else '╎'} {subgoal.end}")
        yield Text()


def _truth_line(number: int, about: RolloutTables) -> Iterator[Text]:
    """`A* +0.21 ± 0.08 (V 0.40, Q 0.61)`, and whether it is the rollout's best or worst branched turn, if branched."""
    if number not in about.truth:
        return
    row = about.truth[number]
    mark = extremes(about.true).get(number)
    star = f" ★ most {mark}" if mark else ""
    if mark and abs(row["advantage_true"]) <= noise_of_largest(row["advantage_true_se"], len(about.truth)):
        star += f", within the noise of the largest of {len(about.truth)}"
    details = [f"{letter} {row[name]:.2f}" for letter, name in (("V", "v_true"), ("Q", "q_true")) if name in row]
    if "continuations" in row:
        details.append(f"{row['continuations']} continuations")
    text = f"     A* {row['advantage_true']:+.3f} ± {row['advantage_true_se']:.3f}"
    yield Text.assemble(text, (f" ({', '.join(details)})" if details else "", "dim"), (star, "bold"))


def _credit_line(credit: RolloutCredit, number: int, width: int) -> Text:
    advantage = credit.advantage[number]
    style = "green" if advantage > 0 else "red" if advantage < 0 else "dim"
    line = Text(f"     {credit.method:<{width}}  ")
    line.append(f"{advantage:+8.3f}  ", style=style)
    line.append(bar(advantage, credit.scale), style=style)
    return line


def bar(value: float, scale: float) -> str:
    """`value` as a bar to the left or the right of a zero mark; `scale` fills one side. No bar for zero."""
    cells = 0 if scale == 0 or _absent(value) else min(BAR, round(abs(value) / scale * BAR))
    left, right = (cells, 0) if value < 0 else (0, cells)
    return " " * (BAR - left) + "█" * left + "│" + "█" * right


def _facts(row: dict) -> list[str]:
    """Reward, progress, distance and tokens, if the table has them and they are informative."""
    facts = []
    if row.get("reward"):
        facts.append(f"reward {row['reward']:g}")
    for name, before in (("progress", "progress_before"), ("distance", "distance_before")):
        now, then = row.get(name), row.get(before)
        if not _absent(now):
            changed = not _absent(then) and then != now
            facts.append(f"{name} {f'{_state(name, then)} to ' if changed else ''}{_state(name, now)}")
    if not _absent(row.get("prompt_tokens")):
        folded = f", {row['folded_tokens']:,.0f} of them folded" if row.get("folded_tokens") else ""
        facts.append(f"context {row['prompt_tokens']:,.0f} tokens{folded}")
    if row.get("truncated_tokens"):
        facts.append(f"{row['truncated_tokens']:,.0f} tokens did not fit")
    return facts


def _state(name: str, value: Any) -> str:
    return "unreachable" if name == "distance" and value < 0 else f"{value:.3g}"


def _label(label: dict) -> str:
    """A judge's label: a role, a score, or both, with its evidence; or why there is no label."""
    role, score = label["role"], label["score"]
    parts = [ROLE_NAMES.get(role, role)] if isinstance(role, str) else []
    parts += [] if _absent(score) else [f"score {score:g}"]
    if not parts:
        return f"no label ({label['reason']})"
    evidence = f" ({label['evidence']})" if isinstance(label["evidence"], str) else ""
    return f"{', '.join(parts)}{evidence}"


def _absent(value: object) -> bool:
    """Whether there is no value: a null or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _value(value: object) -> str:
    if _absent(value):
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
