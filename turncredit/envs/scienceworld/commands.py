"""`turncredit env scienceworld`: play and measure ScienceWorld."""

from __future__ import annotations

import json
import platform
import random
from typing import Annotated

import typer

from turncredit.envs.scienceworld.settings import TASKS, Settings
from turncredit.errors import UserError, nearest

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="Play and benchmark ScienceWorld."
)

Seed = Annotated[int, typer.Option(help="Seed for all random numbers.")]
Chosen = Annotated[list[str], typer.Option("--task", help="Task; repeatable. Without it, all 30.")]


@app.command()
def play(
    task: Chosen = [],  # noqa: B006 - typer reads the default, nobody changes it
    split: Annotated[str, typer.Option(help="Split of the tasks.")] = "train",
    seed: Seed = 0,
) -> None:
    """Do a task yourself."""
    from turncredit.envs import by_hand
    from turncredit.envs.scienceworld import Expert, make_tasks, open_task

    settings = Settings(tasks=_checked(task))
    env = open_task(make_tasks(split, 1, seed, settings)[0], settings)
    by_hand.play(
        env,
        Expert(env, random.Random(seed)),
        f"Your task is to {env.goal}",
        lambda last: f"Score {env.progress():.2f}. {'Completed.' if last.success else 'The rollout is over.'}",
        how="help lists the actions, ! shows the expert's next one, an empty line quits",
    )


@app.command()
def bench(
    rollouts: Annotated[list[int], typer.Option(help="Rollouts at a time; repeatable.")] = [1, 64],  # noqa: B006
    steps: Annotated[int, typer.Option(min=1, help="Actions of each.")] = 20,
    seed: Seed = 0,
) -> None:
    """Print times of resets, steps and restoring, and Java's memory, as JSON (CPU time of both processes)."""
    from turncredit.envs.scienceworld import bench as timing

    timings = list(timing.measure(rollouts, steps, seed))
    print(json.dumps({"python": platform.python_version(), "measured": timings}, indent=1))


@app.command()
def gold(
    task: Chosen = [],  # noqa: B006
    each: Annotated[int, typer.Option(min=1, help="Variations of each task.")] = 1,
) -> None:
    """Play gold paths of training variations to their end; exit 1 if one does not complete its task."""
    from turncredit.envs.scienceworld import bench as timing

    failed = False
    for result in timing.gold(_checked(task), each, Settings(horizon=1000)):
        print(json.dumps(result), flush=True)
        failed |= result["completed"] < result["variations"]
    if failed:
        raise typer.Exit(1)


def _checked(names: list[str]) -> tuple[str, ...]:
    for name in names:
        if name not in TASKS:
            raise UserError(f"unknown task '{name}' of ScienceWorld{nearest(name, list(TASKS))}")
    return tuple(names) or TASKS
