"""Rollouts in lockstep against rollouts that do not wait for each other (`turncredit/rollouts/play.py`).

    python -m benchmarks.rollout.when_ready simulate                a round on an A100, computed
    python -m benchmarks.rollout.when_ready measure --python .venv-vllm/bin/python      vLLM's build for CPUs

`simulate` assumes that a step of decoding reads all weights and the caches of the sequences that are under way, at half
the bandwidth of an A100, that prompts are read at 40% of its peak, and that environments reply at once. These are the
constants of `turncredit plan`. Response lengths are log-normal and cut at the limit; a rollout's number of turns is
uniform, with a mean of 70% of the horizon.

`measure` plays games of the household with random weights whose responses have a geometric length, once with requests
of all rollouts together and once with each when it is ready.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks import small_world
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.resources.assumed import A100, TYPICAL
from turncredit.policy.shapes import BYTES, PUBLISHED, Shapes, shapes_of

app = typer.Typer(add_completion=False)


@dataclass(frozen=True)
class Round:
    """A round: how many rollouts at a time, the horizon, the longest response, tokens of a prompt and its new part."""

    rollouts: int
    horizon: int
    longest: int
    prompt: int
    fresh: int


#: name -> model and round: the small start on the household with thoughts, and 128 rollouts as most papers have them
ROUNDS = {
    "1.5B, 80 rollouts": ("Qwen/Qwen2.5-1.5B-Instruct", Round(80, 50, 512, 700, 350)),
    "1.5B, 512 rollouts": ("Qwen/Qwen2.5-1.5B-Instruct", Round(512, 50, 512, 700, 350)),
    "7B, 128 rollouts": ("Qwen/Qwen2.5-7B-Instruct", Round(128, 50, 512, 700, 350)),
}


def lengths(played: Round, spread: float, rng: np.random.Generator) -> list[np.ndarray]:
    """Response tokens of each turn of each rollout; `spread` is a response's standard deviation over its mean."""
    scale = np.sqrt(np.log1p(spread**2))
    mean = TYPICAL.response * played.longest
    least = round((2 * TYPICAL.turns - 1) * played.horizon)
    turns = rng.integers(least, played.horizon, played.rollouts, endpoint=True)
    drawn = [rng.lognormal(np.log(mean) - scale**2 / 2, scale, count) for count in turns]
    return [np.clip(np.ceil(one), 1, played.longest).astype(int) for one in drawn]


def seconds(model: Shapes, played: Round, responses: list[np.ndarray], *, lockstep: bool) -> float:
    """Seconds of a round, one step of decoding after the other."""
    waiting = [list(one[::-1]) for one in responses]
    left = np.array([one.pop() for one in waiting])  # tokens that a rollout's response still needs
    weights, cached = BYTES["bfloat16"] * model.parameters, model.cache(1, "bfloat16")
    reading = model.passes(played.fresh) / (A100.operations * A100.reached)
    total = len(responses) * reading
    while True:
        going = left > 0
        if not going.any():
            asking = [number for number, one in enumerate(waiting) if one]
            if not asking:
                return total
            for number in asking:
                left[number] = waiting[number].pop()
            total += len(asking) * reading
            continue
        context = played.prompt + TYPICAL.response * played.longest / 2
        total += (weights + going.sum() * context * cached) / (A100.bandwidth * A100.decoded)
        left[going] -= 1
        if lockstep:
            continue
        for number in np.flatnonzero(going & (left == 0)):
            if waiting[number]:
                left[number] = waiting[number].pop()
                total += reading


@app.command()
def simulate(repeats: int = 4) -> None:
    """Print the table of simulated rounds: means over `repeats` draws of the lengths."""
    print("| round | spread of lengths | lockstep, s | when ready, s | ratio |\n|---|---:|---:|---:|---:|")
    for name, (source, played) in ROUNDS.items():
        model = shapes_of(PUBLISHED[source], source)
        for spread in (0.3, 0.6, 1.0):
            both = []
            for seed in range(repeats):
                responses = lengths(played, spread, np.random.default_rng(seed))
                both.append([seconds(model, played, responses, lockstep=way) for way in (True, False)])
            apart, ready = np.mean(both, axis=0)
            print(f"| {name} | {spread} | {apart:.0f} | {ready:.0f} | {apart / ready:.2f}x |")


# ---------------------------------------------------------------- vLLM's build for CPUs


#: Mean and longest response in tokens, of random weights.
MEAN, LONGEST = 40, 128


def random_policy(folder: Path) -> None:
    """Replace a policy by random weights that end a response with probability 1 / MEAN at every token."""
    import torch
    from transformers import AutoConfig, Qwen2ForCausalLM

    from turncredit.policy import tokenizer

    eos = tokenizer.load(folder).eos_id
    shape = AutoConfig.from_pretrained(folder)
    shape.hidden_size, shape.intermediate_size, shape.num_hidden_layers = 512, 1536, 8
    shape.num_attention_heads = shape.num_key_value_heads = 8
    shape.tie_word_embeddings, shape.initializer_range = False, 0.02
    if getattr(shape, "layer_types", None):
        shape.layer_types = ["full_attention"] * shape.num_hidden_layers
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(shape)
    with torch.no_grad():
        # One large number in every embedding outweighs the rest: after the last norm it is the square root of the size.
        model.model.embed_tokens.weight[:, 0] = 100.0
        model.lm_head.weight[:, 0] = 0
        model.lm_head.weight[eos] = 0
        model.lm_head.weight[eos, 0] = float(np.log(shape.vocab_size / (MEAN - 1)) / np.sqrt(shape.hidden_size))
    model.save_pretrained(folder)


class Together:
    """An engine of which every call answers all requests, so that rollouts are played in lockstep."""

    def __init__(self, inner):
        self.slots, self._inner = inner.slots, inner

    def sample(self, requests, temperature, max_new):
        """One response for each request."""
        return self._inner.sample(requests, temperature, max_new)


@app.command(hidden=True)
def play(policy: Path, games: Path, count: int, repeats: int) -> None:
    """In vLLM's environment: print the seconds of each repetition, by way of playing, and the tokens."""
    from turncredit.data import tables
    from turncredit.policy.engines.vllm import Engine
    from turncredit.policy.open import OpenPolicy
    from turncredit.rollouts.play import Player, Start
    from turncredit.rollouts.tasks import Games

    class Lockstep(OpenPolicy):
        def sampler(self, slots, **given):
            return Together(super().sampler(slots, **given))

    experiment = settings()
    played = Games(experiment.env.chosen(), tables.read(games, "tasks"))
    starts = [Start(row["task_id"], row["task_id"], row, number) for number, row in enumerate(played.rows[:count])]
    running, found = Engine(slots=count), {"lockstep": [], "when ready": []}
    for number in range(repeats + 1):
        for name, kind in (("lockstep", Lockstep), ("when ready", OpenPolicy)):
            opened = kind(policy, dtype="float32", engine="vllm", running=running)
            player = Player(opened, experiment.agent.chosen(), played, count)
            started = time.perf_counter()
            rollouts = player.play(starts, temperature=1.0)
            if number:  # the first warms up
                found[name].append([time.perf_counter() - started, sum(one.tokens for one in rollouts)])
    print("RESULT" + json.dumps(found))


def settings():
    """The default experiment with responses as long as thoughts and ten turns."""
    agent = {"name": "window", "max_response_tokens": LONGEST, "window": {"history": 2, "think": False}}
    return small_world.settings("0.14 M", agent=agent, env={"household": {"horizon": 10}}, sft={"epochs": 0.05})


@app.command()
def measure(python: Annotated[Path, typer.Option()], count: int = 32, repeats: int = 5) -> None:
    """Print what both ways of playing take with vLLM's build for CPUs, in the environment of `make test-vllm`."""
    with tempfile.TemporaryDirectory(prefix="turncredit-bench-") as folder:
        plan = small_world.make(settings(), Path(folder))
        policy = Path(plan.sft_policy(JobKeys()))
        random_policy(policy)
        (policy / "provenance.json").unlink(missing_ok=True)
        command = [str(python), "-m", "benchmarks.rollout.when_ready", "play", str(policy)]
        command += [plan.layout.path("tasks", split="train"), str(count), str(repeats)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.split("RESULT")[1].splitlines()[0])
    print(f"{os.cpu_count()} x {platform.machine()}, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    print("| way | s, median (lowest to highest) | tokens sampled |\n|---|---:|---:|")
    for name, rows in found.items():
        took, tokens = zip(*rows, strict=True)
        print(f"| {name} | {np.median(took):.1f} ({min(took):.1f} to {max(took):.1f}) | {tokens[0]:.0f} |")
    pairs = [one[0] / two[0] for one, two in zip(*found.values(), strict=True)]
    print(f"ratio of pairs: {np.median(pairs):.2f}x ({min(pairs):.2f} to {max(pairs):.2f})")


if __name__ == "__main__":
    app()
