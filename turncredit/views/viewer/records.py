"""How far the runs of an experiment are, from the metrics that its jobs leave: each file is read once.

An experiment of 24 runs and 150 rounds has some ten thousand of these small files. They are read in a thread, and a
page shows what is known by then.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from turncredit.audit.collapse import COMPARED, Collapse, collapses_in
from turncredit.config import Experiment
from turncredit.config.layout import fill, round_name, sampled_by
from turncredit.config.stages import stage
from turncredit.views.viewer.sources import Experiments

#: Seconds that a page waits for files to be read: the first time, and for what has changed since.
WAIT, WAIT_AGAIN = 0.4, 0.05
#: Seconds after which the files are looked at again.
AGAIN = 2.0
#: What is kept of the metrics of each stage, beside `success_*` of evaluations.
KEPT = {
    "rollout": frozenset(COMPARED),
    "update": frozenset({"largest_log_ratio", "entropy", "entropy_limit"}),
    "eval": frozenset[str](),
}

Metrics = Mapping[str, float]


class Cell(NamedTuple):
    """A round of a run. `turns` is the name of the round whose turns it learned from.

    state      `done` (its policy is updated), `begun` (it has turns) or `missing`
    training   success of these turns; evaluated: success of the policy after the round
    branched   whether there is ground truth for its turns
    """

    round: int
    state: str
    turns: str
    training: float | None
    evaluated: float | None
    branched: bool


@dataclass(frozen=True)
class Overview:
    """An experiment's runs, by method and seed, as far as their files are read (`complete`: all of them).

    `starts` has the success of each warm start on each evaluated round's games.
    """

    experiment: Experiment
    runs: dict[tuple[str, int], list[Cell]]
    starts: dict[str, dict[int, float]]
    collapsed: list[Collapse]
    complete: bool


@dataclass
class _Known:
    """What was read of a round's files, with the time and size that they had."""

    stamps: dict[str, tuple[int, int]] = field(default_factory=dict)
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    branched: bool = False


class Records:
    """The metrics of one experiment, read in a thread when a page asks for them."""

    def __init__(self, source: Experiments) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int, int], _Known] = {}
        self._thread: threading.Thread | None = None
        self._read_at = -1e9
        self._complete = False

    def overview(self, wait: float | None = None) -> Overview:
        """What is known after at most `wait` seconds (by default `WAIT`, or `WAIT_AGAIN` once all has been read).

        Raises UserError where the configuration cannot be read.
        """
        if wait is None:
            wait = WAIT_AGAIN if self._complete else WAIT
        experiment = self._source.config()
        with self._lock:
            busy = self._thread is not None and self._thread.is_alive()
            if not busy and time.monotonic() - self._read_at > AGAIN:
                self._thread = threading.Thread(target=self._read, args=(experiment,), daemon=True)
                self._thread.start()
            thread = self._thread
        if thread is not None:
            thread.join(wait)
        return self._overview(experiment)

    def _read(self, experiment: Experiment) -> None:
        started = time.monotonic()
        layout = self._source.layout
        patterns = {name: layout.root.as_posix() + "/" + stage(name).metrics for name in KEPT}
        for method, seed in experiment.runs():
            evaluated = set(experiment.eval_rounds())
            for round_ in range(1, experiment.rounds + 1):
                at = (method, seed, round_)
                known = self._known.setdefault(at, _Known())
                policy = sampled_by(experiment, method, round_)
                keys: dict[str, str | int | None] = {"policy": policy, "method": method, "seed": seed, "round": round_}
                for name, pattern in patterns.items():
                    if name != "eval" or round_ in evaluated:
                        _look(known, name, fill(pattern, keys))
                known.branched = "rollout" in known.metrics and os.path.exists(layout.path("branches", keys))
        for start in experiment.starts():
            for round_ in experiment.eval_rounds():
                known = self._known.setdefault((start, 0, round_), _Known())
                _look(known, "eval", fill(patterns["eval"], {"method": start, "seed": 0, "round": round_}))
        self._complete = True
        # A slow disk is looked at less often.
        self._read_at = time.monotonic() + 4 * (time.monotonic() - started)

    def _overview(self, experiment: Experiment) -> Overview:
        primary = f"success_{experiment.eval.primary}"
        runs: dict[tuple[str, int], list[Cell]] = {}
        none = _Known()
        for method, seed in experiment.runs():
            cells = []
            for round_ in range(1, experiment.rounds + 1):
                known = self._known.get((method, seed, round_), none)
                turns = round_name(sampled_by(experiment, method, round_), seed, round_)
                state = "done" if "update" in known.metrics else "begun" if "rollout" in known.metrics else "missing"
                training = known.metrics.get("rollout", {}).get("success")
                evaluated = known.metrics.get("eval", {}).get(primary)
                cells.append(Cell(round_, state, turns, training, evaluated, known.branched))
            runs[method, seed] = cells
        starts = {}
        for start in experiment.starts():
            evals = {
                at: self._known.get((start, 0, at), none).metrics.get("eval", {}) for at in experiment.eval_rounds()
            }
            levels = {at: found[primary] for at, found in evals.items() if primary in found}
            if levels:
                starts[start] = levels
        return Overview(experiment, runs, starts, self._collapses(experiment), self._complete)

    def _collapses(self, experiment: Experiment) -> list[Collapse]:
        known = dict(self._known)
        updates = {at: one.metrics["update"] for at, one in known.items() if "update" in one.metrics}
        rollouts = {
            (sampled_by(experiment, method, round_), seed, round_): one.metrics["rollout"]
            for (method, seed, round_), one in known.items()
            if one.metrics.get("rollout", {}).keys() >= COMPARED
        }
        return collapses_in(experiment, updates, rollouts)


def _look(known: _Known, name: str, path: str) -> None:
    """Read a metrics file if it is new or has changed; forget one that is gone."""
    try:
        found = os.stat(path)
    except OSError:
        known.stamps.pop(name, None)
        known.metrics.pop(name, None)
        return
    stamp = (found.st_mtime_ns, found.st_size)
    if known.stamps.get(name) == stamp:
        return
    numbers = _numbers(path, name)
    if numbers is not None:  # one that is being written is read the next time
        known.stamps[name], known.metrics[name] = stamp, numbers


def _numbers(path: str, name: str) -> dict[str, float] | None:
    try:
        with open(path, "rb") as handle:
            data: Any = json.load(handle)["metrics"]
        return {
            key: float(value)
            for key, value in data.items()
            if (key in KEPT[name] or (name == "eval" and key.startswith("success_")))
            and isinstance(value, (int, float))
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
