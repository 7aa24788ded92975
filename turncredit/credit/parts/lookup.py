"""Find a method by its name, its file or a configuration's mapping; a mistake is one line with the nearest valid name.

Built-in methods are the modules of `turncredit.credit`: each is one file that declares its parts in `PARTS` and its
named methods in `METHODS`, beside the functions. There is no other list. The folder is read when it is needed, so a new
file also works in a checkout that has not been installed again.

Another installed package brings a method by an entry point of the group `turncredit.methods`, whose name is the
method's and whose value is a `Method`:

    [project.entry-points."turncredit.methods"]
    novelty = "my_package.novelty:NOVELTY"

It is imported when it is asked for or listed, and not before. An error in it is one line that names its package.

A file of the user's own brings one as `FILE.py:NAME`, where NAME is a function of turns, a `Part` or a `Method`.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from pydantic import TypeAdapter, ValidationError

from turncredit.credit.parts.compose import BONUSES, Kind, Method, Part, columns_of, refuse_not_finite
from turncredit.credit.parts.conventions import CONVENTIONS, PRESETS
from turncredit.data import plugins
from turncredit.data.tables import TRAINED
from turncredit.data.turns import Turns
from turncredit.errors import UserError, nearest

GROUP = "turncredit.methods"
#: what a composition can name, and the kind of part that goes there
SLOTS: dict[str, Kind] = {
    "shapers": "shaper",
    "estimator": "estimator",
    "turn_term": "turn_term",
    "normaliser": "normaliser",
}
#: what a part of each kind is given beside the turns
GIVEN: dict[Kind, tuple[str, ...]] = {
    "shaper": (),
    "estimator": (),
    "turn_term": ("base_N",),
    "normaliser": ("advantage_N",),
}


# ---------------------------------------------------------------- declared: built in and installed


class Declared(NamedTuple):
    """What the files of `turncredit.credit` declare, by name."""

    methods: dict[str, Method]
    parts: dict[Kind, dict[str, Part]]


@cache
def builtin() -> Declared:
    """The built-in methods by name with the references last, and the parts that methods can be composed of, by kind."""
    package = import_module("turncredit.credit")
    files = [module.name for module in pkgutil.iter_modules(package.__path__) if not module.ispkg]
    modules = [import_module(f"{package.__name__}.{name}") for name in (*files, "parts.normalisers")]
    methods: list[Method] = [method for module in modules for method in getattr(module, "METHODS", ())]
    parts: list[Part] = [part for module in modules for part in getattr(module, "PARTS", ())]
    _check_unique([method.name for method in methods])
    _check_unique([part.name for part in parts])
    methods.sort(key=lambda method: (method.role == "reference", method.name))
    parts.sort(key=lambda part: part.name)
    return Declared(
        {method.name: method for method in methods},
        {kind: {part.name: part for part in parts if part.kind == kind} for kind in SLOTS.values()},
    )


def find(name: str) -> Method:
    """The method called `name`, built in or from an installed package.

    Raises UserError for an unknown name, with the nearest one, and for an installed method that is broken.
    """
    builtins = builtin().methods
    if name in builtins:
        return builtins[name]
    if name not in plugins.installed(GROUP):
        hint = nearest(name, [*builtins, *plugins.installed(GROUP)])
        own = " (a method of your own is FILE.py:NAME)" if ":" in name else ""
        raise UserError(f"unknown method '{name}'{hint}; `turncredit methods` lists them{own}")
    return _load(name)


def installed() -> Iterator[tuple[str, Method | UserError]]:
    """The methods of installed packages by name; for a broken one, its error."""
    for name in sorted(plugins.installed(GROUP)):
        try:
            yield name, _load(name)
        except UserError as error:
            yield name, error


def _load(name: str) -> Method:
    method = plugins.load("method", GROUP, {}, name)
    where = f"method '{name}': {plugins.described(plugins.installed(GROUP)[name][0])}"
    if name in builtin().methods:
        raise UserError(f"{where} has the name of a built-in method, which takes precedence; rename it")
    if not isinstance(method, Method):
        raise UserError(f"{where} is of type {type(method).__name__}, not turncredit.credit.Method")
    if method.name != name:
        raise UserError(f"{where} is called '{method.name}'; the entry point and the method must have the same name")
    return method


def _check_unique(names: list[str]) -> None:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"turncredit.credit declares '{twice[0]}' more than once")


# ---------------------------------------------------------------- described: a name, a file, a mapping


def resolve(
    entry: str | Callable[..., Any] | Mapping[str, Any], name: str | None = None, preset: str | None = None
) -> Method:
    """The method that `entry` describes.

    entry   a method's name, built in or of an installed package; `path.py:NAME`, a function, Part or Method in a file
            (`path.py`: the one called like the file); a function of turns; or a mapping with `base` (a method's name)
            or `credit` (a file, or a function), and `params`. Parameters
            are those of the method's parts; where two parts have one of the same name, write `part.name` (conventions
            such as `norm` and `gamma` are set in all parts).
            `params` may also compose: `shapers: [scpo]`, `estimator: gigpo`, `turn_term: has_progressive`,
            `normaliser: whiten` (null takes a turn term or normaliser away). A part is a built-in one, `path.py:NAME`,
            or that of a method of an installed package.
    name    the method's name in the credits table; by default the entry's own
    preset  a reference implementation's conventions, for all parts of the composition; `params` take precedence

    Raises UserError for unknown names, unknown parameters and values a parameter can't have.
    """
    if isinstance(entry, str) or callable(entry):
        entry = named(entry)
    wrong = [key for key in entry if key not in {"base", "credit", "params"}]
    if wrong:
        raise UserError(f"a method has no key '{wrong[0]}'{nearest(wrong[0], ('base', 'credit', 'params'))}")
    base, credit = entry.get("base"), entry.get("credit")
    if (base is None) == (credit is None):
        raise UserError("a method needs either base (a built-in method) or credit (a file), not both")
    if credit is None:
        method = find(str(base))
    else:
        method = _of_estimator(_of_function(credit)) if callable(credit) else _from_file(str(credit))
    method = replace(method, name=name) if name else method
    params = dict(entry.get("params") or {})
    if credit is not None and "estimator" in params and method.parts == (method.estimator,):
        own = credit if isinstance(credit, str) else method.estimator.name
        raise UserError(
            f"{method.name}: {own} is the estimator, and estimator={params['estimator']!r} would leave nothing of it; "
            "remove `estimator`; a turn_term can follow yours"
        )
    return _with_params(method, params, preset)


def resolve_for_table(
    method: str | Callable[..., Any], preset: str | None, params: Mapping[str, Any], tables: Collection[str], how: str
) -> Method:
    """`resolve(method)` with a preset and parameters, for a table at hand.

    tables  the names of the side tables that are there
    how     how the user gives one of them, with `{name}` for its name: `--{name}`

    Raises UserError as `resolve`, for an unknown preset, and for a side table that the method needs and is not there.
    """
    chosen = resolve({**named(method), "params": params}, preset=preset)
    for name in chosen.needs:
        if name not in tables:
            made_by = ", which `turncredit judge label` makes" if name == "labels" else ""
            raise UserError(f"{chosen.name} needs {name}; give a table with {how.format(name=name)}{made_by}")
    return chosen


def named(method: str | Callable[..., Any]) -> dict[str, Any]:
    """A method's name, file or function as a configuration's mapping."""
    return {"credit" if callable(method) or ".py" in method else "base": method}


def preset_params(name: str, method: Method) -> dict[str, Any]:
    """The parameters that a reference implementation's conventions set in `method`."""
    if name not in PRESETS:
        raise UserError(f"unknown preset '{name}'{nearest(name, PRESETS)}; choose one of {', '.join(sorted(PRESETS))}")
    have = {key for part in method.parts for key in part.settable()}
    return {key: value for key, value in PRESETS[name].items() if key in have}


def _with_params(method: Method, params: dict[str, Any], preset: str | None) -> Method:
    slots = {key: params.pop(key) for key in list(params) if key in SLOTS}
    for slot, wanted in slots.items():
        method = replace(method, **{slot: _slot(method, slot, wanted)})
    if preset:  # after the parts are chosen: which conventions there are to set depends on them
        params = {**preset_params(preset, method), **params}
    for key, value in params.items():
        method = _set(method, key, value)
    for part in method.shapers:
        if not any(method.estimator.takes(bonus) for bonus in part.adds):
            estimators = builtin().parts["estimator"]
            takers = [name for name, other in estimators.items() if any(other.takes(bonus) for bonus in part.adds)]
            raise UserError(
                f"{method.name}: {method.estimator.name} does not use what {part.name} adds to a turn; "
                f"choose one of {', '.join(takers)} as its estimator"
            )
    return method


def _slot_of(part: Part) -> str:
    return next(slot for slot, kind in SLOTS.items() if kind == part.kind)


def _slot(method: Method, slot: str, wanted: Any) -> Any:
    names = wanted if isinstance(wanted, list | tuple) else [wanted]
    if slot == "shapers":
        names = [] if wanted is None else names
    elif isinstance(wanted, list | tuple) or (wanted is None and slot == "estimator"):
        raise UserError(f"{method.name}: {slot} must be a name, not {wanted!r}")
    names = [str(name) for name in names if name is not None]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{method.name}: {slot} names '{twice}' twice; remove one of the two")
    parts = tuple(_part_called(name, slot, method.name) for name in names)
    return parts if slot == "shapers" else (parts[0] if parts else None)


def _part_called(name: str, slot: str, where: str) -> Part:
    """The part that goes into `slot`: a built-in one, or that of a user's file (`path.py:NAME`) or of a method of an
    installed package. Raises UserError, which begins with `where`, if there is none."""
    kind = SLOTS[slot]
    choices = builtin().parts[kind]
    if name in choices:
        return choices[name]
    if plugins.own_file(name):
        declared = _declared(name)
    elif name in plugins.installed(GROUP):
        declared = _load(name)
    else:
        hint = nearest(name, [*choices, *plugins.installed(GROUP)])
        raise UserError(f"{where}: unknown {slot} '{name}'{hint}; choose one of {', '.join(sorted(choices))}")
    candidates = declared.parts if isinstance(declared, Method) else (declared,)
    own = [part for part in candidates if part.kind == kind and _is_own(part)]
    if len(own) != 1:
        raise UserError(
            f"{where}: {slot} '{name}' has {len(own) or 'no'} parts of the kind {kind}; name a Part of that kind"
        )
    return own[0]


def _set(method: Method, key: str, value: Any) -> Method:
    part_name, _, bare = key.rpartition(".")
    owners = [p for p in method.parts if bare in p.settable() and part_name in {"", p.name}]
    if not owners:
        have = {name for part in method.parts for name in part.settable()} | {
            f"{part.name}.{name}" for part in method.parts for name in part.settable()
        }
        plain = ", ".join(sorted(name for name in have if "." not in name)) or "none"
        raise UserError(f"{method.name} has no parameter '{key}'{nearest(key, have)}; it has {plain}")
    if len(owners) > 1 and bare not in CONVENTIONS:
        names = " or ".join(f"{part.name}.{bare}" for part in owners)
        raise UserError(f"{method.name}: '{bare}' is a parameter of {len(owners)} parts; write {names}")

    def change(part: Part) -> Part:
        return part.with_params(**{bare: _checked(part, bare, value, method.name)}) if part in owners else part

    return method.map_parts(change)


def _checked(part: Part, key: str, value: Any, where: str) -> Any:
    """`value` as the type of the parameter (text from the command line is converted)."""
    hint = _hint(part.function, key, where)
    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        choices = [str(choice) for choice in getattr(hint, "__args__", ()) if isinstance(choice, str)]
        raise UserError(f"{where}: {key}={value!r}: {reason}{nearest(str(value), choices)}") from None


def _hint(function: Callable[..., Any], key: str, where: str) -> Any:
    """The type of a parameter; of this one alone, since others may be imported for a type checker only.

    Without an annotation it is a number, or None, if its default is a number: YAML 1.1 reads `1e-3` as text.
    """
    default = inspect.signature(function).parameters[key].default
    annotation = getattr(function, "__annotations__", {}).get(key, _type_of_default(default))
    defined = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return get_type_hints(SimpleNamespace(__annotations__={key: annotation}), defined, include_extras=True)[key]
    except NameError as error:
        raise UserError(f"{where}: the type of {key}, {annotation}, cannot be read: {error}; import it") from None


def _type_of_default(default: Any) -> Any:
    if isinstance(default, float | np.floating):
        return float | None
    if isinstance(default, int | np.integer) and not isinstance(default, bool):
        return int | float | None
    return Any


def _from_file(text: str) -> Method:
    """The method in a file of the user's own: a `Method`, or one whose estimator is the file's `Part` or function."""
    declared = _declared(text)
    if isinstance(declared, Method):
        return declared
    if declared.kind != "estimator":
        raise UserError(
            f"{text}: is a {declared.kind}, which needs an estimator; write a Method with both, or give it as "
            f"{_slot_of(declared)} in params of another method"
        )
    return _of_estimator(declared)


def _declared(text: str) -> Method | Part:
    """What `path.py:NAME` names in a file of the user's own; `path.py` names what is called like the file.

    A plain function is a part that reads what it reads. Errors in the file's functions name their line.
    """
    path, name = plugins.own_file(text) or (Path(f"{text}.py"), "")
    name = name or path.stem
    module = plugins.from_file("a method", path)
    found = vars(module).get(name)
    if isinstance(found, Method):
        return found.map_parts(lambda part: _of_file(part, path))
    if isinstance(found, Part):
        return _of_file(found, path)
    if inspect.isfunction(found):
        return _of_function(found, path, name)
    choices = {
        key: one for key, one in vars(module).items() if inspect.isfunction(one) or isinstance(one, Part | Method)
    }
    own = [key for key, one in choices.items() if _is_own(one)]
    hint = nearest(name, choices) or (f"; it has {', '.join(own)}: write {path}:{own[0]}" if own else "")
    raise UserError(f"{path}: has no function, Part or Method '{name}'{hint}")


def _is_own(one: Any) -> bool:
    """Whether a function, Part or Method is not the package's."""
    if isinstance(one, Method):
        return one not in builtin().methods.values()
    return not module_of(one.function if isinstance(one, Part) else one).startswith("turncredit.")


def module_of(function: Callable[..., Any]) -> str:
    """The name of the module in which a part's function was written."""
    while isinstance(function, partial):
        function = function.func
    return str(getattr(inspect.unwrap(function), "__module__", ""))


def _of_file(part: Part, path: Path) -> Part:
    """A part of the user's file `path`: its function is guarded if it is the user's, and the learned model that it
    declares in the file (`model=__file__`) is found from the working folder, as the file is."""
    function, model = part.function, part.model
    if _is_own(part):
        function = _guarded(function, path, part.name, part.kind)
    declared_in = plugins.own_file(model) if model else None
    if declared_in and declared_in[0].resolve() == path.resolve():
        model = f"{path}:{declared_in[1]}" if declared_in[1] else str(path)
    return replace(part, function=function, model=model)


def _of_function(function: Callable[..., Any], path: Path | None = None, name: str | None = None) -> Part:
    """The estimator `function`, called `name` (default: its own name) in the user's file `path`."""
    name = name or str(getattr(function, "__name__", type(function).__name__))
    path = path or Path(getattr(getattr(function, "__code__", None), "co_filename", "<function>"))
    return Part(name, _guarded(function, path, name, "estimator"), "estimator", reads=None)


def _of_estimator(part: Part) -> Method:
    summary = (inspect.getdoc(inspect.unwrap(part.function)) or "a credit function of your own").split("\n")[0]
    return Method(part.name, summary, part)


def _check_signature(function: Callable[..., Any], kind: Kind, where: str) -> None:
    """Raise UserError for a function that cannot be called with turns, the advantage so far if a part of this kind gets
    it, and its parameters' defaults."""
    signature = list(inspect.signature(function).parameters.values())
    named = [one for one in signature if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    given = GIVEN[kind]
    missing = [name for name in given if name not in [one.name for one in named]]
    if not signature or signature[0].kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD):
        missing = ["turns", *missing]
    if missing:
        write = ", ".join(["turns", *given, "*", "parameter=default"])
        raise UserError(f"{where}: takes no {missing[0]}; write def {where.rpartition(':')[2]}({write})")
    for parameter in named[1:] if signature[0] in named else named:
        if parameter.default is parameter.empty and parameter.name not in given:
            raise UserError(f"{where}: the parameter '{parameter.name}' has no default; give it one")


def _guarded(
    function: Callable[..., Any], path: Path, function_name: str, kind: Kind
) -> Callable[..., dict[str, np.ndarray]]:
    """`function` of the user's file `path`, a part of this kind, with its result checked: an array of N finite numbers,
    or columns with such an `advantage` among them. Whatever it raises becomes a UserError with the line that ran."""
    where = f"{path}:{function_name}"
    _check_signature(function, kind, where)

    def checked(turns: Turns, **params: Any) -> dict[str, np.ndarray]:
        try:
            result = function(turns, **params)
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            raise UserError(f"{plugins.line_of(path, error)}: {function_name}: {plugins.shortened(error)}") from error
        columns = columns_of(result, kind, turns, where)
        for name in ("advantage", TRAINED, *BONUSES):  # NaN in another component: there is none
            if name in columns:
                refuse_not_finite(turns, columns[name], f"{where}: column '{name}' is")
        return columns

    signature = inspect.signature(function)
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = [p for p in list(signature.parameters.values())[1:] if p.kind not in several]
    first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("turns", *GIVEN[kind])]
    extra = [p.replace(kind=p.KEYWORD_ONLY) for p in parameters if p.name not in GIVEN[kind]]
    checked.__signature__ = inspect.Signature([*first, *extra])  # type: ignore[attr-defined]
    checked.__annotations__ = dict(getattr(function, "__annotations__", {}))
    checked.__wrapped__ = function  # type: ignore[attr-defined]  # the names in its annotations are its module's
    return checked
