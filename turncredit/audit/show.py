"""`turncredit show`: rollouts in the terminal, turn by turn, with what each method made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.text import Text

from turncredit import tables
from turncredit.audit import views
from turncredit.audit.collect import read_config
from turncredit.audit.terminal import console, plain_table
from turncredit.config import sampling_slug
from turncredit.errors import UserError, nearest

BAR = 12  # cells on each side of zero


@dataclass(frozen=True)
class Found:
    """The turns to show, the credits tables and the labels tables that belong to them."""

    turns: Path
    credits: list[Path]
    labels: list[Path]


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
        _list(screen, turns, found.turns)
        return
    rows = pick(turns, rollout, found.turns)
    credits = [_credits(path, rows) for path in (credit_files or found.credits)]
    labels = [_labels(path, rows) for path in found.labels]
    if turn is None:
        _head(screen, rows)
        for row in rows.to_dict("records"):
            _turn(screen, row, credits, labels, components)
        return
    if turn not in set(rows["turn"]):
        raise UserError(f"{found.turns}: rollout '{rollout}' has the turns 0 to {rows['turn'].max()}, not {turn}")
    _head(screen, rows)
    _turn_in_full(screen, rows[rows["turn"] == turn].iloc[0].to_dict(), credits, labels)


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
            for place in sorted(folder.glob("runs/*/seed*/round[0-9][0-9]")):
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
    """A round's folder: its own rollouts, or in round 1 the SFT policy's that its method reads."""
    for own in (folder / "turns.parquet", folder / "rollouts" / "turns.parquet"):
        if own.exists():
            return _beside(own)
    place = folder.resolve()
    if place.name != "round01":
        raise UserError(f"{folder}: no turns here (no rollouts/turns.parquet); give a Parquet file or a run's round")
    root, method, seed = place.parents[3], place.parents[1].name, place.parent.name
    slug = sampling_slug(read_config(root).section_for(method, "rollout"))
    found = _beside(root / "sft" / "rollouts" / slug / seed / "turns.parquet")
    return Found(
        found.turns, [folder / "credits.parquet"] if (folder / "credits.parquet").exists() else [], found.labels
    )


def _beside(turns: Path) -> Found:
    """The tables that lie where the pipeline puts them for these turns; none for a file of one's own."""
    labels = sorted(turns.parent.glob("labels/*.parquet"))
    own = turns.parent.parent / "credits.parquet"
    if turns.parent.name == "rollouts" and own.exists():
        return Found(turns, [own], labels)
    place = turns.resolve().parent
    root = place.parents[3] if len(place.parents) > 3 else place
    if place.parents[1].name != "rollouts" or not (root / "config.json").exists():
        return Found(turns, [], labels)
    experiment = read_config(root)
    credits = [
        path
        for path in sorted(root.glob(f"runs/*/{place.name}/round01/credits.parquet"))
        if sampling_slug(experiment.section_for(path.parents[2].name, "rollout")) == place.parent.name
    ]
    return Found(turns, credits, labels)


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


def _list(screen: Console, turns: pd.DataFrame, path: Path) -> None:
    """One line per rollout."""
    optional = [name for name in ("family", "success", "score", "goal") if name in turns.columns]
    numeric = {"score", "turns", "invalid"}
    columns = ["rollout", "turns", *(["invalid"] if "valid" in turns.columns else []), *optional]
    grid = plain_table(columns, [name in numeric for name in columns], str(path))
    for (group, rollout), rows in turns.groupby(["group_id", "rollout_id"], sort=False):
        last = rows.iloc[-1]
        invalid = [str(int((~rows["valid"].astype(bool)).sum()))] if "valid" in turns.columns else []
        grid.add_row(f"{group}/{rollout}", str(len(rows)), *invalid, *(_value(last[name]) for name in optional))
    screen.print(grid)


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


def _turn(
    screen: Console,
    row: dict,
    credits: Sequence[Credit],
    labels: Sequence[tuple[str, dict[int, dict]]],
    components: bool,
) -> None:
    """One turn: the action and what came of it, then one line for each method."""
    number = row["turn"]
    line = Text(f"{number:>3}  ", style="dim")
    line.append(f"> {row.get('action', row.get('response_text', ''))}", style="bold")
    line.append("".join(f"   {fact}" for fact in _facts(row)), style="dim")
    if not row.get("valid", True):
        line.append("   invalid", style="red")
    screen.print(line)
    if "next_observation" in row:
        screen.print(Text(f"     {' '.join(str(row['next_observation']).split())}"))
    for judge, said in labels:
        if number in said:
            screen.print(Text(f"     {judge}: {_label(said[number])}", style="dim"))
    width = max((len(credit.method) for credit in credits), default=0)
    for credit in credits:
        screen.print(_credit_line(credit, number, width))
        if components:
            parts = ", ".join(f"{name} {value:+.3f}" for name, value in credit.components[number].items())
            screen.print(Text(f"     {'':{width}}  {parts}", style="dim"))
    screen.print()


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
    return f"{said['role']} ({said['evidence']})" if said["role"] else f"no label ({said['reason']})"


def _turn_in_full(
    screen: Console, row: dict, credits: Sequence[Credit], labels: Sequence[tuple[str, dict[int, dict]]]
) -> None:
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
    for judge, said in labels:
        if row["turn"] in said:
            screen.print(Text.assemble((f"label by {judge}: ", "dim"), _label(said[row["turn"]])))
    screen.print()
    width = max((len(credit.method) for credit in credits), default=0)
    for credit in credits:
        screen.print(_credit_line(credit, row["turn"], width))
        for name, value in credit.components[row["turn"]].items():
            screen.print(Text(f"       {name} {value:+.4f}", style="dim"))


def _value(value: object) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and pd.isna(value)):
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
