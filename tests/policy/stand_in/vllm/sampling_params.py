"""As vLLM's `vllm.sampling_params`."""

from enum import Enum


class RequestOutputKind(Enum):
    FINAL_ONLY = 2
