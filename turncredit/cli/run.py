"""`turncredit run`: everything after it goes to Snakemake."""

from __future__ import annotations

import typer

app = typer.Typer(add_completion=False)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["--help"]}
)
def run(context: typer.Context) -> None:
    """Run the pipeline with progress that a person can follow. All options are Snakemake's, such as
    `--cores all --configfile config/rails.yaml`; without any, the default experiment on all cores."""
    from turncredit.workflow.run import main

    raise typer.Exit(main(context.args or ["--cores", "all"]))
