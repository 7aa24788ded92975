"""Whether an environment does what it promises: `turncredit env check`.

It plays a few tasks of an environment at random, with its expert and with odd actions, and compares what it sees with
the protocol (`turncredit.envs.protocol`). Each check holds, fails with the first example, or says why it was not tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from turncredit.audit.environment_trial import ODD_ACTIONS, NotTried, Rollout, Tried, Turn
from turncredit.data.counts import number_of
from turncredit.envs.protocol import Step
from turncredit.errors import UserError
from turncredit.rollouts.held_out import shared_games
from turncredit.rollouts.tasks import MOST_TURNS, make_tasks


class Finding(NamedTuple):
    """The outcome of one check, with what was seen."""

    check: str
    outcome: Literal["holds", "fails", "not tried"]
    detail: str


class Fails(Exception):
    """A check has found an example against a promise."""


def check_environment(tried: Tried) -> Iterator[Finding]:
    """All checks of an environment, each as it is made. What goes wrong in the same way again was not tried."""
    said: dict[str, str] = {}
    for name, check in CHECKS.items():
        found = _finding(tried, name, check)
        if found.outcome == "fails" and said.setdefault(found.detail, name) != name:
            found = Finding(name, "not tried", f"it goes wrong as '{said[found.detail]}' does")
        yield found


def _finding(tried: Tried, name: str, check: Callable[[Tried], str]) -> Finding:
    """The outcome of one check."""
    try:
        return Finding(name, "holds", check(tried))
    except NotTried as reason:
        return Finding(name, "not tried", str(reason))
    except (Fails, UserError) as error:
        return Finding(name, "fails", " ".join(str(error).split()))
    except Exception as error:  # a built-in environment's calls are not guarded
        return Finding(name, "fails", f"{type(error).__name__}: {' '.join(str(error).split())}")


def untried(tried: Tried, findings: Sequence[Finding]) -> str | None:
    """What the checks say nothing about, in a sentence; None where all were made with random actions."""
    parts = [", ".join(one.check for one in findings if one.outcome == "not tried")]
    if "games" in vars(tried) and tried.actions != "random":  # without games no action was played
        parts.append(f"random actions: without admissible() or random_command, those played were {tried.actions}")
    parts = [part for part in parts if part]
    return f"not tried: {'; '.join(parts)}" if parts else None


# ---------------------------------------------------------------- checks: what was seen, or Fails, or NotTried


def _tasks(tried: Tried) -> str:
    """Tasks depend on split, count and seed alone, and a larger count only adds tasks at the end."""
    for split in (tried.train_split, tried.eval_split):
        rows, more = tried.rows(split), tried.rows(split, tried.tasks + 1)
        again = make_tasks(tried.env, split, tried.tasks, tried.seed, key="--tasks").to_pylist()
        if rows != again:
            raise Fails(f"split '{split}': the same seed gives other tasks the second time")
        if more[: len(rows)] != rows:
            raise Fails(f"split '{split}': {len(more)} tasks do not begin with the same {len(rows)} tasks")
    return f"{tried.tasks} tasks of '{tried.train_split}' and of '{tried.eval_split}'"


def _splits(tried: Tried) -> str:
    """No task is in both splits, by instruction and layout."""
    train, held_out = tried.many_rows(tried.train_split), tried.many_rows(tried.eval_split)
    if same := shared_games(tried.games.env, train, held_out):
        evaluated, trained = same[0]
        raise Fails(
            f"{len(same)} of {len(held_out)} evaluation tasks are training tasks, such as '{trained}' and '{evaluated}'"
        )
    summary = f"{len(held_out)} evaluation tasks against {len(train)} training tasks"
    if tried.games.env.task_key is not None:
        return summary
    known, first = set(_starts(tried, train)), list(_starts(tried, held_out))
    if alike := sum(start in known for start in first):
        summary += (
            f"; {alike} of {len(first)} have the goal and the first observation of a training task: if they are the "
            "same tasks, give task_key"
        )
    return summary


def _starts(tried: Tried, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Goals and first observations of tasks, as many as can be opened in an eighth of the time that a call may take."""
    began = time.perf_counter()
    for row in rows:
        running = tried.games.open(row)
        yield row["goal"], running.reset()
        running.close()
        if time.perf_counter() - began > tried.timeout / 8:
            return


def _ends(tried: Tried) -> str:
    """Rollouts end by themselves, at the latest where the goal is reached."""
    cut = 0
    for row in tried.games.rows:
        played = tried.rollout(row)
        played.running.close()
        _ends_with_success(f"task '{row['task_id']}'", played.turns)
        cut += not played.turns[-1].step.done
    if cut == tried.tasks:
        cut = cut - _ends_late(tried, tried.games.rows[0])
    if cut:
        raise NotTried(f"{cut} of {tried.tasks} rollouts were cut after {tried.turns} turns; raise --turns")
    return number_of(tried.tasks, "rollout")


def _ends_late(tried: Tried, row: Mapping[str, Any]) -> bool:
    """Whether a rollout ends in as many turns as demonstrations may have. Fails if it does not end even then."""
    played = tried.rollout(row, most=MOST_TURNS, seconds=tried.timeout)
    played.running.close()
    if len(played.turns) == MOST_TURNS and not played.turns[-1].step.done:
        raise Fails(f"task '{row['task_id']}' has not ended after {MOST_TURNS:,} turns; give the environment a horizon")
    return bool(played.turns) and played.turns[-1].step.done


def _ends_with_success(where: str, turns: Sequence[Turn]) -> None:
    """Fails where a rollout has reached its goal and is not done."""
    for number, turn in enumerate(turns):
        if turn.step.success and not turn.step.done:
            raise Fails(f"{where}, turn {number} ({turn.action[:40]!r}): success is true, and done is false")


def _steps(turns: Sequence[Turn]) -> list[tuple[Any, ...]]:
    return [(turn.step, turn.progress, turn.distance) for turn in turns]


def _played(tried: Tried, running: Any, actions: Sequence[str]) -> list[Turn]:
    return [tried.turn(running, action) for action in actions]


def _difference(one: Sequence[Turn], other: Sequence[Turn]) -> str | None:
    """The first turn that differs, in words; None where none does."""
    for number, (left, right) in enumerate(zip(_steps(one), _steps(other), strict=True)):
        if left != right:
            return f"turn {number} ({one[number].action!r}): {left!r} and {right!r}"
    return None


def _deterministic(tried: Tried) -> str:
    """The same actions lead to the same steps: in another rollout, and in the same one after a reset."""
    _needs_determinism(tried)
    count = 0
    for row in tried.games.rows:
        played, again = tried.rollout(row), tried.games.open(row)
        actions, where = [turn.action for turn in played.turns], f"task '{row['task_id']}'"
        again.reset()
        firsts = {"the second reset": again.reset()}
        replayed = _played(tried, again, actions)
        firsts["a reset at the end"] = again.reset()
        once_more = _played(tried, again, actions)
        again.close()
        played.running.close()
        for name, first in firsts.items():
            if first != played.first:
                raise Fails(f"{where}: {name} gives another observation: {played.first!r} and {first!r}")
        for name, other in (("another rollout", replayed), ("that rollout after a reset", once_more)):
            if found := _difference(played.turns, other):
                raise Fails(f"{where}, in {name}, {found}")
        count += len(actions)
    return f"{count} turns played three times"


def _needs_determinism(tried: Tried) -> None:
    if not tried.games.env.deterministic:
        raise NotTried("the environment says that its steps are not deterministic")


def _together(tried: Tried) -> str:
    """Rollouts that are played at the same time, of one task and of several, do not touch each other."""
    _needs_determinism(tried)
    rows = tried.games.rows
    chosen = [(rows[0], 0), (rows[0], 1), *((row, 0) for row in rows[1:3])]
    alone = []
    for row, choice in chosen:
        alone.append(tried.rollout(row, choice))
        alone[-1].running.close()
    firsts, steps = _side_by_side(tried, [row for row, _ in chosen], alone)
    for (row, choice), one, first, taken in zip(chosen, alone, firsts, steps, strict=True):
        expected = [turn.step for turn in one.turns]
        if (first, taken) == (one.first, expected):
            continue
        again = tried.rollout(row, choice)
        again.running.close()
        if (again.first, [turn.step for turn in again.turns]) != (one.first, expected):
            raise NotTried(f"task '{row['task_id']}' differs when it is played alone, too")
        if first != one.first:
            differs = f"the first observation: {one.first!r} alone, {first!r}"
        else:
            number = next(at for at, (left, right) in enumerate(zip(expected, taken, strict=True)) if left != right)
            differs = f"turn {number} ({one.turns[number].action!r}): {expected[number]!r} alone, {taken[number]!r}"
        raise Fails(f"task '{row['task_id']}', {differs} while others are played; do rollouts share a state?")
    return f"{len(chosen)} rollouts side by side"


def _side_by_side(
    tried: Tried, rows: Sequence[Mapping[str, Any]], alone: Sequence[Rollout]
) -> tuple[list[str], list[list[Step]]]:
    """The first observations and the steps of rollouts that take turns, with the actions of those `alone`."""
    running = [tried.games.open(row) for row in rows]
    firsts = tried.games.each(running, "reset")
    steps: list[list[Step]] = [[] for _ in rows]
    for turn in range(max(len(one.turns) for one in alone)):
        going = [number for number, one in enumerate(alone) if turn < len(one.turns)]
        actions = [alone[number].turns[turn].action for number in going]
        for number, step in zip(going, tried.games.each([running[n] for n in going], "step", actions), strict=True):
            steps[number].append(step)
    tried.games.each(running, "close")
    return firsts, steps


def _progress(tried: Tried) -> str:
    """Progress is within 0 and 1, and 1 exactly where the goal is reached."""
    tried.can("progress")
    count = 0
    for where, turns in _rollouts(tried):
        for number, turn in enumerate(turns):
            assert turn.progress is not None
            if not 0 <= turn.progress <= 1:
                raise Fails(f"{where}, turn {number}: progress is {turn.progress}")
            if (turn.progress == 1) != turn.step.success:
                raise Fails(f"{where}, turn {number}: progress is {turn.progress:g}, success {turn.step.success}")
        count += len(turns)
    return f"{count} turns"


def _distance(tried: Tried) -> str:
    """The distance is 0 exactly at the goal, falls by one along the plan, and no action shortens it by more."""
    tried.can("distance")
    count = 0
    for row in tried.games.rows:
        running, _, turns = tried.rollout(row)
        where = f"task '{row['task_id']}'"
        running.reset()
        before = running.distance()
        for number, turn in enumerate(turns):
            assert turn.distance is not None
            if turn.distance < -1 or (turn.distance == 0) != turn.step.success:
                raise Fails(f"{where}, turn {number}: the distance is {turn.distance}, success {turn.step.success}")
            if before == -1 != turn.distance:
                raise Fails(f"{where}, turn {number}: the distance is {turn.distance} after the goal was out of reach")
            if turn.distance not in (-1, 0) and turn.distance < before - 1:
                raise Fails(f"{where}, turn {number}: one action takes the distance from {before} to {turn.distance}")
            before = turn.distance
        count += _follow_plan(tried, running, where)
        running.close()
    return f"{count} turns along plans"


def _follow_plan(tried: Tried, running: Any, where: str) -> int:
    """Play the plan from the start; returns its length."""
    running.reset()
    plan, left = running.oracle(), running.distance()
    if len(plan) != left and left != -1:
        raise Fails(f"{where}: the distance is {left}, and the plan has {len(plan)} actions")
    for number, action in enumerate(plan):
        turn = tried.turn(running, action)
        if turn.step.done and number < len(plan) - 1:
            return number + 1  # the horizon is shorter than the plan
        if turn.distance != left - 1 - number:
            raise Fails(f"{where}: {turn.distance} actions are left after {number + 1} of a plan of {len(plan)}")
    return len(plan)


def _snapshot(tried: Tried) -> str:
    """A restored state goes on as the saved one did, in the same rollout and in another, and as a replay does."""
    tried.can("snapshot")
    count = 0
    for row in tried.games.rows:
        running, _, turns = tried.rollout(row)
        actions = [turn.action for turn in turns]
        half = len(actions) // 2
        running.reset()
        _played(tried, running, actions[:half])
        state = running.snapshot()
        expected = _played(tried, running, actions[half:])
        other = tried.games.open(row)
        other.reset()
        for name, one in (("the rollout", running), ("another rollout", other), ("the rollout again", running)):
            one.restore(state)
            if found := _difference(expected, _played(tried, one, actions[half:])):
                raise Fails(f"task '{row['task_id']}': restored in {name} after {half} turns, {found}")
        if found := _difference(turns[half:], expected):
            raise Fails(f"task '{row['task_id']}': after saving the state, {found}")
        running.close()
        other.close()
        count += len(expected)
    return f"{count} turns after restored states"


def _admissible(tried: Tried) -> str:
    """Until the end there are admissible actions, and each is carried out."""
    tried.can("admissible")
    count = 0
    for row in tried.games.rows:
        running, rng = tried.games.open(row), tried.rng("admissible", row["task_id"])
        running.reset()
        for number in range(tried.turns):
            actions = running.admissible()
            if not actions:
                raise Fails(f"task '{row['task_id']}', turn {number}: no action is admissible")
            if len(set(actions)) < len(actions):
                raise Fails(f"task '{row['task_id']}', turn {number}: an action is listed twice")
            step = running.step(action := actions[rng.integers(len(actions))])
            count += 1
            if not step.valid:
                raise Fails(f"task '{row['task_id']}', turn {number}: {action!r} is admissible and not valid")
            if step.done:
                break
        running.close()
    return f"{count} turns"


def _expert(tried: Tried) -> str:
    """How many tasks the expert wins, alone and with noise."""
    tried.can("expert")
    won = refused = count = 0
    returns: list[float] = []
    for row in tried.games.rows:
        turns = tried.by_expert(row)
        _ends_with_success(f"task '{row['task_id']}', played by the expert", turns)
        returns.append(sum(turn.step.reward for turn in turns))
        won, count = won + turns[-1].step.success, count + len(turns)
        refused += sum(not turn.step.valid for turn in turns)
    if not won:
        but = f"; its rollouts return up to {max(returns):g}, but have success=False" if max(returns) > 0 else ""
        raise Fails(f"the expert wins none of {tried.tasks} tasks{but}")
    summary = (
        f"wins {won} of {tried.tasks} tasks, with a mean return of {sum(returns) / tried.tasks:.3g}; {refused} of its "
        f"{count} actions were not valid"
    )
    if not (tried.noise and tried.games.env.acts_at_random):
        return summary
    noisy = sum(tried.by_expert(row, tried.noise)[-1].step.success for row in tried.games.rows)
    if not noisy:
        raise Fails(
            f"the expert wins {won} of {tried.tasks} tasks, and none where {tried.noise:.0%} of turns are random, as "
            "in demonstrations; see what it makes of observe's `action`, or lower demos.noise (--noise)"
        )
    return f"{summary}; wins {noisy} where {tried.noise:.0%} of turns are random"


def _rollouts(tried: Tried) -> Iterator[tuple[str, list[Turn]]]:
    """Rollouts and, where there is an expert, its own, which reach the goal; each with where it is from."""
    for row in tried.games.rows:
        if tried.games.env.acts_at_random or not tried.games.can("expert"):
            played = tried.rollout(row, choice=1)
            played.running.close()
            yield f"task '{row['task_id']}'", played.turns
        if tried.games.can("expert"):
            yield f"task '{row['task_id']}', played by the expert", tried.by_expert(row)


def _odd_actions(tried: Tried) -> str:
    """Any text is an action: it gives a step."""
    row, count = tried.games.rows[0], 0
    running = tried.games.open(row)
    running.reset()
    for action in ODD_ACTIONS:
        step = running.step(action)
        count += 1
        if step.success:
            raise Fails(f"task '{row['task_id']}': the action {action[:40]!r} reaches the goal")
        if step.done:
            running.reset()
    running.close()
    return f"{count} actions, such as an empty one and 20,000 letters"


def _time(tried: Tried) -> str:
    """How long it takes to open a task and to play a turn."""
    opened = played = 0.0
    count = 0
    for row in tried.games.rows:
        begin = time.perf_counter()
        running = tried.games.open(row)
        observation = running.reset()
        opened += time.perf_counter() - begin
        act = tried.actor(running, tried.rng("time", row["task_id"]))
        for _ in range(tried.turns):
            action = act(observation)
            begin = time.perf_counter()
            step = running.step(action)
            played, count, observation = played + time.perf_counter() - begin, count + 1, step.observation
            if step.done:
                break
        running.close()
    return f"{1000 * opened / tried.tasks:.1f} ms to open a task, {count / played:,.0f} steps a second"


#: The checks by name, in the order in which they are made.
CHECKS: dict[str, Callable[[Tried], str]] = {
    "tasks": _tasks,
    "splits": _splits,
    "odd actions": _odd_actions,
    "end": _ends,
    "determinism": _deterministic,
    "together": _together,
    "progress": _progress,
    "distance": _distance,
    "snapshot": _snapshot,
    "admissible": _admissible,
    "expert": _expert,
    "time": _time,
}
