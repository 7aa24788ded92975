"""`turncredit env webshop`: play and measure WebShop."""

from __future__ import annotations

import json
import platform
import random
from pathlib import Path
from typing import Annotated

import typer

from turncredit.envs.webshop.settings import Settings

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="Play and benchmark WebShop.")

Seed = Annotated[int, typer.Option(help="Seed for all random numbers.")]
Data = Annotated[
    Path | None, typer.Option("--data", help="Folder of the original's files; without it, the generated shop.")
]
Split = Annotated[str, typer.Option(help="Split of the goals.")]


@app.command()
def play(data: Data = None, split: Split = "train", seed: Seed = 0) -> None:
    """Shop for a goal yourself."""
    from turncredit.envs import by_hand
    from turncredit.envs.webshop import Expert, make_tasks, open_task

    settings = _settings(data)
    env = open_task(make_tasks(split, 1, seed, settings)[0], settings)
    by_hand.play(
        env,
        Expert(env, random.Random(seed)),
        env.goal.instruction,
        lambda last: "A perfect purchase." if last.success else "The rollout is over.",
        env.admissible,
    )


@app.command()
def bench(
    data: Data = None,
    split: Split = "train",
    count: Annotated[int, typer.Option(min=1, help="Tasks to measure on.")] = 100,
    steps: Annotated[int, typer.Option(min=1, help="Actions a task.")] = 100,
    seed: Seed = 0,
) -> None:
    """Print the times of indexing, searches, steps, and snapshot and restore as JSON (CPU time, caches cold)."""
    from turncredit.envs.webshop import bench as timing

    figures = timing.measure(_settings(data), split, count, steps, seed)
    print(json.dumps({"python": platform.python_version(), **figures}, indent=1))


@app.command()
def index(
    data: Annotated[Path, typer.Option("--data", help="Folder of the original's files, or its file of products.")],
    out: Annotated[Path, typer.Option(help="New folder for the catalogue; env.webshop.data_root then names it.")],
) -> None:
    """Write the original's catalogue and its search index to disk, which all processes then share.

    For its 1.18 million products, which otherwise every process reads into memory. People's instructions are kept where
    their file is there.
    """
    from turncredit.envs.webshop import catalogue, store

    products, attributes, _ = catalogue.data_files(_settings(data))
    human = products.parent / catalogue.HUMAN
    count = store.build(catalogue.each_product(products, attributes, human if human.is_file() else None), out)
    typer.echo(f"{count:,} products in {out}; set env.webshop to {{source: real, data_root: {out}}}")


def _settings(data: Path | None) -> Settings:
    return Settings(source="real", data_root=str(data)) if data else Settings()
