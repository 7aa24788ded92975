"""`turncredit env household`: play, export, check and measure the household environment."""

from __future__ import annotations

import json
import platform
import sys
import time
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from turncredit.errors import UserError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Play, check and benchmark the household environment.",
)

Games = Annotated[
    list[Path], typer.Option("--games", help="Folder with game.tw-pddl files, searched recursively; repeatable.")
]
Seed = Annotated[int, typer.Option(help="Seed for all random numbers.")]


class Engine(StrEnum):
    """What can be measured."""

    native = "native"
    textworld = "textworld"
    alfworld = "alfworld"


class Family(StrEnum):
    """The six families of tasks."""

    pick = "pick"
    look = "look"
    clean = "clean"
    heat = "heat"
    cool = "cool"
    pick2 = "pick2"


@app.command()
def conformance(
    games: Games = [],  # noqa: B006 - typer reads the default, nobody changes it
    steps: Annotated[int, typer.Option(min=0, help="Random commands per game, in addition to its walkthrough.")] = 60,
    generated: Annotated[int, typer.Option(min=0, help="Number of generated games to compare.")] = 0,
    sample: Annotated[int | None, typer.Option(min=1, help="Maximum number of games from each folder.")] = None,
    seed: Seed = 0,
) -> None:
    """Compare the native engine with the reference, command for command; exit 1 if they differ."""
    from turncredit.envs.household import conformance as checks
    from turncredit.envs.household import textworld

    if not games and not generated:
        raise UserError("nothing to compare: give --games DIR, --generated N, or both")
    files = [path for folder in games for path in checks.real_games(folder, sample, seed)]
    textworld.speed_up()
    pairs = chain(checks.load_games(files), checks.generated_games(generated, seed))
    started = time.monotonic()
    shown = track(pairs, total=len(files) + generated, description="comparing", console=Console(stderr=True))
    report = checks.compare(shown, steps, seed)
    for example in report.examples:
        print(json.dumps(example, indent=1))
    commands = ", ".join(f"{name} {count:,}" for name, count in report.commands.most_common())
    print(
        f"{report.games} games, {report.walkthroughs_won} walkthroughs won, {report.steps:,} steps compared, "
        f"{report.differences} differences, {time.monotonic() - started:.0f} s\ncommands: {commands}"
    )
    if report.differences:
        raise typer.Exit(1)


@app.command()
def bench(
    games: Games,
    engine: Annotated[list[Engine], typer.Option(help="Engine to measure; repeatable.")] = [Engine.native],  # noqa: B006
    count: Annotated[int, typer.Option(min=1, help="Games to measure on.")] = 20,
    steps: Annotated[int, typer.Option(min=1, help="Commands a game.")] = 40,
    seed: Seed = 0,
) -> None:
    """Print load, reset, step, and snapshot and restore times as JSON (CPU time, caches cold)."""
    from turncredit.envs.household import bench as timing
    from turncredit.envs.household import conformance as checks

    files = [path for folder in games for path in checks.real_games(folder, count, seed)][:count]
    data = [game for _, game in checks.load_games(files)]
    result: dict[str, object] = {"python": platform.python_version(), "machine": _machine()}
    # in this order, because measuring `textworld` speeds up the package that `alfworld` is
    figures = {name: timing.measure(name, data, steps, seed) for name in timing.ENGINES if Engine(name) in engine}
    result |= figures
    if "native" in figures and len(figures) > 1:
        result["native_times_faster"] = {
            name: round(other["step_us"] / figures["native"]["step_us"])
            for name, other in figures.items()
            if name != "native"
        }
    print(json.dumps(result, indent=1))


@app.command()
def play(
    family: Annotated[Family | None, typer.Option(help="Kind of task.")] = None,
    split: Annotated[str, typer.Option(help="Split of the generated games.")] = "train",
    horizon: Annotated[int, typer.Option(min=1, help="Commands until it ends.")] = 50,
    seed: Seed = 0,
    game: Annotated[Path | None, typer.Option(help="A released game.tw-pddl, instead of a generated game.")] = None,
) -> None:
    """Play a generated or a released game yourself."""
    from turncredit.envs.household import Settings, make_tasks, open_task
    from turncredit.envs.household.goals import FAMILIES
    from turncredit.envs.household.native import NativeEnv
    from turncredit.envs.household.tasks import load_game

    settings = Settings(families=(family.value,) if family else FAMILIES, horizon=horizon)
    if game is not None:
        env = NativeEnv(load_game(game), horizon)
    else:
        env = open_task(make_tasks(split, 1, seed, settings)[0], settings)
    env.reset()
    print(env.intro + "\n\n(? lists the admissible commands, ! shows the best next one, an empty line quits)")
    while True:
        command = input("\n> ").strip() if sys.stdin.isatty() else sys.stdin.readline().strip()
        if not command:
            return
        if command == "?":
            print("\n".join(env.admissible()))
        elif command == "!":
            print("\n".join(env.oracle()[:1]) or "The goal can no longer be reached.")
        else:
            step = env.step(command)
            print(step.observation)
            if step.done:
                print("You won." if step.success else f"The game is over after {horizon} commands.")
                return


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="Output folder, for example json_2.1.1/train in a data root.")],
    split: Annotated[str, typer.Option(help="Split of the generated games.")] = "train",
    count: Annotated[int, typer.Option(min=1, help="How many games.")] = 10,
    seed: Seed = 0,
) -> None:
    """Write generated games as game.tw-pddl files that any ALFWorld installation can play."""
    from turncredit.data.output_paths import output_folder
    from turncredit.envs.household import Settings, export_game, make_tasks

    folder = output_folder(folder, (), ours=True)
    for row in make_tasks(split, count, seed, Settings()):
        print(export_game(row, folder))


def _machine() -> str:
    """The processor's name, for the record."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
