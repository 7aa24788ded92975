"""A method is data: step-reward shapers -> estimator -> turn term -> normaliser, each a plain function.

shaper       f(turns, **params) -> columns; `step_bonus` is added to the turn's step return, `score_bonus` to the
             turn's own score; other columns are diagnostics
estimator    f(turns, [score_bonus_N, step_bonus_N,] **params) -> columns with `advantage`
turn term    f(turns, base_N, **params) -> columns with `advantage`, made from the estimator's advantage `base_N`
normaliser   f(turns, advantage_N, **params) -> advantage_N

`compute` runs a method on a table of turns and returns a `credits` table in the input's row order.
"""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from functools import cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from turncredit.config.judge import Ask
from turncredit.credit.parts.conventions import CONVENTIONS
from turncredit.data.tables import KEYS, TRAINED
from turncredit.data.turns import Turns
from turncredit.errors import UserError, WrongResult, nearest

Kind = Literal["shaper", "estimator", "turn_term", "normaliser"]
Role = Literal["method", "variant", "reference"]
Bonus = Literal["score_bonus", "step_bonus"]
BONUSES: tuple[Bonus, ...] = ("score_bonus", "step_bonus")
#: The columns that a critic learns from.
CRITIC = {"value", "value_target"}
#: Who reads the recorded responses once more for the side table `logprobs` (docs/methods/second-pass.md).
Scorer = Literal["sft", "hindsight", "implicit", "gold", "gold_sft", "gold_deleted"]


@dataclass(frozen=True)
class Part:
    """One step of a method: a function, what it reads, and the parameters that are not its defaults.

    reads      columns of the turn table, beside the keys and the reward; `tables.MEASURED` come from the side table
               `measures` where the turns do not have them. A function of the parameters (`settable()`) where these say;
               None where it is not declared: a function of the user's own, which may read any column or side table
    requires   capabilities that the environment must have for these columns, such as `progress` or `distance`
    asks       the question that a judge answers in the side table `labels`, for a part that reads labels
    model      the learned credit model that writes the side table `values`, for a part that reads values: a module of
               `turncredit.credit.models`, the dotted name of a module anywhere, or a file (`model=__file__`: this one)
    model_settings   settings of that model which are not its kind's defaults; a configuration's `model` goes first
    scorer     the scorer of the second pass that writes the side table `logprobs`, for a part that reads it
    continuations   how many continuations from each state the side table `continuations` has unless the configuration
               says otherwise, for a part that reads it
    forks      how many forks of each task's rollouts there are unless the configuration says otherwise, for a part
               that credits a tree: the turns are then those of rollouts and forks (`turncredit.data.turns.with_forks`)
    adds       what a shaper changes
    neutral    the parameters at which a turn term leaves the estimator's advantage as it is, bit for bit; none where
               there are no such parameters. The invariant `alpha_one` checks them
    reader     the former name of `scorer`
    """

    name: str
    function: Callable[..., Any]
    kind: Kind
    reads: tuple[str, ...] | Callable[[Mapping[str, Any]], tuple[str, ...]] | None = ()
    requires: tuple[str, ...] = ()
    asks: Ask | None = None
    model: str | None = None
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    scorer: Scorer | None = None
    continuations: int | None = None
    forks: int | None = None
    adds: tuple[Bonus, ...] = ()
    neutral: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    reader: InitVar[Scorer | None] = None

    def __post_init__(self, reader: Scorer | None) -> None:
        if reader is not None:
            warnings.warn(f"part {self.name}: `reader` is now `scorer`", FutureWarning, stacklevel=3)
            object.__setattr__(self, "scorer", reader)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the part declares to read with its parameters."""
        return self.reads(self.settable()) if callable(self.reads) else self.reads or ()

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the side tables that the part reads."""
        read = {
            "labels": self.asks,
            "values": self.model,
            "logprobs": self.scorer,
            "continuations": self.continuations,
        }
        return tuple(name for name, wanted in read.items() if wanted)

    def settable(self) -> dict[str, Any]:
        """Each parameter that can be set, with the value it has now."""
        return {
            name: self.params.get(name, default)
            for name, default in _keywords(self.function).items()
            if name.removesuffix("_N") not in BONUSES
        }

    def takes(self, bonus: Bonus) -> bool:
        """Whether an estimator uses this change of a shaper."""
        return f"{bonus}_N" in _keywords(self.function)

    def with_params(self, **params: Any) -> Part:
        """This part with some parameters set."""
        return replace(self, params={**self.params, **params}) if params else self


class NoValues(UserError):
    """A method that cannot do without values of turns has none."""

    def __init__(self, method: str):
        super().__init__(f"{method} needs values, but every 'value' of the side table 'values' is null")


@dataclass(frozen=True)
class Method:
    """A named composition of parts.

    summary   one line of at most 90 characters
    role      a `method` of its own; a `variant` or ablation of another method; or a `reference`, which tests the set-up
              and could not be used in a real environment
    family    methods with the same family count as one comparison: variants, and methods that read the same signal
              (the same judge's labels). Default: its own name
    """

    name: str
    summary: str
    estimator: Part
    shapers: tuple[Part, ...] = ()
    turn_term: Part | None = None
    normaliser: Part | None = None
    role: Role = "method"
    family: str | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts in the order in which they run."""
        return (*self.shapers, self.estimator, *(p for p in (self.turn_term, self.normaliser) if p is not None))

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the side tables that the method reads."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.needs))

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns of the turn table that the method declares to read, beside the keys and the reward."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.columns))

    @property
    def declares_reads(self) -> bool:
        """Whether `reads` and `needs` are all that the method reads; not so with a function of the user's own."""
        return all(part.reads is not None for part in self.parts)

    @property
    def asks(self) -> Ask | None:
        """What the method asks of a judge; None where it reads no labels. UserError if its parts ask two questions."""
        return self._one_of("asks", "read the labels of two questions")

    @property
    def requires(self) -> tuple[str, ...]:
        """Capabilities that the environment must have, such as `progress` or `distance`."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.requires))

    @property
    def model(self) -> str | None:
        """The learned credit model that writes the side table `values`; None where the method reads no values.

        Raises UserError for a composition whose parts read the values of two models.
        """
        return self._one_of("model", "read the values of two models")

    @property
    def model_settings(self) -> dict[str, Any]:
        """The settings of that model which are not its kind's defaults."""
        return {name: value for part in self.parts for name, value in part.model_settings.items()}

    @property
    def scorer(self) -> Scorer | None:
        """The scorer of the second pass that writes the side table `logprobs`; None if the method does not read it.

        Raises UserError for a composition whose parts need two scorers.
        """
        return self._one_of("scorer", "read the log-probabilities of two scorers")

    @property
    def continuations(self) -> int | None:
        """How many continuations from each state the method reads by default; None where it reads none."""
        return self._one_of("continuations", "read two numbers of continuations")

    @property
    def forks(self) -> int | None:
        """How many forks of each task the method credits by default; None where it credits rollouts alone."""
        return self._one_of("forks", "credit two numbers of forks")

    def _one_of(self, name: str, conflict: str) -> Any:
        """The parts' common value of an attribute that says where a side table comes from: there is one such table."""
        values = sorted({getattr(part, name) for part in self.parts if getattr(part, name)})
        if len(values) > 1:
            raise UserError(f"{self.name}: its parts {conflict}, {values[0]} and {values[1]}; a method has one")
        return values[0] if values else None

    def params(self) -> dict[str, Any]:
        """Every parameter with its value, by the name under which it can be set, in an order in which all can be.

        That is `part.name` if parts share a name that is not a convention. A convention has the first part's value, and
        those that differ follow as `part.name`.
        """
        owners = Counter(name for part in self.parts for name in part.settable())
        values: dict[str, Any] = {}
        for part in self.parts:
            for name, value in part.settable().items():
                shared = name not in CONVENTIONS and owners[name] > 1
                differs = name in values and values[name] != value
                values[f"{part.name}.{name}" if shared or differs else name] = value
        return values

    def variant(self, name: str, summary: str, **changes: Any) -> Method:
        """A variant of this method: with other parts (`estimator=...`), or other values of its parts' parameters.

        Raises UserError for a parameter that none of its parts has.
        """
        parts = {key: changes.pop(key) for key in ("shapers", "estimator", "turn_term", "normaliser") if key in changes}
        made = replace(self, name=name, summary=summary, role="variant", family=self.family or self.name, **parts)
        known = {key for part in made.parts for key in part.settable()}
        for key in changes:
            if key not in known:
                raise UserError(f"{name}: a variant of {self.name} has no parameter '{key}'{nearest(key, known)}")
        return made.map_parts(
            lambda part: part.with_params(**{key: changes[key] for key in changes if key in part.settable()})
        )

    def map_parts(self, change: Callable[[Part], Part]) -> Method:
        """The method with `change` applied to each of its parts."""
        return replace(
            self,
            estimator=change(self.estimator),
            shapers=tuple(change(part) for part in self.shapers),
            turn_term=change(self.turn_term) if self.turn_term else None,
            normaliser=change(self.normaliser) if self.normaliser else None,
        )


def credit_columns(turns: Turns, method: Method, seed: int = 0) -> dict[str, np.ndarray]:
    """The method's components and `advantage`, each (N) in the order of `turns`.

    A component keeps its name if no earlier part has one of that name; else it is `<part>_<name>`. So GiGPO's
    `advantage_rollout` stays its own under a turn term, and what the term read is `has_progressive_advantage_rollout`.
    `seed` goes to the parts that draw random numbers and have no seed of their own.
    """
    columns: dict[str, np.ndarray] = {}
    bonus_N: dict[str, np.ndarray] = {}
    for part in method.shapers:
        part_columns = _run(method, part, "shaper", turns, seed)
        for name in BONUSES:
            if name in part_columns:
                bonus_N[name] = bonus_N[name] + part_columns.pop(name) if name in bonus_N else part_columns.pop(name)
        _add(columns, part, part_columns)
    columns.update(bonus_N)
    taken_N = {f"{name}_N": bonus_N[name] for name in BONUSES if name in bonus_N and method.estimator.takes(name)}
    base = _run(method, method.estimator, "estimator", turns, seed, **taken_N)
    advantage_N = base.pop("advantage")
    _add(columns, method.estimator, base)
    if method.turn_term is not None:
        part_columns = _run(method, method.turn_term, "turn_term", turns, seed, base_N=advantage_N)
        advantage_N = part_columns.pop("advantage")
        _add(columns, method.turn_term, part_columns)
    if method.normaliser is not None:
        _add(columns, method.normaliser, {"advantage_raw": advantage_N})
        part_columns = _run(method, method.normaliser, "normaliser", turns, seed, advantage_N=advantage_N)
        advantage_N = part_columns.pop("advantage")
        _add(columns, method.normaliser, part_columns)
    refuse_not_finite(turns, advantage_N, f"{turns.where}: {method.name} gives the advantage")
    return {**columns, "advantage": advantage_N}


def refuse_not_finite(turns: Turns, x_N: np.ndarray, said: str) -> None:
    """Raise UserError, which begins with `said` and the first such number, if a turn has no finite one."""
    bad = np.flatnonzero(~np.isfinite(x_N))
    if len(bad):
        raise UserError(
            f"{said} {x_N[bad[0]]} at {turns.row_name(int(bad[0]))}, and no finite number at {len(bad):,} of "
            f"{turns.n:,} turns; every turn needs one, 0 where the method says nothing"
        )


def _add(columns: dict[str, np.ndarray], part: Part, part_columns: Mapping[str, np.ndarray]) -> None:
    """Add a part's components to those of the parts before it, whose names are taken.

    A turn that one of the parts leaves out (`trained` 0) is left out. Raises UserError for a part with a critic after
    one with values: the critic learns from the columns `value` and `value_target`, and they would not be its own.
    """
    learns = part.model is not None and part_columns.keys() >= CRITIC
    taken = sorted(CRITIC & columns.keys()) if learns else []
    if taken:
        raise UserError(
            f"{part.name}: a part before it has the column '{taken[0]}', and the critic would learn from that one; "
            "choose an estimator without values"
        )
    if TRAINED in columns and TRAINED in part_columns:
        part_columns = dict(part_columns)
        columns[TRAINED] = np.where(part_columns.pop(TRAINED) == 0, 0.0, columns[TRAINED])
    columns |= {f"{part.name}_{name}" if name in columns else name: x_N for name, x_N in part_columns.items()}


def columns_of(result: Any, kind: Kind, turns: Turns, where: str) -> dict[str, np.ndarray]:
    """What a part of this kind returned, as columns of float64 (N) by name; an array alone is the advantage.

    Raises WrongResult for another shape, values that are not numbers, a name that is not text or that credits have
    already, and if there is no `advantage`, or for a shaper no bonus. `where` names the part in errors.
    """
    columns = dict(result) if isinstance(result, Mapping) else {"advantage": result}
    unnamed = [name for name in columns if not isinstance(name, str)]
    if unnamed:
        raise WrongResult(f"{where}: a column's name is text, not {unnamed[0]!r}")
    wanted = BONUSES if kind == "shaper" else ("advantage",)
    if not set(wanted) & set(columns):
        what = f"columns {sorted(columns)}, but none is" if isinstance(result, Mapping) else "no columns; it needs one"
        names = " or ".join(f"'{name}'" for name in wanted)
        raise WrongResult(f"{where}: returned {what} called {names}")
    taken = sorted({*KEYS, "method"} & set(columns))
    if taken:
        raise WrongResult(f"{where}: a column can't be called '{taken[0]}'; credits have a column of that name already")
    for name, column in columns.items():
        if isinstance(column, np.ma.MaskedArray):
            raise WrongResult(f"{where}: column '{name}' is a masked array; fill it: {name}.filled(0.0)")
        try:
            columns[name] = np.asarray(column, dtype=np.float64)
        except (TypeError, ValueError):
            raise WrongResult(f"{where}: column '{name}' contains a value that is not a number") from None
        if columns[name].shape != (turns.n,):
            raise WrongResult(
                f"{where}: {_instead(result, name, columns[name].shape)}; one number for each of the {turns.n} "
                "turns is needed, in the order of turns.group_N, rollout_N, turn_N"
            )
    return columns


def _instead(result: Any, name: str, shape: tuple[int, ...]) -> str:
    """What a part returned where column `name` should have N numbers; as an array it has this shape."""
    if shape:
        return f"column '{name}' has shape {shape}"
    if result is None:
        return "returned None (is its `return` missing?)"
    return f"column '{name}' is {result[name]!r}" if isinstance(result, Mapping) else f"returned {result!r}"


def compute(turns: Any, method: Method, side: Mapping[str, Any] | None = None, *, seed: int = 0) -> pa.Table:
    """The `credits` table of `turns` under `method`: keys, method, components, advantage, in the input's row order.

    turns   a table of turns (Arrow, pandas, mapping of columns), or a `Turns` made with its side tables
    side    side tables by name (`labels`, `values`, `logprobs`, `continuations`), keyed like the turns
    seed    for methods that draw random numbers; derive it from the run's seed and the round

    Raises UserError for a table that is not one of turns, a missing column or a missing side table, and for side tables
    beside a `Turns`, which has its own.
    """
    if side and isinstance(turns, Turns):
        raise UserError(f"{turns.where}: side tables go into the Turns, not beside it: Turns(table, side)")
    missing = [name for name in method.needs if name not in (turns.side if isinstance(turns, Turns) else side or {})]
    if missing:
        raise UserError(f"{method.name} needs the side table '{missing[0]}', which is missing")
    view = turns if isinstance(turns, Turns) else Turns(turns, side)
    columns = {
        name: pa.array(view.restore(np.asarray(x_N, dtype=np.float64)), from_pandas=True)  # NaN: there is none
        for name, x_N in credit_columns(view, method, seed).items()
    }
    keys = {name: view.table.column(name) for name in KEYS}
    return pa.table({**keys, "method": pa.repeat(method.name, view.n), **columns})


@cache
def _keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """A function's keyword-only parameters with their defaults."""
    return {p.name: p.default for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY}


def _run(
    method: Method, part: Part, kind: Kind, turns: Turns, seed: int, **arrays: np.ndarray
) -> dict[str, np.ndarray]:
    params = dict(part.params)
    if "seed" in part.settable() and "seed" not in params:
        params["seed"] = seed
    where = part.name if part.name == method.name else f"{method.name}: {part.name}"
    try:
        result = part.function(turns, **arrays, **params)
    except NoValues:  # the function has named itself, and several methods may run it
        raise NoValues(method.name) from None
    return columns_of(result, kind, turns, where)
