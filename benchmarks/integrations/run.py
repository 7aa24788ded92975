"""Speed and memory of `turncredit import`: python -m benchmarks.integrations.run [MB ...]

Each format's file is generated, imported in a process of its own, and deleted.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

WORDS = ["go to", "shelf 1", "take", "mug 2", "from", "table", "open", "drawer", "you see", "nothing happens", "heat"]
MANY = 8 * 10**15


def words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))


def verifiers(rng: random.Random, number: int) -> dict:
    """An episode of 20 turns with token ids, masks and log-probabilities."""
    nodes = []
    for place in range(40):
        sampled, count = bool(place % 2), 30 if place % 2 else 60
        message = {"role": "assistant" if sampled else "user", "content": words(rng, count)}
        node: dict[str, Any] = {"parent": place - 1 if place else None, "message": message, "sampled": sampled}
        node |= {"token_ids": rng.choices(range(150_000), k=count), "mask": [sampled] * count, "timestamp": 1.7e9}
        nodes.append(node | {"logprobs": [round(-rng.random(), 4) for _ in range(count * sampled)]})
    trace = {"version": 1, "id": f"t{number}", "nodes": nodes, "rewards": {"r": {"score": 1.0, "weight": 1.0}}}
    trace |= {"is_completed": True, "agent": {"name": "agent", "trainable": True}}
    return {
        "id": f"e{number}",
        "task": {"key": f"k{number // 8}"},
        "group": {"id": str(number // 8)},
        "traces": [trace],
    }


def chat(rng: random.Random, number: int) -> dict:
    """A line of OpenEnv: 20 turns of text."""
    messages = [{"role": "assistant" if place % 2 else "user", "content": words(rng, 50)} for place in range(40)]
    return {"episode_id": f"e{number}", "messages": messages, "reward": 1.0, "done": True, "tool_trace": []} | {
        "task": number // 8
    }


def calls(rng: random.Random, number: int) -> dict:
    """A run of tau-bench: 20 turns, each a tool call, and its result."""
    said: list[dict[str, Any]] = [{"role": "system", "content": words(rng, 400)}]
    said.append({"role": "user", "content": words(rng, 30)})
    for place in range(20):
        arguments = json.dumps({"item": words(rng, 2), "amount": place})
        call = {"id": f"c{place}", "type": "function", "function": {"name": "change", "arguments": arguments}}
        said.append({"role": "assistant", "content": None, "tool_calls": [call]})
        said.append({"role": "tool", "tool_call_id": f"c{place}", "content": words(rng, 80)})
    return {"task_id": number // 8, "trial": number, "reward": 1.0, "info": {}, "traj": said}


def sample(rng: random.Random, number: int) -> dict:
    """A sample of Inspect, whose messages are those of `chat`, and stand in its events again."""
    messages = chat(rng, number)["messages"]
    events = [{"event": "model", "input": messages[: 2 * place + 1]} for place in range(3)]
    scores = {"match": {"value": "C"}}
    return {"id": number // 8, "epoch": number, "messages": messages, "scores": scores, "events": events}


def turn(rng: random.Random, number: int) -> dict:
    """A line for each turn, 20 to a rollout."""
    return turn_ids(number) | {"reward": 0.0, "observation": words(rng, 60), "action": words(rng, 6)}


def turn_ids(number: int) -> dict:
    return {"group_id": number // 160, "rollout_id": number // 20, "turn": number % 20}


KINDS: dict[str, tuple[str, Callable[[random.Random, int], dict]]] = {
    "verifiers": ("verifiers", verifiers),
    "openenv": ("openenv", chat),
    "jsonl, a line a turn": ("jsonl", turn),
    "tau-bench, an indented array": ("tau-bench", calls),
    "tau-bench, lines in gzip": ("tau-bench", calls),
    "Inspect, .eval": ("inspect", sample),
}


def lines(make: Callable[[random.Random, int], dict]) -> Iterator[bytes]:
    """Lines without end: 2,000 different ones again and again, under new ids.

    Each is encoded once, as rollout `MANY` of group `MANY // 8`, whose numbers are then replaced.
    """
    rng = random.Random(0)
    if make is turn:
        turns = [turn(rng, number) for number in range(2000)]
        for number in itertools.count():
            yield json.dumps(turns[number % 2000] | turn_ids(number)).encode() + b"\n"
    encoded = [json.dumps(make(rng, MANY)).encode() + b"\n" for _ in range(2000)]
    for number in itertools.count():
        line = encoded[number % 2000].replace(str(MANY).encode(), str(number).encode())
        yield line.replace(str(MANY // 8).encode(), str(number // 8).encode())


def generate(path: Path, megabytes: int, make: Callable[[random.Random, int], dict], *, long_line: bool) -> None:
    size = 0
    with path.open("wb") as handle:
        for line in lines(make):
            if size >= megabytes * 10**6 and (make is not turn or json.loads(line)["turn"] == 0):
                break
            size += handle.write(line)
        if long_line:
            handle.write(b'{"traces": "')
            for _ in range(100):
                handle.write(b"x" * 10**6)
            handle.write(b'"}\n')


def pack(label: str, path: Path) -> tuple[Path, float]:
    """The lines of `path` in the container that a label names, and their size in MB before compression."""
    size = path.stat().st_size / 1e6
    packed = path.with_name("packed")
    with path.open("rb") as lines_:
        if label.endswith("gzip"):
            with gzip.open(packed, "wb", compresslevel=1) as file:
                shutil.copyfileobj(lines_, file)
        elif label.endswith("array"):
            with packed.open("w", encoding="utf-8") as file:
                for place, line in enumerate(lines_):
                    file.write(f"{',' if place else '['}\n{json.dumps(json.loads(line), indent=2)}")
                file.write("\n]\n")
            size = packed.stat().st_size / 1e6
        elif label.endswith(".eval"):
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                for place, line in enumerate(lines_):
                    archive.writestr(f"samples/{place}.json", line)
        else:
            return path, size
    return packed, size


def imported(path: Path, name: str) -> tuple[float, float, float, str]:
    """Wall and CPU seconds, peak memory in MB, and what the command printed first."""
    out = path.with_suffix(".parquet")
    start = time.perf_counter()
    log = path.with_suffix(".txt")
    code = "from turncredit.cli.main import main; main()"
    arguments = [sys.executable, "-c", code, "import", str(path), "--from", name, "--out", str(out)]
    handle = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    process = os.posix_spawn(sys.executable, arguments, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, handle, 1)])
    _, status, used = os.wait4(process, 0)
    assert status == 0
    assert pq.read_metadata(out).num_rows > 0
    return (
        time.perf_counter() - start,
        used.ru_utime + used.ru_stime,
        used.ru_maxrss / 1e3,
        log.read_text(encoding="utf-8"),
    )


def main() -> None:
    sizes = [int(argument) for argument in sys.argv[1:]] or [60, 300]
    print("| format | file, MB | wall, s | CPU, s | MB per CPU second | peak memory, MB |")
    print("|---|---:|---:|---:|---:|---:|")
    for label, (name, make) in KINDS.items():
        for megabytes in sizes:
            for long_line in (False, True) if name == "verifiers" and megabytes == sizes[0] else (False,):
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / "made.jsonl"
                    generate(path, megabytes, make, long_line=long_line)
                    path, size = pack(label, path)
                    wall, cpu, memory, output = imported(path, name)
                extra = " and a line of 100 MB, skipped" if long_line else ""
                assert long_line == ("skipped 1: a line longer than" in output)
                print(
                    f"| {label}{extra} | {size:.0f} | {wall:.1f} | {cpu:.1f} | {size / cpu:.0f} | {memory:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
