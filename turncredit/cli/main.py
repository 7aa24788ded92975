"""The command line. A command's module is imported when that command runs, so that `turncredit --help` is instant."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from turncredit.cli.streams import degrade
from turncredit.errors import UserError, in_one_line

#: command -> (module:attribute of a typer app or a function, the line that `--help` shows)
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("turncredit.cli.run:app", "Run the pipeline (snakemake) with live progress."),
    "plan": ("turncredit.cli.plan:plan", "Estimate an experiment's jobs, memory, disk and GPU hours."),
    "doctor": ("turncredit.cli.doctor:doctor", "Check that an experiment's jobs can run, here and on a cluster."),
    "status": ("turncredit.cli.status:status", "Show which rounds and jobs are done, running, queued or failed."),
    "init": ("turncredit.cli.init:init", "Create a folder for experiments with the installed package."),
    "import": ("turncredit.cli.importing:import_", "Import logs of agents and trainers, or any JSON, as turns."),
    "export": ("turncredit.cli.exporting:export", "Export turns and credit: ATIF, chats, verifiers, Hugging Face."),
    "credit": ("turncredit.cli.credit:credit", "Compute a method's credit for any Parquet table of turns."),
    "methods": ("turncredit.cli.credit:methods", "List the methods, their parameters and what they read."),
    "score": ("turncredit.cli.score:score_method", "Score a credit method on worlds with exact values and gradients."),
    "show": ("turncredit.cli.results:show", "Show a rollout in the terminal, turn by turn, with its credit."),
    "prompt": ("turncredit.cli.prompt:prompt", "Print what an agent shows a model in the first turn of a task."),
    "sql": ("turncredit.cli.results:sql", "Query all artifacts of all experiments in SQL (DuckDB)."),
    "where": ("turncredit.cli.where:where", "Show a stage's files, or which stage wrote a file."),
    "check": ("turncredit.cli.results:check", "Check that the invariants hold in every round of the results."),
    "clean": ("turncredit.cli.results:clean", "List or remove artifacts that the configuration would not make."),
    "fidelity": ("turncredit.cli.fidelity:fidelity", "Measure how well credit agrees with the true advantage."),
    "view": ("turncredit.cli.view:view", "Look at any rollout in the browser, also while its run trains."),
    "page": ("turncredit.cli.page:page", "Write a rollout as an HTML page, with credit and ground truth."),
    "report": ("turncredit.cli.results:report", "Build an experiment's report and print its table."),
    "config": ("turncredit.cli.config:config", "Show the configuration that would run, and each value's file."),
    "track": ("turncredit.cli.results:track", "Copy the stages' metrics to MLflow."),
    "env": ("turncredit.cli.env:app", "List environments, and run their commands."),
    "judge": ("turncredit.cli.judge:app", "Label turns with a judge, and compare labels."),
}


#: The endings of configuration files.
CONFIGURATIONS = (".yaml", ".yml", ".json")
#: The options that take several values, and what a further value of one looks like.
SEVERAL: dict[str, Callable[[str], bool]] = {
    "--configfile": lambda argument: argument.endswith(CONFIGURATIONS),
    "--config": lambda argument: "=" in argument and not argument.startswith("-"),
}
#: Every command has both options for its help, and help is plain text everywhere (`rich_markup_mode=None`).
HELP = {"help_option_names": ["-h", "--help"]}


class SnakemakeLike(TyperCommand):
    """A command that takes several files after one `--configfile`, and several keys after one `--config`, as Snakemake
    does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with the option before each of the values that follow its first."""
        spread: list[str] = []
        option, taken = "", 0  # the option whose values are read, and how many there were; "" elsewhere
        for argument in args:
            if argument in SEVERAL:
                option, taken = argument, 0
            elif option and (taken == 0 or SEVERAL[option](argument)):
                spread += [option] * (taken > 0)
                taken += 1
            else:
                option = ""
            # A query that begins with a comment is no option.
            spread.append(f"\n{argument}" if argument.startswith("-- ") else argument)
        return super().parse_args(ctx, spread)


class LazyGroup(TyperGroup):
    """A group whose commands are stubs (a name and a line of help) until one of them is run."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """The real command for `args`, imported now. Raises UserError if it is not part of this installation."""
        name, stub, rest = super().resolve_command(ctx, args)
        return name, _load(name) if name in COMMANDS else stub, rest


def _load(name: str) -> Any:
    module_name, attribute = COMMANDS[name][0].split(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise UserError(f"the command '{name}' is not part of this installation ({error.name} is missing)") from None
    command = getattr(module, attribute)
    if not isinstance(command, typer.Typer):
        function, command = command, typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=HELP)
        command.command(name, cls=SnakemakeLike)(function)
    return typer.main.get_command(command)


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=HELP,
    help="Which turns deserve the credit? Credit assignment for multi-turn LLM agents.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from turncredit.data.provenance import code_version

        print(f"turncredit {code_version()}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Show the version."),
) -> None:
    """Which turns deserve the credit? Credit assignment for multi-turn LLM agents."""


def _stub() -> None:
    raise AssertionError("a stub is replaced before it runs")


for _name, (_, _help) in COMMANDS.items():
    app.command(_name, help=_help)(_stub)


def main() -> None:
    """Run the command line. A user error, a full disk or a missing extra is one line on stderr and exit code 2.

    What the terminal's encoding lacks is replaced. Typer itself silently ends a command whose output is no longer read
    (`| head -1`), and exits with 130 after Ctrl-C.
    """
    degrade()
    try:
        app()
    except UserError as error:
        print(f"turncredit: {error}", file=sys.stderr)
        sys.exit(2)
    except (OSError, ModuleNotFoundError) as error:
        line = in_one_line(error)
        if line is None:
            raise
        print(f"turncredit: {line}", file=sys.stderr)
        sys.exit(2)
