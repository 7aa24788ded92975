"""The options of commands about a configuration, `--configfile` and `--results`, and the plan that they give."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from turncredit.config import load
from turncredit.stages.checks import check
from turncredit.stages.plan import Plan
from turncredit.yaml_files import CONFIG

ConfigfileOption = Annotated[
    list[Path] | None,
    typer.Option("--configfile", help=f"Merged over {CONFIG}, as in snakemake; repeatable."),
]
ResultsOption = Annotated[Path, typer.Option("--results", help="The results folder.")]


def files_of(configfile: Sequence[Path] | None) -> list[Path]:
    """The configuration files in the order in which Snakemake merges them."""
    return [Path(CONFIG), *(configfile or [])]


def plan_of(configfile: Sequence[Path] | None, results: Path) -> Plan:
    """The plan of the configured experiment.

    Raises UserError for a configuration that cannot be read, and for one that Snakemake would refuse.
    """
    experiment = load(files_of(configfile))
    check(experiment)
    return Plan(experiment, results)
