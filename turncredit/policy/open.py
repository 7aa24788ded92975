"""A policy in memory: its tokenizer and weights are read from its folder once, on first use."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from turncredit.config import LoraConfig
from turncredit.data import provenance
from turncredit.data.tables import TableError
from turncredit.policy import models, node_copies, tokenizer
from turncredit.policy.engines import sampler
from turncredit.policy.fsdp import FsdpMasters
from turncredit.policy.masters import Masters
from turncredit.policy.sampling import Sampler, device
from turncredit.policy.weights import MOMENTS_FILE, base_folder, read_config, weights_folder


class OpenPolicy:
    """The policy in `folder`, for everything that a stage does with one.

    `dtype` is the weights' type, `engine` the sampling engine (`lockstep`, `transformers`, `vllm`), `running` the
    vLLM engines that other policies of this process use, too. Nothing is read before it is needed.
    """

    def __init__(self, folder: str | Path, *, dtype: str, engine: str = "lockstep", running: Any = None):
        self.folder, self.dtype, self.engine, self.running = Path(folder), dtype, engine, running
        self._models: dict[bool, torch.nn.Module] = {}

    def verify(self) -> None:
        """Raise TableError if a file of the model or its tokenizer is not what a stage wrote.

        A damaged copy on this node is no damage to the model: it is made again.
        """
        provenance.verify(self.folder, lambda name: name != MOMENTS_FILE)
        weights = weights_folder(self.folder)
        if weights != self.folder:
            try:
                provenance.verify(weights)
            except TableError:
                if weights == base_folder(self.folder):
                    raise
                node_copies.discard(weights)
                provenance.verify(weights_folder(self.folder))

    @cached_property
    def tokenizer(self) -> tokenizer.Tokenizer:
        """The policy's tokenizer."""
        self.verify()
        return tokenizer.load(self.folder)

    def model(self, *, trainable: bool = False) -> Any:
        """The model on this machine's device; for training, with an adapter that has gradients.

        Without an adapter both are the same model in memory, so the caller sets `.train()` or `.eval()`.
        """
        key = trainable and self.adapted
        if key not in self._models:
            self.verify()
            model = models.load_model(self.folder, dtype=self.dtype, trainable=key)
            self._models[key] = model.to(device())
        return self._models[key]

    def masters(
        self,
        train_dtype: str,
        *,
        new_adapter: tuple[LoraConfig, int] | None = None,
        checkpointing: bool = False,
        fsdp: bool = False,
    ) -> Masters:
        """The model to train, whose weights are stepped in `train_dtype`, those of an adapter in float32.

        new_adapter    settings and seed of an adapter to train instead of the weights
        checkpointing  compute activations again for the gradient
        fsdp           spread the model over the processes of `turncredit.training.processes`
        """
        dtype = self.dtype if self.adapted or new_adapter else train_dtype

        def prepared(model: Any) -> Any:
            if new_adapter:
                model = models.add_lora(model, *new_adapter)
            elif self.adapted and dtype != "float32":
                model = models.unround_adapter(model, self.folder)
            if checkpointing:
                models.checkpoint_gradients(model)
            return model

        def load() -> Any:
            return prepared(models.load_model(self.folder, dtype=dtype, trainable=self.adapted))

        self.verify()
        if fsdp:
            return FsdpMasters(load, self.dtype)
        if dtype == self.dtype:
            return Masters(prepared(self.model(trainable=True)), self.dtype)
        self.release()  # what is in memory lacks the digits that the folder has
        masters = Masters(load().to(device()), self.dtype)
        self._models[False] = masters.model
        return masters

    def moments(self) -> dict[str, torch.Tensor]:
        """The optimiser's moments that an update kept beside the weights; empty if there are none."""
        file = self.folder / MOMENTS_FILE
        if not file.exists():
            return {}
        provenance.verify(self.folder, lambda name: name == MOMENTS_FILE)
        return load_file(file)

    def release(self) -> None:
        """Free the model; it is read from the folder again when next used."""
        self._models = {}

    @cached_property
    def positions(self) -> int | None:
        """The most tokens that the model can read; None where its `config.json` does not say."""
        self.verify()
        return read_config(self.folder).get("max_position_embeddings")

    @cached_property
    def adapted(self) -> bool:
        """Whether the folder holds an adapter instead of whole weights."""
        return (self.folder / "adapter_config.json").exists()

    def sampler(self, slots: int, *, longest: int | None = None, gpus: int = 1, engines: int = 1) -> Sampler:
        """An engine for `slots` rollouts at a time, whose samples do not depend on earlier calls.

        `longest` is the largest number of tokens of a context with its response, if the agent limits it; `gpus` the
        number of GPUs that vLLM splits the model over; `engines` the number of vLLM engines that share the rollouts.
        """
        eos = self.tokenizer.eos_id
        model = self._models.get(False)
        if self.engine == "lockstep" and self.adapted and self.dtype != "float32":
            model = None  # it keeps the adapter beside the weights, as the folder does
        return sampler(
            self.engine,
            str(self.folder),
            slots=slots,
            dtype=self.dtype,
            eos_id=eos,
            model=model,
            longest=longest,
            running=self.running,
            gpus=gpus,
            engines=engines,
        )

    def trained_into(self, folder: str | Path) -> OpenPolicy:
        """This policy's model, whose weights an update has changed, as the policy that was saved in `folder`.

        This policy releases its weights, which are read from its folder again when next used.
        """
        after = OpenPolicy(folder, dtype=self.dtype, engine=self.engine, running=self.running)
        if not self.adapted:
            after._models, self._models = self._models, {}
        else:
            after._models = {True: self._models.pop(True)} if True in self._models else {}
        # It remembers the texts it has encoded. Its template may be unread, and this policy's folder may be deleted.
        self.tokenizer.folder = after.folder
        after.__dict__["tokenizer"] = self.tokenizer
        return after
