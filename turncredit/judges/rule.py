"""The rule judge: the rubric's rules for close calls, applied to the same window that a language model would see.

Deterministic, free and fast: tens of thousands of turns per second. It knows the grammar of an environment's actions
(module `grammar` in the environment's folder) and the text of the goal. It has no access to the simulator, so it knows
nothing that is more than five turns back.
"""

from __future__ import annotations

import hashlib
from typing import Any

from turncredit import envs
from turncredit.envs.judging import Grammar
from turncredit.errors import UserError, nearest
from turncredit.judges.rubric import ROLES
from turncredit.judges.window import UNKNOWN, Rollouts

#: Part of a label's `prompt_hash`; increase it with any change of the rules.
VERSION = "rule-2"


def judge_rollouts(rollouts: Rollouts, size: int) -> tuple[list[str], list[str], list[str]]:
    """Role, evidence and window hash of each turn, in sorted order; windows of `size` turns to either side.

    Raises UserError for an environment whose actions the rules do not know.
    """
    roles, evidence, hashes = [], [], []
    for first, length in zip(rollouts.first_R.tolist(), rollouts.length_R.tolist(), strict=True):
        env, rollout_id = rollouts.env_N[first], rollouts.keys.column("rollout_id")[int(rollouts.order_N[first])]
        grammar = _grammar(env)
        goal = grammar.read_goal(rollouts.goal_N[first])
        raw_turns = rollouts.turn_N[first : first + length]
        turns = [grammar.read_turn(turn) for turn in raw_turns]
        digests = [_digest("\x1f".join(turn)) for turn in raw_turns]
        start = _digest(f"{VERSION}\x1f{env}\x1f{rollouts.goal_N[first]}")
        for at in range(length):
            low, high = max(0, at - size), at + 1 + size
            judged = grammar.judge(goal, turns[low:at], turns[at], turns[at + 1 : high])
            role, why = _checked(judged, env, f"rollout '{rollout_id}', turn {at}")
            roles.append(role)
            evidence.append(why)
            place = (at - low).to_bytes(1, "big")
            hashes.append(_digest(start + place + b"".join(digests[low:high])).hex())
    return roles, evidence, hashes


def _checked(judged: Any, env: str, where: str) -> tuple[str, str]:
    """A role and its evidence. Raises UserError where a grammar's `judge` has returned something else."""
    match judged:
        case (str(role), str(why)) if role in ROLES:
            return role, why
    raise UserError(
        f"the rules of '{env}': judge() must return a role ({', '.join(ROLES)}) and its evidence, a text, not "
        f"{judged!r} ({where})"
    )


def known_actions(rollouts: Rollouts) -> dict[str, tuple[int, int]]:
    """For each environment of the turns: how many actions have a form that its grammar knows, and how many there are.

    Raises UserError for an environment whose actions the rules do not know.
    """
    counts: dict[str, tuple[int, int]] = {}
    for env, turn in zip(rollouts.env_N, rollouts.turn_N, strict=True):
        known, turns = counts.get(env, (0, 0))
        knows_turn = getattr(_grammar(env), "knows", lambda _: True)  # a plug-in's grammar may not say
        counts[env] = known + knows_turn(turn), turns + 1
    return counts


def knows(env: str) -> bool:
    """Whether there is a grammar for the environment that a table calls `env`."""
    environment = envs.find(env)
    return environment is not None and environment.judge is not None


def _grammar(env: str) -> Grammar:
    environment = envs.find(env)
    grammar = environment.grammar() if environment is not None else None
    if grammar is None:
        supported = [name for name in envs.names() if knows(name)]
        if env == UNKNOWN:
            raise UserError(
                "the turns have no column 'env', which names the rule judge's rules; give it with --env NAME: "
                f"{', '.join(supported)}; an LLM judge works for any environment"
            )
        raise UserError(
            f"the rule judge does not know the actions of '{env}'{nearest(env, supported)}; it knows "
            f"{', '.join(supported)}; an LLM judge works for any environment"
        )
    return grammar


def _digest(data: str | bytes) -> bytes:
    return hashlib.blake2b(data if isinstance(data, bytes) else data.encode(), digest_size=8).digest()
