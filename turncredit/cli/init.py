"""`turncredit init`: a folder for experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder; created if it does not exist.")],
) -> None:
    """Write the workflow into a folder: Snakefile, rules, scripts, configurations and profiles.

    `snakemake` and `turncredit run` work there, with the installed package. No existing file is overwritten.
    """
    from turncredit.pipeline import init_folder as module

    written = module.init(folder)
    print(f"{len(written)} files in {folder}. Run the default experiment there: cd {folder} && turncredit run")
