"""`turncredit env virtualhome`: play and measure VirtualHome."""

from __future__ import annotations

import json
import platform
import random
from pathlib import Path
from typing import Annotated

import typer

from turncredit.envs.virtualhome.settings import Settings

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="Play and benchmark VirtualHome."
)

Seed = Annotated[int, typer.Option(help="Seed for all random numbers.")]
Data = Annotated[
    Path | None, typer.Option("--data", help="Folder of recorded programs; without it, generated households.")
]
Split = Annotated[str, typer.Option(help="Split of the tasks.")]


@app.command()
def play(data: Data = None, split: Split = "train", seed: Seed = 0) -> None:
    """Do a chore yourself."""
    from turncredit.envs import by_hand
    from turncredit.envs.virtualhome import expert, make_tasks, open_task

    settings = _settings(data)
    env = open_task(make_tasks(split, 1, seed, settings)[0], settings)
    by_hand.play(
        env,
        expert(env, random.Random(seed)),
        env.goal,
        lambda last: "The goal is reached." if last.success else "The rollout is over.",
        env.admissible,
    )


@app.command()
def bench(
    data: Data = None,
    split: Split = "train",
    count: Annotated[int, typer.Option(min=1, help="Tasks to measure on.")] = 50,
    steps: Annotated[int, typer.Option(min=1, help="Actions a task.")] = 100,
    seed: Seed = 0,
) -> None:
    """Print the times of opening tasks, steps, and snapshot and restore, and memory, as JSON (CPU time)."""
    from turncredit.envs.virtualhome import bench as timing

    figures = timing.measure(_settings(data), split, count, steps, seed)
    print(json.dumps({"python": platform.python_version(), **figures}, indent=1))


@app.command()
def programs(data: Annotated[Path, typer.Option("--data", help="Folder of recorded programs.")]) -> None:
    """Run all recorded programs and print how many end as they were recorded, as JSON."""
    from turncredit.envs.virtualhome import bench as timing

    print(json.dumps(timing.programs(_settings(data)), indent=1))


def _settings(data: Path | None) -> Settings:
    return Settings(source="real", data_root=str(data), horizon=200) if data else Settings()
