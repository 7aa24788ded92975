"""The language-model judge against a real vLLM server on the CPU, started and stopped as a label job does it.

vLLM has an environment of its own, `.venv-vllm` (`make test-vllm` makes it); without it these tests are skipped. The
model is a few thousand untrained weights: what it says is noise, which is why the answers must come out as labels
where decoding is bound to the schema, and as missing labels with a reason where it is not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from turncredit.config.judge import JudgeConfig, ServeConfig
from turncredit.judges.label import costs, label_turns
from turncredit.judges.serve import serving

from .conftest import turns_table

PYTHON = Path(os.environ.get("TURNCREDIT_VLLM_PYTHON", Path(__file__).resolve().parents[2] / ".venv-vllm/bin/python"))
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason=f"no vLLM environment at {PYTHON}; make it with `make test-vllm`"),
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen2 model of two narrow layers with a tokenizer whose tokens are bytes."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    folder = tmp_path_factory.mktemp("model")
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(letters)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|im_start|>", "<|im_end|>", "<pad>"])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<pad>", chat_template=CHAT
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=16384, tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def served(checkpoint: Path) -> Iterator[JudgeConfig]:
    """A judge whose server runs."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    arguments = [
        *("--enforce-eager", "--dtype", "float32", "--max-model-len", "12288"),
        # Blanks between JSON's tokens are where an untrained model stays for ever.
        *("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
    ]
    serve = ServeConfig(python=str(PYTHON), args=tuple(arguments), health_timeout=600)
    config = JudgeConfig(kind="llm", model=str(checkpoint), thinking=False, max_tokens=2400, timeout=300, serve=serve)
    with serving(config) as running:
        yield running


def test_noise_decoded_under_the_schema_comes_out_as_labels_and_is_paid_for_once(
    served: JudgeConfig, tmp_path: Path
) -> None:
    config = served.model_copy(update={"structured": "always"})
    labels = label_turns(turns_table(2, 3), config, cache=tmp_path)
    assert set(labels.column("role").to_pylist()) <= set("DENR")
    assert labels.column("reason").null_count == 6
    assert min(labels.column("tokens_in").to_pylist()) > 1000
    assert costs(labels)["cached"] == 0
    again = label_turns(turns_table(2, 3), config, cache=tmp_path)
    assert again.column("role") == labels.column("role")
    assert costs(again)["cached"] == 6


def test_a_number_is_asked_for_under_its_own_schema(served: JudgeConfig, tmp_path: Path) -> None:
    config = served.model_copy(update={"structured": "always", "max_missing": 1.0})
    labels = label_turns(turns_table(1, 2), config, ask="score", cache=tmp_path)
    for row in labels.to_pylist():
        assert row["role"] is None
        assert (row["score"] is None) is (row["reason"] is not None)


def test_noise_without_a_schema_is_missing_with_a_reason(served: JudgeConfig, tmp_path: Path) -> None:
    config = served.model_copy(update={"structured": "never", "max_missing": 1.0, "max_tokens": 16})
    labels = label_turns(turns_table(1, 2), config, cache=tmp_path)
    assert labels.column("role").null_count == 2
    assert labels.column("reason").null_count == 0
