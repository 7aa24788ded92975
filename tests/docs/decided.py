"""What the papers leave open and what the presets have instead: `python -m tests.docs.decided` writes the table anew.

The table of docs/papers.md is made from the settings of turncredit/views/report/papers.yaml.
"""

from __future__ import annotations

from typing import Any

import yaml

from tests.docs.own_rollouts import between
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/papers.md"
SETTINGS = ROOT / "turncredit/views/report/papers.yaml"
NAMES = {"all": "all five", "has": "HAS", "scpo": "SCPO", "triage": "TRIAGE", "mgr": "MGR", "hipif": "HIPIF"}


def table() -> str:
    """A line for each row of the settings that no paper states."""
    _, stated = yaml.safe_load_all(SETTINGS.read_text(encoding="utf-8"))
    lines = ["| paper | settings | decided here | why |", "|---|---|---|---|"]
    for paper, rows in stated["settings"].items():
        lines += [_line(NAMES[paper], row) for row in rows if "paper" not in row]
    return "\n".join(lines)


def _line(paper: str, row: dict[str, Any]) -> str:
    pinned = row["set"] if isinstance(row["set"], dict) else {}
    values = ", ".join(dict.fromkeys(_text(value) for value in pinned.values())) or "as in the preset"
    why = row["ours"] if "ours" in row else f"recipe: {row['recipe']}"
    scope = " ".join(f"`{row[key]}`".replace("|", r"\|") for key in ("presets", "methods") if key in row)
    keys = ", ".join(f"`{key}`" for key in row["set"])
    return f"| {paper}{f' ({scope})' if scope else ''} | {keys} | {values} | {why} |"


def _text(value: Any) -> str:
    return f"`{value}`".replace("True", "true").replace("False", "false").replace("`None`", "`null`")


def generated(page: str) -> str:
    """The page with its table written anew."""
    return between(page, "decided here", table())


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
