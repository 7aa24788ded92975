"""`turncredit import`: other frameworks' rollouts as a table of turns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turncredit.bridges import importers
from turncredit.data.output_paths import output_file
from turncredit.errors import UserError


def import_(
    files: Annotated[list[Path], typer.Argument(help="Files, or folders of them.")],
    out: Annotated[Path, typer.Option(help="The table of turns to write (Parquet).")],
    from_: Annotated[
        str | None,
        typer.Option("--from", help=f"The format: {', '.join(importers.FORMATS)}. By default told by a file."),
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="KEY=FIELD", help="Which field is which (docs/integrations.md); repeatable."),
    ] = None,
    strict: Annotated[bool, typer.Option(help="Stop with an error at the first record that would be skipped.")] = False,
) -> None:
    """Import rollouts of verifiers, verl, verl-agent, ART, rLLM, OpenEnv, TRL, or any JSON lines."""
    output_file(out, (".parquet",), reads=files)
    mapping: dict[str, str] = {}
    for item in map_ or []:
        key, equals, field = item.partition("=")
        if not equals or not key or not field:
            raise UserError(f"--map {item}: write KEY=FIELD, as in --map group_id=task")
        if key in mapping:
            raise UserError(f"--map {key} is given twice")
        mapping[key] = field
    format_, report = importers.run(files, out, from_, mapping, strict=strict)
    print("\n".join(report.lines()))
    print(f"{out}: {report.turns} turns of {report.rollouts} rollouts from {format_.name}")
