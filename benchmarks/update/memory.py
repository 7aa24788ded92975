"""The cost of the logits of a large vocabulary: peak memory and time of a training pass, all at once and in parts.

    python -m benchmarks.update.memory

A Qwen2 of hidden size 256 and two layers with the vocabulary of Qwen2.5 (151,936), 8 sequences of 512 tokens of which
half are learned. Each measurement is a separate process; memory is in addition to what it held before the pass.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

VOCABULARY, ROWS, LENGTH = 151_936, 8, 512


def measured(at_once: int) -> tuple[float, float]:
    """(GB in addition to the memory before, CPU seconds) of one pass with its gradient."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from turncredit.training.sequences import token_distributions

    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=VOCABULARY, num_hidden_layers=2, tie_word_embeddings=True, **sizes))
    ids = torch.randint(VOCABULARY, (ROWS, LENGTH))
    learned = torch.zeros(ROWS, LENGTH, dtype=torch.bool)
    learned[:, ::2] = True
    before, clock = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    logprobs, _ = token_distributions(model, ids, learned, entropy="value", at_once=at_once)
    (-logprobs.mean()).backward()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return peak / 2**20, time.process_time() - clock


def main() -> None:
    """Measure each number of logits in a process of its own, and print a table."""
    if len(sys.argv) > 1:
        print(*measured(int(sys.argv[1])))
        return
    print("# Logits of a large vocabulary\n")
    print(f"`python -m benchmarks.update.memory`, {platform.machine()}, torch {torch.__version__}, one thread.\n")
    print("| logits at a time | peak in addition to the model, GB | CPU s |\n|---|---:|---:|")
    for name, at_once in (("all", 2**40), ("2^28", 2**28), ("2^26 (the default)", 2**26), ("2^24", 2**24)):
        command = [sys.executable, "-m", "benchmarks.update.memory", str(at_once)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        memory, seconds = map(float, run.stdout.split())
        print(f"| {name} | {memory:.2f} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
