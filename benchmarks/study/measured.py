"""What the study reads of a setting: the density of decisive turns in round 1, and each method's gain."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks import recorded
from benchmarks.density import Density, density
from turncredit.config import names_in_sweep
from turncredit.config.warm_starts import SFT
from turncredit.credit.parts.baselines import BASELINE, ORACLE, RANDOM
from turncredit.data import tables
from turncredit.stats.intervals import Estimate
from turncredit.stats.levels import normal_half
from turncredit.views.collect import Results, collect
from turncredit.views.report.selection import final_rounds, mean_success, paired

ROOT = Path(__file__).parents[2]
#: The files of config/study, a world's each; base.yaml is laid under all of them.
WORLDS = ("sokoban", "desk", "household")
#: What the study's experiments are called, before the world and the setting.
PREFIX = "study_"
#: The success of the warm start outside which a setting belongs to no rule: there is no room on one side.
LEAST_START, MOST_START = 0.2, 0.7
_HALVES = ("advantage_first_half", "advantage_second_half", "advantage_true_se")


class Setting(NamedTuple):
    """A setting's measurements.

    start           success of the warm start; NaN if it was not evaluated
    density         None without ground truth
    gains           of each method that has finished a seed with flat GRPO, as shares of success
    reference_gain  the privileged reference above random credit; None until both have finished a seed
    """

    name: str
    world: str
    start: float
    density: Density | None
    gains: dict[str, Estimate]
    reference_gain: Estimate | None

    @property
    def rho(self) -> float:
        """The density; NaN where it is not known."""
        return self.density.rho if self.density else float("nan")

    @property
    def rho_error(self) -> float:
        """About its standard error: the interval's width as that of a normal one."""
        return (self.density.high - self.density.low) / (2 * normal_half(1.0)) if self.density else float("nan")

    @property
    def left_out(self) -> str:
        """Why it belongs to no rule; empty if it does."""
        if not np.isfinite(self.rho):
            return "its density is not known"
        if not np.isfinite(self.start):
            return "its warm start was not evaluated"
        if not LEAST_START <= self.start <= MOST_START:
            return f"its warm start succeeds in {100 * self.start:.0f}%"
        return ""


def planned() -> list[str]:
    """The names of all settings in config/study, in their order."""
    files = (ROOT / "config" / "study" / f"{world}.yaml" for world in WORLDS)
    return [name.removeprefix(PREFIX) for file in files for name in names_in_sweep([file])]


def read(folder: Path, scratch: Path) -> Setting:
    """The setting in an experiment's folder, or in what `benchmarks.recorded` kept of it, unpacked to `scratch`.

    Raises UserError for a folder without evaluations.
    """
    if (folder / "evals.parquet").exists():
        recorded.unpack(folder, scratch / folder.name)
        folder = scratch / folder.name
    results = collect(folder)
    gains = {name: paired(results, name, BASELINE) for name in results.methods if name not in (BASELINE, SFT)}
    start = mean_success(results, SFT, final_rounds(results), seeds=None)
    return Setting(
        results.experiment.experiment.removeprefix(PREFIX),
        results.experiment.env.name,
        start.estimate.value if start else float("nan"),
        _density(results),
        {name: gain for name, gain in gains.items() if gain},
        paired(results, ORACLE, RANDOM) if {ORACLE, RANDOM} <= set(results.methods) else None,
    )


def _density(results: Results) -> Density | None:
    """Of the branched turns of round 1, which all methods share, over all audited seeds."""
    found = [one for one in results.layout.find("branches") if one.keys["round"] == 1]
    if not found:
        return None
    parts = [tables.read(one.path, "branches").to_pandas() for one in found]
    tasks = [f"{one.keys['seed']} " + part["group_id"] for one, part in zip(found, parts, strict=True)]
    rows = pd.concat(parts)
    first_N, second_N, error_N = (rows[name].to_numpy() for name in _HALVES)
    return density(first_N, second_N, error_N, pd.concat(tasks).to_numpy())
