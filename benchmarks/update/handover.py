"""What a job of several rounds does between an update and the next rollout: write a policy, hash it, load it in vLLM.

    python -m benchmarks.update.handover measure weights/SmolLM2-135M-Instruct .venv-vllm/bin/python

The folder is what `make weights` makes, the program is the environment of `make test-vllm`. Two policies: all weights,
and a LoRA adapter, both in float32 with AdamW's moments. The embeddings are untied, because on a CPU vLLM starts again
for tied ones. It serves bfloat16 and loads each policy from its folder and from copies in main memory. The least that
loading can take: all weights from tensors that vLLM's worker already has, an adapter that is loaded already.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from safetensors.torch import load_file, save_file

from turncredit.config import LoraConfig
from turncredit.data import provenance
from turncredit.pipeline.job import Job, JobKeys, Slice, Store
from turncredit.policy.weights import MOMENTS_FILE

app = typer.Typer(add_completion=False)

MEMORY = Path("/dev/shm")
RANK = 32
#: label -> wall and CPU seconds of each repetition
Rows = dict[str, list[tuple[float, float]]]


@contextmanager
def timed(rows: Rows, label: str) -> Iterator[None]:
    """Add the block's wall and CPU seconds to `rows`."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    rows.setdefault(label, []).append((time.perf_counter() - wall, time.process_time() - cpu))


# ---------------------------------------------------------------- what this process does


def whole_model(source: Path) -> tuple[Any, dict[str, torch.Tensor]]:
    """The model with a head of its own, and moments of its size."""
    from turncredit.policy import models

    model = models.load_model(source, dtype="float32")
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.model.embed_tokens.weight.detach().clone())
    sizes = dict(model.named_parameters())
    return model, {f"{name}.{moment}": torch.rand_like(p) for name, p in sizes.items() for moment in ("avg", "square")}


def adapted_model(base: Path) -> tuple[Any, dict[str, torch.Tensor]]:
    """The model of `base` with an adapter that does something, and moments of the adapter's size."""
    from turncredit.policy import models

    model = models.add_lora(models.load_model(base, dtype="float32"), LoraConfig(rank=RANK, alpha=2 * RANK), 0)
    trained = models.trained_parameters(model)
    for name, parameter in trained.items():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.02)
    return model, {f"{n}.{moment}": torch.rand_like(p) for n, p in trained.items() for moment in ("avg", "square")}


def write(rows: Rows, model: Any, moments: dict[str, torch.Tensor], folder: Path, base: Path) -> None:
    """Write a policy as the stage `update` does, and open it as the stages after it do."""
    from turncredit.policy import models
    from turncredit.policy.open import OpenPolicy

    store = Store(keep=True)
    job = Job("update", JobKeys(), Slice(), {}, {"policy": str(folder)}, {}, store=store)
    with ExitStack() as hashing, job.folder("policy") as part:
        with timed(rows, "write"):
            models.save_model(model, part, base=base, final=folder, moments=moments)
        hashing.enter_context(timed(rows, "hash"))  # ends after the folder
    with timed(rows, "check before it samples"):
        OpenPolicy(folder, dtype="bfloat16", engine="vllm").verify()
    with timed(rows, "check before the next update"):
        OpenPolicy(folder, dtype="bfloat16").verify()
        provenance.verify(folder, lambda name: name == MOMENTS_FILE)


# ---------------------------------------------------------------- what vLLM does, in its environment


def held(worker: Any, file: str) -> None:
    """In a worker of vLLM: keep the tensors of a file in memory."""
    worker.held = {name: tensor.clone() for name, tensor in load_file(file).items()}


def from_held(worker: Any) -> None:
    """In a worker of vLLM: load the tensors that it keeps."""
    worker.reload_weights(weights_iterator=iter(worker.held.items()))


def cpu_seconds(_: Any) -> float:
    """In a worker of vLLM: its CPU seconds."""
    return time.process_time()


@app.command(hidden=True)
def load(folders: str, repeats: int, *, adapted: bool = False) -> None:
    """In vLLM's environment: print the seconds in which an engine takes a policy from each of the folders."""
    from turncredit.policy.engines.vllm import Engine, Vllm
    from turncredit.policy.sampling import Request

    running, rows = Engine(slots=4), {}

    def measured(label: str, take: Callable[[], Any]) -> None:
        before = running._llm.collective_rpc(cpu_seconds)[0]
        with timed(rows, label):
            take()
        wall, _ = rows[label][-1]
        rows[label][-1] = (wall, running._llm.collective_rpc(cpu_seconds)[0] - before)

    def taken(folder: str) -> Vllm:
        engine = Vllm(folder, slots=4, dtype="bfloat16", eos_id=2, longest=256, engine=running)
        if adapted:  # vLLM reads an adapter with the first request
            answer(engine)
        return engine

    def answer(engine: Vllm) -> list[int]:
        return engine.sample([Request(0, [1, 5, 9, 22, 300], True, np.array([0.3]))], 1.0, 1)[0].ids

    found = json.loads(folders)
    ids = {label: answer(taken(folder)) for label, folder in found.items()}
    for _ in range(repeats):
        for label, folder in found.items():
            measured(label, partial(taken, folder))
        if adapted:
            engine = taken(folder)
            measured("a request with the adapter loaded", partial(answer, engine))
    if not adapted:
        running._llm.collective_rpc(held, args=(f"{folder}/model.safetensors",))
        for _ in range(repeats):
            measured("load tensors of the worker", lambda: running._llm.collective_rpc(from_held))
    print("RESULT" + json.dumps([rows, ids]))


def loaded(python: Path, folders: dict[str, Path], repeats: int, *, adapted: bool) -> Rows:
    """What `load` prints in vLLM's environment."""
    given = json.dumps({label: str(folder) for label, folder in folders.items()})
    command = [str(python), "-m", "benchmarks.update.handover", "load", given, str(repeats)]
    own = {"OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    # For functions of this file, which vLLM's workers are sent.
    own["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    command += ["--adapted"] if adapted else []
    done = subprocess.run(command, env={**os.environ, **own}, stdout=subprocess.PIPE, text=True, check=True)
    rows, ids = json.loads(done.stdout.split("RESULT")[1].splitlines()[0])
    assert len({str(one) for one in ids.values()}) == 1, "the copies are not the same policy"
    return rows


def copies(folder: Path, memory: Path, *, adapted: bool) -> dict[str, Path]:
    """The policy's folder without moments, its copy in main memory, and one in the type that vLLM serves."""
    same, served = memory / f"{folder.name}-same", memory / f"{folder.name}-served"
    (folder / MOMENTS_FILE).unlink()
    for copy in (same, served):
        shutil.copytree(folder, copy)
        if adapted:
            record = json.loads((folder / "policy.json").read_text(encoding="utf-8"))
            record["base"] = os.path.relpath(folder / record["base"], copy)
            (copy / "policy.json").write_text(json.dumps(record), encoding="utf-8")
    weights = served / ("adapter_model.safetensors" if adapted else "model.safetensors")
    save_file({name: tensor.bfloat16() for name, tensor in load_file(weights).items()}, weights)
    return {"load its folder": folder, "load a copy in memory": same, "load a bfloat16 copy in memory": served}


# ---------------------------------------------------------------- both


@app.command()
def measure(source: Path, python: Annotated[Path | None, typer.Argument()] = None, repeats: int = 5) -> None:
    """Print the tables; without vLLM's Python, what comes before vLLM."""
    torch.set_num_threads(1)
    print(f"{os.cpu_count()} x {platform.machine()}, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    with (
        tempfile.TemporaryDirectory(prefix="turncredit-bench-") as disk,
        tempfile.TemporaryDirectory(prefix="turncredit-bench-", dir=MEMORY) as memory,
    ):
        base = Path(disk) / "base"
        for kind in ("whole", "LoRA"):
            adapted = kind == "LoRA"
            model, moments = adapted_model(base) if adapted else whole_model(source)
            rows: Rows = {}
            if not adapted:
                write({}, model, {}, base, source)
            for number in range(repeats):
                folder = Path(disk) / f"{kind}{number}"
                write(rows, model, moments, folder, base if adapted else source)
            del model, moments
            if python:
                found = copies(folder, Path(memory), adapted=adapted)
                rows |= loaded(python, found, repeats, adapted=adapted)
            print(f"| {kind} | s, median (lowest to highest) | CPU s |\n|---|---:|---:|")
            for label, pairs in rows.items():
                wall, cpu = np.array(pairs).T
                print(
                    f"| {label} | {np.median(wall):.2f} ({min(wall):.2f} to {max(wall):.2f}) | {np.median(cpu):.2f} |"
                )


if __name__ == "__main__":
    app()
