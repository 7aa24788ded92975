"""AReaL: a method's advantages as the rewards of single interactions, which its actor then trains on.

    assign_rewards(caches, "gigpo", gamma=0.9)       # one InteractionCache for each rollout of a task
    results = [cache.export_interactions(style="individual") for cache in caches]

AReaL has no place for an estimator of somebody else's. It has a reward for each interaction (`set_reward`) and, without
a critic, an actor whose advantage is that reward: `discount: 1`, `gae_lambda: 1`, `kl_ctl: 0`, `reward_norm: null`,
`reward_bias: 0`, `reward_scaling: 1`, and a `reward_clip` above every advantage. Exported one by one (`individual`,
no `reward_discount`), each turn is a sequence of its own.

Written against `experimental/openai/cache.py` and `trainer/ppo/actor.py` of https://github.com/inclusionAI/AReaL,
commit 4aef98d8d818af55b43621aaadba047ae10f4e77 (1.0.4). Rewards of turns within a sequence are open pull requests
(1667, 1681).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turncredit.bridges.conversations import COLUMNS, advantages
from turncredit.bridges.importers.base import Report, Rollout, Turn
from turncredit.bridges.importers.message import read_message
from turncredit.bridges.importers.messages import History, chain_replies
from turncredit.bridges.importers.said import Said
from turncredit.bridges.spans import method_of
from turncredit.errors import UserError


def assign_rewards(caches: Sequence[Any], method: str = "gigpo", **params: Any) -> None:
    """Set the reward of every interaction to its advantage.

    caches   the `InteractionCache`s of the rollouts of one task, a group; rewards are set, at least the last one's
    params   the method's parameters

    Raises UserError for a method that needs side tables, and for a rollout without an interaction or a reward.
    """
    looked_up = method_of(method, params, None, "areal", COLUMNS)
    report = Report(exact=True)
    rollouts = []
    for number, cache in enumerate(caches):
        interactions = list(cache.values())
        if not interactions:
            raise UserError(f"areal: rollout {number} has no interaction")
        history = History("auto")
        turns = [_turn(interaction, history, report) for interaction in interactions]
        if all(interaction.reward is None for interaction in interactions):
            turns[-1]["reward"] = None
        chain_replies(turns, "")
        rollouts.append(Rollout("group", str(number), turns, "areal", ended=True))
    for cache, advantage_T in zip(caches, advantages(rollouts, looked_up, "areal"), strict=True):
        for name, advantage in zip(list(cache), advantage_T, strict=True):
            cache.set_reward(name, advantage)


def _turn(interaction: Any, history: History, report: Report) -> Turn:
    """The turn of an interaction: what came since the one that it continues, and the response."""
    for message in interaction.remaining_messages:
        history.hear(read_message(message, report.note).text())
    said = [read_message(message, report.note) for message in interaction.output_message_list or []]
    whole = Said(ours=True, pieces=[piece for one in said for piece in one.pieces])
    whole.columns = {"reward": float(interaction.reward or 0.0)}
    turn = history.turn(whole)
    assert turn is not None  # it has a column
    return turn
