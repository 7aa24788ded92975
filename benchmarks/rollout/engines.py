"""One engine in its own process: plays the same rollouts on each request, and reports the time.

`run.py` starts it with NAME SIZE FOLDER GAMES. It reads a line for each repetition, answers with a line of JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence

import torch

from benchmarks import small_world
from benchmarks.rollout import parts
from turncredit.data import tables
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.policy.engines.lockstep import Lockstep
from turncredit.policy.engines.transformers import Generate
from turncredit.policy.models import load_model
from turncredit.policy.open import OpenPolicy
from turncredit.policy.sampling import Request, Response
from turncredit.rollouts.play import Played, Player
from turncredit.rollouts.rollout import turn_table
from turncredit.rollouts.tasks import Games


class FullPrompt:
    """transformers' `generate` on the whole context of all running rollouts, left-padded; finished ones are dropped."""

    def __init__(self, folder: str, *, slots: int, eos_id: int):
        self.slots, self.eos_id, self.tokens_read = slots, eos_id, 0
        self._model = load_model(folder, dtype="float32").eval()
        self._context: list[list[int]] = [[] for _ in range(slots)]

    @torch.inference_mode()
    def sample(self, requests: Sequence[Request], temperature: float, max_new: int) -> list[Response]:
        """One response for each request, with the log-probabilities that training needs."""
        for request in requests:
            self._context[request.slot] = ([] if request.reset else self._context[request.slot]) + request.ids
        contexts = [self._context[request.slot] for request in requests]
        longest = max(map(len, contexts))
        self.tokens_read += sum(map(len, contexts))
        output = self._model.generate(
            torch.tensor([[self.eos_id] * (longest - len(ids)) + ids for ids in contexts]),
            attention_mask=torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in contexts]),
            do_sample=True,
            temperature=temperature,
            top_k=0,
            top_p=1.0,
            max_new_tokens=max_new,
            eos_token_id=self.eos_id,
            pad_token_id=self.eos_id,
            return_dict_in_generate=True,
            output_logits=True,
        )
        tokens = output.sequences[:, longest:]
        logits = torch.stack(output.logits, dim=1)
        logprobs = logits.log_softmax(-1).gather(2, tokens[:, :, None])[:, :, 0].tolist()
        responses = []
        for request, ids, scores in zip(requests, tokens.tolist(), logprobs, strict=True):
            end = ids.index(self.eos_id) + 1 if self.eos_id in ids else len(ids)
            self._context[request.slot] = self._context[request.slot] + ids[:end]
            responses.append(Response(ids[:end], scores[:end]))
        self.tokens_read += sum(len(response.ids) - 1 for response in responses)
        return responses


def player(name: str, plan: Plan, games: Games, slots: int) -> Player:
    """A player whose engine is the one called `name`: generate, full context, lockstep or `lockstep xN` (processes)."""
    policy = plan.sft_policy(JobKeys())
    processes = int(name.partition(" x")[2] or 1)
    loaded_player = Player(
        OpenPolicy(policy, dtype="float32"), plan.agent(JobKeys()), games, slots, processes=processes
    )
    if processes > 1:
        return loaded_player
    eos_id = loaded_player._tokenizer.eos_id
    engines: dict[str, Callable] = {
        "generate": lambda: FullPrompt(policy, slots=slots, eos_id=eos_id),
        "full context": lambda: Generate(policy, slots=slots, dtype="float32", eos_id=eos_id),
        "lockstep": lambda: Lockstep(policy, slots=slots, dtype="float32", eos_id=eos_id),
    }
    loaded_player._sampler = engines[name]()
    return loaded_player


def repetition(name: str, plan: Plan, games: Games, count: int) -> dict[str, float]:
    """Load the policy and play; seconds, turns and tokens."""
    clock, cpu = time.perf_counter(), time.process_time()
    chosen = small_world.starts(games, count)
    loaded_player = player(name, plan, games, min(plan.experiment.rollout.slots, len(chosen)))
    played = loaded_player.play(chosen, temperature=1.0)
    wall, cpu = time.perf_counter() - clock, time.process_time() - cpu
    who = resource.RUSAGE_CHILDREN if loaded_player._sampler is None else resource.RUSAGE_SELF
    return {
        "wall": wall,
        "cpu": cpu,
        "turns": sum(len(rollout.turns) for rollout in played),
        "sampled": sum(rollout.tokens for rollout in played),
        "read": getattr(loaded_player._sampler, "tokens_read", None) or 0,
        "memory": resource.getrusage(who).ru_maxrss / 2**20,
    }


def profile(plan: Plan, games: Games, count: int) -> dict[str, float]:
    """Seconds of each part of one round with the lockstep engine, its table included."""

    def work() -> list[Played]:
        chosen = small_world.starts(games, count)
        loaded_player = player("lockstep", plan, games, min(plan.experiment.rollout.slots, len(chosen)))
        played = loaded_player.play(chosen, temperature=1.0)
        common = {"env": "household", "policy_id": "sft", "agent": "transcript", "seed": 0, "temperature": 1.0}
        turn_table(played, common)
        return played

    return parts.measured(work)


def main(name: str, size: str, folder: str, count: str) -> None:
    """Answer every line of standard input."""
    torch.set_num_threads(1)
    plan = Plan(small_world.settings(size), folder)
    games = Games(plan.env, tables.read(plan.layout.path("tasks", split="train"), "tasks"))
    print("ready", flush=True)
    for _ in sys.stdin:
        answer = profile(plan, games, int(count)) if name == "profile" else repetition(name, plan, games, int(count))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(*sys.argv[1:])
