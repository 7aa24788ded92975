"""What Snakemake does in an experiment now, and what has failed: told by whoever starts the viewer."""

from __future__ import annotations

from typing import NamedTuple


class Work(NamedTuple):
    """A stage that is running, queued or interrupted, of a round of a run (`method`) or of shared turns (`policy`)."""

    stage: str
    who: str
    seed: int
    round: int
    state: str


class Failed(NamedTuple):
    """A job that failed: its line, the last lines of its log, and where it belongs, as in `Work`."""

    line: str
    log: str
    tail: list[str]
    who: str
    seed: int
    round: int


class Activity(NamedTuple):
    """All of it; `working`: whether a Snakemake works in the folder."""

    works: list[Work]
    failed: list[Failed]
    working: bool


NOTHING = Activity([], [], False)
