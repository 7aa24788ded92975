"""verifiers: a method's advantages on the sampled tokens of episodes that are in memory (`node.advantages`).

    assign_advantages(episodes, "gigpo", gamma=0.9)

Groups, turns and rewards are those of `turncredit import --from verifiers`. Tested with verifiers 0.4.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turncredit.bridges import conversations
from turncredit.bridges.conversations import advantages
from turncredit.bridges.importers.base import Report, Rollout, Skip
from turncredit.bridges.importers.verifiers import rollouts
from turncredit.bridges.spans import method_of
from turncredit.credit.parts.compose import Method
from turncredit.errors import UserError

COLUMNS = (*conversations.COLUMNS, "response_logprobs", "progress", "progress_before")
NODE = {"parent", "message", "sampled", "token_ids", "mask", "logprobs"}
TRACE = dict.fromkeys(("version", "id", "rewards", "info", "is_completed"), True)
#: of an episode: what is read. Other fields hold tensors that are no JSON, under names that change with the version.
READ = {
    "task": True,
    "group": True,
    "traces": {"__all__": {**TRACE, "agent": {"name", "trainable"}, "nodes": {"__all__": NODE}}},
}


def assign_advantages(episodes: Sequence[Any], method: str = "gigpo", **params: Any) -> None:
    """Set `advantages` of every sampled node of the episodes' trainable traces: one number for each sampled token.

    episodes   of verifiers.v1: whole groups
    params     the method's parameters

    Raises UserError for a method that needs side tables, and for a trace without a reward or a turn.
    """
    assign(episodes, method_of(method, params, None, "verifiers", COLUMNS))


def assign(episodes: Sequence[Any], method: Method) -> None:
    """`assign_advantages` with a method that has been looked up; nothing happens where there are no episodes."""
    report = Report(exact=True)
    all_rollouts: list[Rollout] = []
    for episode in episodes:
        # Log-probabilities are rounded unless one asks.
        row = episode.model_dump(mode="json", include=READ, context={"float_decimals": None})
        try:
            read = list(rollouts(f"episode {episode.id}", row, report))
        except Skip as skip:
            raise UserError(f"episode {episode.id}: {skip}") from None
        if any(rollout.turns[-1]["reward"] is None for rollout in read):
            raise UserError(f"episode {episode.id}: reward is missing or null")
        all_rollouts += read
    found = advantages(all_rollouts, method, "verifiers", COLUMNS)
    traces = {trace.id: trace for episode in episodes for trace in episode.traces}
    for rollout, advantage_T in zip(all_rollouts, found, strict=True):
        sampled = [node for node in traces[rollout.rollout_id].nodes if node.sampled]
        for node, advantage in zip(sampled, advantage_T, strict=True):
            node.advantages = [advantage] * sum(node.mask)
