"""`turncredit config`: the configuration that Snakemake would run, with the file that each value comes from."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from turncredit.cli.configured import ConfigfileOption, ConfigOption, files_of
from turncredit.config import in_sweep, load, merge
from turncredit.data.yaml_files import CONFIG, read_entry, read_mapping
from turncredit.errors import UserError
from turncredit.pipeline.checks import check, check_installed
from turncredit.views.report import paper_settings


def config(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help=f"YAML files, merged over {CONFIG} as by snakemake --configfile; later ones win."),
    ] = None,
    configfile: ConfigfileOption = None,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, without the files.")] = False,
    origins: Annotated[
        bool,
        typer.Option("--origins", help="Of a paper's preset: which settings the paper states, and which we decided."),
    ] = False,
) -> None:
    """Check the configuration that snakemake --configfile FILES would run, and print it with the file of each value.

    A value without a file is the default. What only jobs need, such as an environment's data, may be missing here: that
    is a warning. Example: turncredit config config/rails.yaml
    """
    given = [*(files or []), *(configfile or [])]
    alone = given and not Path(CONFIG).exists()  # a preset outside an experiment's folder
    read = given if alone else files_of(given)
    experiment = load(read, config or ())
    check(experiment, installed=False)
    data = experiment.model_dump(mode="json")
    if origins:
        print("\n".join(paper_settings.lines_of(experiment.experiment, experiment.trained(), data)).rstrip())
    elif as_json:
        print(json.dumps(data, indent=2))
    else:
        sources = {str(file): read_mapping(file) for file in read}
        for entry in config or ():
            sources[f"--config {entry}"] = read_entry(entry)
        sources["sweep"] = in_sweep(merge({}, *sources.values()))
        print("\n".join(lines_of(data, sources)))
    try:
        check_installed(experiment)
    except UserError as error:
        print(f"turncredit: warning: {error}", file=sys.stderr)


def lines_of(data: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """`data` as YAML, with a comment at each value that one of `files` (in the order in which they are merged) sets."""
    for key, value in data.items():
        inside = {name: file[key] for name, file in files.items() if key in file}
        if isinstance(value, Mapping) and value:
            yield f"{key}:"
            blocks = {name: block for name, block in inside.items() if isinstance(block, Mapping)}
            yield from (f"  {line}" for line in lines_of(value, blocks))
            continue
        # One line, whatever it is; a scalar alone would be dumped as a document of its own, with an end mark.
        text = yaml.safe_dump([value], default_flow_style=True, width=10**9, sort_keys=False).strip()[1:-1]
        yield f"{key}: {text}  # {list(inside)[-1]}" if inside else f"{key}: {text}"
