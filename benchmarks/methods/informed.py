"""A reference for the household that knows no more than the player: the expected commands to the goal.

The planner's distance knows where everything is, so looking into an empty drawer counts as a wasted command. Here a
state is worth the commands that a player with the rollout's own memory still needs in the mean: the planner's distance,
plus a search, in random order, of the places that were not looked into and can hold what is missing.

snakemake --cores all --configfile config/references.yaml -- runs
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from turncredit.credit.has import shape
from turncredit.credit.parts.conventions import TurnNorm
from turncredit.data.turns import Turns
from turncredit.envs.household.domain import CONTAINS, LAMP_STANDS, LAMPS, OPENABLE
from turncredit.envs.household.expert import contents_in, kind_of, names_in, read_goal

_HOLDS = {place.lower(): {thing.lower() for thing in things} for place, things in CONTAINS.items()}
for _stand in LAMP_STANDS:
    _HOLDS[_stand.lower()] |= {lamp.lower() for lamp in LAMPS}
_OPENABLE = {place.lower() for place in OPENABLE}


class Memory:
    """What a rollout has seen: the places that were looked into, and the wanted things that were in them."""

    def __init__(self, goal: str, room: str) -> None:
        """`room` is the first observation, which lists the places."""
        family, thing, target = read_goal(goal.lower())
        self.needed = {thing: 2 if family == "pick2" else 1} | ({target: 1} if family == "look" else {})
        self.unseen = set(names_in(room))
        self.found: dict[str, set[str]] = defaultdict(set)

    def see(self, observation: str) -> None:
        """Note what an observation shows of places."""
        for place, things in contents_in(observation):
            self.unseen.discard(place)
            for name in things:
                self.found[kind_of(name)].add(name)

    def search(self) -> float:
        """The expected commands of the search that is left, without the places where the missing things are.

        Of k places with a missing thing among n, in random order, each other place is looked into with a chance of
        k / (k + 1): it comes before the last of them. A look is one command, two where the place is to be opened.
        """
        missing = {kind: count - len(self.found[kind]) for kind, count in self.needed.items()}
        wanted = {kind for kind, count in missing.items() if count > 0}
        places = [place for place in self.unseen if wanted & _HOLDS.get(kind_of(place), set())]
        k = min(sum(missing[kind] for kind in wanted), len(places))
        looks = sum(1 + (kind_of(place) in _OPENABLE) for place in places)
        return looks * (len(places) - k) / len(places) * k / (k + 1) if places else 0.0


def informed_progress(
    turns: Turns, *, unreachable: float = 50.0, turn_norm: TurnNorm = "group"
) -> dict[str, np.ndarray]:
    """c_t = E_before - E_after with E = the planner's distance + `Memory.search`, shaped as `oracle_progress` is.

    Returns `search` (the expected search after the turn), `credit`, `advantage` (each N). Household only.
    """
    before_N, after_N = searches(turns)
    distances = (turns.numbers(name, "informed_progress") for name in ("distance_before", "distance"))
    start_N, end_N = (np.where(distance_N == -1, unreachable, distance_N) for distance_N in distances)
    credit_N = (start_N - end_N) + (before_N - after_N)
    shaped = shape(turns, np.zeros(turns.n), credit_N, alpha=0.0, turn_norm=turn_norm, ddof=1, eps=1e-6)
    return {"search": after_N, "credit": credit_N, "advantage": shaped["advantage"]}


def searches(turns: Turns) -> tuple[np.ndarray, np.ndarray]:
    """The expected search that is left before and after each turn (N, N), in commands."""
    columns = [turns.texts(name, "informed_progress") for name in ("goal", "observation", "next_observation")]
    goal_N, seen_N, next_N = ([texts[code] for code in code_N] for code_N, texts in columns)
    before_N, after_N = np.zeros(turns.n), np.zeros(turns.n)
    for first, length in zip(turns.first_R.tolist(), turns.length_R.tolist(), strict=True):
        memory = Memory(goal_N[first], seen_N[first])
        for row in range(first, first + length):
            before_N[row] = memory.search()
            memory.see(next_N[row])
            after_N[row] = memory.search()
    return before_N, after_N
