"""Environments behind one small protocol (`turncredit.envs.protocol.Env`).

An environment is a module with `Settings`, `make_tasks(split, count, seed, settings)` and
`open_task(row, settings)`; it is imported only when somebody asks for it.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from turncredit.errors import UserError, nearest

ENVS = {"household": "turncredit.envs.household"}


def load(name: str) -> ModuleType:
    """Import the environment called `name`. Raises UserError for a name that is not in `ENVS`."""
    if name not in ENVS:
        raise UserError(f"unknown environment '{name}'{nearest(name, ENVS)}; known: {', '.join(ENVS)}")
    return import_module(ENVS[name])
