"""`turncredit env sokoban`: play and measure Sokoban, check a file of levels, write generated ones to one."""

from __future__ import annotations

import json
import platform
import random
from pathlib import Path
from typing import Annotated

import typer

from turncredit.envs.sokoban.settings import Settings

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="Play and benchmark Sokoban.")

Seed = Annotated[int, typer.Option(help="Seed for all random numbers.")]
Levels = Annotated[Path | None, typer.Option("--levels", help="File of levels; without it, generated levels.")]
Split = Annotated[str, typer.Option(help="Split of the levels.")]


@app.command()
def play(levels: Levels = None, split: Split = "train", seed: Seed = 0) -> None:
    """Solve a level yourself."""
    from turncredit.envs import by_hand
    from turncredit.envs.sokoban import Expert, make_tasks, open_task

    settings = _settings(levels)
    task = make_tasks(split, 1, seed, settings)[0]
    env = open_task(task, settings)
    by_hand.play(
        env,
        Expert(env, random.Random(seed)),
        task["goal"],
        lambda last: "The level is solved." if last.success else "The rollout is over.",
        env.admissible,
    )


@app.command()
def bench(
    levels: Levels = None,
    split: Split = "train",
    count: Annotated[int, typer.Option(min=1, help="Tasks to measure on.")] = 100,
    steps: Annotated[int, typer.Option(min=1, help="Actions a task.")] = 100,
    seed: Seed = 0,
) -> None:
    """Print the times of making tasks, tables of distances, steps, and snapshot and restore, as JSON (CPU time)."""
    from turncredit.envs.sokoban import bench as timing

    figures = timing.measure(_settings(levels), split, count, steps, seed)
    print(json.dumps({"python": platform.python_version(), **figures}, indent=1))


@app.command()
def check(levels: Annotated[Path, typer.Argument(help="File of levels in the common text format.")]) -> None:
    """Solve all levels of a file and print how many there are of each number of boxes, and how long plans are."""
    from turncredit.envs.sokoban import bench as timing

    print(json.dumps(timing.solved(levels), indent=1))


@app.command()
def export(
    path: Annotated[Path, typer.Argument(help="File to write.")],
    split: Split = "train",
    count: Annotated[int, typer.Option(min=1, help="Number of levels.")] = 100,
    seed: Seed = 0,
) -> None:
    """Write generated levels in the common text format, which other Sokoban programs read."""
    from turncredit.data.output_paths import output_file
    from turncredit.envs.sokoban import make_tasks

    path = output_file(path, (".txt", ".xsb", ".sok"))
    rows = make_tasks(split, count, seed, Settings())
    levels = ("\n".join(json.loads(row["game"])["rows"]) for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(f"; {row['task_id']}\n{level}\n\n" for row, level in zip(rows, levels, strict=True)), encoding="utf-8"
    )
    print(f"{len(rows)} levels: {path}")


def _settings(levels: Path | None) -> Settings:
    return Settings(levels=str(levels), horizon=1000) if levels else Settings()  # type: ignore[arg-type]  # one file
