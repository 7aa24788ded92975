"""`turncredit credit` and `turncredit methods`: any method on any table of turns."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer
import yaml

from turncredit.config.layout import measures_beside
from turncredit.credit import METHODS
from turncredit.credit.parts.compose import Method, compute
from turncredit.credit.parts.conventions import PRESETS
from turncredit.credit.parts.lookup import SLOTS, builtin, installed, named, resolve, resolve_for_table
from turncredit.data import provenance, tables
from turncredit.data.counts import number_of
from turncredit.data.output_paths import output_file
from turncredit.data.turns import Turns
from turncredit.errors import UserError
from turncredit.pipeline.own_code import code_of_method


def credit(
    method: Annotated[str, typer.Option(help="A method's name (`turncredit methods` lists them), or FILE.py:NAME.")],
    turns: Annotated[
        Path, typer.Option(help="Parquet with group_id, rollout_id, turn, reward and the method's columns.")
    ],
    out: Annotated[Path, typer.Option(help="Output Parquet: keys, components and advantage, in the same order.")],
    labels: Annotated[Path | None, typer.Option(help="Parquet with a judge's labels, with the same keys.")] = None,
    values: Annotated[
        Path | None, typer.Option(help="Parquet with a learned model's values, with the same keys.")
    ] = None,
    logprobs: Annotated[
        Path | None, typer.Option(help="Parquet with the log-probabilities of a second pass, with the same keys.")
    ] = None,
    continuations: Annotated[
        Path | None, typer.Option(help="Parquet with the continuations of each state, with the same keys.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set a parameter; repeatable. PART.KEY names one part."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help=f"Use a reference's conventions: {', '.join(sorted(PRESETS))}.")
    ] = None,
    seed: Annotated[int, typer.Option(help="For methods that draw random numbers.")] = 0,
    name: Annotated[
        str | None, typer.Option(help="The method's name in the table, for two settings of one method.")
    ] = None,
) -> None:
    """Compute a method's credit for any Parquet table of turns."""
    given = {"labels": labels, "values": values, "logprobs": logprobs, "continuations": continuations}
    side_paths = {name: path for name, path in given.items() if path is not None}
    measures = measures_beside(turns)
    output_file(out, (".parquet",), reads=[turns, measures, *given.values()])
    params = _settings(settings or [])
    chosen = resolve_for_table(method, preset, params, side_paths, "--{name}")
    chosen = replace(chosen, name=name) if name else chosen
    if measures is not None and not (chosen.declares_reads and set(chosen.reads).isdisjoint(tables.MEASURED)):
        side_paths["measures"] = measures
    for path in side_paths.values():
        tables.metadata(path)  # also of a table that this method does not read
    side_names = (*chosen.needs, "measures") if chosen.declares_reads else side_paths
    side = {name: tables.read(path) for name, path in side_paths.items() if name in side_names}
    if labels is not None and "labels" in side:
        _check_asked(labels, chosen)
    if values is not None and "values" in side:
        _check_model(values, side["values"], chosen)
    view = Turns(tables.read(turns), side, where=str(turns))
    table = compute(view, chosen, seed=seed)
    config = {"method": method, "params": chosen.params()}
    if code := code_of_method({**named(method), "params": params}, chosen):
        config["code"] = code
    made_by = provenance.record("credit", config=config, inputs={"turns": turns, **side_paths}, seed=seed)
    tables.write(table, out, "credits", made_by)
    print(f"{out}: {number_of(table.num_rows, 'turn')} credited with {chosen.name}")
    if not np.any(table.column("advantage").to_numpy()):
        print(f"warning: every advantage is 0, so an update learns nothing{_why_0(view)}")


def _why_0(turns: Turns) -> str:
    """Why methods that compare the rollouts of a group give no credit; empty where the groups do not tell."""
    if turns.size_G.max() == 1:
        return (
            ": every group has one rollout, and methods compare the rollouts of a group; give those of a task the same "
            "group_id"
        )
    low_G, high_G = (cut.reduceat(turns.return_R, turns.first_G) for cut in (np.minimum, np.maximum))
    return ": the rollouts of each group have equal returns" if np.array_equal(low_G, high_G) else ""


def _check_asked(labels: Path, method: Method) -> None:
    """Raise UserError for labels that say they answer another question than the method's.

    A function does not say which one it means: then it is printed which one these answer.
    """
    asked = tables.metadata(labels).get("config", {}).get("ask")
    if method.asks is None and asked is not None:
        print(f"{labels}: made with `--ask {asked}`")
    if method.asks is not None and asked not in (None, method.asks):
        raise UserError(
            f"{labels}: made with `--ask {asked}`, but {method.name} needs labels made with `--ask {method.asks}`; run "
            f"`turncredit judge label --ask {method.asks}`"
        )


def _check_model(path: Path, values: pa.Table, method: Method) -> None:
    """Raise UserError for values that say they are another model's than the method's; a function may mean any."""
    models = pc.unique(values.column("model")).to_pylist() if "model" in values.column_names else []
    if method.model is not None and (others := [name for name in models if name and not _same(name, method.model)]):
        raise UserError(
            f"{path}: values of the model {others[0]}, but {method.name} reads those of {method.model}; give that "
            "model's, or drop the column `model` if these are meant"
        )


def _same(model: str, other: str) -> bool:
    """Whether two names are of one model; a user's file may have been named from another folder."""
    return model.rpartition("/")[2] == other.rpartition("/")[2]


def methods(
    name: Annotated[str | None, typer.Argument(help="Show only this method: its parts, formulas and columns.")] = None,
) -> None:
    """List the methods, built-in ones and those of installed packages, with their parameters and columns."""
    if name is not None:
        _describe(resolve(name))
        return
    for method in METHODS.values():
        _list(method)
    for _, method_or_error in installed():
        if isinstance(method_or_error, UserError):
            print(method_or_error)
        else:
            _list(method_or_error)
    print("\nTo compose a method in a configuration, set its base and, in params, any of")
    for slot, kind in SLOTS.items():
        print(f"    {slot}: {', '.join(builtin().parts[kind])}")


def _list(method: Method) -> None:
    print(f"{method.name}: {method.summary}")
    print(f"    reads {_reads(method)}")
    print(f"    {_params(method)}")


def _describe(method: Method) -> None:
    print(f"{method.name}: {method.summary}")
    print(f"    reads {_reads(method)}")
    for part in method.parts:
        values = ", ".join(f"{key}={_shown(value)}" for key, value in part.settable().items())
        print(f"    {part.kind.replace('_', ' ')} {part.name}({values})")
        if text := inspect.getdoc(part.function):
            print(textwrap.indent(text, " " * 8))
    if method.model:
        values = ", ".join(f"{key}={_shown(value)}" for key, value in method.model_settings.items())
        print(f"    model {method.model}({values})")


def _reads(method: Method) -> str:
    """What the method reads, as a list; a function of the user's does not say what."""
    if not method.declares_reads:
        return "what its function reads (not declared)"
    columns = ", ".join(("reward", *method.reads))
    return f"{columns}; side table {' and '.join(method.needs)}" if method.needs else columns


def _params(method: Method) -> str:
    return ", ".join(f"{key}={_shown(value)}" for key, value in method.params().items()) or "no parameters"


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _settings(settings: list[str]) -> dict[str, Any]:
    """`key=value` pairs; values are parsed as YAML: `true`, `null`, `0.5`, `[scpo]`."""
    params: dict[str, Any] = {}
    for item in settings:
        key, equals, text = item.partition("=")
        if not equals or not key.strip():
            raise UserError(f"--set {item}: write key=value, as in --set norm=mean")
        if key in params:
            raise UserError(f"--set {key} is given twice; remove one")
        try:
            params[key.strip()] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise UserError(f"--set {item}: '{text}' is not a YAML value; write one, such as 0.5 or [a, b]") from None
    return params
