"""How the agent's prompts are worded.

A pretrained model reads an instruction and labelled lines, in the structure of HIPIF's figures 7-12; the sentences are
ours. A tokenizer built from scratch has one token for each tag and marker, and its policy learns from demonstrations
what they mean: it reads nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from turncredit.agents import Encoder
from turncredit.agents.action_forms import action_forms
from turncredit.agents.hipif.response import one_line, without_control
from turncredit.data.env_wording import Words
from turncredit.data.transcript_markers import ACTION, OBSERVATION, TASK

#: how a demonstrated reflection begins: with the judgement of the current subgoal
COMPLETED, NOT_COMPLETED, GIVEN_UP = "completed", "not completed", "given up"

# What could be read as a tag of a response, a marker, or a special token of a tokenizer.
_TAG_LIKE = re.compile(r"<(?=[/|A-Za-z])")


@dataclass(frozen=True)
class Wording:
    """The texts of a context's parts, each of plain text (`plain`), and of a demonstrated response.

    `before` and `after` enclose all parts; `end` closes a part that was cut.
    """

    before: str
    after: str
    end: str
    task: Callable[[str], str]
    first: Callable[[str], str]
    finished: Callable[[str], str]
    current: Callable[[str], str]
    action: Callable[[str], str]
    observation: Callable[[str], str]
    block: Callable[[str, str], str]


def plain(text: str) -> str:
    """A text as prompts show it: on one line, without control characters, and with nothing that reads as a tag.

    A `<` that begins a tag or a special token is followed by a space. So an observation, or an action that repeats one,
    imitates neither the structure of a response nor that of a prompt.
    """
    return _TAG_LIKE.sub("< ", one_line(without_control(text)))


def wording(encoder: Encoder, words: Words, *, reflection: bool, subgoals: bool) -> Wording:
    """The wording for a tokenizer: compact where each tag has a token (built from scratch), else a full instruction."""
    if not encoder.has_chat_template and len(encoder.encode("<subgoal></subgoal>")) == 2:
        return COMPACT
    preamble = instruction(words, reflection=reflection, subgoals=subgoals)
    before, after = preamble, ""
    if encoder.has_chat_template:
        here = "\x01here\x01"
        before, after = encoder.chat([{"role": "user", "content": f"{preamble}{here}"}]).split(here)
    return Wording(
        before=before,
        after=after,
        end="\n",
        task="Task: {}\n".format,
        first="First observation: {}\n".format,
        finished="Finished subgoal: {}\n".format,
        current=lambda subgoal: f"Current subgoal: {subgoal or 'none yet'}\n" if subgoals else "",
        action="Action: {}\n".format,
        observation="Observation: {}\n".format,
        block="<{0}>{1}</{0}>".format,
    )


#: Spaces keep a word the same token wherever it stands.
COMPACT = Wording(
    before="",
    after="",
    end="",
    task=f"{TASK} {{}}".format,
    first=f"{OBSERVATION} {{}}".format,
    finished="<subgoal> {}".format,
    current=lambda subgoal: f"<subgoal> {subgoal}" if subgoal else "",
    action=f"{ACTION} {{}}".format,
    observation=f"{OBSERVATION} {{}}".format,
    block="<{0}> {1}</{0}>".format,
)


def instruction(words: Words, *, reflection: bool, subgoals: bool) -> str:
    """The instruction for a pretrained model: where it acts, the form of actions, what it is shown, how to reply."""
    opening = words.setting + (
        " You reach the task's goal by way of subgoals, one after the other." if subgoals else ""
    )
    lines = []
    if subgoals:
        lines.append(
            "You are shown the task, the first observation, every finished subgoal with the observation it ended with, "
            "the current subgoal, and its actions so far, each with the observation that followed. The last "
            "observation is the current one."
        )
    else:
        lines.append(
            "You are shown the task, the first observation, and your actions so far, each with the observation that "
            "followed. The last observation is the current one."
        )
    lines += _reply_format(reflection, subgoals)
    lines.append("Give exactly one action, and nothing after it.")
    return f"{opening}\n{action_forms(words)}" + "".join(f"{line}\n" for line in lines) + "\n"


def _reply_format(reflection: bool, subgoals: bool) -> list[str]:
    """The lines about what to reply."""
    lines = []
    if reflection and subgoals:
        lines = [
            "Begin your reply with <reflection>...</reflection>. In it, first state whether the current subgoal is "
            "completed, judging by the current observation. If it is, consider what the finished subgoals leave to be "
            "done, and what the next subgoal should be; if it is not, consider what its actions have shown so far, and "
            "what the next action should be.",
        ]
    elif reflection:
        lines = [
            "Begin your reply with <reflection>...</reflection>. In it, consider what your actions have shown so far, "
            "and what the next action should be.",
        ]
    then = "Then reply" if reflection else "Reply"
    if not subgoals:
        return [*lines, f"{then} with <action>the next action</action>."]
    return [
        *lines,
        f"{then} in one of two ways:",
        "- There is no current subgoal, or it is completed or cannot be reached: <subgoal>the next subgoal</subgoal>"
        "<action>its first action</action>",
        "- The current subgoal is not completed: <action>its next action</action>",
    ]
