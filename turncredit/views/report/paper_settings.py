"""Where the settings of a paper's preset come from: the paper, the code that it starts from, or us (papers.yaml)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from turncredit.errors import UserError

#: Who says what a setting is, by the mark of its row, in the order in which they are printed.
ORIGINS = {
    "paper": "The paper states",
    "recipe": "From the code that the paper starts from (verl-agent's GiGPO, verl)",
    "ours": "Decided here, because the paper does not say",
}


@dataclass(frozen=True)
class Row:
    """Settings that have one origin for one reason.

    papers    the paper's key in papers.yaml, or `all`
    presets   patterns of the presets, without the paper's name; `!` leaves out
    methods   patterns of the methods
    pinned    setting to its value, where papers.yaml states it
    unpinned  settings whose value stands in the preset alone
    """

    mark: str
    reason: str
    paper: str
    presets: str
    methods: str
    pinned: Mapping[str, Any]
    unpinned: tuple[str, ...]

    def is_about(self, preset: str) -> bool:
        """Whether the row holds for the preset of this name, such as `has_table1`."""
        paper, _, short = preset.partition("_")
        return self.paper in ("all", paper) and matches(short, self.presets)


def matches(name: str, patterns: str) -> bool:
    """Whether one of the patterns, separated by blanks, is the name's, and none that begins with `!`."""
    wanted = [pattern for pattern in patterns.split() if not pattern.startswith("!")] or ["*"]
    unwanted = [pattern[1:] for pattern in patterns.split() if pattern.startswith("!")]
    return any(fnmatch(name, one) for one in wanted) and not any(fnmatch(name, one) for one in unwanted)


@cache
def stated() -> Mapping[str, Any]:
    """The second document of papers.yaml: tables, what they vary, and the rows of settings of each paper."""
    text = (files("turncredit.views.report") / "papers.yaml").read_text(encoding="utf-8")
    _, whole = yaml.safe_load_all(text)
    return whole


@cache
def rows() -> tuple[Row, ...]:
    """The rows of all papers."""
    return tuple(_row(paper, row) for paper, of_paper in stated()["settings"].items() for row in of_paper)


def _row(paper: str, row: Mapping[str, Any]) -> Row:
    (mark,) = row.keys() & ORIGINS.keys()
    pinned = row["set"] if isinstance(row["set"], dict) else {}
    return Row(
        mark=mark,
        reason=row[mark],
        paper=paper,
        presets=row.get("presets", "*"),
        methods=row.get("methods", "*"),
        pinned={path: tuple(value) if isinstance(value, list) else value for path, value in pinned.items()},
        unpinned=() if pinned else tuple(row["set"]),
    )


def found(values: Any, path: str) -> Any:
    """The value at a path such as `eval.modes.0.temperature`. Raises KeyError if there is none."""
    for key in path.split("."):
        values = values[int(key)] if key.isdigit() else values[key]
    return values


def lines_of(preset: str, methods: Iterable[str], values: Mapping[str, Any]) -> Iterator[str]:
    """The settings of a preset in words, a heading for each origin and a line for each setting with its reason.

    `values` is the resolved configuration. Raises UserError for an experiment that is no paper's preset.
    """
    trained = list(methods)
    if preset.partition("_")[0] not in stated()["settings"] or "_" not in preset:
        raise UserError(f"config: '{preset}' is not a preset of a paper; --origins takes those of config/paper/")
    about = [row for row in rows() if row.is_about(preset) and any(matches(name, row.methods) for name in trained)]
    for mark, title in ORIGINS.items():
        lines = [line for row in about if row.mark == mark for line in _lines(row, trained, values)]
        if lines:
            yield from (f"{title}:", *lines, "")


def _lines(row: Row, trained: list[str], values: Mapping[str, Any]) -> Iterator[str]:
    having = [name for name in trained if matches(name, row.methods)]
    scope = f" ({', '.join(having)})" if having != trained else ""
    for path, value in row.pinned.items():
        here = _found_or(values, path, value) if not scope else value
        changed = "" if here in (value, _plain(value)) else f"; {_text(value)} there, changed in this configuration"
        yield f"  {path}: {_text(here)}  # {row.reason}{scope}{changed}"
    for path in row.unpinned:
        yield f"  {path}: {_text(found(values, path))}  # {row.reason}{scope}"


def _found_or(values: Mapping[str, Any], path: str, default: Any) -> Any:
    """The value of the experiment at `path`; the default where only methods have it, such as a parameter."""
    try:
        return found(values, path)
    except (KeyError, TypeError):
        return default


def _text(value: Any) -> str:
    """A value in YAML, on one line."""
    return yaml.safe_dump([_plain(value)], default_flow_style=True, width=10**9, sort_keys=False).strip()[1:-1]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
