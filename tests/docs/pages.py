"""What stands in the Markdown pages: links, headings, code blocks and commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    ROOT / path
    for pattern in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md", "benchmarks/**/*.md")
    for path in ROOT.glob(pattern)
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: Programs whose lines are checked.
PROGRAMS = ("turncredit", "snakemake", "make")


@dataclass(frozen=True)
class Block:
    """A fenced code block; `language` is empty where none is named."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command line as the shell would split it, the program first, up to a pipe or a redirection."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(language: str) -> list[Block]:
    return [
        Block(name(page), page.read_text()[: found.start()].count("\n") + 1, language, found[2])
        for page in PAGES
        for found in FENCE.finditer(page.read_text())
        if found[1] == language
    ]


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def inline_code(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


def links(page: Path) -> list[str]:
    """Where the page's links and images lead within the repository: `path`, `path#anchor` or `#anchor`."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"\w+:", link)]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", title)).lower() for title in titles)
    return {title.strip().replace(" ", "-") for title in plain}


def commands() -> list[Command]:
    """Every command line of one of `PROGRAMS`: in blocks without a language, indented blocks and inline code."""
    found = (
        Command(name(page), tuple(words))
        for page in PAGES
        for line in _lines(page)
        if (words := _words(line)) and words[0] in PROGRAMS and len(words) > 1
    )
    return list(dict.fromkeys(found))


def shown(page: Path) -> list[Command]:
    """The commands that the page shows in its blocks, in its order: what a reader would copy."""
    found = (Command(name(page), tuple(words)) for line in _shown_lines(page) if (words := _words(line)))
    return [command for command in found if command.words[0] in PROGRAMS and len(command.words) > 1]


def _lines(page: Path) -> Iterator[str]:
    yield from _shown_lines(page)
    yield from inline_code(page)


def _shown_lines(page: Path) -> Iterator[str]:
    """The lines of code blocks, fenced ones without a language and indented ones (in lists by up to eight)."""
    parts = re.split(
        r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8").replace("\\\n", " "), flags=re.MULTILINE | re.DOTALL
    )
    for prose_, language, code in zip(parts[::3], [*parts[1::3], ""], [*parts[2::3], ""], strict=True):
        yield from re.findall(r"^ {4,8}(\S.*)$", prose_, re.MULTILINE)
        yield from code.splitlines() if language in ("", "bash", "sh") else ()


def _words(line: str) -> list[str]:
    try:
        words = shlex.split(line.removeprefix("$ "), comments=True)
    except ValueError:  # prose with an apostrophe
        return []
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words = words[1:]
    end = next((place for place, word in enumerate(words) if word in ("|", ">", ";", "&&")), len(words))
    return words[:end]
