"""SYNTHETIC tables for the credit pages: a household-like game from a formula, credited by the real methods."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.rows import MADE_BY, branch_row, label_row, turn_row
from turncredit.credit import METHODS, compute
from turncredit.data import tables
from turncredit.data.seeding import generator
from turncredit.data.turns import Turns

METHOD_NAMES = (
    "flat_grpo", "gigpo", "scpo", "has_progressive", "has_turnrd", "mgr_no_critic", "triage", "oracle_progress",
    "random_credit",
)  # fmt: skip
EVIL = "<script>document.title='caught'</script><img src=x onerror=\"document.title='caught'\">'\"&"
PLACES = ("shelf 1", "fridge 1", "desk 1", "sink 1", "table 1")


@dataclass(frozen=True)
class World:
    """Paths of all tables, by what they hold."""

    turns: Path
    measures: Path
    branches: Path
    credits: dict[str, Path]
    labels: dict[str, Path]
    values: dict[str, Path]

    def given(self) -> dict:
        """Arguments of `read_book` and of the stage."""
        return {
            "turns": self.turns,
            "measures": self.measures,
            "branches": self.branches,
            "credits": self.credits,
            "labels": self.labels,
            "values": self.values,
        }


def make(root: Path, *, groups: int = 3, siblings: int = 4, longest: int = 9, methods=METHOD_NAMES) -> World:
    """Write the tables below `root`. The last sibling of group 0 has texts that try to be markup."""
    rows = [turn for group in range(groups) for copy in range(siblings) for turn in _rollout(group, copy, longest)]
    table = pa.Table.from_pylist(rows, schema=tables.schema("turns"))
    tables.write(table, root / "turns.parquet", "turns", MADE_BY)
    measures = pa.Table.from_pylist(rows, schema=tables.schema("measures"))
    tables.write(measures, root / "measures.parquet", "measures", MADE_BY)
    keys = {name: table.column(name) for name in tables.KEYS}
    rng = generator("pages", "side tables")
    n = table.num_rows
    roles, scores = rng.choice(["D", "E", "N", "R"], n).tolist(), rng.normal(size=n).round(3).tolist()
    evidence = [EVIL if "evil" in turn["rollout_id"] else f"because of {turn['action']}" for turn in rows]
    labels = [
        label_row(*given, score=score, evidence=text)
        for *given, score, text in zip(rows, roles, scores, evidence, strict=True)
    ]
    tables.write(
        pa.Table.from_pylist(labels, schema=tables.schema("labels")), root / "rule-role.parquet", "labels", MADE_BY
    )
    said = {"model": ["turnrd"] * n, "value": rng.normal(size=n), "weight": rng.random(n)}
    tables.write(pa.table({**keys, **said}), root / "values.parquet", "values", MADE_BY)
    tables.write(_branches(rows, rng), root / "branches.parquet", "branches", MADE_BY)
    side = {"labels": tables.read(root / "rule-role.parquet"), "values": tables.read(root / "values.parquet")}
    side["measures"] = measures
    credits = {}
    for name in methods:
        credits[name] = root / f"{name}.parquet"
        made = compute(Turns(table, side), METHODS[name], seed=0)
        tables.write(made, credits[name], "credits", MADE_BY)
    return World(
        root / "turns.parquet",
        root / "measures.parquet",
        root / "branches.parquet",
        credits,
        {"rule-role": root / "rule-role.parquet"},
        {"has_turnrd": root / "values.parquet"},
    )


def _rollout(group: int, copy: int, longest: int) -> list[dict]:
    rng = generator("pages", group, copy)
    won = (group + copy) % 2 == 0
    length = int(rng.integers(5, longest)) if won else longest
    evil = group == 0 and copy == 3
    name = f"game-{group}#{copy}{'<b>evil' if evil else ''}"
    distance, seen, rows = 4, "You are in the middle of a room.", []
    for turn in range(length):
        valid = bool(rng.random() < 0.8)
        nearer = valid and (won or rng.random() < 0.4) and distance > 1
        after = 0 if won and turn == length - 1 else distance - 1 if nearer else distance
        place = PLACES[int(rng.integers(len(PLACES)))]
        got = f"You arrive at {place}. You see a mug {turn}." if valid else "Nothing happens."
        got = EVIL if evil and turn == 1 else got
        action = EVIL if evil and turn == 2 else f"go to {place}"
        given = {"length": length, "success": won, "valid": valid, "observation": seen, "action": action}
        given |= {"goal": EVIL if evil else f"put a clean mug in {PLACES[group % len(PLACES)]}."}
        given |= {"response_text": f"go to {place}", "admissible": ["look", f"go to {place}"], "next_observation": got}
        given |= {"progress_before": 1 - distance / 4, "progress": 1 - after / 4}
        rows.append(turn_row(f"game-{group}", name, turn, distance_before=distance, distance=after, **given))
        distance, seen = after, got
    return rows


def _branches(rows: list[dict], rng: np.random.Generator) -> pa.Table:
    """Ground truth for two turns of three, in part clear of zero."""
    found = []
    for turn in (turn for turn in rows if turn["turn"] % 3 != 2):
        v, q = rng.random(2)
        v_se, q_se = rng.uniform(0.01, 0.2, 2)
        given = {"v": v, "q": q, "se": float(np.hypot(v_se, q_se)), "v_se": v_se, "q_se": q_se}
        given |= {"v_reference": v, "q_reference": q, "advantage_reference": q - v, "advantage_reference_se": 0.05}
        found.append(branch_row(turn, distance_change=float(turn["distance_before"] - turn["distance"]), **given))
    return pa.Table.from_pylist(found)
