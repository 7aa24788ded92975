"""The reference engine: ALFWorld's own packages, behind the same protocol.

Needs `alfworld==0.4.2` and `textworld==1.7.0` (with `tatsu==5.8.3` and `fast-downward-textworld==20.6.4`); nothing
else in the library imports them. The reference determines what is printed, what is admissible and whether the goal
holds. It offers no progress, no optimal distance and no copies; these come from its facts and from replaying its
operators.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from turncredit.envs.household.game import NOTHING, Game, as_typed
from turncredit.envs.household.planner import distance, plan
from turncredit.envs.household.profile import PACKAGE_PROFILE, PROFILES, TASK_PREFIX, identify
from turncredit.envs.household.settings import Settings
from turncredit.envs.household.world import World
from turncredit.envs.protocol import Step
from turncredit.errors import UserError

_MISSING = (
    "the textworld engine needs the packages alfworld==0.4.2, textworld==1.7.0, tatsu==5.8.3 and "
    "fast-downward-textworld==20.6.4: install the extra 'reference', or set engine: native"
)


class Shown(NamedTuple):
    """The reference's output after a reset or a command."""

    text: str
    admissible: tuple[str, ...]
    won: bool


def package_texts() -> tuple[str, str]:
    """The PDDL domain and the text grammar inside the installed alfworld package. Raises UserError."""
    try:
        from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH
    except ImportError as error:
        raise UserError(_MISSING) from error
    domain, grammar = (
        Path(ALFRED_PDDL_PATH).read_text(encoding="utf-8"),
        Path(ALFRED_TWL2_PATH).read_text(encoding="utf-8"),
    )
    edition = identify(domain, grammar)[0].name
    if edition != PACKAGE_PROFILE:
        raise UserError(f"the installed alfworld is of the edition {edition}, not {PACKAGE_PROFILE}; install 0.4.2")
    return domain, grammar


def full_game(generated: Mapping[str, str]) -> dict[str, Any]:
    """A generated game as the content of a `game.tw-pddl`, with an optimal walkthrough."""
    domain, grammar = package_texts()
    task = generated["task"].removeprefix(TASK_PREFIX)
    game = Game(PROFILES[generated["profile"]], generated["task"], generated["pddl_problem"])
    return {
        "pddl_domain": domain,
        "grammar": grammar.replace("UNKNOWN GOAL.", task),
        "pddl_problem": generated["pddl_problem"],
        "solvable": True,
        "walkthrough": plan(game, game.start),
    }


@contextmanager
def _argv_kept() -> Iterator[None]:
    """The reference's translator overwrites `sys.argv`."""
    kept = sys.argv
    try:
        yield
    finally:
        sys.argv = kept


class Reference:
    """The reference engine on one game at a time, text for text as installed unless `speed_up` was called."""

    def __init__(self) -> None:
        try:
            import textworld
            from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
            from textworld.envs.pddl import PddlEnv
        except ImportError as error:
            raise UserError(_MISSING) from error
        self._base = PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True))
        self._env = AlfredDemangler(self._base, shuffle=False)
        self._operators: list[tuple[int, int]] = []

    def load(self, data: Mapping[str, Any]) -> None:
        """Load the content of a `game.tw-pddl`."""
        with _argv_kept():
            self._env.load(data)

    def reset(self) -> Shown:
        """Start the game again; the text is banner, room and task."""
        self._operators = []
        with _argv_kept():
            return self._shown(self._env.reset())

    def step(self, command: str) -> Shown:
        """Carry out a command; like the package, it goes on after the goal was reached."""
        operators = self._base._pddl_state._operators
        state, _, _ = self._env.step(command)
        action = self._base._last_action
        if action is not None:
            self._operators.append((action.id, operators[action.id].nb_effect_atoms))
        return self._shown(state)

    def snapshot(self) -> tuple[tuple[int, int], ...]:
        """The operators applied since the reset, each with its number of effects."""
        return tuple(self._operators)

    def restore(self, operators: tuple[tuple[int, int], ...]) -> Shown:
        """Start again and apply the operators without printing."""
        shown = self.reset()
        if not operators:
            return shown
        from fast_downward import Operator

        state = self._base._pddl_state
        for identifier, effects in operators:
            state._operators = {identifier: Operator(identifier, b"", effects)}
            state.apply(SimpleNamespace(id=identifier))
        self._base._gather_infos()
        self._operators = list(operators)
        return self._shown(self._base.state)

    def facts(self) -> dict[str, set[tuple[str, ...]]]:
        """The facts that hold now: predicate to argument ids, lower case."""
        facts: dict[str, set[tuple[str, ...]]] = {}
        for fact in self._base._pddl_state.facts:
            facts.setdefault(fact.name, set()).add(tuple(argument.name for argument in fact.arguments))
        return facts

    @staticmethod
    def _shown(state: Any) -> Shown:
        return Shown(state.feedback, tuple(state["admissible_commands"]), bool(state["won"]))


class TextworldEnv:
    """One rollout on the reference engine (see `turncredit.envs.protocol.Env`)."""

    def __init__(self, data: Mapping[str, Any], horizon: int, success_reward: float = 1.0) -> None:
        """`data` is the content of a `game.tw-pddl`. Raises UserError for an unknown edition."""
        profile, task = identify(data["pddl_domain"], data["grammar"])
        self._game = Game(profile, task, data["pddl_problem"])
        self._engine = Reference()
        self._engine.load(data)
        self._turn = -1
        self._shown = Shown("", (), False)
        self.goal = task.removeprefix(TASK_PREFIX)
        self.family = self._game.goal.family
        self.horizon = horizon
        self.success_reward = success_reward
        self.intro = ""
        self.put_command = profile.put_command

    def reset(self) -> str:
        """Start again; the first observation, without banner and task."""
        self._shown = self._engine.reset()
        self._turn = 0
        self.intro = self._shown.text
        return self.intro.split("\n\n")[1]

    def step(self, action: str) -> Step:
        """Carry out one command. Raises RuntimeError when the rollout has ended or was never reset."""
        if self._running().won or self._turn >= self.horizon:
            raise RuntimeError("the rollout has ended; reset the environment")
        self._turn += 1
        self._shown = text, _, won = self._engine.step(as_typed(action))
        reward = self.success_reward if won else 0.0
        return Step(text, reward, won or self._turn >= self.horizon, won, text != NOTHING)

    def close(self) -> None:
        """The engine's own state goes with the object."""

    def admissible(self) -> tuple[str, ...]:
        """The commands that are allowed now, sorted."""
        return self._running().admissible

    def progress(self) -> float:
        """The fraction of the goal's conditions that hold now (`Goal.progress`)."""
        return self._game.goal.progress(self._world())

    def distance(self) -> int:
        """The optimal number of further commands, -1 when the goal can no longer be reached."""
        return distance(self._game, self._world())

    def oracle(self) -> list[str]:
        """An optimal plan from here; empty when won or out of reach."""
        return plan(self._game, self._world()) or []

    def snapshot(self) -> tuple[tuple[tuple[int, int], ...], int]:
        """The operators applied so far, and the turn."""
        self._running()
        return self._engine.snapshot(), self._turn

    def restore(self, state: tuple[tuple[tuple[int, int], ...], int]) -> None:
        """Continue from a snapshot of this task; replays it, which takes milliseconds."""
        operators, self._turn = state
        self._shown = self._engine.restore(operators)

    def _running(self) -> Shown:
        if self._turn < 0:
            raise RuntimeError("reset the environment first")
        return self._shown

    def _world(self) -> World:
        """The reference's facts as the native planner reads them."""
        self._running()
        facts, things = self._engine.facts(), self._game.things

        def mask(predicate: str, index: dict[str, int]) -> int:
            return sum(1 << index[x] for (x,) in facts.get(predicate, ()) if x in index)

        contents = [0] * len(things.receptacles)
        for o, r in facts.get("inreceptacle", ()):
            contents[things.receptacles[r]] |= 1 << things.objects[o]
        ((_, place),) = facts["atlocation"]
        held = [things.objects[o] for _, o in facts.get("holds", ())]
        return World(
            location=things.locations[place],
            held=held[0] if held else -1,
            opened=mask("opened", things.receptacles),
            contents=tuple(contents),
            beside=self._game.start.beside,  # neither plans nor goals read these two
            taken=self._game.start.taken,
            clean=mask("isclean", things.objects),
            hot=mask("ishot", things.objects),
            cool=mask("iscool", things.objects),
            toggled=mask("istoggled", things.objects),
            sliced=mask("issliced", things.objects),
        )


def open_game(data: Mapping[str, Any], settings: Settings) -> TextworldEnv:
    """An environment on the reference engine for the content of a `game.tw-pddl`. Raises UserError."""
    speed_up()
    return TextworldEnv(data, settings.horizon, settings.success_reward)


# -- the same engine, about twenty times faster --

_PLAIN_TEMPLATE = re.compile(r"[a-z/ ]*(\{\w+\}[a-z/ ]*)*")
_speeded_up = False


def speed_up() -> None:
    """Cache, process-wide, what the reference recomputes at every step and reset. Prints the same text.

    The package parses the template of every admissible command at every step, and translates the problem
    twice at every load and reset. Both results depend on their texts alone.
    """
    global _speeded_up  # noqa: PLW0603 - the patched packages are as global as this flag
    if _speeded_up:
        return
    import fast_downward
    from textworld.envs.pddl import textgen
    from textworld.logic import Rule

    textgen._parse_and_convert = _copying_cache(textgen._parse_and_convert)
    Rule.parse_conjunctive_query = functools.lru_cache(maxsize=None)(Rule.parse_conjunctive_query)
    fast_downward.pddl2sas = functools.lru_cache(maxsize=4)(fast_downward.pddl2sas)
    grammar = textgen.ContextSensitiveGrammar
    grammar.derive = _short_cut(grammar.derive)
    _speeded_up = True


def _copying_cache(parse: Callable[..., Any]) -> Callable[..., Any]:
    """Cache the grammar parser; callers modify its results, so each gets a copy."""
    from copy import deepcopy

    results: dict[tuple, Any] = {}

    def cached(text: str, **options: Any) -> Any:
        key = (text, *options.items())  # whether `trace` is given changes how leading white space is read
        if key not in results:
            results[key] = parse(text, **options)
        return deepcopy(results[key])

    return cached


def _short_cut(derive: Callable[..., str]) -> Callable[..., str]:
    """Fill plain command templates (`take {o} from {r}`) without the grammar; leave all others to it."""

    def derived(self: Any, start: str, context: Mapping[str, Any]) -> str:
        if start.startswith("go to ["):
            return "go to " + context["variables"]["r"].name
        if not _PLAIN_TEMPLATE.fullmatch(start):
            return derive(self, start, context)
        return re.sub(r"\{(\w+)\}", lambda slot: context["variables"][slot[1]].name, start)

    return derived
