"""Configuration files as an `Experiment`; every mistake in them is one line with its key and the nearest valid one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from turncredit.config import sweep
from turncredit.config.experiment import Experiment
from turncredit.config.merging import merge
from turncredit.config.sections import Section
from turncredit.config.warm_starts import SFT, is_start, start_name
from turncredit.data.yaml_files import CONFIG, read_entry, read_mapping
from turncredit.errors import UserError, nearest

Model = TypeVar("Model", bound=BaseModel)

#: Cost categories for jobs that belong to no run: work shared by all runs; ground truth and comparisons with it.
SHARED, AUDIT = "shared", "audit"


def from_mapping(
    data: Mapping[str, Any], where: str = "config", sources: Mapping[str, Mapping[str, Any]] | None = None
) -> Experiment:
    """An `Experiment` from plain data. Raises UserError, one line, for the first mistake.

    The line begins with `where`, or, for `data` merged from `sources` (name -> keys), with the last that sets the key,
    if the mistake is one key's. The text `null` is null: Snakemake's --config reads every value inside a block as text.
    """
    data = {key: _without_null_texts(value) for key, value in data.items()}
    _check_numbers(data, where)
    try:
        experiment = Experiment.model_validate(dict(data))
        _check_agents(experiment, where)
        for name, entry in experiment.define.items():
            if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):  # as in paths (turncredit/config/layout.py)
                raise UserError(
                    f"{where}: define.{name}: a method's name must begin with a letter and have only ASCII letters, "
                    "digits and underscores; rename it"
                )
            if is_start(name):
                raise UserError(
                    f"{where}: define.{name}: '{SFT}' and names that begin with '{SFT}_' are reserved for warm starts; "
                    "rename the method"
                )
            if name in (SHARED, AUDIT):
                raise UserError(f"{where}: define.{name}: costs outside the runs have this name; rename the method")
            for section in get_args(Section):
                if getattr(entry, section):
                    _checked_override(experiment, name, section, where)
    except ValidationError as error:
        path = error.errors()[0]["loc"]
        setting = [name for name, keys in (sources or {}).items() if path and _sets(keys, path)]
        raise UserError(_one_line(error, Experiment, setting[-1] if setting else where)) from None
    _refuse_scratch_values(experiment, where, sources or {})
    return experiment


def _refuse_scratch_values(experiment: Experiment, where: str, sources: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise UserError for a pretrained policy that would be trained with the values of config.yaml's small model.

    Its learning rates would destroy a pretrained model, and fall within ten rounds; its responses have ten tokens. They
    are refused if config.yaml's policy is from scratch and none of the other `sources` sets them.
    """
    base, source = sources.get(CONFIG), experiment.policy.source
    if source == "scratch" or base is None or base.get("policy", {}).get("source", "scratch") != "scratch":
        return
    keys = ["agent.max_response_tokens"]
    keys += ["sft.optimizer", "sft.lr"] if experiment.sft.epochs > 0 else []
    keys += ["update.lr", "update.final_lr"] if not all(map(is_start, experiment.methods)) else []
    others = [given for name, given in sources.items() if name != CONFIG]
    if missing := [key for key in keys if not any(_sets(given, key.split(".")) for given in others)]:
        raise UserError(
            f"{where}: policy.source is the pretrained {source}, but {', '.join(missing)} would be those of {CONFIG}, "
            "which is for a small model from scratch; set them too (as config/qwen2.5-1.5b.yaml does, for example)"
        )


def _without_null_texts(value: Any) -> Any:
    """`value` with None in place of every text `null` inside it."""
    if isinstance(value, Mapping):
        return {key: _without_null_texts(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_null_texts(part) for part in value]
    return None if value == "null" else value


def _sets(keys: Any, path: Iterable[str | int]) -> bool:
    """Whether `keys`, a file's, have the key at `path` (as pydantic gives it, with the branches of unions)."""
    for part in path:
        if isinstance(keys, Mapping) and part in keys:
            keys = keys[part]
        elif isinstance(keys, Mapping) and not _BRANCH.match(str(part)):
            return False
    return True


def load(paths: Iterable[str | Path], entries: Iterable[str] = ()) -> Experiment:
    """Read YAML files, then single keys (`entries`, KEY=VALUE), into an `Experiment`; later ones win."""
    sources = _read(paths, entries)
    data = merge({}, *sources.values())
    experiment = from_mapping(data, ", ".join(sources), {**sources, "sweep": in_sweep(data)})
    refuse_lost(sources.values(), data)
    return experiment


def refuse_lost(files: Iterable[Mapping[str, Any]], data: Mapping[str, Any]) -> None:
    """Raise UserError for a key that is given after a list of experiments, if the chosen one sets it otherwise.

    The list would win. `files` are in the order in which they are merged; `data` has single keys, too.
    """
    until: dict[str, Any] = {}
    after: dict[str, Any] = {}
    listed = False
    for file in files:
        until, after = (until, merge(after, file)) if listed else (merge(until, file), after)
        listed = listed or (isinstance(file.get("sweep"), Mapping) and bool(file["sweep"].get("experiments")))
    own = in_sweep(data) if listed else {}
    for path, value in leaves({key: value for key, value in own.items() if key != "experiment"}):
        given, key, only = _at(data, path), ".".join(path), str(data["sweep"]["only"])
        is_given = _at(after, path) is not None or str(given) != str(_at(until, path))
        if is_given and str(given) != str(value):
            name = only.removeprefix(f"{data.get('experiment')}_")
            raise UserError(
                f"{key} is {given}, but the experiment '{only}' sets it to {value}, which wins; change it there: "
                f"--config 'sweep={{experiments: {{{name}: {{{key}: {given}}}}}}}'"
            )


def leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each value of nested mappings that is not one with keys itself, with the keys that lead to it."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _at(values: Any, path: Iterable[str]) -> Any:
    for key in path:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def in_sweep(data: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that a sweep gives the experiment that `data` chooses of it; none where it has none, or chooses none."""
    try:
        return sweep.changes(data, Experiment.model_fields, Experiment.model_fields["experiment"].default)
    except ValueError:
        return {}  # said when the configuration is read


def names_in_sweep(paths: Iterable[str | Path], entries: Iterable[str] = ()) -> list[str]:
    """The experiments of a sweep in these files and keys; none without a sweep, or if one experiment is chosen."""
    sources = _read(paths, entries)
    data = merge({}, *sources.values())
    chosen = data.get("sweep")
    if isinstance(chosen, Mapping) and chosen.get("only") is not None:
        return []
    try:
        return list(sweep.experiments(data, Experiment.model_fields, Experiment.model_fields["experiment"].default))
    except ValueError as error:
        raise UserError(f"{', '.join(sources)}: {error}") from None


def _read(paths: Iterable[str | Path], entries: Iterable[str]) -> dict[str, dict[str, Any]]:
    sources = {str(path): read_mapping(path) for path in paths}
    single = merge({}, *(read_entry(entry) for entry in entries))
    return {**sources, "--config": single} if single else sources


def validated(model: type[Model], data: Mapping[str, Any], key: str, where: str = "config") -> Model:
    """`data`, found at `key` of `where` (empty: all of it), as a `model`. Raises UserError with one line.

    An unknown key is an error unless the model's own configuration says what becomes of it.
    """
    try:
        _closed(model).model_validate(dict(data))
        return model.model_validate(dict(data))
    except ValidationError as error:
        raise UserError(_one_line(error, model, where, prefix=f"{key}." if key else "")) from None


def _closed(model: type[Model]) -> type[Model]:
    """A model that refuses unknown keys where `model` leaves it to Pydantic, which drops them."""
    if "extra" in model.model_config:
        return model
    own = {"__module__": model.__module__, "model_config": ConfigDict(extra="forbid")}
    return type(model.__name__, (model,), own)


def _check_numbers(value: Any, where: str, key: str = "") -> None:
    """Raise UserError for a number that is infinite or NaN, wherever it is: nothing can be computed with it."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{where}: {key} is {value}; give a finite number")
    if isinstance(value, Mapping):
        for name, part in value.items():
            _check_numbers(part, where, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            _check_numbers(part, where, f"{key}.{number}")


def _check_agents(experiment: Experiment, where: str) -> None:
    """Raise UserError for a name that an agent cannot have, and for an agent or warm start that does not exist."""
    agents = experiment.agents
    for name in agents:
        if not re.fullmatch("[A-Za-z0-9_]+", name):
            raise UserError(
                f"{where}: agents.{name}: an agent's name must have only letters, digits and underscores; rename it"
            )
    for method, entry in experiment.define.items():
        if entry.agent is not None and entry.agent not in agents:
            raise UserError(
                f"{where}: define.{method}.agent is '{entry.agent}', which is not one of agents"
                f"{nearest(entry.agent, agents)}; add it to agents, or leave it out for the experiment's own agent"
            )
    for method in experiment.methods:
        starts = [SFT, *map(start_name, agents)]
        if is_start(method) and method not in starts:
            raise UserError(
                f"{where}: methods: '{method}' names the warm start of an agent that does not exist"
                f"{nearest(method, starts)}; name an agent of `agents`, or a method"
            )


def _checked_override(experiment: Experiment, name: str, section: Section, where: str) -> None:
    try:
        experiment.section_for(name, section)
    except ValidationError as error:
        model = type(getattr(experiment, section))
        raise UserError(_one_line(error, model, where, prefix=f"define.{name}.{section}.")) from None


#: The name of an alternative that pydantic puts into the place of an error: `audit.run.str` is `audit.run`.
_BRANCH = re.compile(r"(str|int|literal\[.*\]|tuple\[.*\])$")


def _one_line(error: ValidationError, model: type[BaseModel], where: str, prefix: str = "") -> str:
    errors = error.errors(include_url=False)
    paths = [[str(part) for part in one["loc"] if not _BRANCH.match(str(part))] for one in errors]
    key, *others = dict.fromkeys((prefix + ".".join(path)).rstrip(".") for path in paths)
    first, path = errors[0], paths[0]
    tail = f" (also wrong: {', '.join(others[:5])}{', ...' if len(others) > 5 else ''})" if others else ""
    if first["type"] == "extra_forbidden" and "." in path[-1]:
        block, _, rest = path[-1].partition(".")
        given = f"{block}={{{rest.replace('.', ': {')}: ...{'}' * rest.count('.')}}}"
        return (
            f"{where}: unknown key '{key}': a key of a block is written inside its block; in a file as {block}: and, "
            f"indented, {rest.split('.')[0]}:, on the command line as --config '{given}'{tail}"
        )
    if first["type"] == "extra_forbidden":
        hint = nearest(path[-1], _keys_at(model, path[:-1]))
        if not hint and path[0] == "define" and len(path) == 3:
            hint = f"; write a parameter of the method under params: define.{path[1]}.params.{path[2]}"
        if not hint and (known := _keys_at(model, path[:-1])):
            hint = f"; choose one of {', '.join(known)}"
        return f"{where}: unknown key '{key}'{hint}{tail}"
    message = first["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    message = message.replace("valid tuple", "list").replace("tuple should", "list should")
    message = re.sub(r"valid dictionary( or instance of \w+)?", "mapping of keys to values", message)
    if not key:
        return f"{where}: {message}{tail}"
    about_the_block = isinstance(first["input"], (dict, BaseModel)) and first["type"] in ("value_error", "missing")
    if about_the_block or isinstance(first["input"], BaseModel):
        return f"{where}: {key}: {message}{tail}"
    return f"{where}: {key}: {message}, got {_shortened(repr(first['input']))}{tail}"


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


def _keys_at(model: type[BaseModel], path: list[str]) -> list[str]:
    """The keys that are valid below `path` (list positions and method names are stepped over)."""
    current: Any = model
    for part in path:
        if not (isinstance(current, type) and issubclass(current, BaseModel)) or part not in current.model_fields:
            continue
        current = _model_in(current.model_fields[part].annotation)
    return list(current.model_fields) if isinstance(current, type) and issubclass(current, BaseModel) else []


def _model_in(annotation: Any) -> Any:
    """The model inside an annotation such as `dict[str, Model]`, `Model | None` or `tuple[Model, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        model = _model_in(part)
        if model is not None:
            return model
    return None
