"""Compare the native engine with the reference, command for command.

Each game's walkthrough is replayed on both, past the goal; then, from a reset, random admissible and garbled
commands. After every command it compares the text, whether the goal holds, and the list of admissible commands.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turncredit.envs.household.expert import kind_of
from turncredit.envs.household.game import NOTHING, Game
from turncredit.envs.household.planner import plan
from turncredit.envs.household.profile import identify
from turncredit.envs.household.real import read_game
from turncredit.envs.household.settings import MOST_RECEPTACLES, Settings
from turncredit.envs.household.tasks import make_tasks
from turncredit.envs.household.textworld import Reference, Shown, full_game
from turncredit.envs.household.world import World
from turncredit.errors import UserError

BEYOND = 15
"""Commands after the goal was reached."""
_SHOWN = 20
"""Differences that are kept in full."""


@dataclass(slots=True)
class Report:
    """Counts of what was compared, and where the engines differ."""

    games: int = 0
    steps: int = 0
    differences: int = 0
    walkthroughs_won: int = 0
    commands: Counter[str] = field(default_factory=Counter)
    """How often each kind of command took effect."""
    examples: list[dict[str, Any]] = field(default_factory=list)


def games_below(folder: Path) -> list[Path]:
    """All `game.tw-pddl` files below a folder, sorted. Raises UserError where there are none."""
    paths = sorted(folder.rglob("game.tw-pddl"))
    if not paths:
        raise UserError(f"no game.tw-pddl below {folder}; fetch games with `alfworld-download`")
    return paths


def real_games(folder: Path, sample: int | None, seed: int) -> list[Path]:
    """The games below a folder, or a random sample of them."""
    paths = games_below(folder)
    return paths if sample is None else sorted(random.Random(seed).sample(paths, min(sample, len(paths))))


def generated_games(count: int, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Generated games, small to large, as (name, content of a `game.tw-pddl`)."""
    sizes = (((4, 7), (2, 6)), ((6, 12), (4, 12)), ((16, MOST_RECEPTACLES), (15, 40)))
    for n, (receptacles, distractors) in enumerate(sizes):
        share = count // len(sizes) + (n < count % len(sizes))
        settings = Settings(receptacles=receptacles, distractors=distractors)
        for row in make_tasks("eval", share, seed, settings):
            yield row["task_id"], full_game(json.loads(row["game"]))


def compare(games: Iterable[tuple[str, Mapping[str, Any]]], steps: int, seed: int) -> Report:
    """Compare both engines on games given as (name, content of a `game.tw-pddl`).

    `steps` is the number of random commands per game, in addition to its walkthrough.
    """
    report = Report()
    reference = Reference()
    for name, data in games:
        _compare_game(name, data, steps, random.Random(f"{seed}:{name}"), reference, report)
        report.games += 1
    return report


class _Pair:
    """The two engines in the same state of the same game."""

    def __init__(self, name: str, game: Game, reference: Reference, report: Report) -> None:
        self.name, self.game, self.reference, self.report = name, game, reference, report
        self.history: list[str] = []
        self.world: World = game.start

    def reset(self) -> None:
        self.history, self.world = ["<reset>"], self.game.start
        self._check(self.reference.reset(), self.game.intro)

    def step(self, command: str) -> bool:
        """Carry out a command on both; whether the goal holds natively."""
        self.history.append(command)
        self.world, text = self.game.apply(self.world, command)
        won = self._check(self.reference.step(command), text)
        self.report.steps += 1
        self.report.commands["(refused)" if text == NOTHING else command.split(maxsplit=1)[0]] += 1
        return won

    def admissible(self) -> tuple[str, ...]:
        return self.game.local(self.world).admissible

    def _check(self, shown: Shown, text: str) -> bool:
        ours = Shown(text, self.admissible(), self.game.goal.won(self.world))
        if shown != ours:
            self.report.differences += 1
            if len(self.report.examples) < _SHOWN:
                wrong = [part for part in Shown._fields if getattr(shown, part) != getattr(ours, part)]
                self.report.examples.append(
                    {
                        "game": self.name,
                        "commands": list(self.history),
                        "reference": {part: getattr(shown, part) for part in wrong},
                        "native": {part: getattr(ours, part) for part in wrong},
                    }
                )
        return ours.won


def _compare_game(
    name: str, data: Mapping[str, Any], steps: int, rng: random.Random, reference: Reference, report: Report
) -> None:
    game = Game(*identify(data["pddl_domain"], data["grammar"]), data["pddl_problem"])
    reference.load(data)
    pair = _Pair(name, game, reference, report)
    pair.reset()
    won = False
    for command in data.get("walkthrough") or plan(game, game.start) or ():
        won = pair.step(command)
    report.walkthroughs_won += won
    for _ in range(BEYOND):
        pair.step(random_choice(pair, rng))
    pair.reset()
    for _ in range(steps):
        pair.step(random_choice(pair, rng))


def random_choice(pair: _Pair, rng: random.Random) -> str:
    """An admissible command, preferably one that changes or reveals something, or (one time in six) a garbled one."""
    admissible = pair.admissible()
    kind = rng.random()
    if kind < 0.17:
        return garble(rng.choice(admissible), pair.game, rng)
    if kind < 0.22:
        return rng.choice(("look", "inventory", "help"))
    handling = [c for c in admissible if c.startswith(("take", "move", "put", "use", "heat", "cool", "clean", "slice"))]
    if handling and kind < 0.55:
        return rng.choice(handling)
    nearby = [c for c in admissible if not c.startswith("go to")]
    return rng.choice(nearby if kind < 0.75 else admissible)


def garble(command: str, game: Game, rng: random.Random) -> str:
    """A command that is misspelt, mistimed or foreign; sometimes still an admissible one."""
    objects, receptacles = game.object_names, game.receptacle_names
    thing, place = rng.choice(objects or ["apple 1"]), rng.choice(receptacles)
    return rng.choice(
        (
            command.upper(),
            f"  {command} \n",
            command[:-1],
            command + ".",
            command.replace(" ", "  ", 1),
            f"{command} {command}",
            rng.choice(("", " ", "help me", "l", "go to", "take", "examine", "north", "close", "quit", "wait", "0")),
            f"examine {rng.choice((thing, place))}",
            f"{rng.choice(('open', 'close', 'go to', 'use'))} {rng.choice((thing, place))}",
            f"{rng.choice(('clean', 'heat', 'cool'))} {thing} with {place}",
            f"take {thing} from {place}",
            f"move {thing} to {place}",
            f"put {thing} in/on {place}",
            f"slice {thing} with {rng.choice(objects or ['knife 1'])}",
            f"go to {kind_of(place)} {rng.randint(0, 99)}",
        )
    )


def load_games(paths: Iterable[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Real games as (name, content); the name is `<task>/<trial>`."""
    for path in paths:
        yield "/".join(path.parts[-3:-1]), read_game(path)
