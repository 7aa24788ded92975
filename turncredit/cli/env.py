"""`turncredit env`: lists environments and their capabilities, serves them, and runs their commands."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from turncredit import envs
from turncredit.envs.protocol import CAPABILITIES
from turncredit.errors import UserError


class EnvironmentGroup(TyperGroup):
    """`list`, `serve`, and a sub-command for each environment that has its own commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        """`list`, `serve` and the names of the environments that have commands."""
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


@app.command("list")
def list_environments() -> None:
    """List the installed environments with their capabilities."""
    for name in envs.names():
        environment = envs.find(name)
        if environment is None:
            continue
        print(f"{name}: {environment.summary}")
        if environment.open_task is not None:
            have = [word for word in CAPABILITIES if word in environment.capabilities]
            print(f"    capabilities: {', '.join(have)}")
        if environment.judge is not None:
            print("    rule judge: yes")
        if environment.commands is not None:
            print(f"    commands: turncredit env {name} {' | '.join(_command_names(name))}")


@app.command()
def serve(
    name: Annotated[str, typer.Argument(help="A built-in environment, such as household or webshop.")],
    settings: Annotated[str, typer.Option(help="Its settings, as YAML: '{horizon: 30}'.")] = "{}",
    split: Annotated[str, typer.Option(help="Split of the tasks.")] = "train",
    count: Annotated[int, typer.Option(min=1, help="Number of tasks.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the tasks.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = 8000,
    sessions: Annotated[int, typer.Option(min=1, help="Most sessions at once.")] = 256,
    idle: Annotated[float, typer.Option(min=1, help="Seconds after which an idle session ends.")] = 600,
) -> None:
    """Serve an environment to other trainers by OpenEnv's protocol, until it is interrupted."""
    import yaml

    from turncredit.bridges import openenv

    try:
        given = yaml.safe_load(settings)
    except yaml.YAMLError:
        given = None
    if not isinstance(given, dict):
        raise UserError(f"--settings: {settings!r} is not a mapping in YAML; write it as '{{horizon: 30}}'")
    served = openenv.tasks(name, given, split, count, seed)
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
