"""As vLLM's `vllm.inputs`."""


def tokens_input(ids):
    return {"type": "token", "prompt_token_ids": ids}
