"""The experiments that the files of `config/` stand for: one a file, or those that the file's sweep lists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from turncredit import config
from turncredit.config import sweep
from turncredit.data.yaml_files import read_mapping

ROOT = Path(__file__).resolve().parents[1]
DEFAULT = ROOT / "config.yaml"


def _experiments() -> dict[str, Path]:
    return {
        name: path
        for path in sorted((ROOT / "config").rglob("*.yaml"))
        for name in config.names_in_sweep([DEFAULT, path]) or [path.stem]
    }


#: name -> its file; an experiment without a sweep is called like its file
PRESETS = _experiments()
#: those of the papers' tables
PAPERS = [name for name, path in PRESETS.items() if path.parent.name == "paper"]
#: those with pretrained weights
PRETRAINED = [*PAPERS, *(name for name in PRESETS if "qwen" in name and name not in PAPERS)]


def bases(path: Path) -> list[Path]:
    """The files that a preset is laid over: those before it in the command at its head."""
    text = path.read_text(encoding="utf-8")
    given = re.search(rf"^#.*--configfile ((?:config/\S+ )*){path.relative_to(ROOT)}$", text, re.MULTILINE)
    return [ROOT / name for name in given[1].split()] if given else []


def options(name: str) -> tuple[list[Path], list[str]]:
    """The files and the entries of `--config` that choose a preset."""
    path = PRESETS[name]
    return [DEFAULT, *bases(path), path], [f"sweep={{only: {name}}}"] if name != path.stem else []


@cache
def experiment(name: str) -> config.Experiment:
    return config.load(*options(name))


def settings(name: str) -> dict[str, Any]:
    """The keys that a preset sets, laid out as if its file were not a sweep."""
    data = config.merge(read_mapping(PRESETS[name]), {"sweep": {"only": name}} if options(name)[1] else {})
    return sweep.chosen(data, config.Experiment.model_fields, name)
