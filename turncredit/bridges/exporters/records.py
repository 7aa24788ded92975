"""Rollouts as records of other projects: ATIF, OpenAI's messages, traces of verifiers.

Each function makes the record that the project's own reader takes; `with_block` adds what an import would not get.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from turncredit import __version__
from turncredit.bridges import importers
from turncredit.bridges.exporters.rollouts import COLUMNS, Exported
from turncredit.bridges.importers.base import Context, Report, Rollout, Skip, Source
from turncredit.bridges.importers.exported import BLOCK

Record = dict[str, Any]


def openai(rollout: Exported) -> Record:
    """A line of JSON: `messages` of user and assistant in turn, the return, and a number per turn for each method."""
    messages = []
    for seen, written in rollout.texts():
        messages += [{"role": "user", "content": seen}] * bool(seen) + [{"role": "assistant", "content": written}]
    if rollout.last:
        messages.append({"role": "user", "content": rollout.last})
    about = {"group_id": rollout.group_id, "rollout_id": rollout.rollout_id, "reward": rollout.total}
    credit = {"advantages": rollout.advantages} if rollout.advantages else {}
    return {"messages": messages, **about, "turn_rewards": rollout.rewards, **credit, BLOCK: {}}


def atif(rollout: Exported) -> Record:
    """A trajectory of harbor, ATIF-v1.8 (harbor 0.26, `models/trajectories`): steps of user and agent in turn.

    Reward and advantages are in the steps' `extra`; the trajectory's `extra` has the return.
    """
    steps: list[Record] = []

    def add(source: str, message: str, **more: Any) -> None:
        steps.append({"step_id": len(steps) + 1, "source": source, "message": message, **more})

    prompt: list[int] = []
    for number, ((seen, written), turn) in enumerate(zip(rollout.texts(), rollout.turns, strict=True)):
        if seen:
            add("user", seen)
        new, response, logprobs = rollout.tokens(number)
        prompt = [*([] if turn.get("context_reset") else prompt), *new]
        tokens: dict[str, list[Any]] = {
            "prompt_token_ids": prompt,
            "completion_token_ids": response,
            "logprobs": logprobs,
        }
        metrics = {name: values for name, values in tokens.items() if values and response}
        prompt = [*prompt, *response]
        credit = {name: values[number] for name, values in rollout.advantages.items()}
        extra = {"reward": turn.get("reward"), **({"advantages": credit} if credit else {})}
        add("agent", written, **({"metrics": metrics} if metrics else {}), extra=extra)
    if rollout.last:
        add("user", rollout.last)
    agent = {"name": str(rollout.turns[0].get("agent") or "agent"), "version": "unknown"}
    about = {"reward": rollout.total, BLOCK: {}}
    made = {"schema_version": "ATIF-v1.8", "session_id": rollout.rollout_id, "agent": agent}
    return {**made, "steps": steps, "notes": f"exported by turncredit {__version__}", "extra": about}


def verifiers(rollout: Exported) -> Record:
    """An episode of verifiers (0.4, `v1/episode.py`) with one trace.

    Its nodes have the tokens, and the advantages of a single method; the trace's `info` has all numbers of each turn.
    Where the context starts over, a new root begins: verifiers trains on the tokens of each path from a root.
    """
    nodes: list[Record] = []

    def add(role: str, content: str, *, root: bool = False, **more: Any) -> None:
        parent = len(nodes) - 1 if nodes and not root else None
        nodes.append({"parent": parent, "message": {"role": role, "content": content}, **more})

    only = next(iter(rollout.advantages.values())) if len(rollout.advantages) == 1 else None
    for number, (seen, written) in enumerate(rollout.texts()):
        before, ids, logprobs = rollout.tokens(number)
        tokens: Record = {"token_ids": ids, "mask": [True] * len(ids), "logprobs": logprobs}
        if only is not None and ids:
            tokens["advantages"] = [only[number]] * len(ids)
        root = bool(rollout.turns[number].get("context_reset"))
        add("user", seen, root=root, sampled=False, token_ids=before, mask=[False] * len(before), logprobs=[])
        add("assistant", written, sampled=True, **tokens)
    if rollout.last:
        add("user", rollout.last, sampled=False, token_ids=[], mask=[], logprobs=[])
    rewards = {} if rollout.total is None else {"reward": {"score": rollout.total, "weight": 1.0}}
    # Not `turn_rewards`: prime-rl reads scores of states under this name (bridges/importers/verifiers.py).
    info: Record = {"rewards_of_turns": rollout.rewards, BLOCK: {}}
    if rollout.advantages:
        info["advantages"] = rollout.advantages
    trace = {"version": 1, "id": rollout.rollout_id, "agent": {"name": "agent", "trainable": True, "config": {}}}
    key = str(rollout.turns[0].get("task_id") or rollout.group_id)
    task = {"type": "Task", "key": key, "data": {"idx": 0}}
    ended = rollout.turns[-1].get("done")
    trace |= {
        "verifiers": {"version": "0.4.0"},
        "task": task,
        "nodes": nodes,
        "rewards": rewards,
        "info": info,
        "is_completed": bool(ended is None or ended),
    }
    return {"id": rollout.rollout_id, "group": {"id": rollout.group_id}, "task": task, "traces": [trace]}


def with_block(record: Record, rollout: Exported) -> Record:
    """The record with the ids, and with the columns that an import would read differently (`importers.exported`)."""
    read, count = _read(record), len(rollout.turns)
    same = read is not None and len(read.turns) == count
    columns: dict[str, list[Any]] = {}
    for name in COLUMNS:
        wanted = [turn.get(name) for turn in rollout.turns]
        found = [turn.get(name, read.columns.get(name)) for turn in read.turns] if read and same else [None] * count
        if name == "action" or found != wanted:
            columns[name] = wanted
    block = _place(record)
    block |= {"group_id": rollout.group_id, "rollout_id": rollout.rollout_id}
    if "done" in rollout.turns[-1]:
        block["ended"] = rollout.turns[-1]["done"]
    block |= {"turns": count, "columns": columns}
    return record


def _place(record: Mapping[str, Any]) -> Record:
    """The record's own block, which is empty yet."""
    trace = (record.get("traces") or [{}])[0]
    found: Record = next(
        place[BLOCK] for place in (record, record.get("extra") or {}, trace.get("info") or {}) if BLOCK in place
    )
    return found


def _read(record: Record) -> Rollout | None:
    """The record as an import reads it without the block; None if the import would skip it."""
    context = Context(Source(Path("exported"), "exported", "exported"), Report())
    chosen: Callable[..., Any] = importers.chooser(None, {})(record).read
    try:
        return next(iter(chosen([("exported", record)], context)), None)
    except Skip:
        return None
