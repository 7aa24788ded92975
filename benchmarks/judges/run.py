"""The three numbers of the judges, as a Markdown table: python -m benchmarks.judges.run

1. Rule judge: at least 20,000 turns per second.
2. A second labelling of the same 10,000 turns from the cache: under 2 s, and no request.
3. 64 concurrent requests keep a server that takes 200 ms for an answer at 90% or more of its capacity (64 / 0.2 s = 320
per second). A server that takes 50 ms shows how much one process can send.

Everything runs from the command line's own function, `label_turns`, on turns played by `play.py`; the server is
another process. The third number is the server's: its requests over the time from its first to its last, without the
start of Python; the rate over the whole labelling is printed next to it. Times are wall times, so other work on the
machine matters; CPU times help to see how much.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from benchmarks.judges.play import rollouts
from turncredit.config.judge import JudgeConfig
from turncredit.envs.household import Settings
from turncredit.judges.label import label_turns

TURNS = 10_000


def distinct_turns(count: int, seed: int) -> pa.Table:
    """`count` turns whose windows all differ: identical windows are requested once and would flatter the client."""
    table = rollouts(count // 15, seed, Settings(horizon=30)).slice(0, count)
    if table.num_rows < count:
        raise SystemExit(f"only {table.num_rows} turns were played; raise the number of rollouts")
    goals = [f"{goal} (copy {at})" for at, goal in enumerate(table.column("goal").to_pylist())]
    return table.set_column(table.column_names.index("goal"), "goal", pa.array(goals))


def rule_speed(table: pa.Table, repeats: int) -> tuple[float, float]:
    """Turns per second and per CPU second, the best of some runs; nothing is cached between runs."""
    from turncredit.envs.household import grammar as household
    from turncredit.judges import window

    wall, cpu = [], []
    for _ in range(repeats):
        for cached in (window.redact, household.read_turn, household.read_goal):
            cached.cache_clear()
        started, cpu_started = time.perf_counter(), time.process_time()
        label_turns(table, JudgeConfig())
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - cpu_started)
    return table.num_rows / min(wall), table.num_rows / min(cpu)


def served(port: int) -> dict[str, float]:
    """The server's statistics of its requests."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as reply:
        return json.loads(reply.read())


class Asked(NamedTuple):
    """The first labelling: requests a second while the server was in use, and over all; the second: its cost."""

    rate: float
    rate_overall: float
    cpu_ms: float
    most: int
    again: float
    requests_again: float


def cpu_seconds() -> float:
    """CPU time of this process and its children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def client_speed(table: pa.Table, concurrency: int, seconds: float) -> Asked:
    """Label `table` twice with the same cache; the server takes `seconds` for an answer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = Path(__file__).with_name("server.py")
    config = JudgeConfig(
        kind="llm", model="bench", base_url=f"http://127.0.0.1:{port}/v1", thinking=False, concurrency=concurrency
    )
    with (
        subprocess.Popen([sys.executable, str(script), str(port), str(seconds)], stdout=subprocess.PIPE) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        try:
            assert server.stdout is not None
            server.stdout.readline()
            started, cpu_started = time.perf_counter(), cpu_seconds()
            label_turns(table, config, cache=folder)
            overall, cpu = time.perf_counter() - started, cpu_seconds() - cpu_started
            first = served(port)
            started = time.perf_counter()
            label_turns(table, config, cache=folder)
            again = time.perf_counter() - started
            count = first["count"]
            rate, requests_again = count / first["seconds"], served(port)["count"] - count
            return Asked(rate, count / overall, 1000 * cpu / count, int(first["most"]), again, requests_again)
        finally:
            server.kill()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--seconds", type=float, nargs="+", default=[0.05, 0.2], help="what the server takes")
    parser.add_argument("--repeats", type=int, default=3, help="labellings of which the median is printed")
    given = parser.parse_args()
    plain = rollouts(given.turns // 10, given.seed, Settings(horizon=30))
    rule, rule_cpu = rule_speed(plain, repeats=3)
    table = distinct_turns(given.turns, given.seed)
    print(f"Load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print("| measure | target | measured |\n|---|---|---|")
    print(f"| rule judge, {plain.num_rows:,} turns | 20,000/s | {rule:,.0f}/s ({rule_cpu:,.0f} per CPU second) |")
    again: list[Asked] = []
    for seconds, concurrency in itertools.product(given.seconds, given.concurrency):
        runs = sorted(client_speed(table, concurrency, seconds) for _ in range(given.repeats))
        again += runs
        asked, ideal = runs[len(runs) // 2], concurrency / seconds
        all_rates = ", ".join(f"{one.rate:,.0f}" for one in runs)
        rates = f"{asked.rate:,.0f}/s of {all_rates}; {asked.rate_overall:,.0f}/s including start and end"
        print(
            f"| {concurrency} concurrent requests, {1000 * seconds:.0f} ms server | {ideal:,.0f}/s | "
            f"{asked.rate / ideal:.1%} ({rates}; {asked.cpu_ms:.2f} ms of CPU time a request) |"
        )
    slowest = max(one.again for one in again)
    asked_again = sum(one.requests_again for one in again)
    cost = f"{slowest:.2f} s, {asked_again:.0f} requests"
    print(f"| second labelling of {given.turns:,} turns | < 2 s, 0 requests | {cost} |")


if __name__ == "__main__":
    main()
