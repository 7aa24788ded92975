"""VirtualHome: chores on the package's evolving graph, in small households of our own or after recorded programs."""

from __future__ import annotations

from turncredit.envs.environment import Environment, Lengths
from turncredit.envs.virtualhome.expert import COLUMNS, expert, random_command, slip_command
from turncredit.envs.virtualhome.home import VirtualHome
from turncredit.envs.virtualhome.rule import rule
from turncredit.envs.virtualhome.settings import Settings
from turncredit.envs.virtualhome.tasks import check_installed, make_tasks, open_task, task_key
from turncredit.envs.virtualhome.words import WORDS

__all__ = ["ENVIRONMENT", "WORDS", "Settings", "expert", "make_tasks", "open_task", "random_command", "slip_command"]


def _lacks(settings: Settings) -> tuple[str, ...]:
    """The planner knows the goals of generated households only."""
    return () if settings.source == "generated" else ("distance",)


#: Of each family, with everything in sight: walk and switch on, or walk, grab, walk and put, and what else it asks for.
_LEAST = {"device": 2, "place": 4, "wash": 5, "two": 6, "watch": 4, "machine": 6}


def _least_actions(settings: Settings) -> dict[str, int]:
    return {family: _LEAST[family] for family in settings.families} if settings.source == "generated" else {}


ENVIRONMENT = Environment(
    name="virtualhome",
    summary="chores in a home on VirtualHome's evolving graph; generated households, or recorded programs.",
    Settings=Settings,
    lengths=lambda _: Lengths(goal=8, first=44, observation=13, action=4, admissible=115),
    open_task=open_task,
    env_class=VirtualHome,
    lacks=_lacks,
    make_tasks=make_tasks,
    least_actions=_least_actions,
    task_key=task_key,
    check_installed=check_installed,
    expert=expert,
    expert_columns=COLUMNS,
    random_command=random_command,
    rule=rule,
    slip_command=slip_command,
    words=WORDS,
    judge="turncredit.envs.virtualhome.grammar",
    commands="turncredit.envs.virtualhome.commands:app",
)
