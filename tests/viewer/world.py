"""SYNTHETIC results for the viewer: runs with evaluations, and one round with the tables of the credit pages."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc

from tests.pages import pages_world
from tests.results import synthetic
from turncredit.config import Experiment
from turncredit.config.layout import Layout, fill
from turncredit.config.stages import stages
from turncredit.data import tables
from turncredit.views.report.report import report
from turncredit.views.viewer.viewer import Viewer

#: The round that has every table about its turns; the last sibling of its first group has texts that try to be markup.
ROUND = "flat_grpo/seed0/round02"
KEYS = {"policy": "flat_grpo", "method": "flat_grpo", "seed": 0, "round": 2}
EVIL_GROUP, EVIL_ROLLOUT = "game-0", "game-0#3<b>evil"
METHODS = ("flat_grpo", "gigpo", "scpo")


@dataclass(frozen=True)
class Made:
    """The results folder, the experiment in it, and the tables of `ROUND`."""

    results: Path
    folder: Path
    experiment: Experiment
    layout: Layout
    tables: pages_world.World


def reported(root: Path) -> Made:
    """What `make` makes, with a report."""
    made = make(root)
    report(experiment=made.experiment, results=made.folder, out=made.folder / "report")
    return made


def make(root: Path) -> Made:
    """Two methods, two seeds, three rounds; the last round of random_credit's seed 1 is missing."""
    experiment = synthetic.experiment(("flat_grpo", "random_credit"), rounds=3, games=8)
    results = root / "results"
    folder = synthetic.make(results, experiment, rounds_done={("random_credit", 1): 2})
    layout = Layout(folder)
    for located in layout.find("evals"):
        rows = tables.read(located.path, "evals").to_pylist()
        modes = {row["mode"] for row in rows}
        shares = {f"success_{mode}": _share(row["success"] for row in rows if row["mode"] == mode) for mode in modes}
        record(layout, "eval", located.keys, **shares)
    for located in layout.find("turns"):
        record(layout, "rollout", located.keys, **sampled(located.path))
    made = pages_world.make(root / "tables", methods=METHODS)
    place = Path(layout.path("turns", KEYS)).parent
    shutil.rmtree(place)
    for name, paths in {
        "turns": {"": made.turns},
        "measures": {"": made.measures},
        "branches": {"": made.branches},
        "credits": made.credits,
        "values": made.values,
    }.items():
        for method, path in paths.items():
            copy(path, layout.path(name, {**KEYS, **({"method": method} if method else {})}))
    copy(made.labels["rule-role"], layout.path("labels", KEYS, judge="rule", question="role"))
    record(layout, "rollout", KEYS, **sampled(made.turns))
    return Made(results, folder, experiment, layout, made)


def sampled(turns: Path) -> dict[str, float]:
    """What the stage `rollout` says of turns."""
    table = tables.read(turns)
    rollouts = table.group_by(["group_id", "rollout_id"]).aggregate([("success", "max"), ("turn", "count")])
    invalid = pc.mean(pc.cast(pc.invert(table["valid"]), "float64")).as_py()
    won = pc.mean(pc.cast(rollouts["success_max"], "float64")).as_py()
    return {"success": won, "invalid": invalid, "tokens": float(table.num_rows), "turns": float(table.num_rows)}


def record(layout: Layout, stage: str, keys: dict, **numbers: float) -> Path:
    """The metrics file of a job, with these numbers."""
    synthetic.metrics(layout, stage, keys, seconds=1.0, **numbers)
    return layout.root / fill(stages()[stage].metrics, keys)


def copy(path: Path, to: str | Path) -> None:
    """Copy a file to a path whose folder need not be there."""
    Path(to).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, to)


def _share(won) -> float:
    values = list(won)
    return sum(values) / len(values)


def settled(viewer: Viewer, name: str = "synthetic") -> str:
    """An experiment's page once all its files are read."""
    for _ in range(100):
        text = viewer.experiment(name)
        if "reading what is there" not in text:
            return text
        time.sleep(0.05)
    raise AssertionError("the files were not read")


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder, with its time and bytes."""
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def described(layout: Layout, stage: str, keys: dict, inputs: dict) -> None:
    """What a job leaves to be repeated by hand with; the trail reads its inputs."""
    path = Path(fill(layout.log(stage), keys).removesuffix(".log") + ".job.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"stage": stage, "input": inputs}), encoding="utf-8")
