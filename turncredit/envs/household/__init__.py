"""ALFWorld's household as text games: native engine, generated or released games, oracles."""

from __future__ import annotations

from turncredit.envs.household.expert import Expert, random_command, slip_command
from turncredit.envs.household.settings import Settings
from turncredit.envs.household.tasks import export_game, make_tasks, open_task
from turncredit.envs.household.words import WORDS

__all__ = ["WORDS", "Expert", "Settings", "export_game", "make_tasks", "open_task", "random_command", "slip_command"]
