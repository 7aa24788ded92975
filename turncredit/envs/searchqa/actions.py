"""The two actions in either form: `<search>query</search>` and `search[query]`, likewise `answer`."""

from __future__ import annotations

import re

_OPEN = re.compile(r"<(search|answer)>(.*)", re.DOTALL)
_BRACKETED = re.compile(r"^\s*(search|answer|finish)\s*\[(.*)\]\s*$", re.DOTALL | re.IGNORECASE)
_ANSWER = re.compile(r"<answer>|^\s*(?:answer|finish)\s*\[", re.IGNORECASE)
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


def parse(action: str) -> tuple[str, str]:
    """Kind (`search`, `answer`) and text of an action; kind is empty for anything else, and text then all of it.

    The first closed tag counts, as in Search-R1 (`postprocess_predictions` in its search_r1/llm_agent/generation.py).
    Without a closed tag the first open one does: sampling may stop before the end. In brackets the kind may be in upper
    case, as ReAct writes it (`Search[x]`, `Finish[x]`), and `finish` is `answer`. Control characters and runs of white
    space become one space.
    """
    match = None if (closed := _closed(action)) else _OPEN.search(action) or _BRACKETED.match(action)
    kind, text = closed or (match.groups() if match else ("", action))
    kind = kind.lower()
    return "answer" if kind == "finish" else kind, " ".join(_UNSEEN.sub(" ", text).split())


def _closed(action: str) -> tuple[str, str] | None:
    """Kind and text of the first closed tag, in time linear in the action: a policy may open a tag again and again."""
    found = []
    for kind in ("search", "answer"):
        start = action.find(f"<{kind}>")
        end = action.find(f"</{kind}>", start) if start >= 0 else -1
        if end >= 0:
            found.append((start, kind, action[start + len(kind) + 2 : end]))
    return min(found)[1:] if found else None


def write(kind: str, text: str, form: str) -> str:
    """An action of this kind; `form` is `tags` or `brackets`.

    In brackets a space precedes the text: a tokenizer built from scratch then has the same tokens for a name in an
    action and in a document.
    """
    return f"<{kind}>{text}</{kind}>" if form == "tags" else f"{kind}[ {text}]"


def is_answer(action: str) -> bool:
    """Whether an action has an answer in it, whatever else: for judges, who must not see the reply to one."""
    return bool(_ANSWER.search(action))
