"""Search-QA: questions answered with the help of searches, in small fact bases of our own or anybody's documents."""

from __future__ import annotations

from turncredit.data.counts import number_of
from turncredit.envs.environment import Environment, Lengths
from turncredit.envs.judging import HIDDEN
from turncredit.envs.searchqa.actions import is_answer
from turncredit.envs.searchqa.expert import Expert, random_command, slip_command
from turncredit.envs.searchqa.qa import SearchQA, search_together
from turncredit.envs.searchqa.rule import rule
from turncredit.envs.searchqa.settings import Settings
from turncredit.envs.searchqa.tasks import check_files, gold_answer, make_tasks, open_task, task_key
from turncredit.envs.searchqa.words import WORDS

__all__ = ["ENVIRONMENT", "WORDS", "Expert", "Settings", "make_tasks", "open_task", "random_command", "slip_command"]


def redact(action: str, observation: str) -> str:
    """The reply to an answer says whether it was right: none of it is shown."""
    return HIDDEN if is_answer(action) else observation


def _least_actions(settings: Settings) -> dict[str, int]:
    """A search for each document that a question takes, and the answer."""
    if settings.source == "files":
        return {"question": 2}
    low, high = settings.hops
    return {number_of(hops, "hop"): hops + 1 for hops in range(low, high + 1)}


def lengths(settings: Settings) -> Lengths:
    """Tokens of the generated questions; assumed for other corpora: passages of 100 words, as Search-R1's."""
    observation = 49 if settings.source == "generated" else 140 * settings.topk
    return Lengths(goal=11, first=4, observation=observation, action=4, admissible=0)


ENVIRONMENT = Environment(
    name="searchqa",
    summary="questions answered by search; generated fact bases, or question sets and corpora from files.",
    aliases=("search_qa", "search-qa", "search"),
    Settings=Settings,
    lengths=lengths,
    open_task=open_task,
    env_class=SearchQA,
    remote=lambda settings: settings.retriever == "remote",
    before_steps=search_together,
    make_tasks=make_tasks,
    least_actions=_least_actions,
    task_key=task_key,
    check_installed=check_files,
    expert=Expert,
    random_command=random_command,
    rule=rule,
    slip_command=slip_command,
    gold_answer=gold_answer,
    words=WORDS,
    judge="turncredit.envs.searchqa.grammar",
    redact=redact,
    commands="turncredit.envs.searchqa.commands:app",
)
