"""What the checks of a round read: the settings that they need, and the round's files and tables."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from turncredit.config.judge import JudgeConfig, labels_name
from turncredit.config.layout import IMPLICIT
from turncredit.credit import Method, resolve
from turncredit.credit.parts.configured import ask_of
from turncredit.data import tables
from turncredit.data.seeding import derive_seed
from turncredit.data.turns import Turns, with_forks


class StepSettings(BaseModel):
    """What decides how many optimiser steps an update takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    epochs: int
    minibatch: int
    skip_dead_groups: bool


class CheckSettings(BaseModel):
    """The part of the configuration that the checks read.

    methods       what decides each method's credit, by name (built-in methods need no entry)
    judge         the judge whose labels are checked
    temperature   that the turns were sampled at
    dtype, dropout, tokens_per_pass   of the policy whose log-probabilities are computed again
    update        of the run whose updates are checked; None where there are none
    env, shared   the environment of that run, and how many held-out games may be training games, too
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    methods: dict[str, dict[str, Any] | str]
    judge: JudgeConfig
    temperature: float
    dtype: str
    dropout: float
    tokens_per_pass: int
    update: StepSettings | None = None
    env: str = ""
    shared: int = 0


class RoundFiles(BaseModel):
    """The artifacts of one round of a run (or of an audit of it).

    sampler           the name, in tables, of the policy that sampled the turns
    measures          progress and distance, where a method reads them
    credits, values, continuations, forks   by method
    beside            further tables as (schema, path), such as hiddens or branches
    learned           in a run's first round: the tables of the games that are trained on or demonstrated
    eval_tasks        the games of its evaluations
    policy            the folder of the policy that sampled the turns, where it is still there
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    run: str
    seed: int
    round: int
    sampler: str
    turns: Path
    measures: Path | None = None
    credits: dict[str, Path] = Field(default_factory=dict)
    values: dict[str, Path] = Field(default_factory=dict)
    continuations: dict[str, Path] = Field(default_factory=dict)
    forks: dict[str, Path] = Field(default_factory=dict)
    labels: tuple[Path, ...] = ()
    beside: tuple[tuple[str, Path], ...] = ()
    updates: Path | None = None
    evals: Path | None = None
    learned: tuple[Path, ...] = ()
    eval_tasks: Path | None = None
    policy: Path | None = None

    def all(self) -> list[tuple[str, Path]]:
        """(schema, path) of every table."""
        single = [(name, getattr(self, name)) for name in ("turns", "measures", "updates", "evals")]
        by_method = [(name, files) for name, files in self if isinstance(files, dict)]
        many = [(name, path) for name, files in by_method for path in dict.fromkeys(files.values())]
        return [
            *((name, path) for name, path in single if path is not None),
            *many,
            *(("labels", path) for path in self.labels),
            *(("tasks", path) for path in (*self.learned, self.eval_tasks) if path is not None),
            *self.beside,
        ]

    def on_disk(self) -> RoundFiles:
        """Only the files that are on disk; turns and measures in any case."""
        return RoundFiles.model_validate({name: _existing(name, files) for name, files in self})

    def beside_of(self, schema: str) -> list[Path]:
        """The further tables with this schema."""
        return [path for name, path in self.beside if name == schema]


def _existing(name: str, files: Any) -> Any:
    """What exists of the value of a field of `RoundFiles`."""
    match files:
        case dict():
            return {key: path for key, path in files.items() if path.exists()}
        case tuple():
            return tuple(file for file in files if (file[1] if name == "beside" else file).exists())
        case Path() if name not in ("turns", "measures") and not files.exists():
            return None
    return files


class Round:
    """A round's tables, each read once."""

    def __init__(self, settings: CheckSettings, files: RoundFiles):
        self.settings, self.files = settings, files

    @cached_property
    def table(self) -> pa.Table:
        """Turns and any forks, with all columns that a method may read (SCPO's order reads the length of prompts)."""
        turns = tables.read(self.files.turns, "turns")
        for path in self.files.forks.values():
            turns = with_forks(turns, tables.read(path, "forks"))
        return turns

    @cached_property
    def turns(self) -> Turns:
        """The turns with the side tables that all methods share."""
        return Turns(self.table, where=str(self.files.turns))

    def credits(self, name: str) -> pa.Table:
        """The stored credits of a method."""
        return tables.read(self.files.credits[name], "credits")

    def method(self, name: str) -> Method:
        """The method that the configuration calls `name`."""
        return resolve(self.settings.methods.get(name, name), name)

    def with_side(self, name: str) -> Turns | None:
        """The turns with the side tables that the method reads; None if one is missing."""
        labels = labels_name(self.settings.judge, ask_of(self.method(name)))
        scorer = self.method(name).scorer
        scorer_file = f"{IMPLICIT}{name}" if scorer == "implicit" else scorer
        path_of = {
            "values": self.files.values.get(name),
            "continuations": self.files.continuations.get(name),
            "labels": next((path for path in self.files.labels if path.stem == labels), None),
            "logprobs": next((path for path in self.files.beside_of("logprobs") if path.stem == scorer_file), None),
        }
        side = {need: path_of[need] for need in self.method(name).needs}
        if self.files.measures is not None:
            side["measures"] = self.files.measures
        read = {need: tables.read(path, need) for need, path in side.items() if path is not None}
        return Turns(self.table, read, self.turns.where) if read.keys() == side.keys() else None

    @property
    def credit_seed(self) -> int:
        """The seed that the stage `credit` gives its methods."""
        return derive_seed(self.files.seed, "credit", self.files.round)
