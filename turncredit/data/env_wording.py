"""An environment's wording for agents' prompts."""

from __future__ import annotations

from dataclasses import dataclass

from turncredit.data.tools import Toolbox
from turncredit.data.verl_agent import VerlAgentPrompt


@dataclass(frozen=True, slots=True)
class Words:
    """The parts of a prompt that depend on the environment; every agent is given them.

    setting    a sentence that opens an instruction: where the model acts
    game       what is played, as it follows "You play"
    task       what stands before a task's goal; a goal may be a sentence or a question
    examples   a few commands, written as the environment wants them
    templates  the forms of all commands, with {placeholders} for names, for agents that do not list what is admissible
    tags       the names of the tags that commands are written in, if they are: agents with a tag of their own for a
               command need none around these
    tools      the tools that its actions call, for agents that call tools; None where it declares none
    verl_agent verl-agent's prompt for this environment, for the agent `verl_agent`; None where it has none
    """

    setting: str = "You act in a text game."
    game: str = "a text game"
    task: str = "Your task:"
    examples: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    tools: Toolbox | None = None
    verl_agent: VerlAgentPrompt | None = None
