"""`turncredit run`: passes its arguments to Snakemake and shows progress."""

from __future__ import annotations

from pathlib import Path

import typer

from turncredit.errors import UserError

#: Where Snakemake looks for its file, and options with which it needs none here.
SNAKEFILES = ("Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile")
ELSEWHERE = ("-s", "--snakefile", "-d", "--directory", "-v", "--version")

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["-h", "--help"]}
)
def run(context: typer.Context) -> None:
    """Run the pipeline with live progress. All options are passed to Snakemake, for example
    `--cores all --configfile config/rails.yaml`; without options, the default experiment runs on all cores."""
    from turncredit.workflow.run import main

    named = any(argument.partition("=")[0] in ELSEWHERE for argument in context.args)
    if not named and not any(Path(name).exists() for name in SNAKEFILES):
        raise UserError("no Snakefile in this folder; `turncredit init DIR` creates a folder with one")
    raise typer.Exit(main(context.args or ["--cores", "all"]))
