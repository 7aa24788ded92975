"""`turncredit show`: rollouts in the terminal, turn by turn, with each method's credit."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.text import Text

from turncredit import tables
from turncredit.errors import UserError, nearest
from turncredit.layout import Layout, measures_beside, named_round, of_sft, round_name, sampled_by
from turncredit.pages.data import noise_of_largest
from turncredit.pages.subgoals import Subgoal, charged, subgoals_of
from turncredit.results.experiments import experiment_folders, experiment_of, read_config, run_rounds
from turncredit.stats.ranks import FEWEST, within
from turncredit.terminal import console, plain_table, visible

#: keys of an artifact that is there
Keys = dict[str, str | int]

BAR = 12  # cells on each side of zero


@dataclass(frozen=True)
class Tables:
    """The turns to show, and the files about them: credits, the run's own method first; labels; ground truth."""

    turns: Path
    credits: list[Path]
    labels: list[Path]
    branches: Path | None


def run(
    what: str,
    rollout: str | None,
    turn: int | None,
    *,
    results: Path,
    credit_files: Sequence[Path],
    components: bool,
    layout_of: Callable[[Path], Layout] = Layout,
) -> None:
    """Print the list of rollouts, one rollout, or one turn of it.

    `layout_of` makes the layout of an experiment's folder, which says which of its artifacts are shown. Raises
    UserError if something cannot be found, and for an option about a rollout's credit where no rollout is named.
    """
    files = find(what, results, layout_of)
    turns = _turns(files.turns, measures_beside(files.turns))
    truth = _truth(files.branches)
    screen = console()
    if rollout is None:
        ids = _listed(turns, truth)
        words = [what, "/".join(ids[0]) if ids else "GROUP/ROLLOUT"]
        words += [] if results == Path("results") else ["--results", str(results)]
        example = f"turncredit show {shlex.join(words)}"
        given = "--components" if components else "--credits" if credit_files else None
        if given is not None:
            raise UserError(
                f"{given} is about the credit of one rollout; add its name, as in {example} "
                f"(without {given}, all are listed)"
            )
        _list(screen, turns, truth, str(files.turns))
        screen.print(visible(f"One of them, turn by turn: {example}"), soft_wrap=True)
        return
    rows = pick(turns, rollout, files.turns)
    about = About(
        credits=[_credits(path, rows) for path in (credit_files or files.credits)],
        labels=[_labels(path, rows) for path in files.labels],
        truth={} if truth is None else _by_turn(truth, rows),
    )
    if turn is None:
        _head(screen, rows)
        _agreement(screen, about)
        records = rows.to_dict("records")
        subgoals = subgoals_of(records)
        for row in records:
            under = next((goal for goal in subgoals if goal.first <= row["turn"] <= goal.last), None)
            for line in _bracketed(_turn(row, about, components), under, row["turn"]):
                screen.print(line)
        return
    if turn not in set(rows["turn"]):
        raise UserError(f"{files.turns}: rollout '{rollout}' has the turns 0 to {rows['turn'].max()}, not {turn}")
    _head(screen, rows)
    for line in _turn_in_full(rows[rows["turn"] == turn].iloc[0].to_dict(), about):
        screen.print(line)


# Finding -------------------------------------------------------------------------------------------------------------


def find(what: str, results: Path, layout_of: Callable[[Path], Layout] = Layout) -> Tables:
    """Resolve `what`: a Parquet file, a round's folder, or METHOD/seedK/roundRR in any experiment below `results`.

    A name must be that of a round in `layout_of`, and of one experiment (else EXPERIMENT/METHOD/seedK/roundRR); a path
    may be that of any round. Raises UserError with the rounds that it could be, or the nearest one that exists.
    """
    path = Path(what)
    if path.is_file() or path.is_dir():
        return _at(path, layout_of)
    layouts = [layout_of(folder.resolve()) for folder in experiment_folders(results)] if results.is_dir() else []
    matches = [
        (layout, keys)
        for layout in layouts
        if (keys := _called(layout, what.removeprefix(f"{layout.root.name}/"))) is not None
    ]
    if len(matches) > 1:
        names = ", ".join(f"{layout.root.name}/{what}" for layout, _ in matches)
        raise UserError(f"{what}: several experiments below {results} have this round; name one of {names}")
    if matches:
        return _of_round(*matches[0])
    names = [name for layout in layouts for name in _rounds(layout)]
    if not names:
        raise UserError(f"{what}: neither a file nor a folder, and there is no experiment in {results}")
    hint = nearest(what, names) or f"; there are {len(names)} rounds in {results}, such as flat_grpo/seed0/round01"
    raise UserError(f"{what}: neither a file, nor a folder, nor a run's round{hint}")


def _called(layout: Layout, name: str) -> Keys | None:
    """The keys of the round called METHOD/seedK/roundRR, or POLICY/... for turns of the SFT policy."""
    parts = named_round(name)
    if parts is None:
        return None
    who, seed, round_ = parts
    policy = who if of_sft(who) else sampled_by(read_config(layout.root), who, round_)
    keys: Keys = {"policy": policy, "method": who, "seed": seed, "round": round_}
    return keys if _has(layout, keys) else None


def _has(layout: Layout, keys: Keys) -> bool:
    """Whether a layout has this round. Round 1's turns are shared: they belong to every method that credited them."""
    of = {name: keys[name] for name in ("policy", "seed", "round")}
    method = keys.get("method", keys["policy"])
    files = layout.find("turns", **of) if method == keys["policy"] else layout.find("credits", **of, method=method)
    return next(files, None) is not None


def _rounds(layout: Layout) -> Iterator[str]:
    """The names of an experiment's rounds."""
    for row in run_rounds(layout, read_config(layout.root)):
        yield round_name(row.method, row.seed, row.round)
    for located in layout.find("turns", round=1):
        yield round_name(str(located.keys["policy"]), int(located.keys["seed"]), 1)


def _at(path: Path, layout_of: Callable[[Path], Layout]) -> Tables:
    """The turns of a file or a folder, with the other tables about them in an experiment's folder."""
    root = experiment_of(path)
    if root is not None:
        layout, experiment = layout_of(root), read_config(root)
        located = layout.locate(path)
        keys: Keys | None = located.keys if located and located.artifact == "turns" else layout.locate_round(path)
        if keys is not None:
            if "policy" not in keys:
                method, round_ = str(keys["method"]), int(keys["round"])
                keys = {**keys, "policy": sampled_by(experiment, method, round_)}
            # A path that the configuration knows nothing of was meant all the same.
            return _of_round(layout if _has(layout, keys) else Layout(root), keys)
    if path.is_dir():
        raise UserError(f"{path}: not the folder of a round; give a Parquet file or the round of a run")
    return Tables(path, [], [], None)


def _of_round(layout: Layout, keys: Keys) -> Tables:
    """The turns of a round and the files about them; `keys` are the turns' own and, for a run's round, its method."""
    turns = Path(layout.path("turns", keys))
    if not turns.exists():
        raise UserError(f"{turns}: no turns of this round yet; give a Parquet file or another round")
    of = {name: keys[name] for name in ("policy", "seed", "round")}
    own = keys.get("method", keys["policy"])
    credits = sorted(layout.find("credits", **of), key=lambda file: (file.keys["method"] != own, str(file.path)))
    branches = next(layout.find("branches", **of), None)
    return Tables(
        turns,
        [file.path for file in credits],
        [file.path for file in layout.find("labels", **of)],
        branches.path if branches else None,
    )


def _turns(path: Path, measures: Path | None) -> pd.DataFrame:
    """The table's turns and their measures, keys as text, in order. Raises UserError if a key is missing."""
    table = tables.read(path)
    for key in tables.KEYS:
        if key not in table.column_names:
            raise UserError(f"{path}: showing rollouts needs the column '{key}'{nearest(key, table.column_names)}")
    frame = table.to_pandas().astype({"group_id": str, "rollout_id": str})
    if measures is not None:
        beside = tables.read(measures, "measures").to_pandas()
        new = [name for name in beside.columns if name not in frame.columns]
        frame = frame.merge(beside[[*tables.KEYS, *new]], how="left", on=list(tables.KEYS))
    return frame.sort_values(["group_id", "rollout_id", "turn"])


def pick(turns: pd.DataFrame, name: str, where: Path) -> pd.DataFrame:
    """The turns of the rollout called GROUP/ROLLOUT, or ROLLOUT if that is enough. UserError for none or several."""
    keys = turns[["group_id", "rollout_id"]].drop_duplicates()
    full = keys["group_id"] + "/" + keys["rollout_id"]
    hits = keys[(full == name) | (keys["rollout_id"] == name)]
    if len(hits) > 1:
        groups = ", ".join(hits["group_id"].head(3))
        raise UserError(f"{where}: rollout '{name}' is in {len(hits)} groups ({groups}, ...); write GROUP/ROLLOUT")
    if hits.empty:
        hint = nearest(name, [*full, *keys["rollout_id"]]) or "; `show` without a rollout lists them"
        raise UserError(f"{where}: no rollout '{name}'{hint}")
    group, rollout = hits.iloc[0]
    return turns[(turns["group_id"] == group) & (turns["rollout_id"] == rollout)]


@dataclass(frozen=True)
class Credit:
    """One method's credit of the shown rollout: advantage and components by turn, and the group's largest size."""

    method: str
    advantage: dict[int, float]
    components: dict[int, dict[str, float]]
    scale: float


@dataclass(frozen=True)
class About:
    """Data about the shown rollout's turns: credits, labels by judge and turn, ground truth by turn."""

    credits: list[Credit]
    labels: list[tuple[str, dict[int, dict]]]
    truth: dict[int, dict]


def _truth(path: Path | None) -> pd.DataFrame | None:
    """The ground truth of the round's branched turns; None if there is none."""
    if path is None:
        return None
    return tables.read(path, "branches").to_pandas().astype({"group_id": str, "rollout_id": str})


def _by_turn(frame: pd.DataFrame, rows: pd.DataFrame) -> dict[int, dict]:
    """A table's rows about the shown rollout, by turn."""
    group, rollout = rows.iloc[0][["group_id", "rollout_id"]]
    own = frame[(frame["group_id"] == group) & (frame["rollout_id"] == rollout)]
    return {int(row["turn"]): row for row in own.to_dict("records")}


def _credits(path: Path, rows: pd.DataFrame) -> Credit:
    frame = tables.read(path, "credits").to_pandas().astype({"group_id": str, "rollout_id": str})
    group, rollout = rows.iloc[0][["group_id", "rollout_id"]]
    frame = frame[frame["group_id"] == group]
    own = frame[frame["rollout_id"] == rollout].set_index("turn")
    if own.empty:
        raise UserError(f"{path}: no credit for rollout '{rollout}' of group '{group}'; is it for other turns?")
    numbers = own.select_dtypes("number")
    extra = [column for column in numbers.columns if column != "advantage"]
    return Credit(
        method=str(own["method"].iloc[0]),
        advantage=own["advantage"].to_dict(),
        components={int(turn): dict(zip(extra, values, strict=True)) for turn, *values in numbers[extra].itertuples()},
        scale=float(frame["advantage"].abs().max()),
    )


def _labels(path: Path, rows: pd.DataFrame) -> tuple[str, dict[int, dict]]:
    """The judge's name and its label of each turn of the rollout."""
    frame = tables.read(path, "labels").to_pandas().astype({"group_id": str, "rollout_id": str})
    return path.stem, _by_turn(frame, rows)


# Printing ------------------------------------------------------------------------------------------------------------


def _branched(truth: pd.DataFrame | None) -> dict[tuple[str, str], int]:
    """The number of turns with ground truth of each (group, rollout) that has any."""
    return {} if truth is None else truth.groupby(["group_id", "rollout_id"]).size().to_dict()


def _listed(turns: pd.DataFrame, truth: pd.DataFrame | None) -> list[tuple[str, str]]:
    """(group, rollout) of all rollouts in the order of the list: those with ground truth first."""
    branched = _branched(truth)
    ids = turns[["group_id", "rollout_id"]].drop_duplicates().itertuples(index=False, name=None)
    return sorted(ids, key=lambda one: one not in branched)


def _list(screen: Console, turns: pd.DataFrame, truth: pd.DataFrame | None, where: str) -> None:
    """One line per rollout, with its number of turns with ground truth, if there are any."""
    optional = [name for name in ("family", "success", "score", "goal") if name in turns.columns]
    numeric = {"score", "turns", "branched", "invalid"}
    branched = _branched(truth)
    counted = [
        name for name, present in (("branched", truth is not None), ("invalid", "valid" in turns.columns)) if present
    ]
    columns = ["rollout", "turns", *counted, *optional]
    grid = plain_table(columns, [name in numeric for name in columns], where)
    rows_of = dict(iter(turns.groupby(["group_id", "rollout_id"])))
    for group, rollout in _listed(turns, truth):
        rows = rows_of[group, rollout]
        last = rows.iloc[-1]
        counts = {"branched": branched.get((group, rollout), 0)}
        if "invalid" in counted:
            counts["invalid"] = int((~rows["valid"].astype(bool)).sum())
        numbers = [str(len(rows)), *(str(counts[name]) for name in counted)]
        texts = (f"{group}/{rollout}", *numbers, *(_value(last[name]) for name in optional))
        grid.add_row(*(visible(text) for text in texts))
    screen.print(grid)


def _head(screen: Console, rows: pd.DataFrame) -> None:
    """The rollout's name, goal and outcome, and the first observation."""
    last = rows.iloc[-1].to_dict()
    screen.print(_text(f"{last['group_id']}/{last['rollout_id']}", "bold"))
    facts = [
        f"{name} {_value(last[name])}" for name in ("goal", "family", "success", "score", "policy_id") if name in last
    ]
    screen.print(_text("; ".join([*facts, f"{len(rows)} turns"])))
    if "observation" in last:
        screen.print(_text(str(rows.iloc[0]["observation"]).strip(), "dim"))
    screen.print()


def _agreement(screen: Console, about: About) -> None:
    """Rank correlation of each credit with the ground truth in this rollout, if at least three turns have it."""
    turns = sorted(about.truth)
    if len(turns) < FEWEST or not about.credits:
        return
    truth = [about.truth[turn]["advantage_true"] for turn in turns]
    ranks = {credit.method: _rank(truth, [credit.advantage[turn] for turn in turns]) for credit in about.credits}
    ranking = ", ".join(f"{name} {value:+.2f}" for name, value in sorted(ranks.items(), key=lambda item: -item[1]))
    screen.print(Text(f"Rank correlation with A* over {len(turns)} turns of this rollout alone: {ranking}"))
    screen.print()


def _rank(truth: Sequence[float], credit: Sequence[float]) -> float:
    """Spearman's rank correlation as in the fidelity measures; 0 if one side is constant."""
    one_T = np.zeros(len(truth), dtype=np.int64)
    return float(within(np.array(credit), np.array(truth), one_T, 1).rho_R[0])


def _text(text: str, style: str = "") -> Text:
    """A text from the tables as a line of its own. Control characters in it are shown, not interpreted."""
    return Text(visible(text), style=style)


def _turn(row: dict, about: About, components: bool) -> Iterator[Text]:
    """The lines of one turn: the action and its result, its ground truth, then one line for each method."""
    number = row["turn"]
    line = Text(f"{number:>3}  ", style="dim")
    line.append(f"> {visible(str(row.get('action', row.get('response_text', ''))))}", style="bold")
    line.append("".join(f"   {fact}" for fact in _facts(row)), style="dim")
    if not row.get("valid", True):
        line.append("   invalid", style="red")
    if row.get("fault"):
        line.append(f"   malformed: {visible(str(row['fault']))}", style="red")
    yield line
    if row.get("reflection"):
        yield _text(f"     reflection: {' '.join(str(row['reflection']).split())}", "dim")
    if "next_observation" in row:
        yield _text(f"     {' '.join(str(row['next_observation']).split())}")
    yield from _truth_line(number, about.truth)
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


def _truth_line(number: int, truth: dict[int, dict]) -> Iterator[Text]:
    """`A* +0.21 ± 0.08 (V 0.40, Q 0.61)`, and whether it is the rollout's best or worst branched turn, if branched."""
    if number not in truth:
        return
    row = truth[number]
    values = {turn: branch["advantage_true"] for turn, branch in truth.items()}
    best, worst = max(values, key=values.__getitem__), min(values, key=values.__getitem__)
    star = " ★ most useful" if number == best and values[best] > 0 else ""
    star = star or (" ★ most harmful" if number == worst and values[worst] < 0 else "")
    if star and abs(row["advantage_true"]) <= noise_of_largest(row["advantage_true_se"], len(truth)):
        star += f", within the noise of the largest of {len(truth)}"
    details = [f"{letter} {row[name]:.2f}" for letter, name in (("V", "v_true"), ("Q", "q_true")) if name in row]
    if "continuations" in row:
        details.append(f"{row['continuations']} continuations")
    text = f"     A* {row['advantage_true']:+.3f} ± {row['advantage_true_se']:.3f}"
    yield Text.assemble(text, (f" ({', '.join(details)})" if details else "", "dim"), (star, "bold"))


def _credit_line(credit: Credit, number: int, width: int) -> Text:
    advantage = credit.advantage[number]
    style = "green" if advantage > 0 else "red" if advantage < 0 else "dim"
    line = Text(f"     {credit.method:<{width}}  ")
    line.append(f"{advantage:+8.3f}  ", style=style)
    line.append(bar(advantage, credit.scale), style=style)
    return line


def bar(value: float, scale: float) -> str:
    """`value` as a bar to the left or the right of a zero mark; `scale` fills one side. No bar for zero."""
    cells = 0 if scale == 0 or pd.isna(value) else min(BAR, round(abs(value) / scale * BAR))
    left, right = (cells, 0) if value < 0 else (0, cells)
    return " " * (BAR - left) + "█" * left + "│" + "█" * right


def _facts(row: dict) -> list[str]:
    """Reward, progress, distance and tokens, if the table has them and they are informative."""
    facts = []
    if row.get("reward"):
        facts.append(f"reward {row['reward']:g}")
    for name, before in (("progress", "progress_before"), ("distance", "distance_before")):
        now, then = row.get(name), row.get(before)
        if not pd.isna(now):
            changed = not pd.isna(then) and then != now
            facts.append(f"{name} {f'{_state(name, then)} to ' if changed else ''}{_state(name, now)}")
    if not pd.isna(row.get("prompt_tokens")):
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
    parts = [role] if isinstance(role, str) else []
    parts += [] if pd.isna(score) else [f"score {score:g}"]
    if not parts:
        return f"no label ({label['reason']})"
    evidence = f" ({label['evidence']})" if isinstance(label["evidence"], str) else ""
    return f"{', '.join(parts)}{evidence}"


def _turn_in_full(row: dict, about: About) -> Iterator[Text]:
    """Every column of one turn but the tokens, then every component of every method."""
    for name, value in row.items():
        if name in ("prompt_ids", "response_ids", "response_logprobs", *tables.KEYS):
            continue
        text = (
            "\n  ".join(str(part) for part in value)
            if hasattr(value, "tolist") and not isinstance(value, str)
            else _value(value)
        )
        yield Text.assemble((f"{visible(name)}: ", "dim"), visible(text))
    yield from _truth_line(row["turn"], about.truth)
    for judge, labels in about.labels:
        if row["turn"] in labels:
            yield Text.assemble((f"label by {judge}: ", "dim"), visible(_label(labels[row["turn"]])))
    yield Text()
    width = max((len(credit.method) for credit in about.credits), default=0)
    for credit in about.credits:
        yield _credit_line(credit, row["turn"], width)
        for name, value in credit.components[row["turn"]].items():
            yield Text(f"       {name} {value:+.4f}", style="dim")


def _value(value: object) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and pd.isna(value)):
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
