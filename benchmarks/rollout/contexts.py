"""Agents that replace their context, against the append-only one and against reading every context from its start.

    python -m benchmarks.rollout.contexts               prints its part of RESULTS.md
    python -m benchmarks.rollout.contexts --games 4 --repeats 1          a short look

A briefly trained policy plays a round once. Its actions are then played again through each agent, with the same
responses for all: the model is made to sample them, at the cost of sampling. So agents differ in nothing but their
contexts. All cases take turns in one process, in the reverse order every other time.
"""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import typer

from benchmarks import small_world
from benchmarks.rollout import folding
from turncredit.config import AgentSlice
from turncredit.data import tables
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.policy.engines import lockstep
from turncredit.policy.engines.lockstep import Lockstep
from turncredit.policy.open import OpenPolicy
from turncredit.policy.sampling import Request, Response, draw
from turncredit.rollouts.play import ActiveRollout, Played, Player, Start
from turncredit.rollouts.tasks import Games

FOLDING = str(Path(folding.__file__).resolve())
#: Name, the agent's name for the configuration, its settings.
AGENTS = {
    "transcript": (f"{FOLDING}:TRANSCRIPT", {}),
    "window": ("window", {"history": 2, "show_admissible": True}),
    "folding": (FOLDING, {}),
}
#: The responses of a rollout, by what they consist of.
Scripts = dict[str, dict[str, list[list[int]]]]


class FromTheStart(Lockstep):
    """The same engine, reading the whole context of every rollout every turn."""

    def sample(self, requests: Sequence[Request], temperature: float, max_new: int) -> list[Response]:
        """One response for each request."""
        whole = []
        for request in requests:
            slot, ids = request.slot, request.ids
            if not request.reset:
                ids = [*self._cached[slot], self._pending[slot], *ids]
            self._cached[slot], self._pending[slot] = [], -1
            # As an extension of nothing: the engine reads equal contexts once only where they replace another.
            whole.append(Request(slot, ids, False, request.uniforms))
        return super().sample(whole, temperature, max_new)


def given(logits: torch.Tensor, temperature: float, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws as an engine does, but returns the tokens that are given in the place of the random numbers."""
    _, logprobs = draw(logits, temperature, torch.zeros_like(tokens))
    return tokens.long(), logprobs


@contextmanager
def scripted(responses: dict[str, list[list[int]]]) -> Iterator[None]:
    """Inside, every rollout gives these responses (by its id), whatever the policy's probabilities."""

    def request(rollout: ActiveRollout) -> Request:
        tokens = np.zeros(rollout.max_new)
        ids = responses[rollout.played.start.rollout_id][len(rollout.played.turns)]
        tokens[: len(ids)] = ids
        return Request(rollout.slot, rollout.prompt.ids, rollout.prompt.reset, tokens)

    with mock.patch.object(ActiveRollout, "request", request), mock.patch.object(lockstep, "draw", given):
        yield


def played_once(plan: Plan, games: Games, chosen: list[Start]) -> list[Played]:
    """The round that the policy plays of its own."""
    policy = OpenPolicy(plan.sft_policy(JobKeys()), dtype="float32")
    return Player(policy, plan.agent(JobKeys()), games, len(chosen)).play(chosen, temperature=1.0)


def scripts(rounds: list[Played], encode: Any, eos_id: int) -> Scripts:
    """The tokens of the short and of the long responses with the actions that were played, by rollout and turn."""
    by_kind: Scripts = {"an action": {}, "a reflection and an action": {}}
    for rollout in rounds:
        name = rollout.start.rollout_id
        by_kind["an action"][name] = [
            [*encode(folding.short(turn.action, number)), eos_id] for number, turn in enumerate(rollout.turns)
        ]
        by_kind["a reflection and an action"][name] = [
            [*encode(folding.long(turn.action, turn.observation, number)), eos_id]
            for number, turn in enumerate(rollout.turns)
        ]
    return by_kind


@dataclass
class Case:
    """Rollouts through one agent with one engine, and what was measured of them."""

    agent: str
    engine: type[Lockstep]
    tokens_read: int = 0
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def repeat(self, policy: OpenPolicy, games: Games, chosen: list[Start], longest: int) -> None:
        """Play the rollouts once more. The policy is opened anew, so that no text has been tokenized before."""
        name, settings = AGENTS[self.agent]
        policy = OpenPolicy(policy.folder, dtype="float32")
        player = Player(
            policy, AgentSlice(name=name, settings=settings, max_response_tokens=longest), games, len(chosen)
        )
        engine = self.engine(str(policy.folder), slots=len(chosen), dtype="float32", eos_id=policy.tokenizer.eos_id)
        player._sampler = engine
        wall, cpu = time.perf_counter(), time.process_time()
        player.play(chosen, temperature=1.0)
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)
        self.tokens_read = engine.tokens_read


def compared(cases: list[Case], turns: int, sampled: int) -> None:
    """The table of the cases, and the ratios that have a target: medians over repetitions of paired ratios."""
    print("| agent | contexts | tokens read a turn, sampled ones included | turns/s | turns a CPU second |")
    print("|---|---|---:|---:|---:|")
    for case in cases:
        how = "read from the start" if case.engine is FromTheStart else "read where they differ"
        wall, cpu = (turns / statistics.median(times) for times in (case.wall, case.cpu))
        print(f"| {case.agent} | {how} | {case.tokens_read / turns:.0f} | {wall:,.0f} | {cpu:,.0f} |")
    print(f"\n{turns:,} turns, {sampled / turns:.1f} sampled tokens each.\n")
    print("| ratio of throughput, by CPU time (by wall time) | median | lowest | highest | at least |")
    print("|---|---:|---:|---:|---:|")
    by_name = {(case.agent, case.engine): case for case in cases}
    for agent in AGENTS:
        fast, slow = by_name[agent, Lockstep], by_name[agent, FromTheStart]
        _ratio(f"{agent} against reading everything", slow, fast, "3x" if agent != "transcript" else "")
    for agent in ("window", "folding"):
        _ratio(f"{agent} against transcript", by_name["transcript", Lockstep], by_name[agent, Lockstep], "0.6x")


def _ratio(what: str, slow: Case, fast: Case, target: str) -> None:
    cpu = [one / two for one, two in zip(slow.cpu, fast.cpu, strict=True)]
    wall = statistics.median(one / two for one, two in zip(slow.wall, fast.wall, strict=True))
    print(
        f"| {what} | {statistics.median(cpu):.2f}x ({wall:.2f}x) | {min(cpu):.2f}x | {max(cpu):.2f}x | {target} |",
        flush=True,
    )


def main(games: int = 16, repeats: int = 3, size: str = "0.14 M") -> None:
    """Make the policy, play its round, and play that through every agent."""
    torch.set_num_threads(1)
    name, _ = AGENTS["transcript"]
    experiment = small_world.settings(
        size,
        agent={"name": name, "max_response_tokens": 16},
        tasks={"train": 3000, "eval": 8},
        demos={"count": 3000},
        sft={"epochs": 1.8},
    )
    with tempfile.TemporaryDirectory(prefix="turncredit-bench-") as folder:
        plan = small_world.make(experiment, Path(folder))
        table = tables.read(plan.layout.path("tasks", split="train"), "tasks")
        all_games = Games(plan.env, table)
        chosen = small_world.starts(all_games, games)
        rounds = played_once(plan, all_games, chosen)
        policy = OpenPolicy(plan.sft_policy(JobKeys()), dtype="float32")
        by_kind = scripts(rounds, policy.tokenizer.encode, policy.tokenizer.eos_id)
        turns = sum(len(rollout.turns) for rollout in rounds)
        print(
            f"Machine: {os.cpu_count()} x {platform.machine()}, load {os.getloadavg()[0]:.1f} at the start; Python "
            f"{platform.python_version()}, torch {torch.__version__}, one thread; {size} parameters, {len(chosen)} "
            f"rollouts of which {np.mean([rollout.success for rollout in rounds]):.0%} succeed, {repeats} repetitions."
        )
        for what, responses in by_kind.items():
            longest = max(len(ids) for rollout in responses.values() for ids in rollout)
            cases = [Case(agent, engine) for agent in AGENTS for engine in (Lockstep, FromTheStart)]
            with scripted(responses):
                for number in range(repeats):
                    for case in cases[::-1] if number % 2 else cases:
                        case.repeat(policy, all_games, chosen, longest)
            print(f"\n### Responses of {what}\n")
            compared(cases, turns, sum(len(ids) for rollout in responses.values() for ids in rollout))


if __name__ == "__main__":
    typer.run(main)
