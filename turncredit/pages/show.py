"""`turncredit show`: rollouts in the terminal, turn by turn, with what each method made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.text import Text

from turncredit import tables
from turncredit.config import sampling_slug
from turncredit.errors import UserError, nearest
from turncredit.pages.data import CLEAR
from turncredit.results import views
from turncredit.results.collect import read_config
from turncredit.stats.ranks import FEWEST, within
from turncredit.terminal import console, plain_table

BAR = 12  # cells on each side of zero


@dataclass(frozen=True)
class Found:
    """The turns to show, and the tables that belong to them: credits (also an audit's), labels, ground truth."""

    turns: Path
    credits: list[Path]
    labels: list[Path]
    branches: list[Path]


def run(
    what: str,
    rollout: str | None,
    turn: int | None,
    *,
    results: Path,
    credit_files: Sequence[Path],
    components: bool,
) -> None:
    """Print the list of rollouts, one rollout, or one turn of it. Raises UserError for what cannot be found."""
    found = find(what, results)
    turns = _turns(found.turns)
    screen = console()
    if rollout is None:
        _list(screen, turns, found)
        return
    rows = pick(turns, rollout, found.turns)
    about = About(
        credits=_distinct([_credits(path, rows) for path in (credit_files or found.credits)]),
        labels=[_labels(path, rows) for path in found.labels],
        truth=_truth(found.branches, rows),
    )
    if turn is None:
        _head(screen, rows)
        _agreement(screen, about)
        for row in rows.to_dict("records"):
            _turn(screen, row, about, components)
        return
    if turn not in set(rows["turn"]):
        raise UserError(f"{found.turns}: rollout '{rollout}' has the turns 0 to {rows['turn'].max()}, not {turn}")
    _head(screen, rows)
    _turn_in_full(screen, rows[rows["turn"] == turn].iloc[0].to_dict(), about)


# Finding -------------------------------------------------------------------------------------------------------------


def find(what: str, results: Path) -> Found:
    """What `what` names: a Parquet file, a folder of a run's round, or METHOD/seedK/roundRR in any experiment below
    `results`. Raises UserError with the nearest run that exists."""
    path = Path(what)
    if path.is_file():
        return _beside(path)
    if path.is_dir():
        return _in_folder(path)
    rounds = {}
    if results.is_dir():
        for folder in views.experiment_folders(results):
            for place in sorted(folder.glob("runs/*/seed*/round[0-9]*")):
                short = "/".join(place.parts[-3:])
                rounds[f"{folder.name}/{short}"] = place
                rounds.setdefault(short, place)
    if what in rounds:
        return _in_folder(rounds[what])
    hint = (
        nearest(what, rounds) or f"; there are {len(rounds)} run rounds in {results}, such as flat_grpo/seed0/round01"
    )
    raise UserError(f"{what}: neither a file, nor a folder, nor a run's round{hint}")


def _in_folder(folder: Path) -> Found:
    """A round's folder: its own rollouts, or in round 1 the SFT policy's that its method reads. An audit folder stands
    for the round that it audits."""
    for own in (folder / "turns.parquet", folder / "rollouts" / "turns.parquet"):
        if own.exists():
            return _beside(own)
    place = folder.resolve()
    root, method, seed = place.parents[3], place.parents[1].name, place.parent.name
    if place.parents[2].name == "audit" and place.name != "round01":
        return _in_folder(root / "runs" / method / seed / place.name)
    if place.name != "round01":
        raise UserError(f"{folder}: no turns here (no rollouts/turns.parquet); give a Parquet file or a run's round")
    slug = sampling_slug(read_config(root).section_for(method, "rollout"))
    found = _beside(root / "sft" / "rollouts" / slug / seed / "turns.parquet")
    if place.parents[2].name == "audit":
        return found
    own = [folder / "credits.parquet"] if (folder / "credits.parquet").exists() else []
    return replace(found, credits=[*own, *_audited_credits([root / "audit" / method / seed / place.name])])


def _beside(turns: Path) -> Found:
    """The tables that lie where the pipeline puts them for these turns; none for a file of one's own."""
    labels = sorted(turns.parent.glob("labels/*.parquet"))
    place = turns.resolve().parent
    root = place.parents[3] if len(place.parents) > 3 else place
    if place.name == "rollouts" and len(place.parents) > 4 and (place.parents[4] / "config.json").exists():
        audit = place.parents[4] / "audit" / "/".join(place.parent.parts[-3:])
        own = [place.parent / "credits.parquet"] if (place.parent / "credits.parquet").exists() else []
        return Found(turns, [*own, *_audited_credits([audit])], labels, _branches([audit]))
    own_file = place.parent / "credits.parquet"
    if place.name == "rollouts" and own_file.exists():
        return Found(turns, [own_file], labels, [])
    if place.parents[1].name != "rollouts" or not (root / "config.json").exists():
        return Found(turns, [], labels, [])
    experiment = read_config(root)

    def of_these(folder: Path) -> bool:
        return sampling_slug(experiment.section_for(folder.parents[1].name, "rollout")) == place.parent.name

    runs = [folder for folder in sorted(root.glob(f"runs/*/{place.name}/round01")) if of_these(folder)]
    audits = [folder for folder in sorted(root.glob(f"audit/*/{place.name}/round01")) if of_these(folder)]
    credits = [folder / "credits.parquet" for folder in runs if (folder / "credits.parquet").exists()]
    return Found(turns, [*credits, *_audited_credits(audits)], labels, _branches(audits))


def _audited_credits(audits: Sequence[Path]) -> list[Path]:
    return [path for audit in audits for path in sorted(audit.glob("credits/*.parquet"))]


def _branches(audits: Sequence[Path]) -> list[Path]:
    return [audit / "branches.parquet" for audit in audits if (audit / "branches.parquet").exists()]


def _turns(path: Path) -> pd.DataFrame:
    """The table's turns with keys as text, in order. Raises UserError where a key is missing."""
    table = tables.read(path)
    for key in tables.KEYS:
        if key not in table.column_names:
            raise UserError(f"{path}: to show rollouts the column '{key}' is needed{nearest(key, table.column_names)}")
    frame = table.to_pandas()
    return frame.astype({"group_id": str, "rollout_id": str}).sort_values(["group_id", "rollout_id", "turn"])


def pick(turns: pd.DataFrame, name: str, where: Path) -> pd.DataFrame:
    """The turns of the rollout called GROUP/ROLLOUT, or ROLLOUT where that is enough. UserError for none or several."""
    keys = turns[["group_id", "rollout_id"]].drop_duplicates()
    full = keys["group_id"] + "/" + keys["rollout_id"]
    hits = keys[(full == name) | (keys["rollout_id"] == name)]
    if len(hits) > 1:
        groups = ", ".join(hits["group_id"].head(3))
        raise UserError(f"{where}: rollout '{name}' is in {len(hits)} groups ({groups}, ...); write GROUP/ROLLOUT")
    if hits.empty:
        hint = nearest(name, [*full, *keys["rollout_id"]]) or "; without a rollout's name, show lists them"
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
    """What is known of the shown rollout's turns: credits, labels by judge and turn, ground truth by turn."""

    credits: list[Credit]
    labels: list[tuple[str, dict[int, dict]]]
    truth: dict[int, dict]


def _distinct(credits: list[Credit]) -> list[Credit]:
    """One credit per method: a run's own before the audit's, which is the same method on the same turns."""
    first: dict[str, Credit] = {}
    for credit in credits:
        first.setdefault(credit.method, credit)
    return list(first.values())


def _truth(paths: Sequence[Path], rows: pd.DataFrame) -> dict[int, dict]:
    """The branched turns of the shown rollout: `advantage_true`, its error and what it was measured from."""
    group, rollout = rows.iloc[0][["group_id", "rollout_id"]]
    for path in paths:
        frame = tables.read(path, "branches").to_pandas().astype({"group_id": str, "rollout_id": str})
        own = frame[(frame["group_id"] == group) & (frame["rollout_id"] == rollout)]
        if len(own):
            return {int(row["turn"]): row for row in own.to_dict("records")}
    return {}


def _credits(path: Path, rows: pd.DataFrame) -> Credit:
    frame = tables.read(path, "credits").to_pandas().astype({"group_id": str, "rollout_id": str})
    group, rollout = rows.iloc[0][["group_id", "rollout_id"]]
    frame = frame[frame["group_id"] == group]
    own = frame[frame["rollout_id"] == rollout].set_index("turn")
    if own.empty:
        raise UserError(f"{path}: no credit for rollout '{rollout}' of group '{group}'; is it a table of other turns?")
    numbers = own.select_dtypes("number")
    extra = [column for column in numbers.columns if column != "advantage"]
    return Credit(
        method=str(own["method"].iloc[0]),
        advantage=own["advantage"].to_dict(),
        components={int(turn): dict(zip(extra, values, strict=True)) for turn, *values in numbers[extra].itertuples()},
        scale=float(frame["advantage"].abs().max()),
    )


def _labels(path: Path, rows: pd.DataFrame) -> tuple[str, dict[int, dict]]:
    """The judge's name and what it said of each turn of the shown rollout."""
    frame = tables.read(path, "labels").to_pandas().astype({"group_id": str, "rollout_id": str})
    group, rollout = rows.iloc[0][["group_id", "rollout_id"]]
    own = frame[(frame["group_id"] == group) & (frame["rollout_id"] == rollout)]
    return path.stem, {int(row["turn"]): row for row in own.to_dict("records")}


# Printing ------------------------------------------------------------------------------------------------------------


def _list(screen: Console, turns: pd.DataFrame, found: Found) -> None:
    """One line per rollout; where some turns have ground truth, how many of its turns."""
    optional = [name for name in ("family", "success", "score", "goal") if name in turns.columns]
    numeric = {"score", "turns", "branched", "invalid"}
    known = _branched(found.branches)
    counted = [name for name, there in (("branched", found.branches), ("invalid", "valid" in turns.columns)) if there]
    columns = ["rollout", "turns", *counted, *optional]
    grid = plain_table(columns, [name in numeric for name in columns], str(found.turns))
    for (group, rollout), rows in turns.groupby(["group_id", "rollout_id"], sort=False):
        last = rows.iloc[-1]
        counts = {"branched": known.get((group, rollout), 0)}
        if "invalid" in counted:
            counts["invalid"] = int((~rows["valid"].astype(bool)).sum())
        numbers = [str(len(rows)), *(str(counts[name]) for name in counted)]
        grid.add_row(f"{group}/{rollout}", *numbers, *(_value(last[name]) for name in optional))
    screen.print(grid)


def _branched(paths: Sequence[Path]) -> dict[tuple[str, str], int]:
    """How many turns of each rollout have ground truth."""
    counts: dict[tuple[str, str], int] = {}
    for path in paths:
        keys = tables.read(path, "branches", columns=["group_id", "rollout_id"]).to_pandas().astype(str)
        for key, rows in keys.groupby(["group_id", "rollout_id"]):
            counts.setdefault(key, len(rows))
    return counts


def _head(screen: Console, rows: pd.DataFrame) -> None:
    """The rollout's name, goal and outcome, and what was seen first."""
    last = rows.iloc[-1].to_dict()
    screen.print(Text(f"{last['group_id']}/{last['rollout_id']}", style="bold"))
    facts = [
        f"{name} {_value(last[name])}" for name in ("goal", "family", "success", "score", "policy_id") if name in last
    ]
    screen.print(Text("; ".join([*facts, f"{len(rows)} turns"])))
    if "observation" in last:
        screen.print(Text(str(rows.iloc[0]["observation"]).strip(), style="dim"))
    screen.print()


def _agreement(screen: Console, about: About) -> None:
    """How each credit orders this rollout's turns, against the ground truth, where three turns or more have it."""
    turns = sorted(about.truth)
    if len(turns) < FEWEST or not about.credits:
        return
    truth = [about.truth[turn]["advantage_true"] for turn in turns]
    found = {credit.method: _rank(truth, [credit.advantage[turn] for turn in turns]) for credit in about.credits}
    said = ", ".join(f"{name} {value:+.2f}" for name, value in sorted(found.items(), key=lambda item: -item[1]))
    screen.print(Text(f"Rank correlation with A* over {len(turns)} turns of this rollout alone: {said}"))
    screen.print()


def _rank(truth: Sequence[float], credit: Sequence[float]) -> float:
    """Spearman's rank correlation as the fidelity measures have it; 0 where one side says the same of all turns."""
    one_T = np.zeros(len(truth), dtype=np.int64)
    return float(within(np.array(credit), np.array(truth), one_T, 1).rho_R[0])


def _turn(screen: Console, row: dict, about: About, components: bool) -> None:
    """One turn: the action and what came of it, its ground truth, then one line for each method."""
    number = row["turn"]
    line = Text(f"{number:>3}  ", style="dim")
    line.append(f"> {row.get('action', row.get('response_text', ''))}", style="bold")
    line.append("".join(f"   {fact}" for fact in _facts(row)), style="dim")
    if not row.get("valid", True):
        line.append("   invalid", style="red")
    screen.print(line)
    if "next_observation" in row:
        screen.print(Text(f"     {' '.join(str(row['next_observation']).split())}"))
    _truth_line(screen, number, about.truth)
    for judge, said in about.labels:
        if number in said:
            screen.print(Text(f"     {judge}: {_label(said[number])}", style="dim"))
    width = max((len(credit.method) for credit in about.credits), default=0)
    for credit in about.credits:
        screen.print(_credit_line(credit, number, width))
        if components:
            parts = ", ".join(f"{name} {value:+.3f}" for name, value in credit.components[number].items())
            screen.print(Text(f"     {'':{width}}  {parts}", style="dim"))
    screen.print()


def _truth_line(screen: Console, number: int, truth: dict[int, dict]) -> None:
    """`A* +0.21 ± 0.08 (V 0.40, Q 0.61)`, and whether it is the rollout's best or worst branched turn."""
    if number not in truth:
        return
    row = truth[number]
    values = {turn: found["advantage_true"] for turn, found in truth.items()}
    best, worst = max(values, key=values.__getitem__), min(values, key=values.__getitem__)
    star = " ★ most useful" if number == best and values[best] > 0 else ""
    star = star or (" ★ most harmful" if number == worst and values[worst] < 0 else "")
    if star and abs(row["advantage_true"]) <= CLEAR * row["advantage_true_se"]:
        star += ", not clear of zero"
    told = [f"{letter} {row[name]:.2f}" for letter, name in (("V", "v_true"), ("Q", "q_true")) if name in row]
    if "continuations" in row:
        told.append(f"{row['continuations']} continuations")
    text = f"     A* {row['advantage_true']:+.3f} ± {row['advantage_true_se']:.3f}"
    screen.print(Text.assemble(text, (f" ({', '.join(told)})" if told else "", "dim"), (star, "bold")))


def _credit_line(credit: Credit, number: int, width: int) -> Text:
    advantage = credit.advantage[number]
    style = "green" if advantage > 0 else "red" if advantage < 0 else "dim"
    line = Text(f"     {credit.method:<{width}}  ")
    line.append(f"{advantage:+8.3f}  ", style=style)
    line.append(bar(advantage, credit.scale), style=style)
    return line


def bar(value: float, scale: float) -> str:
    """`value` as a bar to the left or the right of a zero mark; `scale` fills one side. No bar where it is zero."""
    cells = 0 if scale == 0 or pd.isna(value) else min(BAR, round(abs(value) / scale * BAR))
    left, right = (cells, 0) if value < 0 else (0, cells)
    return " " * (BAR - left) + "█" * left + "│" + "█" * right


def _facts(row: dict) -> list[str]:
    """Reward, progress and distance, where the table has them and they say something."""
    facts = []
    if row.get("reward"):
        facts.append(f"reward {row['reward']:g}")
    for name, before in (("progress", "progress_before"), ("distance", "distance_before")):
        now, then = row.get(name), row.get(before)
        if not pd.isna(now):
            changed = not pd.isna(then) and then != now
            facts.append(f"{name} {f'{_state(name, then)} to ' if changed else ''}{_state(name, now)}")
    return facts


def _state(name: str, value: float) -> str:
    return "unreachable" if name == "distance" and value < 0 else f"{value:.3g}"


def _label(said: dict) -> str:
    """What a judge said: a role, a score, or both, with its evidence; or why there is no label."""
    role, score = said["role"], said["score"]
    told = [role] if isinstance(role, str) else []
    told += [] if pd.isna(score) else [f"score {score:g}"]
    if not told:
        return f"no label ({said['reason']})"
    evidence = f" ({said['evidence']})" if isinstance(said["evidence"], str) else ""
    return f"{', '.join(told)}{evidence}"


def _turn_in_full(screen: Console, row: dict, about: About) -> None:
    """Every column of one turn but the tokens, then every component of every method."""
    for name, value in row.items():
        if name in ("prompt_ids", "response_ids", "response_logprobs", *tables.KEYS):
            continue
        text = (
            "\n  ".join(str(part) for part in value)
            if hasattr(value, "tolist") and not isinstance(value, str)
            else _value(value)
        )
        screen.print(Text.assemble((f"{name}: ", "dim"), text))
    _truth_line(screen, row["turn"], about.truth)
    for judge, said in about.labels:
        if row["turn"] in said:
            screen.print(Text.assemble((f"label by {judge}: ", "dim"), _label(said[row["turn"]])))
    screen.print()
    width = max((len(credit.method) for credit in about.credits), default=0)
    for credit in about.credits:
        screen.print(_credit_line(credit, row["turn"], width))
        for name, value in credit.components[row["turn"]].items():
            screen.print(Text(f"       {name} {value:+.4f}", style="dim"))


def _value(value: object) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and pd.isna(value)):
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
