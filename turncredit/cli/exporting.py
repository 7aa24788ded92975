"""`turncredit export`: turns and credit in other projects' formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turncredit.bridges import exporters
from turncredit.data import provenance
from turncredit.data.counts import number_of


def export(
    turns: Annotated[Path, typer.Argument(help="Parquet with group_id, rollout_id, turn; texts, tokens, reward.")],
    to: Annotated[
        str, typer.Option(help="; ".join(f"{name}: {one.summary}" for name, one in exporters.FORMATS.items()) + ".")
    ],
    out: Annotated[Path, typer.Option(help="The file (.jsonl), or the folder, to write.")],
    credits: Annotated[
        list[Path] | None, typer.Option(help="Parquet with the keys, advantage, and method if several; repeatable.")
    ] = None,
) -> None:
    """Export turns, with their credit, as ATIF, chat messages, verifiers' traces or a Hugging Face data set.

    `turncredit import` reads the same turns from what is written. Example: turncredit export turns.parquet --to openai
    --out chats.jsonl --credits credits.parquet
    """
    inputs = {"turns": turns, **{f"credits{number}": path for number, path in enumerate(credits or [], start=1)}}
    there = {name: path for name, path in inputs.items() if path.is_file()}
    made_by = provenance.record("export", config={"to": to}, inputs=there)
    rollouts, count = exporters.run(turns, to, out, credits or [], made_by)
    print(f"{out}: {number_of(count, 'turn')} of {number_of(rollouts, 'rollout')} as {to}")
