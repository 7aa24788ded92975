"""`turncredit env`: lists environments and their capabilities, measures baselines, serves, and runs their commands."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from turncredit import envs
from turncredit.envs.protocol import CAPABILITIES
from turncredit.errors import UserError

if TYPE_CHECKING:
    from turncredit.config import EnvSlice


class EnvironmentGroup(TyperGroup):
    """Commands for all environments, and a sub-command for each environment that has its own."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands for all environments, and the names of the environments that have commands."""
        return [*super().list_commands(ctx), *(name for name in envs.playable() if _commands(name))]

    def get_command(self, ctx: Any, name: str) -> Any:
        """An environment's commands, imported now; raises UserError for a name that is neither."""
        if name in super().list_commands(ctx):
            return super().get_command(ctx, name)
        owners = [other for other in envs.builtin() if name in _command_names(other)]
        if owners:
            raise UserError(f"'{name}' is a command of one environment; run `turncredit env {owners[0]} {name}`")
        group = _group(envs.load(name).name)
        if group is None:
            raise UserError(f"the environment '{name}' has no commands of its own; see `turncredit env list`")
        return group


app = typer.Typer(
    cls=EnvironmentGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="List environments, and run their commands.",
)


@app.callback()
def _root() -> None:
    """List environments, and run their commands."""


EnvironmentArgument = Annotated[
    str, typer.Argument(metavar="ENVIRONMENT", help="household, an installed environment, or my_env.py (or :NAME).")
]
SettingsOption = Annotated[str, typer.Option(help="The environment's settings, as YAML: '{horizon: 30}'.")]


@app.command("list")
def list_environments(
    files: Annotated[list[str] | None, typer.Argument(help="Files of your own, listed after the others.")] = None,
) -> None:
    """List the installed environments with their capabilities."""
    for environment in (*map(envs.find, envs.names()), *map(envs.load, files or ())):
        if environment is None:
            continue
        name = environment.name
        print(f"{name}: {environment.summary}")
        if environment.open_task is not None:
            have = [word for word in CAPABILITIES if word in environment.capabilities]
            print(f"    capabilities: {', '.join(have)}")
        if environment.judge is not None:
            print("    rule judge: yes")
        if environment.commands is not None:
            print(f"    commands: turncredit env {name} {' | '.join(_command_names(name))}")


@app.command()
def baselines(
    name: EnvironmentArgument,
    settings: SettingsOption = "{}",
    split: Annotated[str | None, typer.Option(help="Split of the played tasks; without it, the held-out one.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of played tasks.")] = 256,
    train_split: Annotated[str, typer.Option(help="Split of the replayed demonstrations.")] = "train",
    train: Annotated[int, typer.Option(min=1, help="Number of replayed tasks.")] = 1500,
    seed: Annotated[int, typer.Option(help="Seed for all random numbers.")] = 0,
) -> None:
    """Print the success of random actions, replays, an obvious rule and the expert, as a Markdown table."""
    from turncredit.rollouts.baselines import baselines as measured
    from turncredit.rollouts.baselines import table

    env, split = _environment_slice(name, settings), split or envs.load(name).held_out_split
    print(table(measured(env, split=split, count=count, train_split=train_split, train=train, seed=seed)))


@app.command()
def check(
    name: EnvironmentArgument,
    settings: SettingsOption = "{}",
    split: Annotated[str, typer.Option(help="Split of the training tasks.")] = "train",
    eval_split: Annotated[str | None, typer.Option(help="Split of the held-out tasks.")] = None,
    tasks: Annotated[int, typer.Option(min=1, help="Tasks of each split to try.")] = 16,
    turns: Annotated[int, typer.Option(min=1, help="Turns after which a rollout is cut.")] = 60,
    timeout: Annotated[float, typer.Option(min=0.01, help="Seconds that a call may take.")] = 60,
    seed: Annotated[int, typer.Option(help="Seed of the tasks and of random actions.")] = 0,
    noise: Annotated[float, typer.Option(min=0, max=0.99, help="Share of the expert's turns that are random.")] = 0.1,
) -> None:
    """Check that an environment does what it declares; exit code 1 if a check fails."""
    from turncredit.audit.environment_check import check_environment, untried
    from turncredit.audit.environment_trial import Tried

    findings = []
    env, held_out = _environment_slice(name, settings), eval_split or envs.load(name).held_out_split
    tried = Tried(env, split, held_out, tasks, turns, seed, timeout, noise)
    for finding in check_environment(tried):
        print(f"{finding.check:<12} {finding.outcome:<10} {finding.detail}", flush=True)
        findings.append(finding)
    if note := untried(tried, findings):
        print(note)
    if any(finding.outcome == "fails" for finding in findings):
        raise typer.Exit(1)


@app.command()
def play(
    name: EnvironmentArgument,
    settings: SettingsOption = "{}",
    split: Annotated[str, typer.Option(help="Split of the tasks.")] = "train",
    task: Annotated[int, typer.Option(min=0, help="Number of the task in the split.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the tasks.")] = 0,
) -> None:
    """Play a task of an environment yourself."""
    from turncredit.data.seeding import generator
    from turncredit.envs import by_hand
    from turncredit.rollouts.tasks import Games, make_tasks

    chosen = _environment_slice(name, settings)
    games = Games(chosen, make_tasks(chosen, split, task + 1, seed, key="--task"))
    row = games.rows[task]
    running = games.open(row)
    expert = games.expert(running, generator(seed, "play"), skip=False) if games.can("expert") else None
    listing = (lambda: list(games.admissible(running))) if games.can("admissible") else None
    by_hand.play(
        running,
        expert,
        f"{games.env.name}: {row['goal']}",
        lambda step: "You won." if step.success else f"It is over, with a reward of {step.reward:g}.",
        listing,
    )
    running.close()


def _environment_slice(name: str, settings: str) -> EnvSlice:
    """The environment with settings as YAML. Raises UserError, also where something that playing needs is missing."""
    from turncredit.config import EnvSlice, validated

    environment = envs.load(name)
    given = validated(environment.Settings, _mapping(settings), "", "--settings")
    if environment.check_installed is not None:
        environment.check_installed(given)
    return EnvSlice(name=name, settings=given.model_dump())


def _mapping(settings: str) -> dict[str, Any]:
    """A mapping from YAML. Raises UserError."""
    import yaml

    try:
        given = yaml.safe_load(settings)
    except yaml.YAMLError:
        given = None
    if not isinstance(given, dict):
        raise UserError(f"--settings: {settings!r} is not a mapping in YAML; write it as '{{horizon: 30}}'")
    return given


@app.command()
def serve(
    name: EnvironmentArgument,
    settings: SettingsOption = "{}",
    split: Annotated[str, typer.Option(help="Split of the tasks.")] = "train",
    count: Annotated[int, typer.Option(min=1, help="Number of tasks.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the tasks.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = 8000,
    sessions: Annotated[int, typer.Option(min=1, help="Most sessions at once.")] = 256,
    idle: Annotated[float, typer.Option(min=1, help="Seconds after which an idle session ends.")] = 600,
) -> None:
    """Serve an environment to other trainers by OpenEnv's protocol, until it is interrupted."""
    from turncredit.bridges import openenv

    served = openenv.tasks(name, _mapping(settings), split, count, seed)
    openenv.serve(
        openenv.application(served, sessions, idle),
        host,
        port,
        started=lambda url: print(f"{url} serves {name} by OpenEnv's protocol", flush=True),
    )


def _commands(name: str) -> str | None:
    environment = envs.find(name)
    return environment.commands if environment is not None else None


def _group(name: str) -> Any:
    target = _commands(name)
    if target is None:
        return None
    module, _, attribute = target.partition(":")
    return typer.main.get_command(getattr(import_module(module), attribute or "app"))


def _command_names(name: str) -> list[str]:
    group = _group(name)
    return [] if group is None else sorted(group.commands)
