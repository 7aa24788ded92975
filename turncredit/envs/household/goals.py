"""The six families of goals: recognise one, whether it holds, and the progress towards it.

A goal is matched against the exact PDDL of its family (`alfworld.gen.goal_library`, white space and case
aside); any other shape is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from turncredit.envs.household.profile import UnsupportedGame
from turncredit.envs.household.world import World

FAMILIES = ("pick", "look", "clean", "heat", "cool", "pick2")
STATES = {"clean": "clean", "heat": "hot", "cool": "cool"}
"""The state that a family asks for."""

_PLACED = "(objecttype ?o {o}) (receptacletype ?r {r})"
_TREATED = (
    "(and (exists (?r - receptacle) (exists (?o - object) (and ({able} ?o) "
    + _PLACED
    + " ({state} ?o) (inreceptacle ?o ?r) ) ) ) )"
)
_PDDL = {
    "pick": "(and (exists (?r - receptacle) (exists (?o - object) (and (inreceptacle ?o ?r) " + _PLACED + " ) ) ) )",
    "look": "(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objecttype ?ot {r}) "
    "(toggleable ?ot) (istoggled ?ot) (receptacleatlocation ?r ?l) (atlocation ?a ?l) (inreceptacle ?ot ?r)"
    " ) ) (exists (?o - object ?a - agent) (and (objecttype ?o {o}) (holds ?a ?o) ) ) )",
    "clean": _TREATED.replace("{able}", "cleanable").replace("{state}", "isclean"),
    "heat": _TREATED.replace("{able}", "heatable").replace("{state}", "ishot"),
    "cool": _TREATED.replace("{able}", "coolable").replace("{state}", "iscool"),
    "pick2": "(and (exists (?r - receptacle) (exists (?o1 - object) (and (objecttype ?o1 {o}) "
    "(receptacletype ?r {r}) (inreceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2)) "
    "(objecttype ?o2 {o}) (receptacletype ?r {r}) (inreceptacle ?o2 ?r) ) ) ) ) ) )",
}


def goal_pddl(family: str, object_type: str, target_type: str) -> str:
    """The goal's PDDL; `target_type` is the receptacle's type, or the lamp's for `look`."""
    return _PDDL[family].replace("{o}", object_type).replace("{r}", target_type)


def _pattern(template: str) -> re.Pattern[str]:
    """A pattern for a template; a type that the goal names twice must be the same both times."""
    seen: set[str] = set()

    def slot(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        return rf"(?P<{name}>\w+type)"

    escaped = re.escape(template).replace(r"\ ", " ")
    return re.compile(re.sub(r"\\\{(\w)\\\}", slot, escaped))


_PATTERNS = {family: _pattern(template) for family, template in _PDDL.items()}


def match_goal(goal: str) -> tuple[str, str, str]:
    """Family, object type and target (or lamp) type of a goal's text. Raises UnsupportedGame."""
    for family, pattern in _PATTERNS.items():
        match = pattern.search(goal)
        if match:
            return family, match["o"], match["r"]
    raise UnsupportedGame(f"the game's goal is none of {', '.join(FAMILIES)}: {goal[:200]}")


_STATE_FIELD = {family: World._fields.index(state) for family, state in STATES.items()}


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal over one game's bit masks (see `World`)."""

    family: str
    objects: int
    """Objects that can fulfil the goal: of the right type, and cleanable, heatable, coolable if need be."""
    targets: tuple[int, ...]
    """Receptacles of the target type; for `look`, empty."""
    lamps: int
    """For `look`: the lamps that count."""
    here: tuple[tuple[int, ...], ...]
    """The receptacles at each location."""

    def treated(self, world: World) -> int:
        """The objects in the state that the family asks for (all objects if it asks for none)."""
        field = _STATE_FIELD.get(self.family)
        return -1 if field is None else world[field]  # type: ignore[return-value]

    def won(self, world: World) -> bool:
        """Whether the goal holds now; like the reference's, it is not latched."""
        if self.family == "look":
            if world.held < 0 or not self.objects >> world.held & 1:
                return False
            lit = self.lamps & world.toggled
            return any(world.contents[r] & lit for r in self.here[world.location])
        contents, wanted = world.contents, self.objects & self.treated(world)
        if not wanted:
            return False
        if self.family == "pick2":
            return any((placed := contents[r] & wanted) & (placed - 1) for r in self.targets)
        return any(contents[r] & wanted for r in self.targets)

    def progress(self, world: World) -> float:
        """The fraction of the goal's changeable conditions that hold, for the things that fulfil most.

        pick: in the target (1). clean, heat, cool: treated, in the target, by the same object (2). pick2:
        objects in the same target (2). look: lamp lit, standing at it, holding the object (3).
        """
        contents, wanted = world.contents, self.objects
        if self.family == "look":
            near = 0
            for r in self.here[world.location]:
                near |= contents[r]
            lit = self.lamps & world.toggled
            lamp = 2 if lit & near else 1 if lit or self.lamps & near else 0
            return (lamp + (world.held >= 0 and wanted >> world.held & 1)) / 3
        if self.family == "pick2":
            return max(min((contents[r] & wanted).bit_count(), 2) for r in self.targets) / 2 if self.targets else 0.0
        placed = 0
        for r in self.targets:
            placed |= contents[r]
        if self.family == "pick":
            return float(bool(placed & wanted))
        treated = wanted & self.treated(world)
        return 1.0 if placed & treated else 0.5 if treated or placed & wanted else 0.0
