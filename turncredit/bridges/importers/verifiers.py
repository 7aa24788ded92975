"""verifiers and prime-rl (v1): `traces.jsonl`, an episode a line, with one trace for each agent.

An episode has `group.id`, `task` and `traces`; a trace has `rewards` (name -> score and weight; the reward is their
weighted sum) and `nodes`, a graph of messages: `parent`, `message`, `sampled`, `token_ids`, `mask` (whether a token was
sampled) and `logprobs` (of the sampled ones). Source: verifiers 0.4.0, `v1/trace.py`, `v1/graph.py`, `v1/episode.py`.

A turn is a sampled node, in the order in which they were made. Where its parent is not the turn before (a context that
was compacted, a sub-agent), its context starts over: `context_reset`, and `prompt_ids` from the root on.

`info["turn_rewards"]`, a score of the state after each turn or null (prime-rl, pull request 3282), becomes the columns
`progress` and `progress_before`, which `has_progressive` reads. Without a score a turn leaves the state as it was, and
the first score is also the one before it, as in prime-rl's differences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, compress
from typing import Any

from turncredit.bridges.importers.base import (
    About,
    Context,
    Format,
    Observation,
    Report,
    Rollout,
    Skip,
    Turn,
    dict_of,
    finite,
    objects_of,
    outcome,
    per_record,
)
from turncredit.bridges.importers.message import read_message
from turncredit.bridges.importers.messages import NO_TURN, History, chain_replies
from turncredit.bridges.importers.said import Note

VERSION = 1
#: The name of the only agent. Others are a part of the group's id, also where an episode has only one agent's trace.
AGENT = "agent"


def read(where: str, row: dict[str, Any], context: Context) -> Iterator[Rollout]:
    """The rollouts of an episode: each trainable agent's trace."""
    yield from rollouts(where, row, context.report, context.options.observation)


def rollouts(
    where: str, row: Mapping[str, Any], report: Report, observation: Observation = "auto"
) -> Iterator[Rollout]:
    """The rollouts of an episode. Raises Skip if it is not an episode. The report counts a bad trace as skipped."""
    if "traces" not in row:
        raise Skip("not an episode of verifiers v1: no 'traces'", ", ".join(list(row)[:6]))
    if not row["traces"]:
        raise Skip("an episode without traces")
    task = dict_of(row.get("task"), "task")
    name = str(task.get("key") or task.get("hash") or (task.get("data") or {}).get("idx", ""))
    group = (row.get("group") or {}).get("id")
    if group is None and not name:
        raise Skip("neither a group nor a task's key, hash or index")
    traces = objects_of(row["traces"], "traces")
    for trace in traces:
        agent, trainable = _agent(trace)
        if not trainable:
            report.note(f"the agent '{agent}' is not trained, and was left out")
            continue
        try:
            rollout = _rollout(trace, where, report.note, observation)
        except Skip as skip:
            report.skip(where, str(skip), skip.detail)
            continue
        if group is None:
            report.note("no group in the file: rollouts of the same task are a group")
        if rollout.turns[0].pop("branched", False):
            report.note("the context starts over within the rollout")
        rollout.group_id = f"{name if group is None else group}{'' if agent == AGENT else f'/{agent}'}"
        rollout.columns = {"task_id": name or str(group)}
        rollout.record = row
        yield rollout


def _agent(trace: dict[str, Any]) -> tuple[str, bool]:
    agent = trace.get("agent") or {}
    return str(agent.get("name", AGENT)), bool(agent.get("trainable", True))


def _rollout(trace: dict[str, Any], where: str, note: Note, observation: Observation) -> Rollout:
    if trace.get("version", VERSION) != VERSION:
        raise Skip(f"a trace of schema version {trace['version']}; this version of turncredit reads {VERSION}")
    turns = _turns(objects_of(trace["nodes"], "nodes"), note, History(observation))
    _progress(turns, (trace.get("info") or {}).get("turn_rewards"), note)
    outcome(turns, _reward(dict_of(trace.get("rewards"), "rewards"), note))
    return Rollout("", str(trace["id"]), turns, where, ended=bool(trace.get("is_completed", False)))


def _progress(turns: list[Turn], scores: Any, note: Note) -> None:
    """The columns of the scores of states, if there are any."""
    if not isinstance(scores, list):
        return
    if len(scores) != len(turns):
        raise Skip("as many turn_rewards as turns are needed", f"{len(scores)} for {len(turns)} turns")
    known = [finite(score, "turn_rewards") for score in scores if score is not None]
    if not known:
        return
    note("the scores of states (turn_rewards) are the column progress")
    now = known[0]
    for turn, score in zip(turns, scores, strict=True):
        turn["progress_before"] = now
        now = turn["progress"] = now if score is None else float(score)


def _reward(rewards: Mapping[str, Any], note: Note) -> float | None:
    """The weighted sum; a plain number has the weight 1, and a reward that is null does not count."""
    total, given = 0.0, 0
    for name, reward in rewards.items():
        score, weight = (reward.get("score"), reward.get("weight")) if isinstance(reward, dict) else (reward, 1.0)
        if score is None:
            note(f"the reward '{name}' is null: the reward is the sum of the others")
            continue
        total += finite(score) * finite(1.0 if weight is None else weight, "weight")
        given += 1
    return total if given else None


def _turns(nodes: list[dict[str, Any]], note: Note, history: History) -> list[Turn]:
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
        for other in before:
            history.hear(_text(other, note))
        said = read_message(node["message"], note)
        said.columns = {
            "context_reset": above is None,
            "prompt_ids": [*chain.from_iterable(other.get("token_ids") or [] for other in before), *ids[:first]],
            "response_ids": response,
            "response_logprobs": logprobs,
        }
        turn = history.turn(said)
        assert turn is not None  # it has columns
        if turns and above is None:
            turns[0]["branched"] = True
        turns.append(turn)
        last = number
    if not turns:
        raise Skip(NO_TURN)
    for node in nodes[(last or 0) + 1 :]:
        history.hear(_text(node, note))
    chain_replies(turns, history.reply())
    return turns


def _text(node: Mapping[str, Any], note: Note) -> str:
    return read_message(node["message"], note).text()


def _matches(record: Mapping[str, Any]) -> bool:
    return "traces" in record


FORMAT = Format(
    "verifiers",
    _matches,
    per_record(read),
    about=About(
        files="traces.jsonl of verifiers and prime-rl, v1",
        group="group.id, else the task",
        turns="sampled nodes; with tokens and log-probabilities",
        reward="weighted sum of rewards",
        checked="verifiers 0.4.0, which wrote and read the test's files",
    ),
)
