"""Sample with vLLM: whole contexts as token ids; its prefix cache saves reading the part shared with earlier turns.

vLLM is not in the core environment (envs_conda/gpu-rollout.yaml has it). It draws its own random numbers, seeded from
the rollout's: the same seed reproduces a run on the same build with the same batches, but other engines give other
tokens.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from turncredit.data.files import write_json
from turncredit.errors import UserError
from turncredit.policy.cuda_driver import free_share
from turncredit.policy.sampling import Request, Response, free_memory, sampled
from turncredit.policy.weights import MOMENTS_FILE, read_config, weights_folder

#: The share of a GPU's memory that vLLM 0.32 takes by default, and what is left of the free share where that is less.
MEMORY_SHARE, SPARED = 0.92, 0.02
#: Options that an engine which started with arbitrary weights gets before it reads a policy's.
READS_FILES = {"load_format": "auto"}
#: Tokens of prompts that vLLM reads at a time on a CPU, its own default, or one prompt's if that is longer.
READ_AT_ONCE = 4096


class Engine:
    """A vLLM engine that the stages of one process use one after another: it starts once.

    Every policy that samples takes it with `use`, which gives the engine its weights. Between two stages it sleeps, so
    that training has the GPU: it keeps a process, a CUDA context and what it has compiled, but neither weights nor
    cache. (vLLM for CPUs ignores being sent to sleep.)

    keep    whether another stage may follow: only then does the engine learn to sleep
    slots   sequences at a time that it has room for from its start, however few the first stage needs
    """

    def __init__(self, *, keep: bool = True, slots: int = 1):
        self.keep, self.slots = keep, slots
        self._llm: Any = None
        self._form: Form | None = None
        self._asleep = False
        self._adapters = count(1)
        #: unique names of requests
        self.names = count()

    def use(self, folder: str, *, slots: int, dtype: str, longest: int | None, gpus: int) -> tuple[Any, Any]:
        """vLLM's engine with the weights of the policy in `folder`, and vLLM's name of its adapter (None: it has none).

        It restarts only for a policy of another form, and for more slots or longer contexts than before. On the CPU it
        also restarts for tied embeddings: vLLM packs a copy of them that new weights do not change.
        """
        base = weights_folder(folder)
        adapted = base != Path(folder)
        described = read_config(folder)
        positions = described["max_position_embeddings"]
        length = min(positions, longest or positions)
        rank = _rank(folder) if adapted else 0
        model = json.dumps(described, sort_keys=True)
        form = Form(model, str(base) if adapted else "", dtype, gpus, rank, max(slots, self.slots), length)
        packed = not adapted and not _has_gpu() and described.get("tie_word_embeddings") is not False
        with _weights_alone(base) as weights:
            if self._form is not None and self._form.serves(form) and not packed:
                self._load(None if adapted else weights)
            else:
                if self._form is not None:
                    form = form.with_room_of(self._form)
                self.end()
                self._begin(weights, form, described, at_once=adapted or packed)
                self._form = form
        if not adapted:
            return self._llm, None
        from vllm.lora.request import LoRARequest

        # vLLM keeps adapters and prefixes by these: each policy that samples has its own.
        number = next(self._adapters)
        return self._llm, LoRARequest(f"{adapter_name(folder)}#{number}", number, str(Path(folder).resolve()))

    def sleep(self) -> None:
        """Give the GPU's memory to other stages, until the engine is used again."""
        if self._llm is None or self._asleep:
            return
        # The base of an adapter waits in main memory; whole weights change, and are read from the next policy's folder.
        self._llm.sleep(level=1 if self._form is not None and self._form.base else 2)
        self._asleep = True

    def end(self) -> None:
        """End the engine, if it has been started, and free what it holds."""
        if self._llm is not None:
            self._llm = self._form = None
            self._asleep = False
            free_memory()  # it ends when nothing refers to it any more

    def _begin(self, weights: Path, form: Form, described: Mapping[str, Any], *, at_once: bool) -> None:
        """Start the engine with the weights in this folder; unless `at_once`, it reads them when it has started."""
        sleeps = self.keep and _has_gpu()
        self._llm = _start(weights if at_once else _description(described), form, sleeps, empty=not at_once)
        if not at_once:
            self._llm.collective_rpc("update_config", kwargs={"overrides": {"load_config": READS_FILES}})
            self._load(weights)

    def _load(self, weights: Path | None) -> None:
        """Wake the engine with the whole weights in this folder (None: with those that it had, of adapters' base)."""
        if self._asleep:
            self._llm.wake_up(tags=["weights"])
        if weights is not None:
            self._llm.collective_rpc("reload_weights", kwargs={"weights_path": str(weights)})
        if self._asleep:
            self._llm.wake_up(tags=["kv_cache"])
            self._asleep = False
        self._llm.reset_prefix_cache()  # of keys and values by the weights before


class Form(NamedTuple):
    """What an engine cannot change once it has started: the model but for its weights, and its room.

    base    the folder of an adapter's base; "" for whole weights
    gpus    that the model is split over
    rank    of the adapters that it takes; 0 for whole weights
    slots   the most sequences at a time
    length  the most tokens of a context with its response
    """

    model: str
    base: str
    dtype: str
    gpus: int
    rank: int
    slots: int
    length: int

    def serves(self, other: Form) -> bool:
        """Whether an engine of this form can sample for a policy of the other one."""
        fits = self.rank >= other.rank and self.slots >= other.slots and self.length >= other.length
        return fits and self._alike(other)

    def with_room_of(self, other: Form) -> Form:
        """This form, with at least the slots and the length of the other, if they are alike but for their room."""
        if not self._alike(other):
            return self
        return self._replace(slots=max(self.slots, other.slots), length=max(self.length, other.length))

    def _alike(self, other: Form) -> bool:
        return self[:4] == other[:4]


def _description(model: Mapping[str, Any]) -> Path:
    """A folder with the model's config.json alone, at the same path for all policies that have this configuration.

    The path of the folder that vLLM starts with is part of the key of what it compiles (vllm/config/model.py,
    compute_hash): with a policy's own it would compile again at each start.
    """
    known = {key: value for key, value in model.items() if key != "_name_or_path"}
    digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
    root = Path(os.environ.get("VLLM_CACHE_ROOT", "~/.cache/vllm")).expanduser()
    folder = root / "turncredit-models" / digest[:16]
    if not (folder / "config.json").exists():
        write_json(folder / "config.json", known)
    return folder


def _start(folder: Path, form: Form, sleeps: bool, *, empty: bool) -> Any:
    """vLLM's engine for the model in this folder; `empty`: with arbitrary weights, until it reads a policy's."""
    from vllm import LLM

    # A prompt that is read in parts takes back what its generator has drawn meanwhile, and generators on the CPU cannot
    # ("CPU Generator does not use offset", vllm/v1/worker/gpu_model_runner.py, _bookkeeping_sync).
    at_once = max(form.length, form.slots, READ_AT_ONCE)
    whole: dict[str, Any] = {"enable_chunked_prefill": False, "max_num_batched_tokens": at_once}
    return LLM(
        str(folder),
        load_format="dummy" if empty else "auto",
        dtype=form.dtype,
        tensor_parallel_size=form.gpus,
        max_num_seqs=form.slots,
        max_model_len=form.length,
        enable_prefix_caching=True,
        enable_lora=bool(form.base),
        max_lora_rank=form.rank or 16,
        skip_tokenizer_init=True,
        # Log-probabilities of the distribution that is sampled from, temperature applied.
        logprobs_mode="processed_logprobs",
        enforce_eager=not _has_gpu(),
        enable_sleep_mode=sleeps,
        **({"gpu_memory_utilization": _memory_share(form.gpus)} if _has_gpu() else whole),
    )


def _memory_share(gpus: int) -> float:
    """The share of its GPUs' memory that an engine takes: vLLM's default, or what others leave of it.

    vLLM refuses to start where less is free than it is to take.
    """
    free = free_share(gpus)
    if free - SPARED >= MEMORY_SHARE:
        return MEMORY_SHARE
    share = max(0.01, round(free - SPARED, 3))
    print(f"vLLM takes {share:.0%} of its GPU's memory, and not {MEMORY_SHARE:.0%}: other processes hold the rest")
    return share


class Vllm:
    """Samples with a vLLM engine for one policy; an adapter is served as an adapter, without merging it into its base.

    `engine` is one that other stages of this process use before and after (None: one of its own). `gpus` is the number
    of GPUs that the model is split over, by tensor parallelism.
    """

    def __init__(
        self,
        folder: str,
        *,
        slots: int,
        dtype: str,
        eos_id: int,
        longest: int | None = None,
        engine: Engine | None = None,
        gpus: int = 1,
    ):
        try:
            import vllm  # noqa: F401
        except ImportError as error:
            raise UserError(
                f"policy.engine 'vllm' needs the package vllm, which cannot be imported ({error}); use the "
                "environment envs_conda/gpu-rollout.yaml, or set policy.engine to 'lockstep' or 'transformers'"
            ) from None
        self.slots, self.eos_id = slots, eos_id
        self._contexts: list[list[int]] = [[] for _ in range(slots)]
        engine = engine or Engine(keep=False)
        self._llm, self._lora = engine.use(folder, slots=slots, dtype=dtype, longest=longest, gpus=gpus)
        self._names = engine.names
        self._slots: dict[str, int] = {}  # of the requests that are unanswered, by their names

    def submit(self, request: Request, temperature: float, max_new: int) -> None:
        """Take a request. What is drawn follows from its seed, not from what else the engine does.

        Model Runner V2, on GPUs, draws a token by hashing seed and position (vllm/v1/worker/gpu/sample/gumbel.py). V1
        has a generator for each request.
        """
        from vllm import SamplingParams
        from vllm.inputs import tokens_input
        from vllm.sampling_params import RequestOutputKind

        kept = [] if request.reset else self._contexts[request.slot]
        context = self._contexts[request.slot] = kept + request.ids
        settings = SamplingParams(
            temperature=temperature,
            max_tokens=max_new,
            # The end of the turn alone, as in the other engines: a model's generation_config.json may name more.
            stop_token_ids=[self.eos_id],
            ignore_eos=True,
            logprobs=0,
            seed=int(request.uniforms[0] * 2**53) if temperature > 0 else None,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        name = str(next(self._names))
        self._slots[name] = request.slot
        self._llm.llm_engine.add_request(name, tokens_input(context), settings, lora_request=self._lora)

    def answered(self, *, wait: bool) -> list[tuple[int, Response]]:
        """Slots with their responses, after one step of the engine, or as many as one response takes (`wait`)."""
        found: list[tuple[int, Response]] = []
        while self._slots and not found:
            found = [self._answer(output) for output in self._llm.llm_engine.step() if output.request_id in self._slots]
            if not wait:
                break
        return found

    def _answer(self, output: Any) -> tuple[int, Response]:
        """The slot of a request that is complete, and its response."""
        slot, completion = self._slots.pop(output.request_id), output.outputs[0]
        ids = list(completion.token_ids)
        self._contexts[slot] = self._contexts[slot] + ids
        chosen = [step[token].logprob for token, step in zip(ids, completion.logprobs, strict=True)]
        return slot, Response(ids, chosen)

    def cancel(self) -> None:
        """Drop all requests that are unanswered."""
        if self._slots:
            self._llm.llm_engine.abort_request(list(self._slots))
            self._slots = {}

    def sample(self, requests: Sequence[Request], temperature: float, max_new: int) -> list[Response]:
        """One response for each request."""
        return sampled(self, requests, temperature, max_new)


@contextmanager
def _weights_alone(folder: Path) -> Iterator[Path]:
    """The model's folder without an optimiser's moments: vLLM takes every safetensors file in a folder for weights."""
    if not (folder / MOMENTS_FILE).exists():
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="turncredit-vllm-") as links:
        for file in folder.iterdir():
            if file.name != MOMENTS_FILE:
                (Path(links) / file.name).symlink_to(file.resolve())
        yield Path(links)


def adapter_name(folder: str | Path) -> str:
    """A readable name for the adapter in `folder`: the end of its path, with its run and round."""
    return "/".join(Path(folder).resolve().parts[-4:])


def _rank(folder: str) -> int:
    """The adapter's rank, rounded up to one that vLLM takes."""
    rank = json.loads((Path(folder) / "adapter_config.json").read_text(encoding="utf-8"))["r"]
    return next(size for size in (8, 16, 32, 64, 128, 256, 320, 512) if size >= rank)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
