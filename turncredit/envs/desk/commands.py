"""`turncredit env desk`: play and measure the desk, and print its tools."""

from __future__ import annotations

import json
import platform
import random
from typing import Annotated

import typer

from turncredit.envs.desk.settings import Settings

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="Play and benchmark the service desk."
)

Seed = Annotated[int, typer.Option(help="Seed for all random numbers.")]
Split = Annotated[str, typer.Option(help="Split of the cases.")]


@app.command()
def play(split: Split = "train", seed: Seed = 0) -> None:
    """Serve a customer yourself."""
    from turncredit.envs import by_hand
    from turncredit.envs.desk import Expert, make_tasks, open_task

    settings = Settings()
    env = open_task(make_tasks(split, 1, seed, settings)[0], settings)
    by_hand.play(
        env,
        Expert(env, random.Random(seed)),
        env.goal,
        lambda last: "The database is as it should be." if last.success else "The database is not as it should be.",
        env.admissible,
    )


@app.command()
def tools() -> None:
    """Print the tools with their JSON schemas, as chat templates take them."""
    from turncredit.envs.desk.tools import TOOLS

    print(json.dumps(TOOLS.declarations(), indent=1))


@app.command()
def bench(
    split: Split = "train",
    count: Annotated[int, typer.Option(min=1, help="Cases to measure on.")] = 200,
    steps: Annotated[int, typer.Option(min=1, help="Actions a case.")] = 100,
    seed: Seed = 0,
) -> None:
    """Print the times of making cases, steps, snapshot and restore, and the expert's success, as JSON (CPU time)."""
    from turncredit.envs.desk import bench as timing

    figures = timing.measure(Settings(), split, count, steps, seed)
    print(json.dumps({"python": platform.python_version(), **figures}, indent=1))
