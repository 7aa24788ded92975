"""Environments by name: built-in folders here, installed packages by entry point, the user's own by file.

    household                  a folder of this package, whose `__init__.py` declares `ENVIRONMENT`
    counting                   an entry point `counting = "pkg.env:ENVIRONMENT"` of the group `turncredit.environments`
    examples/counting_env.py   a file that declares `ENVIRONMENT` (or `file.py:NAME` for another name)

An environment is imported only when it is used.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from pathlib import Path
from typing import Any

from turncredit.data import plugins
from turncredit.envs.environment import Environment
from turncredit.errors import UserError, nearest

#: The entry points through which other packages provide environments: name = "package.module:ENVIRONMENT".
GROUP = "turncredit.environments"

#: environments from files, by the name that they declare: tables hold this name, not the path
_FROM_FILES: dict[str, Environment] = {}


def load(name: str) -> Environment:
    """The environment that a configuration calls `name`. Raises UserError if it is unknown or cannot be played."""
    if (own := plugins.own_file(name)) is not None:
        return _from_file(*own)
    if name in builtin() and find(name).open_task is None:  # type: ignore[union-attr]
        raise UserError(
            f"environment '{name}' cannot be played, only its tables judged; choose one of {', '.join(playable())}"
        )
    if name not in names():
        choices = playable()
        raise UserError(
            f"unknown environment '{name}'{nearest(name, choices)}; choose one of {', '.join(choices)}, or a file "
            "of your own such as my_env.py"
        )
    environment = find(name)
    assert environment is not None
    environment.check(f"environment '{name}'")
    return environment


def find(name: str) -> Environment | None:
    """The environment that a table calls `name` (or an alias), even if it cannot be played here; None if unknown."""
    if name in builtin() or name in entry_point_names():
        targets = {own: f"turncredit.envs.{own}:ENVIRONMENT" for own in builtin()}
        return _checked(plugins.load("environment", GROUP, targets, name), f"environment '{name}'")
    if name in _FROM_FILES:
        return _FROM_FILES[name]
    return find(_aliases()[name]) if name in _aliases() else None


def is_ours(environment: Environment) -> bool:
    """Whether it is built in. Built-in environments are trusted: their calls are neither timed nor checked."""
    return environment.name in builtin() and find(environment.name) is environment


def names() -> list[str]:
    """The names of all known environments: the built-in ones, then those of other packages, each sorted."""
    return [*builtin(), *(name for name in entry_point_names() if name not in builtin())]


def playable() -> list[str]:
    """`names` without the environments that are only known from tables. A broken package is left out, not an error."""
    out = []
    for name in names():
        try:
            environment = find(name)
        except UserError:
            continue
        if environment is not None and environment.open_task is not None:
            out.append(name)
    return out


@cache
def builtin() -> tuple[str, ...]:
    """The built-in environments: the folders next to this file, sorted. They need no package metadata."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg))


def entry_point_names() -> list[str]:
    """The names of installed environments, sorted; includes the built-in ones if this package is installed."""
    return sorted(plugins.installed(GROUP))


@cache
def _aliases() -> dict[str, str]:
    environments = {name: find(name) for name in builtin()}
    return {alias: name for name, environment in environments.items() if environment for alias in environment.aliases}


def _from_file(path: Path, attribute: str) -> Environment:
    attribute = attribute or "ENVIRONMENT"
    environment = _checked(getattr(plugins.from_file("an environment", path), attribute, None), str(path), attribute)
    environment.check(str(path))
    if environment.name in builtin():
        raise UserError(f"{path}: '{environment.name}' is the name of a built-in environment; choose another")
    _FROM_FILES[environment.name] = environment
    return environment


def _checked(value: Any, where: str, attribute: str = "ENVIRONMENT") -> Environment:
    if not isinstance(value, Environment):
        what = f"has no {attribute}" if value is None else f"{attribute} is a {type(value).__name__}"
        raise UserError(f"{where}: {what}; describe the environment by {attribute} = Environment(...)")
    return value
