"""Sample with any causal language model that transformers loads: the whole context is read again every turn."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from turncredit.policy.models import load_model
from turncredit.policy.sampling import Request, Response, device, draw


class Generate:
    """Left-padded batches through the model's own forward pass and cache."""

    def __init__(self, folder: str, *, slots: int, dtype: str, eos_id: int, model: torch.nn.Module | None = None):
        self.slots, self.eos_id = slots, eos_id
        self._model = (load_model(folder, dtype=dtype).to(device()) if model is None else model).eval()
        self._context: list[list[int]] = [[] for _ in range(slots)]

    @torch.inference_mode()
    def sample(self, requests: Sequence[Request], temperature: float, max_new: int) -> list[Response]:
        """One response for each request."""
        for request in requests:
            kept = [] if request.reset else self._context[request.slot]
            self._context[request.slot] = kept + request.ids
        contexts = [self._context[request.slot] for request in requests]
        where = next(self._model.parameters()).device
        longest = max(map(len, contexts))
        ids = torch.tensor([[self.eos_id] * (longest - len(c)) + c for c in contexts], device=where)
        mask = torch.tensor([[0] * (longest - len(c)) + [1] * len(c) for c in contexts], device=where)
        uniforms = torch.stack([torch.from_numpy(request.uniforms) for request in requests]).to(where)
        position = (mask.cumsum(-1) - 1).clamp_min(0)
        cache, out, logprobs = None, [[] for _ in requests], [[] for _ in requests]
        ended = torch.zeros(len(requests), dtype=torch.bool, device=where)
        for step in range(max_new):
            result = self._model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=position,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = result.past_key_values
            token, logprob = draw(result.logits[:, -1], temperature, uniforms[:, step])
            going = (~ended).tolist()  # a GPU is waited for here, once a token, and not for each row
            for row, (chosen, probability) in enumerate(zip(token.tolist(), logprob.tolist(), strict=True)):
                if going[row]:
                    out[row].append(chosen)
                    logprobs[row].append(probability)
            ended |= token == self.eos_id
            if bool(ended.all()):
                break
            ids, position = token[:, None], position[:, -1:] + 1
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        for request, tokens in zip(requests, out, strict=True):
            self._context[request.slot] = self._context[request.slot] + tokens
        return [Response(tokens, logprob) for tokens, logprob in zip(out, logprobs, strict=True)]
