"""verifiers and prime-rl (v1): `traces.jsonl`, an episode a line, with one trace for each agent.

An episode has `group.id`, `task` and `traces`; a trace has `rewards` (name -> score and weight; the reward is their
weighted sum) and `nodes`, a graph of messages: `parent`, `message`, `sampled`, `token_ids`, `mask` (whether a token was
sampled) and `logprobs` (of the sampled ones). Source: verifiers 0.4.0, `v1/trace.py`, `v1/graph.py`, `v1/episode.py`.

A turn is a sampled node, in the order in which they were made. Where its parent is not the turn before (a context that
was compacted, a sub-agent), its context starts over: `context_reset`, and `prompt_ids` from the root on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, compress
from pathlib import Path
from typing import Any

from turncredit.bridges.importers.base import Format, Report, Rollout, Skip, Source, Turn, each, finite, outcome
from turncredit.bridges.importers.messages import chain_observations, response_of, text_of
from turncredit.data.json_lines import json_lines

VERSION = 1


def read(source: Source, report: Report, mapping: Mapping[str, str]) -> Iterator[Rollout]:
    """The rollouts of a file: each trainable agent's trace of each episode."""
    del mapping
    yield from each(json_lines(source.path, report), report, lambda where, row: rollouts(where, row, report))


def rollouts(where: str, row: Mapping[str, Any], report: Report) -> Iterator[Rollout]:
    """The rollouts of an episode. Raises Skip for what is none; a bad trace of it is a skip of the report."""
    if "traces" not in row:
        raise Skip("not an episode of verifiers v1: no 'traces'", ", ".join(list(row)[:6]))
    if not row["traces"]:
        raise Skip("an episode without traces")
    task = row.get("task") or {}
    name = str(task.get("key") or task.get("hash") or (task.get("data") or {}).get("idx", ""))
    group = (row.get("group") or {}).get("id")
    if group is None and not name:
        raise Skip("neither a group nor a task's key, hash or index")
    agents = {_agent(trace)[0] for trace in row["traces"]}
    for trace in row["traces"]:
        agent, trainable = _agent(trace)
        if not trainable:
            report.note(f"the agent '{agent}' is not trained, and was left out")
            continue
        try:
            rollout = _rollout(trace, where)
        except Skip as skip:
            report.skip(where, str(skip), skip.detail)
            continue
        if group is None:
            report.note("no group in the file: rollouts of the same task are a group")
        if rollout.turns[0].pop("branched", False):
            report.note("the context starts over within the rollout")
        rollout.group_id = f"{name if group is None else group}{f'/{agent}' if len(agents) > 1 else ''}"
        rollout.columns = {"task_id": name or str(group)}
        yield rollout


def _agent(trace: dict[str, Any]) -> tuple[str, bool]:
    agent = trace.get("agent") or {}
    return str(agent.get("name", "agent")), bool(agent.get("trainable", True))


def _rollout(trace: dict[str, Any], where: str) -> Rollout:
    if trace.get("version", VERSION) != VERSION:
        raise Skip(f"a trace of schema version {trace['version']}; this version of turncredit reads {VERSION}")
    turns = _turns(trace["nodes"])
    rewards = trace.get("rewards") or {}
    if not rewards or any(reward is None for reward in rewards.values()):
        raise Skip("reward is missing or null", ", ".join(name for name in rewards if rewards[name] is None))
    scored = [(finite(reward["score"]), finite(reward.get("weight", 1.0), "weight")) for reward in rewards.values()]
    outcome(turns, sum(score * weight for score, weight in scored))
    return Rollout("", str(trace["id"]), turns, where, ended=bool(trace.get("is_completed", False)))


def _turns(nodes: list[dict[str, Any]]) -> list[Turn]:
    turns: list[Turn] = []
    last: int | None = None
    for number, node in enumerate(nodes):
        if not node.get("sampled"):
            continue
        path = []  # since the turn that this one continues, or since the root
        above = node.get("parent")
        while above is not None and above != last:
            if not 0 <= above < number:
                raise Skip("a node whose parent does not come before it", f"node {number}, parent {above}")
            path.append(above)
            above = nodes[above].get("parent")
        before = [nodes[place] for place in reversed(path)]
        ids, mask = node.get("token_ids") or [], node.get("mask") or []
        if len(ids) != len(mask):
            raise Skip("tokens and mask of different lengths", f"node {number}: {len(ids)} and {len(mask)}")
        first = mask.index(True) if True in mask else len(mask)
        response = list(compress(ids, mask))
        logprobs = node.get("logprobs") or []
        if logprobs and len(logprobs) != len(response):
            raise Skip("as many log-probabilities as sampled tokens are needed", f"node {number}")
        turn: Turn = {
            "observation": "\n".join(text_of(other["message"].get("content")) for other in before),
            **response_of(node["message"]),
            "context_reset": above is None,
            "prompt_ids": [*chain.from_iterable(other.get("token_ids") or [] for other in before), *ids[:first]],
            "response_ids": response,
            "response_logprobs": logprobs,
        }
        if turns and above is None:
            turns[0]["branched"] = True
        turns.append(turn)
        last = number
    if not turns:
        raise Skip("no turn: the policy wrote no message")
    answers = [text_of(node["message"].get("content")) for node in nodes[(last or 0) + 1 :]]
    chain_observations(turns, "\n".join(answers))
    return turns


def _fits(path: Path, record: Mapping[str, Any]) -> bool:
    del path
    return "traces" in record


FORMAT = Format("verifiers", ".jsonl", _fits, read)
