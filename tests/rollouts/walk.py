"""A world whose values are known: a walk of six commands, and a policy that goes forward with probability 0.6."""

from __future__ import annotations

from functools import cache

import numpy as np

from turncredit.agents import Parsed, Prompt
from turncredit.envs.protocol import Step
from turncredit.policy.sampling import Response
from turncredit.rollouts.play import Played, Start, Turn
from turncredit.rollouts.restore import RestoredRollout, restore


class Walk:
    """Positions 0, 1, 2, 3; at 3 it is won. `forward` and `back` move by one; six commands at most."""

    goal, family, horizon = "reach 3.", "walk", 6

    def __init__(self):
        self.at, self.turn = 0, 0

    def reset(self):
        self.at, self.turn = 0, 0
        return "at 0"

    def step(self, action):
        self.at = max(0, self.at + (1 if action == "forward" else -1))
        self.turn += 1
        won = self.at == 3
        return Step(f"at {self.at}", float(won), won or self.turn == self.horizon, won, True)

    def close(self):
        pass

    def admissible(self):
        return ("back", "forward")

    def snapshot(self):
        return self.at, self.turn

    def restore(self, state):
        self.at, self.turn = state


class Words:
    """An agent whose tokens are character codes."""

    def open(self, goal, observation, _admissible):
        return Prompt([ord(c) for c in f"{goal} {observation}"], True)

    def follow(self, _ids, _parsed, observation, _admissible):
        return Prompt([ord(c) for c in observation], False)

    def parse(self, text):
        return Parsed(text, True)

    def fork(self):
        return self


FORWARD = 0.6


@cache
def value(at: int, turn: int) -> float:
    """The probability to win from here, going forward with probability 0.6."""
    if at == 3 or turn == Walk.horizon:
        return float(at == 3)
    return FORWARD * value(at + 1, turn + 1) + (1 - FORWARD) * value(max(0, at - 1), turn + 1)


def walked(actions: list[str]) -> list[dict]:
    """The rows that a recorded walk has in the turns table."""
    env, agent, rows = Walk(), Words(), []
    seen = env.reset()
    prompt = agent.open(env.goal, seen, ())
    for number, action in enumerate(actions):
        step = env.step(action)
        rows.append(
            {
                "group_id": "walk", "rollout_id": "walk#0", "task_id": "walk", "turn": number, "observation": seen,
                "context_reset": prompt.reset, "prompt_ids": prompt.ids, "response_ids": [1], "response_text": action,
                "action": action, "next_observation": step.observation, "reward": step.reward, "done": step.done,
                "family": "walk",
            }
        )  # fmt: skip
        prompt, seen = agent.follow([1], agent.parse(action), step.observation, ()), step.observation
    return rows


def walk(starts: list[Start]):
    """Play the walk on from each start's checkpoint with the policy whose values are known."""
    for number, start in enumerate(starts):
        env, rng, turns = Walk(), np.random.default_rng(start.seed), []
        env.restore(start.checkpoint.state)
        while not turns or not turns[-1].done:
            step = env.step("forward" if rng.random() < FORWARD else "back")
            turns.append(
                Turn(
                    "", None, Prompt([], True), Response([], []), "", "", True, "", step.reward, step.done, step.success
                )
            )
        yield number, Played(start, turns)


def branched(actions: list[str]) -> RestoredRollout:
    rows = walked(actions)
    checkpoints, replayed = restore(Walk, Words(), rows, goal=Walk.goal)
    return RestoredRollout({}, rows, checkpoints, replayed)
