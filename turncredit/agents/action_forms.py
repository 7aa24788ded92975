"""What prompts say about the form of actions: the same in every agent that does not list the admissible ones."""

from __future__ import annotations

from turncredit.data.env_wording import Words


def action_forms(words: Words) -> str:
    """The environment's action templates, or its examples where it has no templates; lines, each with its end.

    HIPIF's prompts have templates and no list of actions (appendix E); so have those of all agents that list none.
    """
    if words.templates:
        lines = [
            "An action follows one of these templates:",
            *(f"- {template}" for template in words.templates),
            "Put names that an observation has shown into the braces. An action that is refused has no effect.",
        ]
    elif words.examples:
        lines = [f"Actions look like these: {', '.join(words.examples)}."]
    else:
        return ""
    return "".join(f"{line}\n" for line in lines)
