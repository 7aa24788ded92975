"""Sample with vLLM: whole contexts as token ids; its prefix cache saves reading the part shared with earlier turns.

vLLM is not in the core environment (envs_conda/gpu-rollout.yaml has it). It draws its own random numbers, seeded from
the rollout's: the same seed reproduces a run on the same build with the same batches, but other engines give other
tokens.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from turncredit.errors import UserError
from turncredit.policy.sampling import Request, Response
from turncredit.policy.weights import MOMENTS_FILE, base_folder, read_config


class Vllm:
    """One vLLM engine in this process; an adapter is served as an adapter, without merging it into its base."""

    def __init__(self, folder: str, *, slots: int, dtype: str, eos_id: int, longest: int | None = None):
        try:
            from vllm import LLM
            from vllm.lora.request import LoRARequest
        except ImportError as error:
            raise UserError(
                f"policy.engine 'vllm' needs the package vllm, which cannot be imported ({error}); use the "
                "environment envs_conda/gpu-rollout.yaml, or set policy.engine to 'lockstep' or 'transformers'"
            ) from None
        self.slots, self.eos_id = slots, eos_id
        base = base_folder(folder)
        adapted = base != Path(folder)
        # vLLM keeps weights and prefixes by name and id: each adapter (run, seed, round) has its own.
        self._lora = LoRARequest(*adapter_name(folder), str(Path(folder).resolve())) if adapted else None
        positions = read_config(folder)["max_position_embeddings"]
        self._contexts: list[list[int]] = [[] for _ in range(slots)]
        with _weights_alone(base) as weights:
            self._llm = LLM(
                str(weights),
                dtype=dtype,
                max_num_seqs=slots,
                max_model_len=min(positions, longest or positions),
                enable_prefix_caching=True,
                enable_lora=adapted,
                max_lora_rank=_rank(folder) if adapted else 16,
                skip_tokenizer_init=True,
                # Log-probabilities of the distribution that is sampled from, temperature applied.
                logprobs_mode="processed_logprobs",
                enforce_eager=not _has_gpu(),
            )

    def sample(self, requests: Sequence[Request], temperature: float, max_new: int) -> list[Response]:
        """One response for each request, all in one call of the engine."""
        from vllm import SamplingParams

        for request in requests:
            kept = [] if request.reset else self._contexts[request.slot]
            self._contexts[request.slot] = kept + request.ids
        settings = [
            SamplingParams(
                temperature=temperature,
                max_tokens=max_new,
                # The end of the turn alone, as in the other engines: a model's generation_config.json may name more.
                stop_token_ids=[self.eos_id],
                ignore_eos=True,
                logprobs=0,
                seed=int(request.uniforms[0] * 2**53) if temperature > 0 else None,
                detokenize=False,
            )
            for request in requests
        ]
        prompts = [{"prompt_token_ids": self._contexts[request.slot]} for request in requests]
        outputs = self._llm.generate(prompts, settings, lora_request=self._lora, use_tqdm=False)
        responses = []
        for request, output in zip(requests, outputs, strict=True):
            completion = output.outputs[0]
            ids = list(completion.token_ids)
            self._contexts[request.slot] = self._contexts[request.slot] + ids
            chosen = [step[token].logprob for token, step in zip(ids, completion.logprobs, strict=True)]
            responses.append(Response(ids, chosen))
        return responses


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


def adapter_name(folder: str | Path) -> tuple[str, int]:
    """A name and a positive id for the adapter in `folder`: of its path, so that every run and round has its own."""
    path = str(Path(folder).resolve())
    return "/".join(Path(path).parts[-4:]), zlib.crc32(path.encode()) % (2**31 - 1) + 1


def _rank(folder: str) -> int:
    """The adapter's rank, rounded up to one that vLLM takes."""
    import json

    rank = json.loads((Path(folder) / "adapter_config.json").read_text())["r"]
    return next(size for size in (8, 16, 32, 64, 128, 256, 320, 512) if size >= rank)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
