"""`turncredit import`: other projects' rollouts as a table of turns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from turncredit.bridges import importers
from turncredit.bridges.importers import columns
from turncredit.bridges.importers.actions import expression
from turncredit.bridges.importers.base import NO_REWARD, Options, Report
from turncredit.bridges.importers.templates import TEMPLATES
from turncredit.data.counts import number_of
from turncredit.data.output_paths import output_file
from turncredit.errors import UserError


def import_(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files, folders of them, or - for the standard input.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The table of turns to write (Parquet).")] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", help=f"The format: {', '.join(importers.FORMATS)}. Without it, detected for each record."
        ),
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="KEY=FIELD", help="Which field is which (docs/own_rollouts.md); repeatable."),
    ] = None,
    join: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="Records are single model calls: the field that those of a rollout share."),
    ] = None,
    rewards: Annotated[Path | None, typer.Option(help="A file with rollout_id (or task_id) and reward.")] = None,
    observation: Annotated[
        Literal["auto", "messages", "calls", "history"],
        typer.Option(
            help="What an observation holds. messages: the messages since the turn before. calls: these and the calls "
            "that they answer. history: these and a hash of everything before. auto: history once a tool was called."
        ),
    ] = "auto",
    action: Annotated[
        str | None, typer.Option(metavar="REGEX", help="A regular expression that finds the action in a response.")
    ] = None,
    action_tag: Annotated[str | None, typer.Option(help="The tag around the action: <TAG>...</TAG>.")] = None,
    template: Annotated[str | None, typer.Option(help=f"The markers in dumps of verl: {', '.join(TEMPLATES)}.")] = None,
    reward_once: Annotated[
        bool, typer.Option("--reward-once", help="Count a reward that every turn repeats once, for the rollout.")
    ] = False,
    look: Annotated[bool, typer.Option("--look", help="Show the structure and three turns; write nothing.")] = False,
    strict: Annotated[bool, typer.Option(help="Stop with an error at the first skip or flaw.")] = False,
    allow_skips: Annotated[
        bool, typer.Option("--allow-skips", help="Write the table even if more is skipped than read.")
    ] = False,
    formats: Annotated[
        bool,
        typer.Option("--formats", help="Describe the formats of --from: files, groups, turns, rewards; read nothing."),
    ] = False,
    columns_: Annotated[
        bool, typer.Option("--columns", help="Describe the columns of the table that is written; read nothing.")
    ] = False,
) -> None:
    """Import rollouts of other projects, or any JSON with messages or turns; --look shows what a file holds."""
    if formats:
        print("\n\n".join("\n".join(importers.told(name)) for name in importers.FORMATS))
        return
    if columns_:
        print("\n".join(columns.told()))
        return
    if not files:
        raise UserError("give files to import, folders of them, or - for the standard input; --formats lists formats")
    options = Options(
        mapping=_mapping(map_ or []),
        observation=observation,
        action=expression(action, action_tag),
        template=template,
        reward_once=reward_once,
        allow_skips=allow_skips,
        join=join,
    )
    if look:
        print("\n".join(importers.look(files, from_, options, rewards)))
        return
    if out is None:
        raise UserError("--out is missing: give the path of the table to write (.parquet), or --look to write none")
    output_file(out, (".parquet",), reads=[*files, rewards])
    report = importers.run(files, out, from_, options, strict=strict, rewards=rewards)
    _tell(report, out)


def _mapping(given: Sequence[str]) -> dict[str, str]:
    """What --map says: the field of each key. Raises UserError for one that is not KEY=FIELD, or a key given twice."""
    mapping: dict[str, str] = {}
    for item in given:
        key, equals, field = item.partition("=")
        if not equals or not key or not field:
            raise UserError(f"--map {item}: write KEY=FIELD, as in --map group_id=task")
        if key in mapping:
            raise UserError(f"--map {key} is given twice; remove one")
        mapping[key] = field
    return mapping


def _lone(report: Report) -> str:
    if report.lone_groups == report.groups:
        return "every group has"
    return f"{report.lone_groups} of {report.groups} groups {'has' if report.lone_groups == 1 else 'have'}"


def _tell(report: Report, out: Path) -> None:
    print("\n".join(report.lines()))
    if report.lone_groups:
        print(f"note: {_lone(report)} one rollout, and methods compare the rollouts of a group (--map group_id=FIELD)")
    turns, rollouts = number_of(report.turns, "turn"), number_of(report.rollouts, "rollout")
    print(f"{out}: {turns} of {rollouts} from {', '.join(report.formats)}")
    if report.notes.get(NO_REWARD) == report.rollouts:
        print("No method can credit these turns: no rollout has a reward. Import again with --rewards or --map reward=")
