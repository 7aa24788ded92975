"""ALFWorld's household as text games: native engine, generated or released games, oracles."""

from __future__ import annotations

from turncredit.envs.environment import Environment, Lengths
from turncredit.envs.failures import FailureRule
from turncredit.envs.household.expert import COLUMNS, Expert, random_command, slip_command
from turncredit.envs.household.game import NOTHING
from turncredit.envs.household.native import NativeEnv
from turncredit.envs.household.real import check_data
from turncredit.envs.household.rule import rule
from turncredit.envs.household.settings import Settings
from turncredit.envs.household.tasks import export_game, make_tasks, open_task
from turncredit.envs.household.words import WORDS

__all__ = [
    "ENVIRONMENT",
    "WORDS",
    "Expert",
    "Settings",
    "export_game",
    "make_tasks",
    "open_task",
    "random_command",
    "slip_command",
]

EMPTY_HANDED = "You are not carrying anything."


def _refused(reply: str) -> bool:
    """`Nothing happens.`; tables made elsewhere may have white space around it, or no reply at all."""
    return reply == NOTHING or reply.strip() in (NOTHING, "")


def _reads_as_error(reply: str) -> bool:
    """By MGR's patterns for ALFWorld (appendix A.5), which also match one text of the engine that is not a failure."""
    return _refused(reply) or reply.strip() == EMPTY_HANDED


def _conda(settings: Settings) -> str | None:
    return "reference.yaml" if settings.engine == "textworld" else None


#: Minimum actions per task family, with everything at hand: go, take, go, put. In between comes the tool, and two
#: objects take twice as many.
_LEAST = {"pick": 4, "look": 3, "clean": 5, "heat": 6, "cool": 6, "pick2": 8}
#: In released games several receptacles may be at one place: go, take, put.
_LEAST_RELEASED = {"pick": 3, "look": 3, "clean": 4, "heat": 4, "cool": 4, "pick2": 5}


def _least_actions(settings: Settings) -> dict[str, int]:
    least = _LEAST if settings.source == "generated" else _LEAST_RELEASED
    return {family: least[family] for family in settings.families}


def lengths(settings: Settings) -> Lengths:
    """Tokens of the generated and of ALFWorld's released games."""
    if settings.source == "generated":
        return Lengths(goal=10, first=60, observation=25, action=6, admissible=69)
    return Lengths(goal=9, first=143, observation=21, action=6, admissible=204)


ENVIRONMENT = Environment(
    name="household",
    summary="ALFWorld's household as text games; generated or released games, exact oracles.",
    aliases=("alfworld",),
    Settings=Settings,
    lengths=lengths,
    open_task=open_task,
    env_class=NativeEnv,
    make_tasks=make_tasks,
    least_actions=_least_actions,
    check_installed=check_data,
    expert=Expert,
    expert_columns=COLUMNS,
    random_command=random_command,
    rule=rule,
    slip_command=slip_command,
    words=WORDS,
    judge="turncredit.envs.household.grammar",
    failures=FailureRule(_refused, _reads_as_error),
    commands="turncredit.envs.household.commands:app",
    conda=_conda,
)
