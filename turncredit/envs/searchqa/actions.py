"""The two actions in either form: `<search>query</search>` and `search[query]`, likewise `answer`."""

from __future__ import annotations

import re

_TAGGED = re.compile(r"<(search|answer)>(.*?)(?:</\1>|$)", re.DOTALL)
_BRACKETED = re.compile(r"^\s*(search|answer|finish)\s*\[(.*)\]\s*$", re.DOTALL | re.IGNORECASE)
_ANSWER = re.compile(r"<answer>|^\s*(?:answer|finish)\s*\[", re.IGNORECASE)
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


def parse(action: str) -> tuple[str, str]:
    """Kind (`search`, `answer`) and text of an action; kind is empty for anything else, and text then all of it.

    The last of several tags counts, and a tag need not be closed: whatever samples may stop before. `finish` is
    `answer`. Control characters and runs of white space become one space.
    """
    tagged = _TAGGED.findall(action)
    bracketed = None if tagged else _BRACKETED.match(action)
    kind, text = tagged[-1] if tagged else bracketed.groups() if bracketed else ("", action)
    kind = kind.lower()
    return "answer" if kind == "finish" else kind, " ".join(_UNSEEN.sub(" ", text).split())


def write(kind: str, text: str, form: str) -> str:
    """An action of this kind; `form` is `tags` or `brackets`.

    In brackets a space precedes the text: a tokenizer built from scratch then has the same tokens for a name in an
    action and in a document.
    """
    return f"<{kind}>{text}</{kind}>" if form == "tags" else f"{kind}[ {text}]"


def is_answer(action: str) -> bool:
    """Whether an action has an answer in it, whatever else: for judges, who must not see the reply to one."""
    return bool(_ANSWER.search(action))
