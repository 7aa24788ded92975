"""The three numbers of the judges, as a Markdown table: python benchmarks/judges/run.py

1. Rule judge: at least 20,000 turns per second.
2. A second labelling of the same 10,000 turns from the cache: under 2 s, and no request.
3. 64 concurrent requests keep a server that takes 50 ms at 90% or more of its capacity (64 / 0.05 s = 1,280 per
second).

Everything runs from the command line's own function, `label_turns`, on turns played by `play.py`; the server is
another process. The third number is the server's: its requests over the time from its first to its last, without the
start of Python; the rate over the whole labelling is printed next to it. Times are wall times, so other work on the
machine matters; CPU times help to see how much.
"""

from __future__ import annotations

import argparse
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
from play import rollouts

from turncredit.config.judge import JudgeConfig
from turncredit.envs.household import Settings
from turncredit.judges.label import label_turns

CONCURRENCY, TURNS = 64, 10_000


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
    most: int
    again: float
    requests_again: float


def client_speed(table: pa.Table, seconds: float) -> Asked:
    """Label `table` twice with the same cache; the server takes `seconds` for an answer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = Path(__file__).with_name("server.py")
    config = JudgeConfig(
        kind="llm", model="bench", base_url=f"http://127.0.0.1:{port}/v1", thinking=False, concurrency=CONCURRENCY
    )
    with (
        subprocess.Popen([sys.executable, str(script), str(port), str(seconds)], stdout=subprocess.PIPE) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        try:
            assert server.stdout is not None
            server.stdout.readline()
            started = time.perf_counter()
            label_turns(table, config, cache=folder)
            overall = time.perf_counter() - started
            first = served(port)
            started = time.perf_counter()
            label_turns(table, config, cache=folder)
            again = time.perf_counter() - started
            count = first["count"]
            return Asked(
                count / first["seconds"], count / overall, int(first["most"]), again, served(port)["count"] - count
            )
        finally:
            server.kill()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.05, help="what the server takes for an answer")
    given = parser.parse_args()
    plain = rollouts(given.turns // 10, given.seed, Settings(horizon=30))
    rule, rule_cpu = rule_speed(plain, repeats=3)
    asked = client_speed(distinct_turns(given.turns, given.seed), given.seconds)
    ideal = CONCURRENCY / given.seconds
    print(f"Load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print("| measure | target | measured |\n|---|---|---|")
    print(f"| rule judge, {plain.num_rows:,} turns | 20,000/s | {rule:,.0f}/s ({rule_cpu:,.0f} per CPU second) |")
    print(
        f"| second labelling of {given.turns:,} turns | < 2 s, 0 requests | "
        f"{asked.again:.2f} s, {asked.requests_again:.0f} requests |"
    )
    rates = f"{asked.rate:,.0f}/s; {asked.rate_overall:,.0f}/s including start and end; at most {asked.most} at once"
    server = f"{CONCURRENCY} concurrent requests, {1000 * given.seconds:.0f} ms server"
    print(f"| {server} | 90% of {ideal:,.0f}/s | {asked.rate / ideal:.1%} ({rates}) |")


if __name__ == "__main__":
    main()
