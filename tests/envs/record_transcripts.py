"""Record again what the unpatched reference engine prints in the games of `transcripts.json.gz`.

Needs alfworld 0.4.2 and the texts of the other editions:

    python tests/envs/record_transcripts.py --old DIR --released GAME

DIR holds `alfred.pddl` and `alfred.twl2` of alfworld 0.3.5 (`alfworld/data` in its wheel), GAME is any released
`game.tw-pddl`; only its domain and grammar are used. The commands come from a seed and steer towards texts that
have not been seen yet.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

from scenarios import FIRST, NEW, OLD, RELEASED, SCENARIOS, WHERE, Scenario

from turncredit.envs.household.conformance import garble
from turncredit.envs.household.game import Game
from turncredit.envs.household.profile import TASK_PREFIX, split_grammar
from turncredit.envs.household.textworld import Reference, package_texts
from turncredit.envs.household.world import World

COMMANDS = 80
SINKS = ";(receptacleType ?r SinkType)"


def editions(old: Path, released: Path) -> dict[str, tuple[str, str]]:
    game = json.loads(released.read_text(encoding="utf-8"))
    return {
        NEW: package_texts(),
        OLD: ((old / "alfred.pddl").read_text(), (old / "alfred.twl2").read_text()),
        # The first released games differ from alfworld 0.3.5 in one line, which is a comment there.
        FIRST: ((old / "alfred.pddl").read_text().replace(SINKS, SINKS[1:]), (old / "alfred.twl2").read_text()),
        RELEASED: (game["pddl_domain"], game["grammar"]),
    }


def with_task(grammar: str, task: str) -> str:
    """The grammar with another task sentence."""
    _, found = split_grammar(grammar)
    return grammar.replace(found.removeprefix(TASK_PREFIX), task.removeprefix(TASK_PREFIX))


def shape(text: str) -> str:
    """A text without its names and with its lists shortened."""
    return re.sub(r"(a X(, )?(and )?)+", "LIST", re.sub(r"[a-z]+ \d+", "X", text))


def choose(game: Game, world: World, seen: Counter[str], rng: random.Random) -> str:
    """A command whose text has been seen least, or now and then a random or a garbled one."""
    admissible = game.local(world).admissible
    kind = rng.random()
    if kind < 0.12:
        return garble(rng.choice(admissible), game, rng)
    if kind < 0.5:
        handling = [c for c in admissible if not c.startswith(("go to", "look", "inventory", "help", "examine"))]
        return rng.choice(handling or admissible)
    return min(admissible, key=lambda c: (seen[c.split()[0] + shape(game.apply(world, c)[1])], rng.random()))


def record(scenario: Scenario, texts: tuple[str, str], seen: Counter[str]) -> dict[str, Any]:
    domain, grammar = texts
    game, rng = scenario.game(), random.Random(scenario.name)
    reference = Reference()
    grammar = with_task(grammar, scenario.task)
    reference.load({"pddl_domain": domain, "grammar": grammar, "pddl_problem": scenario.problem})
    lists: list[tuple[str, ...]] = []
    steps = []
    world = game.start
    command = "<reset>"
    shown = reference.reset()
    for _ in range(COMMANDS):
        if shown.admissible not in lists:
            lists.append(shown.admissible)
        steps.append([command, shown.text, lists.index(shown.admissible), shown.won])
        command = choose(game, world, seen, rng)
        world, _ = game.apply(world, command)
        shown = reference.step(command)
        seen[(command.split() or [""])[0] + shape(shown.text)] += 1
    return {**vars(scenario), "admissible": lists, "steps": steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--old", type=Path, required=True)
    parser.add_argument("--released", type=Path, required=True)
    options = parser.parse_args()
    texts = editions(options.old, options.released)
    seen: Counter[str] = Counter()
    found = [record(scenario, texts[scenario.profile], seen) for scenario in SCENARIOS]
    body = json.dumps(found, separators=(",", ":")).encode()
    WHERE.write_bytes(gzip.compress(body, mtime=0))
    print(f"{WHERE.name}: {len(found)} transcripts, {sum(len(t['steps']) for t in found)} steps, {len(seen)} shapes")
    for text, count in sorted(seen.items()):
        print(f"{count:5} {text}")


if __name__ == "__main__":
    main()
