"""Configuration files, read strictly (a key that is given twice, which YAML readers accept, is refused), and entries
of `--config`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from turncredit.errors import UserError

#: The configuration that Snakemake reads first: the Snakefile names it.
CONFIG = "config.yaml"
#: What Snakemake takes for a key on its command line.
KEY = re.compile(r"[a-zA-Z_][\w-]*\w")


def read_mapping(path: str | Path) -> dict[str, Any]:
    """The keys and values in the YAML or JSON file `path`.

    Raises UserError, with the file and where possible the line, for what is not a mapping in valid YAML or JSON, and
    for a key that occurs twice in one mapping.
    """
    path = Path(path)
    kind = "JSON" if path.suffix == ".json" else "YAML"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        if isinstance(error, FileNotFoundError) and path == Path(CONFIG):
            raise UserError(
                f"{CONFIG}: not in this folder ({Path.cwd()}); change to the one that has it and the Snakefile: the "
                "repository, or a folder that `turncredit init DIR` created"
            ) from None
        raise UserError(f"{path}: cannot read this configuration file ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: not a UTF-8 text file (byte {error.start}), so it cannot be a configuration; check the path"
        ) from None
    try:
        data = json.loads(text, object_pairs_hook=_unique_pairs) if kind == "JSON" else yaml.load(text, _StrictLoader)
        json.dumps(data, default=str)  # refuses what contains itself, through an alias
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f" line {mark.line + 1}:" if mark else ""
        raise UserError(f"{path}:{line} not valid YAML: {error.problem or error.context}") from None
    except _DuplicateKey as error:
        raise UserError(f"{path}:{error}; remove one of the two") from None
    # ValueError: JSON, a date that there is not, an alias of itself; TypeError: a key that is a date or bytes
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise UserError(f"{path}: not valid {kind}: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise UserError(f"{path}: not valid {kind}: nested too deeply") from None
    if data is None:
        raise UserError(f"{path}: this configuration file is empty; give it a key, or leave the file out")
    if not isinstance(data, dict):
        raise UserError(f"{path}: a configuration must hold keys and values, not a {type(data).__name__}")
    return data


def read_entry(entry: str) -> dict[str, Any]:
    """The key and value of an entry of `--config`. Raises UserError for one that Snakemake could not read."""
    key, equals, value = entry.partition("=")
    block, dot, rest = key.partition(".")
    if dot and equals:
        inner = f"{rest.replace('.', ': {')}: {value}{'}' * rest.count('.')}"
        raise UserError(f"--config {entry}: write a key of a block inside it: --config '{block}={{{inner}}}'")
    if not equals:
        raise UserError(f"--config {entry}: write key=value, as in --config rounds=3")
    if not KEY.fullmatch(key):
        raise UserError(f"--config {entry}: '{key}' is no key: a letter, then letters, digits and '_', as in rounds=3")
    try:
        return {key: yaml.load(value, yaml.BaseLoader)}
    except yaml.YAMLError:
        return {key: value}


class _DuplicateKey(Exception):
    """A key that its mapping has already."""


class _StrictLoader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """PyYAML's safe loader, but that a mapping's keys are unique (as the YAML specification asks, 3.2.1.3)."""

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        """The mapping as it is written: keys that a merge (`<<`) brings are not there yet, and may be overridden."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        line_of: dict[tuple[str, str], int] = {}
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                key, line = (key_node.tag, key_node.value), key_node.start_mark.line + 1
                if key in line_of:
                    first = line_of[key]
                    raise _DuplicateKey(f" line {line}: the key '{key[1]}' is given twice, first in line {first}")
                line_of[key] = line
        return node


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise _DuplicateKey(f" the key '{key}' is given twice")
        mapping[key] = value
    return mapping
