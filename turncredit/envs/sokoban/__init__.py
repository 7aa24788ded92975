"""Sokoban as text: boxes are pushed onto targets, and one wrong push can make a level unsolvable unnoticed."""

from __future__ import annotations

from turncredit.envs.environment import Environment, Lengths
from turncredit.envs.sokoban.expert import Expert, random_command, slip_command
from turncredit.envs.sokoban.game import Sokoban
from turncredit.envs.sokoban.settings import Settings
from turncredit.envs.sokoban.tasks import check_files, make_tasks, open_task, task_key
from turncredit.envs.sokoban.words import WORDS

__all__ = ["ENVIRONMENT", "WORDS", "Expert", "Settings", "make_tasks", "open_task", "random_command", "slip_command"]


ENVIRONMENT = Environment(
    name="sokoban",
    summary="boxes pushed onto targets; generated levels or files of levels, exact distances, dead ends known.",
    Settings=Settings,
    lengths=lambda _: Lengths(goal=9, first=41, observation=42, action=1, admissible=4),
    open_task=open_task,
    env_class=Sokoban,
    make_tasks=make_tasks,
    task_key=task_key,
    check_installed=check_files,
    expert=Expert,
    random_command=random_command,
    slip_command=slip_command,
    words=WORDS,
    judge="turncredit.envs.sokoban.grammar",
    commands="turncredit.envs.sokoban.commands:app",
)
