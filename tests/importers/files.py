"""A small file in each format, as its framework writes it: two groups of two rollouts of two turns, `household`-like.

Every rollout's first response is `go to A|B`, its second `take K`; rewards are 1, 0, 0.5, 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

REWARDS = (1.0, 0.0, 0.5, 0.0)
#: (group, rollout, reward) of each
ROLLOUTS = [(number // 2, number, reward) for number, reward in enumerate(REWARDS)]


def texts(number: int) -> list[str]:
    """What is said in a rollout: observation, response, observation, response, observation."""
    return [
        f"task {number // 2}: you are in the hall",
        f"go to {'AB'[number % 2]}",
        "you see a key",
        "take key",
        "taken",
    ]


def messages(number: int) -> list[dict[str, Any]]:
    roles = ("user", "assistant", "tool", "assistant", "tool")
    return [{"role": role, "content": text} for role, text in zip(roles, texts(number), strict=True)]


def lines(path: Path, rows: Iterable[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def episode(number: int) -> dict[str, Any]:
    """An episode of verifiers, as `v1/utils/trace_store.py` writes it."""
    nodes, token = [], 10
    for place, message in enumerate(messages(number)):
        sampled = message["role"] == "assistant"
        ids = list(range(token, token + 3))
        token += 3
        node = {"parent": place - 1 if place else None, "message": message, "sampled": sampled, "token_ids": ids}
        node["mask"] = [False, sampled, sampled]
        node["logprobs"] = [-0.5, -0.25] if sampled else []
        nodes.append(node)
    trace = {
        "version": 1,
        "id": f"trace{number}",
        "agent": {"name": "agent", "trainable": True},
        "nodes": nodes,
        "rewards": {"solved": {"score": REWARDS[number] * 2, "weight": 0.5}, "format": {"score": 0.0, "weight": 1.0}},
        "is_completed": True,
    }
    task = {"type": "Task", "data": {"idx": number // 2}, "key": f"task{number // 2}"}
    return {"id": f"episode{number}", "task": task, "group": {"id": f"g{number // 2}"}, "traces": [trace]}


def verifiers(folder: Path) -> Path:
    return lines(folder / "traces.jsonl", map(episode, range(4)))


def verl_rows(*, session: bool) -> list[dict[str, Any]]:
    """Lines of verl: with sessions of two outputs, or one output whose markers are left of the chat template."""
    rows = []
    for group, number, reward in ROLLOUTS:
        said = texts(number)
        row = {"input": f"user\n{said[0]}\nassistant\n", "gts": None, "score": reward, "step": 3}
        if session:
            again = f"{row['input']}{said[1]}\ntool\n{said[2]}\nassistant\n"
            rows.append({**row, "output": said[1], "score": 0.0, "uid": f"u_{group}_{number}_0"})
            rows.append({**row, "input": again, "output": said[3], "uid": f"u_{group}_{number}_1"})
        else:
            rows.append({**row, "output": f"{said[1]}\ntool\n{said[2]}\nassistant\n{said[3]}"})
    return rows


def verl(folder: Path) -> Path:
    return lines(folder / "3.jsonl", verl_rows(session=True))


def verl_agent(folder: Path) -> Path:
    rows = []
    for group, number, reward in ROLLOUTS:
        said = texts(number)
        for turn, gain in ((0, 0.0), (1, reward)):
            ids = {"uid": f"u{group}", "traj_uid": f"t{number}", "turn": turn, "rewards": gain}
            row = {"input": "prompt", "output": said[2 * turn + 1], "score": reward, "step": 3, **ids}
            rows.append({**row, "anchor_obs": said[2 * turn]})
    return lines(folder / "3.jsonl", rows[::3] + rows[1::3] + rows[2::3])


def art(folder: Path) -> Path:
    rows = []
    for group, number, reward in ROLLOUTS:
        marked = [
            {**message, "tool_calls": None, "tool_call_id": None, "trainable": message["role"] == "assistant"}
            for message in messages(number)
        ]
        rows.append({"group_index": group, "reward": reward, "metadata": None, "messages": marked})
    pq.write_table(pa.Table.from_pylist(rows), folder / "0003.parquet")
    return folder / "0003.parquet"


def rllm(folder: Path) -> Path:
    target = folder / "train_step_3_epoch_0"
    target.mkdir()
    for group, number, reward in ROLLOUTS:
        said = texts(number)
        steps = [
            {"observation": said[2 * turn], "action": said[2 * turn + 1], "model_response": said[2 * turn + 1]}
            | {"reward": reward * turn, "done": bool(turn), "chat_completions": [], "thought": ""}
            for turn in range(2)
        ]
        trajectory = {"name": "solver", "uid": f"t{number}", "reward": reward, "num_steps": 2, "steps": steps}
        data = {"training_step": 3, "episode_id": f"{group}:{number}", "task_hash": f"h{group}"}
        data |= {"is_correct": reward == 1, "termination_reason": "env_done", "trajectories": [trajectory]}
        (target / f"episode_hashh{group}_id{group}_{number}.json").write_text(json.dumps(data, indent=2))
    return target


def openenv(folder: Path) -> Path:
    rows = [
        {"episode_id": f"e{number}", "messages": messages(number), "reward": reward, "done": True, "tool_trace": []}
        | {"task": {"seed": group}, "metrics": {}}
        for group, number, reward in ROLLOUTS
    ]
    return lines(folder / "results.jsonl", rows)


def trl(folder: Path) -> Path:
    rows = [
        {"step": 3, "prompt": messages(number)[:1], "completion": messages(number)[1:], "solved": reward}
        | {"advantage": 0.0}
        for _, number, reward in ROLLOUTS
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "completions_00003.parquet")
    return folder / "completions_00003.parquet"


def jsonl(folder: Path) -> Path:
    """A line for each rollout, with the field names of nobody in particular."""
    rows = [
        {"id": {"task": group, "attempt": number}, "score": reward, "chat": messages(number)}
        for group, number, reward in ROLLOUTS
    ]
    return lines(folder / "mine.jsonl", rows)


JSONL = {"group_id": "id.task", "rollout_id": "id.attempt", "reward": "score", "messages": "chat"}
WRITERS: dict[str, Callable[[Path], Path]] = {
    write.__name__.replace("_", "-"): write for write in (verifiers, verl, verl_agent, art, rllm, openenv, trl, jsonl)
}
