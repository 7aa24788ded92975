"""The prompt of an LLM judge, and the parser of its answers.

The roles, the window and the calibration rules are TRIAGE's (appendix H); the wording is ours. So are the two
scalar questions: the paper gives no prompt for its scalar comparator, nor does HAS for its judge; and the form of an
answer without evidence, TRIAGE's variant of table 3, whose prompt is not in the paper. The question for the decisive
step is Who&When's "all at once" (Zhang et al. 2025, arXiv 2505.00212) without the right answer, in our words.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from typing import Any, NamedTuple

from turncredit import envs
from turncredit.config.judge import SCALES, Ask
from turncredit.envs.judging import TRIAGE, Rubric
from turncredit.judges.text import in_one_line

#: TRIAGE's roles of a turn and their names.
ROLE_NAMES = {"D": "decisive", "E": "exploration", "N": "no progress", "R": "regression"}
ROLES = tuple(ROLE_NAMES)

_INTRODUCTION = """\
You review what an agent did in a text environment. You are shown a short excerpt of one attempt: the task, the \
turns just before the one under review, the turn under review (an action and the observation it led to), and the \
turns just after it. You are not told whether the attempt succeeded, and you must not guess it.
"""

_ROLE = """\
Decide which ONE role the turn under review played.

D  decisive: it finishes a sub-goal that the task needs, or makes a change of state that the task asks for. %(decisive)s
E  exploration: it finds out something new without finishing a sub-goal. %(exploration)s
N  no progress: it changes nothing and reveals nothing, but does no harm. %(no_progress)s
R  regression: it makes things worse or wastes a turn on what is known already. %(regression)s

Rules for close calls
- Judge the turn by what it does here. Neither a later recovery nor a later failure changes its role.
%(close_calls)s
"""

_PROGRESS = """\
Say how far the turn under review moved the task forward: a number from -1 to 1. 1 means that it finishes something \
the task needs, 0 that it makes no difference, -1 that it clearly sets the task back. Use the values between for \
smaller steps. Judge the turn by what it does here; neither a later recovery nor a later failure changes that.
"""

_SCORE = """\
Say how much the turn under review contributes to reaching the goal: a number from 0 to 1. 0 means that the attempt \
would be no worse without it, 1 that the goal could not be reached without it. Judge only this turn.
"""

_LOG = """\
You review the log of one attempt at a task that several agents, or one, worked on. The attempt failed. You are shown \
the task and all steps of the agents, each with its number, its agent, what it did, and what came back.

Find the decisive step: the earliest one at which an agent made a mistake such that, with the right action there, the \
attempt would have succeeded. A slip that was repaired later is not decisive, and nor is a step that only repeats an \
earlier mistake. If several steps look possible, choose one.
"""

_FORMAT = """\

Reason as far as you need to. Then end with one line that holds a JSON object and nothing else:
{%s}
"""
_EVIDENCE = '"evidence": "<the words of this excerpt that decide it, in one short sentence>", '

_ANSWER_KEY = {
    "role": '"role": "D" or "E" or "N" or "R"',
    "progress": '"score": <number>',
    "score": '"score": <number>',
    "decisive_step": '"step": <number of the step>',
}

_WORDS = {**{role.lower(): role for role in ROLES}, **{name: role for role, name in ROLE_NAMES.items()}}
_WORDS |= {"explore": "E", "exploratory": "E", "no-progress": "N", "no_progress": "N", "regressive": "R"}
#: The system message of each version that `prompt_version` has named.
INSTRUCTIONS: dict[str, str] = {}
_DECODER = json.JSONDecoder()
_BEGIN = re.compile(r"[{[]")
_FENCE = re.compile(r"^```\w*\s*|\s*```$")


class Label(NamedTuple):
    """A judge's answer. Without a label `role` and `score` are None, and `reason` explains it.

    The answer to `decisive_step` has the step's number as its score.
    """

    role: str | None = None
    score: float | None = None
    evidence: str | None = None
    reason: str | None = None


@cache
def instructions(ask: Ask, rubric: Rubric = TRIAGE, evidence: bool = True) -> str:
    """The system message: roles or scale, the environment's examples and rules for close calls, form of the answer."""
    form = _FORMAT % ((_EVIDENCE if evidence else "") + _ANSWER_KEY[ask])
    if ask == "decisive_step":
        return _LOG + form
    question = {"progress": _PROGRESS, "score": _SCORE}.get(ask) or _ROLE % {
        **{name: getattr(rubric, name) for name in ("decisive", "exploration", "no_progress", "regression")},
        "close_calls": "\n".join(rubric.close_calls),
    }
    return _INTRODUCTION + "\n" + question + form


@cache
def prompt_version(ask: Ask, rubric: Rubric = TRIAGE, evidence: bool = True) -> str:
    """The name of the wording of `instructions`, such as `role-1f3a9c02`: a new wording is a new question."""
    text = instructions(ask, rubric, evidence)
    version = f"{ask}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    INSTRUCTIONS[version] = text
    return version


def rubric_of(env: str) -> Rubric:
    """The rubric of the environment that a table calls `env`; TRIAGE's where it is unknown."""
    environment = envs.find(env)
    return TRIAGE if environment is None else environment.rubric


def answer_schema(ask: Ask, evidence: bool = True) -> dict[str, Any]:
    """The JSON schema of an answer, for servers that can decode under one.

    Evidence comes first, so that it is the reason for the label and not a justification afterwards. Its length is
    bounded, because a weak model might otherwise write until the answer is cut off.
    """
    if ask == "role":
        value: dict[str, Any] = {"role": {"type": "string", "enum": list(ROLES)}}
    elif ask == "decisive_step":
        value = {"step": {"type": "integer", "minimum": 0}}
    else:
        low, high = SCALES[ask]
        value = {"score": {"type": "number", "minimum": low, "maximum": high}}
    first = {"evidence": {"type": "string", "maxLength": 300}} if evidence else {}
    return {
        "type": "object",
        "properties": {**first, **value},
        "required": [*first, *value],
        "additionalProperties": False,
    }


def read_answer(text: str, ask: Ask, finish_reason: str | None = None) -> Label:
    """Parse a model's text: the last JSON object in it. Nothing is guessed.

    Reasoning may come before the object, also in <think> tags, and code fences around it. TRIAGE's own form with lists
    of one is understood, and so are role names, numbers as text, and a bare role or number. Anything else gives no
    label: cut-off reasoning, an unknown role, a number out of range, objects that disagree, a list of several.
    """
    try:
        return _read(text, ask, finish_reason)
    except RecursionError:
        return Label(reason="the JSON of the answer is nested too deeply")


def _read(text: str, ask: Ask, finish_reason: str | None) -> Label:
    body, closed, after = text.rpartition("</think>")
    if not closed and "<think>" in text:
        return Label(reason="the answer ends inside its reasoning; raise max_tokens")
    body = after.strip() if closed else text.strip()
    values = _json_values(body)
    lists = [value for value in values if isinstance(value, list) and len(value) > 1]
    answers = [value for value in lists if any(_given(item, ask) is not None for item in value)]
    if answers:
        return Label(reason=f"a list of {len(answers[-1])} answers: {_short(body)}")
    objects = [one for one in map(_first, values) if isinstance(one, dict)]
    if objects:
        fields = objects[-1]
    else:
        bare = _FENCE.sub("", body).strip().strip("\"'.")
        if not bare:
            cut = "; raise max_tokens" if finish_reason == "length" else ""
            return Label(reason=f"the answer is empty{cut}")
        fields = {"role": bare, "score": bare, "step": bare}
        if _value(fields, ask) is None:
            cut = "it was cut off; raise max_tokens" if finish_reason == "length" else _short(body)
            return Label(reason=f"no JSON object in the answer: {cut}")
    evidence = _first(fields.get("evidence", fields.get("reason")))
    value = _value(fields, ask)
    if value is None:
        key = {"role": "role", "decisive_step": "step"}.get(ask, "score")
        return Label(reason=f"no valid {key} in the answer: {_short(json.dumps(fields, ensure_ascii=False))}")
    if any(_value(other, ask) not in (None, value) for other in objects):
        return Label(reason=f"{len(objects)} objects that disagree: {_short(body)}")
    evidence = in_one_line(str(evidence)) if evidence is not None else None
    return Label(role=value, evidence=evidence) if ask == "role" else Label(score=value, evidence=evidence)


def _given(fields: Any, ask: Ask) -> Any:
    """The value at the label's key, valid or not; None if there is none, or `fields` is not an object."""
    if not isinstance(fields, dict):
        return None
    if ask == "role":
        return _first(fields.get("role", fields.get("labels", fields.get("label"))))
    if ask == "decisive_step":
        return _first(fields.get("step", fields.get("step_number")))
    return _first(fields.get("score", fields.get("progress")))


def _value(fields: dict[str, Any], ask: Ask) -> Any:
    value = _given(fields, ask)
    if ask == "role":
        return _WORDS.get(" ".join(value.lower().split())) if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    if ask == "decisive_step":
        return number if number >= 0 and number.is_integer() else None
    low, high = SCALES[ask]
    return number if low <= number <= high else None


def _first(value: Any) -> Any:
    """The item of a list of length one; anything else unchanged."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _json_values(text: str) -> list[Any]:
    """The complete JSON objects and lists in `text` that are not part of another one, in order."""
    values, at = [], 0
    while begin := _BEGIN.search(text, at):
        try:
            value, at = _DECODER.raw_decode(text, begin.start())
            values.append(value)
        except ValueError:
            at = begin.end()
    return values


def _short(text: str) -> str:
    text = in_one_line(text)
    return text if len(text) <= 120 else text[:117] + "..."
