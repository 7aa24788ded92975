"""`turncredit prompt`: what an agent shows a model in the first turn of a task."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from turncredit.cli.configured import ConfigfileOption, ConfigOption, files_of
from turncredit.config import load
from turncredit.pipeline.checks import check_prompt
from turncredit.rollouts.first_prompt import first_prompt
from turncredit.rollouts.tasks import Games, make_tasks


def prompt(
    env: Annotated[str | None, typer.Option(help="The environment, in place of env.name.")] = None,
    agent: Annotated[str | None, typer.Option(help="The agent, in place of agent.name.")] = None,
    split: Annotated[str | None, typer.Option(help="Split of the tasks, in place of tasks.train_split.")] = None,
    task: Annotated[int, typer.Option(min=0, help="Number of the task in the split.")] = 0,
    chat: Annotated[
        bool, typer.Option("--chat", help="As a chat model's messages, also for a policy from scratch.")
    ] = False,
    configfile: ConfigfileOption = None,
    config: ConfigOption = None,
) -> None:
    """Print the prompt of a task's first turn, as the configuration's agent writes it. No model is read.

    A chat model's messages stand below their roles; how its template encloses them is not shown. Settings of the agent
    and the environment come from the configuration. Example: turncredit prompt --env webshop --agent window --chat
    """
    chosen = [f"{key}={{name: {json.dumps(name)}}}" for key, name in (("env", env), ("agent", agent)) if name]
    experiment = load(files_of(configfile), [*(config or ()), *chosen])
    check_prompt(experiment)
    played, tasks = experiment.env.chosen(), experiment.tasks
    table = make_tasks(played, tasks.train_split if split is None else split, task + 1, tasks.seed, key="--task")
    games = Games(played, table, timeout=experiment.env.timeout)
    is_chat = chat or experiment.policy.source != "scratch"
    print(first_prompt(games, experiment.agent.chosen(), task, chat=is_chat).rstrip())
