"""`turncredit run`: passes its arguments to Snakemake and shows progress."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from turncredit.errors import UserError, require

#: Where Snakemake looks for its file, and options with which it needs none here.
SNAKEFILES = ("Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile")
ELSEWHERE = ("-s", "--snakefile", "-d", "--directory", "-v", "--version")

app = typer.Typer(add_completion=False, rich_markup_mode=None)


class _PassesOn(TyperCommand):
    """A command that passes on also the `--` that ends the options, which click would drop."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ends = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [*args[:ends], *args[ends : ends + 1], *args[ends:]])


@app.command(
    cls=_PassesOn,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["-h", "--help"]},
)
def run(context: typer.Context) -> None:
    """Run the pipeline with live progress. Without options, the default experiment runs on all cores.

    All options are passed to Snakemake, whose own help is snakemake --help. Those that matter most:

    \b
      --cores N              use at most N cores (all of them without this option)
      --configfile FILE ...  merge these over config.yaml, later files over earlier ones
      --config KEY=VALUE     set single keys: --config 'seeds=[0, 1]' rounds=8
      -n                     print the jobs that would run, and run none
      --keep-going           after a failure, run the jobs that do not depend on it
      --forcerun STAGE       run a stage again, and all that follows from it
      --profile slurm        submit the jobs to a cluster (docs/cluster.md)
      --unlock               remove the lock of a run that was killed on another machine

    The same command again resumes an interrupted run: what is finished is kept. The experiments of a sweep run one
    after another; after one that fails the others run only with --keep-going.
    """
    from turncredit.pipeline import machine
    from turncredit.pipeline import run as snakemake

    named = any(argument.partition("=")[0] in ELSEWHERE for argument in context.args)
    if not named and not any(Path(name).exists() for name in SNAKEFILES):
        raise UserError(
            f"no Snakefile in this folder ({Path.cwd()}); change to the one that has it and config.yaml: the "
            "repository, or a folder that `turncredit init DIR` created"
        )
    require("snakemake")
    for line in machine.folder_mistakes():
        raise UserError(line)
    arguments = snakemake.with_keys(context.args or ["--cores", "all"])
    read = [] if named else snakemake.check_configuration(arguments)
    names = _sweep(arguments) if any("sweep" in keys for keys in read) else []
    raise typer.Exit(_each(arguments, names) if names else snakemake.main(arguments))


def _sweep(arguments: list[str]) -> list[str]:
    """The experiments of a sweep, if one is not chosen. Raises UserError for a mistake in any of them."""
    from turncredit.cli.configured import files_of, plans_of
    from turncredit.config import names_in_sweep
    from turncredit.pipeline import run as snakemake

    options = (snakemake.CONFIGFILE, snakemake.SINGLE_KEYS)
    files, keys = (snakemake.values_of(arguments, *names) for names in options)
    configfile = [Path(file) for file in files]
    names = names_in_sweep(files_of(configfile), keys)
    if names:
        plans_of(configfile, Path("results"), keys, installed=False)
    return names


def _each(arguments: list[str], names: list[str]) -> int:
    """Run these experiments of a sweep one after another; returns the first exit status that is not 0, or 0."""
    from turncredit.pipeline import run as snakemake

    first = 0
    for number, name in enumerate(names, start=1):
        print(f"experiment {number} of {len(names)}: {name}", flush=True)
        status = snakemake.main(snakemake.with_keys(arguments, f"sweep={{only: {name}}}"))
        first = first or status
        if status == snakemake.INTERRUPTED or (status and not _keeps_going(arguments)):
            break
    return first


def _keeps_going(arguments: list[str]) -> bool:
    """Whether Snakemake is to go on after a failure, by an option or by its profile."""
    from turncredit.cli.configured import profile_options
    from turncredit.pipeline import run as snakemake

    if any(argument == "--keep-going" or re.fullmatch("-[pkFrqn]*k[pkFrqn]*", argument) for argument in arguments):
        return True
    for profile in snakemake.values_of(arguments, "--profile")[:1]:
        try:
            return bool(profile_options(profile).get("keep-going", False))
        except UserError:
            return False  # it is not in this folder
    return False
