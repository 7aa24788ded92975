"""The generated parts of docs/own_rollouts.md: `python -m tests.docs.own_rollouts` writes them anew.

For each JSON file of the page, the command below it is run, and the table that comes out is shown. The columns of an
imported table are those of its schema.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path

import pyarrow as pa

from tests.docs.pages import ROOT
from tests.helpers import turncredit
from turncredit.data import tables

PAGE = ROOT / "docs/own_rollouts.md"
#: what stands in a column of the table `imported`
MEANINGS = {
    "group_id": "rollouts of one task; methods compare them",
    "rollout_id": "unique in the table",
    "turn": "0, 1, 2, ...",
    "reward": "of the turn; null on all turns of a rollout without one",
    "done": "true on the last turn of a rollout that came to its end",
    "source": "file and record",
    "task_id": "the task, where the file names it",
    "goal": "the task in words",
    "observation": "what the policy saw",
    "response_text": "all that it wrote: reasoning, text, calls",
    "action": "the calls, or the text, or what stands where actions stand",
    "next_observation": "the observation of the next turn",
    "success": "whether the rollout succeeded, where the file says so",
    "context_reset": "the context starts over before this turn",
    "prompt_ids": "tokens that entered the context since the last response",
    "response_ids": "tokens of the response",
    "response_logprobs": "their log-probabilities when they were sampled",
    "agent": "who wrote the turn, where there are several agents",
    "step": "place of the turn among all messages of such a log",
    "mistake_agent": "the agent that people hold decisive for the failure (Who&When)",
    "mistake_step": "and the step",
    "progress_before": "a score of the state before the turn, where the file has scores (verifiers' `turn_rewards`)",
    "progress": "and after it",
}
#: columns that the page shows of the turns of an example
SHOWN = ("group_id", "rollout_id", "turn", "observation", "action", "reward")


def json_files(page: str) -> dict[str, str]:
    """The JSON files that the page shows, by name."""
    found = re.findall(r"^`([\w.]+)`,.*?```json\n(.*?)```", page, re.DOTALL | re.MULTILINE)
    return dict(found)


def turns_of(page: str, name: str) -> str:
    """The table that the command below the JSON of the file `name` makes."""
    text = page[page.index(f"`{name}`,") :]
    command = re.search(rf"^turncredit import {re.escape(name)} .*--out turns.parquet$", text, re.MULTILINE)
    assert command is not None
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_text(json_files(page)[name], encoding="utf-8")
        done = turncredit(*shlex.split(command[0])[1:], cwd=folder)
        assert done.returncode == 0, done.stderr
        rows = tables.read(Path(folder) / "turns.parquet").to_pylist()
    lines = [f"| {' | '.join(SHOWN)} |", f"|{'---|' * len(SHOWN)}"]
    return "\n".join([*lines, *(f"| {' | '.join(_cell(row[column]) for column in SHOWN)} |" for row in rows)])


def _cell(value: object) -> str:
    return "" if value is None else str(value).replace("\n", "<br>").replace("|", "\\|")


def columns() -> str:
    """The columns of an imported table, with what they hold."""
    lines = [
        "`turncredit import` writes these columns, but for those that the file has nothing for. `?`: may be null.",
        "",
    ]
    lines += ["| column | type | |", "|---|---|---|"]
    for field in tables.schema("imported"):
        kind = f"{_type(field.type)}{'?' if field.nullable else ''}"
        lines.append(f"| `{field.name}` | {kind} | {MEANINGS[field.name]} |")
    return "\n".join(lines)


def _type(kind: pa.DataType) -> str:
    return f"list of {kind.value_type}" if pa.types.is_list(kind) else {"string": "text"}.get(str(kind), str(kind))


def generated(page: str) -> str:
    """The page with its generated parts written anew."""
    for name in re.findall(r"<!-- turns of (\S+) -->", page):
        page = between(page, f"turns of {name}", turns_of(page, name))
    return between(page, "columns", columns())


def between(page: str, name: str, text: str) -> str:
    """The page with `text` between the comment `name` and the next comment `end`."""
    before, rest = page.split(f"<!-- {name} -->\n", 1)
    return f"{before}<!-- {name} -->\n{text}\n{rest[rest.index('<!-- end -->') :]}"


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
