"""What policies without any learning win in an environment: how much of a result is the world's, and not a method's.

random             a random admissible action each turn; where none are listed, the environment's random action
first admissible   the first of the admissible actions, where they are listed
replay             the demonstration of the training task with the same sentence, or else with the most similar one,
                   played action for action, whatever is observed
rule               the environment's obvious rule (`Environment.rule`)
expert             the expert that demonstrates
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from turncredit.config import EnvSlice
from turncredit.data.progress import progress
from turncredit.data.seeding import generator
from turncredit.errors import UserError
from turncredit.rollouts.tasks import MOST_TURNS, Games, make_tasks

Act = Callable[[str], str | None]
"""An observation -> the next action; None ends the rollout."""


class Baseline(NamedTuple):
    """What one policy wins: the share of successes, the mean return as a share of a success's, and the mean turns."""

    name: str
    success: float
    score: float
    turns: float


def baselines(
    env: EnvSlice, *, split: str, count: int, train_split: str, train: int, seed: int, timeout: float | None = 60.0
) -> list[Baseline]:
    """What each baseline wins on `count` tasks of `split`; replays are of `train` tasks of `train_split`.

    Raises UserError for settings and splits that the environment does not take.
    """
    games = Games(env, make_tasks(env, split, count, seed, key="--count"), timeout=timeout)
    learned = None
    if games.can("expert"):
        learned = Games(env, make_tasks(env, train_split, train, seed, key="--train"), timeout=timeout)
    players = _players(games, learned)
    if not players:
        raise UserError(
            f"no baseline can play '{games.env.name}': it has no admissible actions, random_command, rule or expert"
        )
    rows = []
    for name, start in players.items():
        played = []
        for number, row in enumerate(games.rows):
            played.append(_play(games, row, start, generator(seed, "baselines", name, number)))
            progress(len(rows) * len(games) + len(played), len(players) * len(games))
        success, score, turns = (float(np.mean(column)) for column in zip(*played, strict=True))
        rows.append(Baseline(name, success, score / games.success_reward, turns))
    return rows


Start = Callable[[Any, Mapping[str, Any], np.random.Generator], Act]


def _players(games: Games, learned: Games | None) -> dict[str, Start]:
    """The baselines that the environment has, by name: each makes a rollout's policy."""
    players: dict[str, Start] = {}
    if games.can("admissible") or games.env.acts_at_random:
        players["random"] = lambda env, _row, rng: lambda _seen: _random(games, env, rng)
    if games.can("admissible"):
        players["first admissible"] = lambda env, _row, _rng: lambda _seen: next(iter(games.admissible(env)), None)
    if learned is not None:
        replay = _Replay(learned)
        players["replay"] = lambda _env, row, _rng: replay.of(row["goal"])
    if games.env.rule is not None:
        obvious = games.env.rule
        players["rule"] = lambda _env, row, _rng: _observing(obvious(row["goal"]))
    if games.can("expert"):
        players["expert"] = lambda env, _row, rng: _observing(games.expert(env, rng, skip=False))
    return players


def _random(games: Games, env: Any, rng: np.random.Generator) -> str | None:
    if not games.can("admissible"):
        return games.random_action(env, rng)
    actions = games.admissible(env)
    return actions[int(rng.integers(len(actions)))] if actions else None


def _observing(player: Any) -> Act:
    """An expert, or a rule."""

    def act(observation: str) -> str:
        player.observe(observation)
        return player.act()

    return act


class _Replay:
    """Demonstrations of training tasks, found by their sentences, each played once."""

    def __init__(self, games: Games):
        self._games = games
        self._by_goal = {row["goal"]: number for number, row in reversed(list(enumerate(games.rows)))}
        self._words = [frozenset(row["goal"].lower().split()) for row in games.rows]
        self._plans: dict[int, list[str]] = {}

    def of(self, goal: str) -> Act:
        """Plays the demonstration for this sentence."""
        number = self._by_goal.get(goal)
        if number is None:
            words = frozenset(goal.lower().split())
            number = int(np.argmax([len(words & other) / len(words | other) for other in self._words]))
        if number not in self._plans:
            self._plans[number] = list(self._demonstrated(number))
        actions = iter(self._plans[number])
        return lambda _observation: next(actions, None)

    def _demonstrated(self, number: int) -> Iterator[str]:
        env = self._games.open(self._games.rows[number])
        observation = env.reset()
        act = _observing(self._games.expert(env, generator(0, "baselines", "replay", number), skip=False))
        for _ in range(MOST_TURNS):
            action = act(observation)
            assert action is not None
            yield action
            step = env.step(action)
            if step.done:
                env.close()
                return
            observation = step.observation
        raise self._games.endless(self._games.rows[number])


def _play(games: Games, row: Mapping[str, Any], start: Start, rng: np.random.Generator) -> tuple[bool, float, int]:
    """Success, return and turns of one rollout."""
    env = games.open(row)
    observation = env.reset()
    act, earned, turns, won = start(env, row, rng), 0.0, 0, False
    while (action := act(observation)) is not None:
        step = env.step(action)
        observation, earned, turns, won = step.observation, earned + step.reward, turns + 1, step.success
        if step.done:
            break
        if turns == MOST_TURNS:
            raise games.endless(row)
    env.close()
    return won, earned, turns


def table(rows: Sequence[Baseline]) -> str:
    """The rows as a table in Markdown, in percent."""
    lines = ["| policy | success | score | turns |", "|---|---:|---:|---:|"]
    lines += [f"| {one.name} | {one.success:.1%} | {one.score:.1%} | {one.turns:.1f} |" for one in rows]
    return "\n".join(lines)
