"""Where turns are in the text of a chat template: the markers of each, in special tokens or in what is left of them.

Sources: the chat templates of Qwen2.5 (ChatML), Llama 3, Gemma, GLM-4, DeepSeek-V3, Mistral (v3), gpt-oss (harmony,
https://github.com/openai/harmony), and Search-R1's prompt (https://github.com/PeterGriffinJin/Search-R1), whose
environment answers within the response.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

#: Who speaks (None: the policy), and what is said, in order; the first piece goes on with what the policy began.
Pieces = list[tuple[bool, str]]


@dataclass(frozen=True)
class Template:
    """How a text is cut.

    known   a marker that no other template has; None for the plain roles, which are looked for last
    cut     the text -> pieces: whether the policy wrote it, and what it is
    """

    name: str
    known: re.Pattern[str] | None
    cut: Callable[[str], Pieces]


def _by_roles(marker: str, ends: str, policy: str) -> Callable[[str], Pieces]:
    """Cut where `marker` begins a message; its first group is the role. `ends` and all else of the template go."""
    begin, end, ours = re.compile(marker), re.compile(ends), re.compile(policy)

    def cut(text: str) -> Pieces:
        parts = begin.split(text)
        first = [(True, parts[0])] if parts[0].strip() or len(parts) == 1 else []
        later = zip(parts[1::2], parts[2::2], strict=True)
        pieces = [*first, *((bool(ours.fullmatch(role or "")), said) for role, said in later)]
        return [(is_ours, end.sub("", said).strip("\n")) for is_ours, said in pieces]

    return cut


def _by_blocks(block: str) -> Callable[[str], Pieces]:
    """Cut out the blocks that the environment wrote within the text."""
    pattern = re.compile(block, re.DOTALL)

    def cut(text: str) -> Pieces:
        pieces: Pieces = []
        at = 0
        for found in pattern.finditer(text):
            pieces += [(True, text[at : found.start()].strip()), (False, found[0].strip())]
            at = found.end()
        return [(ours, said) for ours, said in [*pieces, (True, text[at:].strip())] if said]

    return cut


_HARMONY = (
    r"<\|start\|>(assistant|[\w.]+)[^<]*(?:<\|channel\|>(?!<\|message\|>)[^<]*)?(?:<\|constrain\|>[^<]*)?<\|message\|>"
)


def _harmony(text: str) -> Pieces:
    """Messages of one speaker in a row (analysis, then a call) are one."""
    begin = re.compile(_HARMONY)
    parts = begin.split(text)
    ends = re.compile(r"<\|(?:end|call|return)\|>|<\|(?:channel|constrain|message)\|>")
    pieces: Pieces = [(True, parts[0])] if parts[0].strip() or len(parts) == 1 else []
    for role, said in zip(parts[1::2], parts[2::2], strict=True):
        ours = role == "assistant"
        if pieces and pieces[-1][0] and ours:
            pieces[-1] = (True, f"{pieces[-1][1]}\n{said}")
        else:
            pieces.append((ours, said))
    return [(ours, ends.sub(" ", said).strip()) for ours, said in pieces]


TEMPLATES: dict[str, Template] = {
    template.name: template
    for template in (
        Template("harmony", re.compile(r"<\|start\|>[\w.]+.{0,80}?<\|message\|>", re.DOTALL), _harmony),
        Template(
            "chatml",
            re.compile(r"<\|im_start\|>"),
            _by_roles(r"<\|im_start\|>(\w+)\s*\n", r"(?:<\|im_end\|>|<\|endoftext\|>)\s*", "assistant"),
        ),
        Template(
            "llama3",
            re.compile(r"<\|start_header_id\|>"),
            _by_roles(
                r"<\|start_header_id\|>(\w+)<\|end_header_id\|>\s*\n",
                r"<\|(?:eot_id|eom_id|end_of_text)\|>\s*",
                "assistant",
            ),
        ),
        Template(
            "gemma",
            re.compile(r"<start_of_turn>"),
            _by_roles(r"<start_of_turn>(\w+)\s*\n", r"(?:<end_of_turn>|<eos>)\s*", "model|assistant"),
        ),
        Template(
            "glm",
            re.compile(r"<\|(?:observation|user|assistant)\|>"),
            _by_roles(
                r"<\|(user|assistant|observation|system)\|>\s*", r"<\|(?:endoftext|end)\|>|\[gMASK\]|<sop>", "assistant"
            ),
        ),
        Template(
            "deepseek",
            re.compile("<｜(?:User|Assistant|tool▁outputs▁begin)｜>"),
            _by_roles(
                "<｜(User|Assistant|tool▁outputs▁begin|tool▁outputs▁end)｜>",
                "<｜(?:end▁of▁sentence|begin▁of▁sentence|tool▁output▁begin|tool▁output▁end)｜>",
                "Assistant|tool▁outputs▁end",
            ),
        ),
        Template(
            "mistral",
            re.compile(r"\[/?(?:INST|TOOL_RESULTS)\]"),
            _by_roles(r"\[(/?(?:INST|TOOL_RESULTS))\]\s*", r"</?s>", "/INST|/TOOL_RESULTS"),
        ),
        Template("search-r1", re.compile(r"</search>\s*<information>"), _by_blocks(r"<information>.*?</information>")),
        Template("roles", None, _by_roles(r"(?:^|(?<=\n))(user|tool|assistant|system)\n", r"(?!)", "assistant")),
    )
}


def template_of(text: str) -> Template:
    """The template whose markers are in the text; `roles` where there are none."""
    return next(
        (template for template in TEMPLATES.values() if template.known and template.known.search(text)),
        TEMPLATES["roles"],
    )
