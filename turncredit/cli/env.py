"""`turncredit env`: lists environments and their capabilities, and runs their commands."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from turncredit import envs
from turncredit.envs.protocol import CAPABILITIES
from turncredit.errors import UserError


class EnvironmentGroup(TyperGroup):
    """`list`, and a sub-command for each environment that has its own commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        """`list` and the names of the environments that have commands."""
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


app = typer.Typer(cls=EnvironmentGroup, no_args_is_help=True, help="List environments, and run their commands.")


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
