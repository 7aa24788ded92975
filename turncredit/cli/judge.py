"""The commands `turncredit judge label`, `agreement` and `roles`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from turncredit.data.output_paths import output_file
from turncredit.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from turncredit.config.judge import JudgeConfig
    from turncredit.judges.agreement import LabelAgreement
    from turncredit.judges.decisive import Agreement

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Label the turns of any table by rules or with an LLM; compare labels; plot the share of each role.",
)

#: The name of the hand-labelled rollouts that are included in the package.
CALIBRATION = "calibration"


@app.command()
def label(
    turns: Annotated[str, typer.Option(help=f"Turns: .parquet, .jsonl, or '{CALIBRATION}' for our labelled rollouts.")],
    out: Annotated[Path, typer.Option(help="The labels, as Parquet.")],
    judge: Annotated[
        Literal["rule", "llm"], typer.Option(help="rule: no model needed; llm: any server with the OpenAI API.")
    ] = "rule",
    ask: Annotated[
        Literal["role", "progress", "score", "decisive_step"],
        typer.Option(
            help="A role (TRIAGE), progress in -1..1, a score in 0..1 (HAS); of failed rollouts the decisive step."
        ),
    ] = "role",
    env: Annotated[
        str | None,
        typer.Option(help="The environment of turns without a column env, such as household; my_env.py: of all turns."),
    ] = None,
    cache: Annotated[Path, typer.Option(help="Folder for the LLM's answers; nothing is requested twice.")] = (
        Path("results/judge_cache")
    ),
    model: Annotated[str | None, typer.Option(help="The model's name on the server.")] = None,
    base_url: Annotated[
        str | None, typer.Option(help="The server's address, such as http://127.0.0.1:8000/v1.")
    ] = None,
    api_key_env: Annotated[str | None, typer.Option(help="The environment variable with the API key.")] = None,
    thinking: Annotated[
        Literal["on", "off", "unset"] | None,
        typer.Option(help="Whether the model thinks first; unset sends no such option, for servers that reject it."),
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Limit on an answer, including its reasoning.")] = None,
    window: Annotated[int | None, typer.Option(help="Turns of context before and after, at most 5.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Requests in flight.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds for one request.")] = None,
    attempts: Annotated[int | None, typer.Option(help="Attempts per request.")] = None,
    max_missing: Annotated[float | None, typer.Option(help="Largest fraction of labels that may be missing.")] = None,
) -> None:
    """Label each turn of a table.

    The table needs group_id, rollout_id, turn, action and next_observation, and, for rules, env and goal; a table
    without goal needs observation: the first one of a rollout is then its task. Other columns are ignored.
    Labels have the same keys, role (D, E, N, R) or score, evidence, judge, cached, and their cost.
    """
    from turncredit import envs
    from turncredit.data import plugins, provenance, tables
    from turncredit.judges.label import costs, label_turns

    output_file(out, (".parquet",), reads=[None if turns == CALIBRATION else turns, cache])
    given = {
        "model": model,
        "base_url": base_url,
        "api_key_env": api_key_env,
        "thinking": None if thinking is None else {"on": True, "off": False}.get(thinking, "unset"),
        "max_tokens": max_tokens,
        "window": window,
        "concurrency": concurrency,
        "timeout": timeout,
        "attempts": attempts,
        "max_missing": max_missing,
    }
    config = _config(judge, {name: value for name, value in given.items() if value is not None})
    table = _table(turns)
    if env is not None:
        if plugins.own_file(env) is not None:
            env = envs.load(env).name
            table = table.drop_columns([name for name in table.column_names if name == "env"])
        if "env" in table.column_names:
            raise UserError(f"--env {env}: {turns} has a column env already; leave the option out")
        table = table.append_column("env", [[env] * table.num_rows])
    if config.kind == "rule":
        _check_actions(table, turns, env)
    with _watched(config, table.num_rows) as progress:
        labels = label_turns(table, config, ask=ask, cache=cache, where=turns, progress=progress)
    asked = {"judge": config.model_dump(mode="json"), "ask": ask}
    inputs = {} if turns == CALIBRATION else {"turns": turns}
    tables.write(labels, out, "labels", provenance.record("label", config=asked, inputs=inputs))
    spent = costs(labels)
    typer.echo(f"{out}: {', '.join(f'{name} {value:g}' for name, value in spent.items())}")


@app.command()
def agreement(
    labels: Annotated[Path, typer.Option(help="The labels to compare.")],
    gold: Annotated[str, typer.Option(help=f"Labels to compare with (.parquet, .jsonl, or '{CALIBRATION}').")],
    turns: Annotated[Path | None, typer.Option(help="Turns with `success`, if the gold labels do not have it.")] = None,
    disagreements: Annotated[Path | None, typer.Option(help="Write all disagreements to this .parquet file.")] = None,
    show: Annotated[int, typer.Option(help="How many disagreements to print.", min=0)] = 20,
) -> None:
    """Compare labels with gold labels: F1 by role and outcome, agreement, kappa, confusion, disagreements."""
    from turncredit.judges.agreement import compare

    if disagreements:
        output_file(disagreements, (".parquet",), reads=[labels, None if gold == CALIBRATION else gold, turns])
    result = compare(_table(str(labels)), _table(gold), _table(str(turns)) if turns else None)
    _print_agreement(result, show)
    if disagreements:
        import pyarrow.parquet as pq

        from turncredit.data.files import new_file

        with new_file(disagreements) as part:
            pq.write_table(result.disagreements, part)
        typer.echo(f"all disagreements: {disagreements}")


@app.command()
def decisive(
    turns: Annotated[Path, typer.Option(help="Failed rollouts with mistake_agent and mistake_step (Who&When).")],
    labels: Annotated[
        list[Path] | None, typer.Option(help="A judge's labels of these turns; may be given several times.")
    ] = None,
    credits: Annotated[
        list[Path] | None, typer.Option(help="A method's credit of these turns; may be given several times.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the table to this .csv file.")] = None,
) -> None:
    """Compare the turns that judges, methods and simple rules call decisive with those that people named.

    A judge's turn is the answer to --ask decisive_step, or the turn with the lowest score; a method's is the one with
    the lowest advantage. Turns with the same value count with equal shares.
    """
    from turncredit.data import tables
    from turncredit.judges import decisive as truth

    if csv is not None:
        output_file(csv, (".csv",), reads=[turns, *(labels or []), *(credits or [])])
    logs = truth.read_logs(tables.read(turns), str(turns))
    scores = {name: rule(logs) for name, rule in truth.BASELINES.items()}
    for path in labels or []:
        ask = tables.metadata(path).get("config", {}).get("ask")
        scores[str(path)] = truth.by_labels(logs, tables.read(path), ask, str(path))
    for path in credits or []:
        scores[str(path)] = truth.by_credits(logs, tables.read(path), str(path))
    found = truth.agreements(logs, scores)
    _print_decisive(found)
    if csv is not None:
        import pandas as pd

        from turncredit.data.files import new_file

        with new_file(csv) as part:
            pd.DataFrame(truth.rows(found)).to_csv(part, index=False, float_format="%.4f")
        typer.echo(f"{csv}: {len(found)} rows")


def _print_decisive(found: Sequence[Agreement]) -> None:
    from turncredit.judges.decisive import WITHIN
    from turncredit.views.terminal import console, plain_table, print_table

    heads = ["agent", *(f"within {most}" if most else "step" for most in WITHIN)]
    rollouts = f"{found[0].rollouts} rollouts; % with 95% intervals over rollouts"
    grid = plain_table(["", *heads], [False, *(True for _ in heads)], rollouts)
    for one in found:
        shares = [f"{100 * x:.1f} ({100 * low:.0f} to {100 * high:.0f})" for x, low, high in (one.agent, *one.step)]
        grid.add_row(one.name, *shares)
    print_table(grid, console())


@app.command()
def roles(
    out: Annotated[Path, typer.Option(help="The page, as one HTML file.")],
    results: Annotated[Path, typer.Option(help="The results folder, or one experiment's folder in it.")] = (
        Path("results")
    ),
) -> None:
    """Write a page with the share of each role per environment, policy and round, from all labels in a folder."""
    from turncredit.views.experiments import experiment_folders, layouts_below
    from turncredit.views.report.roles import role_shares, write_page

    output_file(out, (".html", ".htm"), reads=experiment_folders(results))
    shares = role_shares(layouts_below(results))
    if not shares.num_rows:
        raise UserError(
            f"{results}: no role labels in this folder; run a method that reads labels, or label with --ask role"
        )
    write_page(shares, out)
    typer.echo(f"{out}: {shares.num_rows} rows, by environment, policy, round and outcome")


def _config(judge: str, given: dict[str, Any]) -> JudgeConfig:
    from pydantic import ValidationError

    from turncredit.config.judge import JudgeConfig

    if given.get("thinking") == "unset":
        given["thinking"] = None
    try:
        return JudgeConfig.model_validate({"kind": judge, **given})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        option = "--" + str(first["loc"][0]).replace("_", "-") + ": " if first["loc"] else ""
        raise UserError(f"{option}{first['msg'].removeprefix('Value error, ')}") from None


def _check_actions(table: pa.Table, where: str, env: str | None) -> None:
    """Raises UserError where no action is one of the environment that `--env` names; warns where few are."""
    from turncredit.judges.rule import known_actions
    from turncredit.judges.window import read_rollouts

    for name, (known, turns) in known_actions(read_rollouts(table, where)).items():
        found = f"{known} of {turns} actions have a form that {name} knows"
        hint = "is it another environment, or does the action stand within the response (turncredit import --action)?"
        if not known and env is not None:
            raise UserError(f"--env {env}: {where}: {found}: {hint}")
        if known < turns / 2:
            typer.echo(f"warning: {where}: {found}, and the rules call the others N: {hint}", err=True)


@contextmanager
def _watched(config: JudgeConfig, rows: int) -> Iterator[Callable[[int], None]]:
    """Progress of an LLM on the terminal; nothing for the rules, which take no time."""
    if config.kind == "rule" or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(f"{config.model} (at most {rows} windows)", total=None)
        yield lambda done: bar.update(task, completed=done)


def _table(name: str) -> pa.Table:
    from turncredit.data import tables
    from turncredit.data.json_lines import json_table

    if name == CALIBRATION:
        from turncredit.judges.agreement import calibration

        return calibration()
    path = Path(name)
    if path.suffix in (".jsonl", ".json", ".ndjson"):
        return json_table(path)
    return tables.read(path)


def _print_agreement(result: LabelAgreement, show: int) -> None:
    from rich.console import Console
    from rich.table import Table

    from turncredit.judges.rubric import ROLE_NAMES

    console = Console()
    kappa = "undefined" if result.kappa is None else f"{result.kappa:.3f}"
    console.print(
        f"{result.turns} turns, {result.missing} without a label; agreement {result.agreement:.3f}, "
        f"Cohen's kappa {kappa}"
    )
    cells = Table(
        "role", "outcome", "gold", "judged", "both", "F1", title="F1 by role and outcome", title_justify="left"
    )
    for cell in result.cells:
        f1 = "-" if cell.f1 is None else f"{cell.f1:.3f}"
        cells.add_row(f"{cell.role} {ROLE_NAMES[cell.role]}", cell.outcome, *map(str, cell[2:5]), f1)
    console.print(cells)
    columns = list(next(iter(result.confusion.values())))
    confusion = Table("gold \\ judged", *columns, title="Confusion (- is a missing label)", title_justify="left")
    for role, row in result.confusion.items():
        confusion.add_row(f"{role} {ROLE_NAMES[role]}", *(str(row[column]) for column in columns))
    console.print(confusion)
    rows = result.disagreements.slice(0, show).to_pylist()
    if rows:
        console.print(
            f"{result.disagreements.num_rows} disagreements" + (f", the first {show}:" if len(rows) == show else ":")
        )
    for row in rows:
        console.print(f"{row['rollout_id']} turn {row['turn']} ({row['outcome']}): {row['action']}", markup=False)
        console.print(f"    gold   {row['gold']}  {row['gold_evidence'] or ''}", markup=False, highlight=False)
        console.print(
            f"    judged {row['judged'] or '-'}  {row['judged_evidence'] or ''}", markup=False, highlight=False
        )
