"""A small file in each format, as its framework writes it: two groups of two rollouts of two turns, `household`-like.

Every rollout's first response is `go to A|B`, its second `take K`; rewards are 1, 0, 0.5, 0.
"""

from __future__ import annotations

import json
import zipfile
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
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
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


def each_in_its_file(folder: Path, ending: str, records: Iterable[Any]) -> Path:
    """A folder with a pretty-printed file for each record."""
    target = folder / "runs"
    target.mkdir()
    for number, record in enumerate(records):
        (target / f"r{number}{ending}").write_text(json.dumps(record, indent=1))
    return target


def atif_record(number: int) -> dict[str, Any]:
    said = texts(number)
    steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": said[0]}]
    for turn in range(2):
        results = [{"content": said[2 * turn + 2]}]
        step = {
            "step_id": turn + 2,
            "source": "agent",
            "message": said[2 * turn + 1],
            "observation": {"results": results},
        }
        steps.append(step)
    return {"schema_version": "ATIF-v1.5", "session_id": "same", "agent": {"name": "a", "version": "1"}, "steps": steps}


def atif(folder: Path) -> Path:
    return each_in_its_file(folder, ".json", map(atif_record, range(4)))


def sample(number: int) -> dict[str, Any]:
    """A sample of Inspect; its second observation is an attachment."""
    said = messages(number)
    said[2]["content"] = "attachment://0af1"
    record = {"id": f"s{number // 2}", "epoch": number % 2 + 1, "input": said[0]["content"], "target": ""}
    scores = {"match": {"value": REWARDS[number]}}
    return {**record, "messages": said, "scores": scores, "attachments": {"0af1": texts(number)[2]}}


def inspect(folder: Path) -> Path:
    path = folder / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", json.dumps({"version": 2, "eval": {}}))
        for number in range(4):
            archive.writestr(f"samples/s{number // 2}_epoch_{number % 2 + 1}.json", json.dumps(sample(number)))
        archive.writestr("summaries.json", json.dumps([{"id": "s0"}]))
        archive.writestr("header.json", json.dumps({"version": 2, "status": "success", "eval": {}}))
    return path


def swe_agent(folder: Path) -> Path:
    records = []
    for number in range(4):
        said = texts(number)
        history = [{"role": "system", "content": "demo", "agent": "a", "is_demo": True}]
        history.append({"role": "user", "content": said[0], "agent": "a"})
        steps = [
            {"response": f"I act.\n{said[2 * turn + 1]}", "thought": "I act.", "action": f"{said[2 * turn + 1]}\n"}
            | {"observation": said[2 * turn + 2], "state": {}}
            for turn in range(2)
        ]
        records.append({"trajectory": steps, "history": history, "info": {"exit_status": "submitted"}})
    return each_in_its_file(folder, ".traj", records)


def mini_swe_agent(folder: Path) -> Path:
    info = {"exit_status": "Submitted", "submission": ""}
    fixed = {"info": info, "trajectory_format": "mini-swe-agent-1"}
    return each_in_its_file(folder, ".traj.json", [{"messages": messages(number), **fixed} for number in range(4)])


def tau_bench(folder: Path) -> Path:
    rows = [
        {"task_id": group, "reward": reward, "info": {}, "traj": messages(number), "trial": number % 2}
        for group, number, reward in ROLLOUTS
    ]
    path = folder / "airline.json"
    path.write_text(json.dumps(rows, indent=2))
    return path


def tau2(folder: Path) -> Path:
    simulations = [
        {"id": f"x{number}", "task_id": f"t{group}", "trial": number % 2, "messages": messages(number)}
        | {"reward_info": {"reward": reward}, "termination_reason": "user_stop"}
        for group, number, reward in ROLLOUTS
    ]
    path = folder / "results.json"
    path.write_text(json.dumps({"timestamp": "", "info": {}, "tasks": [], "simulations": simulations}))
    return path


def openhands_events(number: int) -> list[dict[str, Any]]:
    said = texts(number)
    events: list[dict[str, Any]] = [{"id": 0, "source": "user", "action": "message", "args": {"content": said[0]}}]
    for turn in range(2):
        action = {"id": 2 * turn + 1, "source": "agent", "action": "message", "args": {"content": said[2 * turn + 1]}}
        answer = {"source": "environment", "observation": "run", "content": said[2 * turn + 2], "cause": action["id"]}
        events += [action, {"id": 2 * turn + 2, **answer}]
    return events


def openhands(folder: Path) -> Path:
    rows = [{"instance_id": f"i{group}", "history": openhands_events(number)} for group, number, _ in ROLLOUTS]
    return lines(folder / "output.jsonl", rows)


def atropos(folder: Path) -> Path:
    rows = []
    for group in range(2):
        said = [messages(2 * group + number) for number in range(2)]
        tokens = [list(range(10)) for _ in range(2)]
        masks = [[-100, -100, 2, 3, -100, -100, 6, 7, -100, -100] for _ in range(2)]
        scores = list(REWARDS[2 * group : 2 * group + 2])
        rows.append({"tokens": tokens, "masks": masks, "scores": scores, "messages": said})
    return lines(folder / "groups.jsonl", rows)


def nemo_gym(folder: Path) -> Path:
    rows = []
    for _, number, reward in ROLLOUTS:
        said = texts(number)
        output: list[dict[str, Any]] = []
        for turn in range(2):
            content = [{"type": "output_text", "text": said[2 * turn + 1]}]
            output.append({"type": "message", "role": "assistant", "content": content})
            output.append({"role": "user", "content": said[2 * turn + 2]})
        params = {"input": [{"role": "user", "content": said[0]}]}
        rows.append({"responses_create_params": params, "response": {"output": output}, "reward": reward})
    return lines(folder / "rollouts.jsonl", rows)


def span(number: int, sequence: int, **attributes: Any) -> dict[str, Any]:
    ids = {
        "rollout_id": f"ro-{number}",
        "attempt_id": "at-0",
        "sequence_id": sequence,
        "span_id": f"{number}-{sequence}",
    }
    return {**ids, "name": "span", "attributes": attributes}


def agent_lightning(folder: Path) -> Path:
    rows = []
    for number in range(4):
        said = texts(number)
        for turn in range(2):
            asked = {f"gen_ai.prompt.{place}.content": said[place] for place in range(2 * turn + 1)}
            roles = {f"gen_ai.prompt.{place}.role": ("user", "assistant")[place % 2] for place in range(2 * turn + 1)}
            answer = {"gen_ai.completion.0.content": said[2 * turn + 1], "gen_ai.completion.0.role": "assistant"}
            rows.append(span(number, turn, **asked, **roles, **answer))
        rows.append(span(number, 2, **{"agentlightning.reward.0.value": REWARDS[number]}))
    return lines(folder / "spans.jsonl", rows)


def verifiers_v0(folder: Path) -> Path:
    rows = [
        {"example_id": group, "prompt": messages(number)[:1], "completion": messages(number)[1:], "reward": reward}
        for group, number, reward in ROLLOUTS
    ]
    return lines(folder / "results.jsonl", rows)


def transcript(folder: Path) -> Path:
    rows: list[dict[str, Any]] = []
    for number in range(4):
        rows.append({"type": "summary", "sessionId": f"s{number}"})
        for place, message in enumerate(messages(number)):
            kind = "assistant" if message["role"] == "assistant" else "user"
            content = [{"type": "text", "text": message["content"]}]
            inner = {"role": kind, "content": content, "id": f"m{place}"}
            rows.append({"type": kind, "message": inner, "sessionId": f"s{number}", "uuid": f"{number}-{place}"})
    return lines(folder / "session.jsonl", rows)


def who_and_when_record(number: int) -> dict[str, Any]:
    said = texts(number)
    names = ("human", "Planner", "Computer_terminal", "Worker", "Computer_terminal")
    history = [{"role": "user", "name": name, "content": text} for name, text in zip(names, said, strict=True)]
    labels = {"mistake_agent": "Planner", "mistake_step": "1", "mistake_reason": "wrong way"}
    return {"question": "Where is the key?", "question_ID": f"q{number // 2}", "history": history, **labels}


def who_and_when(folder: Path) -> Path:
    return each_in_its_file(folder, ".json", map(who_and_when_record, range(4)))


JSONL = {"group_id": "id.task", "rollout_id": "id.attempt", "reward": "score", "messages": "chat"}
WRITERS: dict[str, Callable[[Path], Path]] = {
    write.__name__.replace("_", "-"): write
    for write in (
        verifiers,
        verl,
        verl_agent,
        art,
        rllm,
        openenv,
        trl,
        atif,
        inspect,
        swe_agent,
        mini_swe_agent,
        tau_bench,
        tau2,
        openhands,
        atropos,
        nemo_gym,
        agent_lightning,
        verifiers_v0,
        who_and_when,
        transcript,
        jsonl,
    )
}
#: formats that hold no rewards
REWARDLESS = ("atif", "swe-agent", "mini-swe-agent", "openhands", "who-and-when", "transcript")


def rewards_beside(folder: Path, name: str) -> Path | None:
    """A file with the rewards of a format that holds none, by the ids that its rollouts get."""
    ids = {"openhands": "output:{}", "transcript": "s{}"}
    start = 1 if name == "openhands" else 0
    rows = {ids.get(name, "r{}").format(number + start): reward for number, reward in enumerate(REWARDS)}
    path = folder / "rewards.json"
    path.write_text(json.dumps(rows))
    return path if name in REWARDLESS else None
