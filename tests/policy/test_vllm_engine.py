"""The vLLM engine on the CPU, in the environment that `make test-vllm` makes: what it says of a token's probability is
what the trained model says, with and without an adapter.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, Qwen2ForCausalLM

from turncredit.config import LoraConfig
from turncredit.errors import UserError
from turncredit.policy import models, tokenizer
from turncredit.policy.engines import sampler
from turncredit.policy.open import OpenPolicy
from turncredit.policy.sampling import Request
from turncredit.policy.weights import MOMENTS_FILE

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("TURNCREDIT_VLLM_PYTHON", ROOT / ".venv-vllm/bin/python"))

SCRIPT = """
import json, sys
import numpy as np

def main():
    from turncredit.policy.sampling import Request
    from turncredit.policy.engines.vllm import Vllm

    folder, prompts, eos = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    engine = Vllm(folder, slots=len(prompts), dtype="float32", eos_id=eos)
    contexts, logprobs = [[] for _ in prompts], [[] for _ in prompts]
    for turn in range(2):
        draws = np.random.default_rng(turn).random((len(prompts), 6))
        requests = [Request(i, ids, turn == 0, draws[i]) for i, ids in enumerate(prompts)]
        for i, response in enumerate(engine.sample(requests, 1.0, 6)):
            contexts[i] += prompts[i] + response.ids
            logprobs[i] += [0.0] * len(prompts[i]) + response.logprobs
    print("RESULT" + json.dumps([contexts, logprobs]))

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason=f"no vLLM environment at {PYTHON}; make it with `make test-vllm`")
@pytest.mark.parametrize("adapted", [False, True])
def test_recorded_logprobs_are_those_of_the_trained_model(world, tmp_path, adapted):
    folder = tmp_path / "policy"
    shutil.copytree(world.path("sft_policy"), folder)
    # vLLM's attention takes heads of at least 32 numbers; the tests' model has two of 16.
    shape = AutoConfig.from_pretrained(folder)
    shape.num_attention_heads = shape.num_key_value_heads = 1
    torch.manual_seed(0)
    models.save_model(Qwen2ForCausalLM(shape), folder, base=folder, final=folder)
    # What an update leaves beside whole weights.
    save_file({"0.exp_avg": torch.zeros(1)}, folder / MOMENTS_FILE)
    if adapted:
        model = models.add_lora(models.load_model(folder, dtype="float32"), LoraConfig(rank=8, alpha=16), 0)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.2)
        models.save_model(model, tmp_path / "adapter", base=folder, final=tmp_path / "adapter")
        folder = tmp_path / "adapter"
    encoder = tokenizer.load(world.path("sft_policy"))
    prompts = [
        encoder.encode(text) for text in ("<|task|> put a mug in shelf.<|act|>", "<|obs|> Nothing happens.<|act|>")
    ]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    command = [str(PYTHON), str(script), str(folder), json.dumps(prompts), str(encoder.eos_id)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert "RESULT" in done.stdout, done.stderr[-3000:]
    contexts, logprobs = json.loads(done.stdout.split("RESULT")[1].splitlines()[0])
    trained = models.load_model(folder, dtype="float32").eval()
    for ids, recorded in zip(contexts, logprobs, strict=True):
        with torch.no_grad():
            expected = trained(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
        expected = expected.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].numpy()
        sampled = np.array(recorded[1:]) != 0
        assert sampled.sum() >= 2
        np.testing.assert_allclose(np.array(recorded[1:])[sampled], expected[sampled], atol=2e-3)


@pytest.fixture
def engines(monkeypatch):
    """A stand-in for the package vllm; the engines that were made, with what they were asked for."""
    made = []

    class LLM:
        def __init__(self, folder, **settings):
            self.files = {path.name: path.resolve() for path in Path(folder).iterdir()}
            self.settings, self.prompts, self.sampling, self.adapters = settings, [], [], []
            made.append(self)

        def generate(self, prompts, sampling, *, lora_request, **_):
            self.sampling += sampling
            self.adapters.append(lora_request)
            self.prompts += [list(prompt["prompt_token_ids"]) for prompt in prompts]
            step = {7: SimpleNamespace(logprob=-0.5)}
            return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=[7], logprobs=[step])]) for _ in prompts]

    package, lora = ModuleType("vllm"), ModuleType("vllm.lora.request")
    package.LLM, package.SamplingParams = LLM, lambda **settings: settings
    lora.LoRARequest = lambda name, number, path: (name, number, path)
    for name, module in {"vllm": package, "vllm.lora": ModuleType("vllm.lora"), "vllm.lora.request": lora}.items():
        monkeypatch.setitem(sys.modules, name, module)
    return made


def test_vllm_gets_whole_contexts_and_caches_prefixes_and_a_changed_policy_a_new_engine(world, engines):
    """So that its prefix cache serves what contexts share, and never another policy's keys and values."""
    policy = OpenPolicy(world.path("sft_policy"), dtype="float32", engine="vllm")
    engine = policy.sampler(2)
    for ids, reset in (([1, 2, 3], True), ([4], False), ([1, 2, 5], True)):
        engine.sample([Request(0, ids, reset, np.zeros(1))], 1.0, 1)
    assert engines[0].settings["enable_prefix_caching"] is True
    assert engines[0].prompts == [[1, 2, 3], [1, 2, 3, 7, 4], [1, 2, 5]]
    policy.trained_into(world.path("base")).sampler(2)
    assert len(engines) == 2


def test_vllm_sees_no_moments_of_an_optimiser_which_it_would_take_for_weights(world, tmp_path, engines):
    """It reads every safetensors file of a folder without an index, and refuses names that the model does not have."""
    trained = Path(shutil.copytree(world.path("sft_policy"), tmp_path / "policy"))
    there = {path.name: path for path in trained.iterdir()}
    save_file({"0.exp_avg": torch.zeros(1)}, trained / MOMENTS_FILE)
    sampler("vllm", str(trained), slots=1, dtype="float32", eos_id=1)
    assert engines[0].files == there


def test_vllm_stops_where_the_other_engines_stop(world, engines):
    """A model's generation_config.json may name further tokens to stop at, which vLLM would take by itself."""
    engine = OpenPolicy(world.path("sft_policy"), dtype="float32", engine="vllm").sampler(1)
    engine.sample([Request(0, [1, 2], True, np.zeros(1))], 1.0, 1)
    assert engines[0].sampling[0]["stop_token_ids"] == [engine.eos_id]
    assert engines[0].sampling[0]["ignore_eos"] is True


def test_vllm_reserves_memory_for_the_longest_context_of_the_agent_and_no_more(world, engines):
    policy = OpenPolicy(world.path("sft_policy"), dtype="float32", engine="vllm")
    positions = json.loads((world.path("sft_policy") / "config.json").read_text())["max_position_embeddings"]
    for longest in (None, 100, positions + 1):
        policy.sampler(1, longest=longest)
    assert [engine.settings["max_model_len"] for engine in engines] == [positions, 100, positions]


def test_the_adapter_of_every_run_and_round_has_a_name_and_a_number_of_its_own(world, tmp_path, engines):
    """vLLM's prefix cache tells adapters apart by them."""
    base = world.path("sft_policy")
    model = models.add_lora(models.load_model(base, dtype="float32"), LoraConfig(rank=4, alpha=8), 0)
    folders = [tmp_path / run / f"seed{seed}" / "round02" / "policy" for run in ("gigpo", "rloo") for seed in (0, 1)]
    for folder in folders:
        models.save_model(model, folder, base=base, final=folder)
        OpenPolicy(folder, dtype="float32", engine="vllm").sampler(1).sample(
            [Request(0, [1, 2], True, np.zeros(1))], 1.0, 1
        )
    adapters = [engine.adapters[0] for engine in engines]
    assert [path for _, _, path in adapters] == [str(folder) for folder in folders]
    assert len({name for name, _, _ in adapters}) == len({number for _, number, _ in adapters}) == 4
    assert min(number for _, number, _ in adapters) > 0


def test_without_vllm_the_error_says_what_to_do(world):
    if __import__("importlib").util.find_spec("vllm"):
        pytest.skip("vllm is installed here")
    with pytest.raises(UserError, match=r"needs the package vllm.*gpu-rollout\.yaml"):
        sampler("vllm", str(world.path("sft_policy")), slots=1, dtype="float32", eos_id=1)
