"""The worlds: small decision processes with one difficulty each, after which they are named.

Policies are softmax over fixed logits: a lean towards what helps, and a draw of its own for each state and action, so
that no two decisions are alike by symmetry. A state is a tuple that ends with the number of turns taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from turncredit.audit.score.process import Outcome, Process, State, World
from turncredit.data.seeding import generator
from turncredit.errors import UserError

#: Standard deviation of the draws that are added to the logits.
SPREAD = 0.5
#: The share of decisive turns in the world `dead`, unless another is asked for.
DENSITY = 0.25
#: Turns of the world `dead`.
DEAD_TURNS = 12


def _logits(name: str, helps: Callable[[State, str], float]) -> Callable[[State, str], float]:
    """`helps(state, action)` plus a fixed normal draw for each state and action."""

    @cache
    def logit(state: State, action: str) -> float:
        return helps(state, action) + SPREAD * float(generator("score policy", name, repr(state), action).normal())

    return logit


def _coin(chance: float) -> tuple[Outcome, Outcome]:
    """The end of a rollout: success, paid with 1, with this chance."""
    return Outcome(chance, None, 1.0, True), Outcome(1 - chance, None)


def chain(name: str, difficulty: str, length: int, decisive: frozenset[int], lean: float) -> World:
    """`length` turns with the actions left and right; at the `decisive` ones only right keeps the goal in reach."""

    def step(state: State, action: str) -> tuple[Outcome, ...]:
        alive, turn = state
        alive = alive and (turn not in decisive or action == "right")
        return _coin(0.95 if alive else 0.05) if turn + 1 == length else (Outcome(1.0, (alive, turn + 1)),)

    return World(
        name,
        difficulty,
        starts=((1.0, (True, 0)),),
        actions=lambda state: ("left", "right"),
        step=step,
        observe=lambda state: f"You are at place {state[-1]} of {length}.",
        logit=_logits(name, lambda state, action: lean * (action == "right" and state[-1] in decisive)),
        progress=lambda state: sum(turn < state[-1] for turn in decisive) / len(decisive) if state[0] else 0.0,
        distance=lambda state: length - state[-1] if state[0] else -1,
    )


def early() -> World:
    """The first turn decides; the reward comes six turns later."""
    return chain("early", "the first turn decides, the reward comes late", 7, frozenset({0}), 0.0)


def dead(density: float = DENSITY) -> World:
    """Twelve turns, of which the share `density` decides, evenly spaced; the others change nothing.

    Raises UserError for a density outside (0, 1].
    """
    if not 0 < density <= 1:
        raise UserError(f"a density of decisive turns must be above 0 and at most 1, not {density:g}")
    count = max(round(density * DEAD_TURNS), 1)
    decisive = frozenset(int((place + 0.5) * DEAD_TURNS / count) for place in range(count))
    return chain("dead", f"{count} of {DEAD_TURNS} turns decide, the others change nothing", DEAD_TURNS, decisive, 0.8)


def _slips(name: str, difficulty: str, *, repairs: bool) -> World:
    """Six turns: `slip` breaks the vase; `mend` repairs it, or not. It must be whole at the end."""

    def step(state: State, action: str) -> tuple[Outcome, ...]:
        whole, turn = state
        whole = (whole and action != "slip") or (repairs and action == "mend")
        return _coin(0.95 if whole else 0.05) if turn == 5 else (Outcome(1.0, (whole, turn + 1)),)

    return World(
        name,
        difficulty,
        starts=((1.0, (True, 0)),),
        actions=lambda state: ("carry", "slip", "mend"),
        step=step,
        observe=lambda state: "The vase is whole." if state[0] else "The vase is broken.",
        logit=_logits(name, lambda state, action: -0.8 * (action == "slip")),
        progress=lambda state: float(state[0]),
        distance=lambda state: 6 - state[-1] if state[0] else 7 - state[-1] if repairs else -1,
    )


def repair() -> World:
    """A mistake that a later turn can repair."""
    return _slips("repair", "a mistake can be repaired", repairs=True)


def ruin() -> World:
    """The same mistake, and nothing repairs it."""
    return _slips("ruin", "a mistake cannot be repaired", repairs=False)


def _stops(name: str, difficulty: str, chances: Sequence[float], pay: float, *, neutral: bool) -> World:
    """At most as many turns as there are `chances`: `end` takes that of its turn, `on` is paid `pay` and goes on."""

    def step(state: State, action: str) -> tuple[Outcome, ...]:
        (turn,) = state
        return (Outcome(1.0, (turn + 1,), pay),) if action == "on" else _coin(chances[turn])

    return World(
        name,
        difficulty,
        starts=((1.0, (0,)),),
        actions=lambda state: ("on", "end") if state[-1] + 1 < len(chances) else ("end",),
        step=step,
        observe=lambda state: f"Draft {state[-1]} is ready.",
        logit=lambda state, action: 0.7 * (action == "on"),
        goes_on=("on", "end") if neutral else None,
    )


def stop() -> World:
    """The policy decides when to end, and going on changes nothing: every advantage is 0."""
    return _stops("stop", "the policy decides when to end", [0.5] * 8, 0.0, neutral=True)


def stop_paid() -> World:
    """Going on is paid at once what it costs at the end: every advantage is 0, but rewards come before the end."""
    chances = [0.8 - 0.08 * turn for turn in range(8)]
    return _stops("stop_paid", "going on is paid now what it costs later", chances, 0.08, neutral=True)


def stop_helps() -> World:
    """Every turn that goes on raises the chance of success."""
    chances = [0.1 + 0.1 * turn for turn in range(8)]
    return _stops("stop_helps", "going on raises the chance of success", chances, 0.0, neutral=False)


def repeat() -> World:
    """The same two rooms are seen again and again, with and without the key."""

    def step(state: State, action: str) -> tuple[Outcome, ...]:
        room, key, turn = state
        if action == "search" and room == "hall" and key:
            return _coin(1.0)[:1]
        key = key or (action == "search" and room == "cellar")
        room = {"hall": "cellar", "cellar": "hall"}[room] if action == "walk" else room
        return (Outcome(1.0, None),) if turn == 6 else (Outcome(1.0, (room, key, turn + 1)),)

    return World(
        "repeat",
        "observations repeat and hide what was done",
        starts=((1.0, ("hall", False, 0)),),
        actions=lambda state: ("walk", "search"),
        step=step,
        observe=lambda state: f"You are in the {state[0]}.",
        logit=_logits("repeat", lambda state, action: 0.0),
        progress=lambda state: 0.5 * state[1],
        distance=lambda state: (1 + (state[0] != "hall")) if state[1] else (3 + (state[0] != "cellar")),
    )


def luck() -> World:
    """A coin at the end decides most of the outcome; the first turn the rest."""

    def step(state: State, action: str) -> tuple[Outcome, ...]:
        good, turn = state
        good = good or (turn == 0 and action == "right")
        return _coin(0.6 if good else 0.4) if turn == 4 else (Outcome(1.0, (good, turn + 1)),)

    return World(
        "luck",
        "a coin that no turn controls decides most",
        starts=((1.0, (False, 0)),),
        actions=lambda state: ("left", "right"),
        step=step,
        observe=lambda state: f"You wait in line, place {5 - state[-1]}.",
        logit=_logits("luck", lambda state, action: 0.0),
        progress=lambda state: float(state[0]),
        distance=lambda state: 5 - state[-1],
    )


def refused() -> World:
    """Three rooms to cross in seven turns; one action is always refused and costs a turn, another waits."""

    def step(state: State, action: str) -> tuple[Outcome, ...]:
        room, turn = state
        room += action == "forward"
        if room == 3:
            return _coin(1.0)[:1]
        return (Outcome(1.0, None),) if turn == 6 else (Outcome(1.0, (room, turn + 1)),)

    return World(
        "refused",
        "some actions are refused and cost a turn",
        starts=((1.0, (0, 0)),),
        actions=lambda state: ("forward", "wait", "fly"),
        step=step,
        observe=lambda state: f"You are in room {state[0]}.",
        logit=_logits("refused", lambda state, action: 0.3 * (action == "forward")),
        progress=lambda state: state[0] / 3,
        distance=lambda state: 3 - state[0],
        refuses=lambda state, action: action == "fly",
    )


def tasks() -> World:
    """A fair and a hard task, one for each group: divided by a group's deviation, the hard one weighs too much."""
    chances = {"fair": (0.7, 0.3), "hard": (0.15, 0.01)}

    def step(state: State, action: str) -> tuple[Outcome, ...]:
        task, good, turn = state
        good = good or (turn == 1 and action == "right")
        return _coin(chances[task][not good]) if turn == 2 else (Outcome(1.0, (task, good, turn + 1)),)

    return World(
        "tasks",
        "a fair and a hard task, one for each group",
        starts=((0.5, ("fair", False, 0)), (0.5, ("hard", False, 0))),
        actions=lambda state: ("left", "right"),
        step=step,
        observe=lambda state: f"The {state[0]} task, step {state[-1]}.",
        logit=_logits("tasks", lambda state, action: 0.0),
        progress=lambda state: float(state[1]),
        distance=lambda state: 3 - state[-1],
    )


#: Every world by name, in the order of the card.
WORLDS: dict[str, Callable[[], World]] = {
    world.__name__: world
    for world in (early, dead, repair, ruin, repeat, refused, luck, tasks, stop_helps, stop, stop_paid)
}


@cache
def process(name: str, density: float = DENSITY) -> Process:
    """The world called `name` with its exact values; `density` is that of decisive turns in `dead`."""
    return Process(dead(density) if name == "dead" else WORLDS[name]())
