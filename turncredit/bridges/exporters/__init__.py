"""Turns and credit in other projects' formats (`turncredit export`): one table of the formats, and what writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from turncredit.bridges.exporters import huggingface
from turncredit.bridges.exporters.records import Record, atif, openai, verifiers, with_block
from turncredit.bridges.exporters.rollouts import Exported, Rollouts
from turncredit.data.files import new_file, new_folder
from turncredit.data.output_paths import output_file, output_folder
from turncredit.data.turns import rollout_name
from turncredit.errors import UserError, nearest


class Format(NamedTuple):
    """A format: what it is, the ending of its file ("": a folder), and what writes rollouts to a path."""

    summary: str
    ending: str
    write: Callable[[Rollouts, Path, dict[str, Any]], None]


def _lines(record: Callable[[Exported], Record]) -> Callable[[Rollouts, Path, dict[str, Any]], None]:
    def write(rollouts: Rollouts, out: Path, _made_by: dict[str, Any]) -> None:
        with out.open("w", encoding="utf-8", newline="\n") as file:
            for rollout in rollouts:
                file.write(_json(record(rollout), rollout) + "\n")

    return write


def _files(record: Callable[[Exported], Record]) -> Callable[[Rollouts, Path, dict[str, Any]], None]:
    def write(rollouts: Rollouts, out: Path, _made_by: dict[str, Any]) -> None:
        for number, rollout in enumerate(rollouts):
            name = re.sub(r"[^\w.-]+", "_", rollout_name(rollout.group_id, rollout.rollout_id))[:100]
            text = _json(record(rollout), rollout) + "\n"
            (out / f"{number:06}_{name}.json").write_text(text, encoding="utf-8")

    return write


def _json(record: Record, rollout: Exported) -> str:
    try:
        return json.dumps(with_block(record, rollout), ensure_ascii=False, allow_nan=False)
    except ValueError:
        where = f"rollout '{rollout.rollout_id}' of group '{rollout.group_id}'"
        raise UserError(f"{where}: a number is not finite, which JSON cannot hold") from None


FORMATS: dict[str, Format] = {
    "openai": Format("OpenAI's messages: a line of JSON for each rollout", ".jsonl", _lines(openai)),
    "atif": Format("ATIF, harbor's trajectories: a folder with a JSON file for each rollout", "", _files(atif)),
    "verifiers": Format("episodes of verifiers and prime-rl: traces.jsonl", ".jsonl", _lines(verifiers)),
    "huggingface": Format(
        "a data set for datasets.load_dataset: a folder with Parquet and a card", "", huggingface.write
    ),
}


def run(turns: Path, to: str, out: Path, credits: Sequence[Path], made_by: dict[str, Any]) -> tuple[int, int]:
    """Write the rollouts of a file of turns, with the advantages of files of credits. Returns rollouts and turns.

    to        the format's name
    made_by   the record of provenance, for formats that have a place for it

    Raises UserError for an unknown format, a path that cannot be written, and tables that do not fit together.
    """
    if to not in FORMATS:
        raise UserError(f"--to {to}: unknown format{nearest(to, FORMATS)}; there are {', '.join(FORMATS)}")
    chosen = FORMATS[to]
    if chosen.ending:
        output_file(out, (chosen.ending,), reads=[turns, *credits])
    else:
        output_folder(out, [path.name for path in out.iterdir()] if out.is_dir() else [], ours=False)
    rollouts = Rollouts(turns, credits)
    out.parent.mkdir(parents=True, exist_ok=True)
    with new_file(out) if chosen.ending else new_folder(out) as part:
        chosen.write(rollouts, part, made_by)
    return len(rollouts), rollouts.table.num_rows
