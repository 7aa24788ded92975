"""Desk: a shop's customer service with tools, rules and a customer on the line, where nothing can be taken back."""

from __future__ import annotations

from turncredit.envs.desk.expert import Expert, random_command, slip_command
from turncredit.envs.desk.rule import rule
from turncredit.envs.desk.settings import Settings
from turncredit.envs.desk.tasks import make_tasks, open_task
from turncredit.envs.desk.words import WORDS
from turncredit.envs.desk.world import Desk
from turncredit.envs.environment import Environment, Lengths

__all__ = ["ENVIRONMENT", "WORDS", "Expert", "Settings", "make_tasks", "open_task", "random_command", "slip_command"]

ENVIRONMENT = Environment(
    name="desk",
    summary="customer service with tools and rules; generated shops, the database's final state is the goal.",
    Settings=Settings,
    lengths=lambda _: Lengths(goal=104, first=7, observation=14, action=5, admissible=127),
    open_task=open_task,
    env_class=Desk,
    make_tasks=make_tasks,
    expert=Expert,
    random_command=random_command,
    slip_command=slip_command,
    rule=rule,
    words=WORDS,
    judge="turncredit.envs.desk.grammar",
    commands="turncredit.envs.desk.commands:app",
)
