"""The vLLM engine on the CPU, in the environment that `make test-vllm` makes: what it says of a token's probability is
what the trained model says, with and without an adapter, also after it has slept and got the next policy's weights.
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
from turncredit.policy.cuda_driver import free_share
from turncredit.policy.engines import sampler, vllm
from turncredit.policy.engines.vllm import Engine
from turncredit.policy.open import OpenPolicy
from turncredit.policy.sampling import Request, Unordered
from turncredit.policy.weights import MOMENTS_FILE
from turncredit.training.sequences import token_logprobs

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("TURNCREDIT_VLLM_PYTHON", ROOT / ".venv-vllm/bin/python"))

#: The largest difference of a token's log-probability: in bfloat16 three times what was measured (.016).
AGREES = {"float32": 2e-3, "bfloat16": 5e-2}
SCRIPT = """
import json, sys
import numpy as np

def main():
    from turncredit.policy.sampling import Request, Unordered
    from turncredit.policy.engines import vllm
    from turncredit.policy.engines.vllm import Engine, Vllm

    folders, prompts, eos, gpus, dtype = map(json.loads, sys.argv[1:])
    running, results, starts, start = Engine(), [], [], vllm._start
    vllm._start = lambda *form, **empty: starts.append(form) or start(*form, **empty)
    for folder in folders:
        engine = Vllm(folder, slots=len(prompts), dtype=dtype, eos_id=eos, engine=running, gpus=gpus)
        contexts, logprobs = [[] for _ in prompts], [[] for _ in prompts]
        for turn in range(2):
            draws = np.random.default_rng(turn).random((len(prompts), 6))
            requests = [Request(i, ids, turn == 0, draws[i]) for i, ids in enumerate(prompts)]
            for i, response in enumerate(engine.sample(requests, 1.0, 6)):
                contexts[i] += prompts[i] + response.ids
                logprobs[i] += [0.0] * len(prompts[i]) + response.logprobs
        results.append([contexts, logprobs])
        asked = [Request(i, ids, True, draws[i]) for i, ids in enumerate(prompts)]
        together, apart = [response.ids for response in engine.sample(asked, 1.0, 6)], {}
        for request in asked[::-1]:  # the next one goes out while the one before is sampled
            engine.submit(request, 1.0, 6)
            apart |= {slot: response.ids for slot, response in engine.answered(wait=False)}
        while len(apart) < len(asked):
            apart |= {slot: response.ids for slot, response in engine.answered(wait=True)}
        assert [apart[slot] for slot in range(len(prompts))] == together
        running.sleep()
    print("RESULT" + json.dumps([results, len(starts)]))

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason=f"no vLLM environment at {PYTHON}; make it with `make test-vllm`")
@pytest.mark.parametrize(
    ("adapted", "tied", "split", "starts", "dtype"),
    [
        (False, False, 1, 1, "float32"),
        (False, True, 1, 2, "float32"),
        (True, True, 1, 1, "float32"),
        (False, False, 2, 1, "float32"),
        (True, True, 1, 1, "bfloat16"),
        (False, False, 1, 1, "bfloat16"),
    ],
)
def test_recorded_logprobs_are_those_of_the_trained_model_also_of_the_next_policy_of_a_kept_engine(
    world, tmp_path, adapted, tied, split, starts, dtype
):
    base = Path(shutil.copytree(world.path("sft_policy"), tmp_path / "base"))
    # vLLM's attention takes heads of at least 32 numbers, at least one for each part of a split model.
    shape = AutoConfig.from_pretrained(base)
    shape.num_attention_heads = shape.num_key_value_heads = split
    shape.hidden_size = 32 * split
    shape.tie_word_embeddings = tied
    folders = [tmp_path / "round01", tmp_path / "round02"]
    for seed, folder in enumerate(folders):
        torch.manual_seed(seed)
        if adapted and not seed:
            models.save_model(Qwen2ForCausalLM(shape), base, base=base, final=base)
        if not adapted:
            shutil.copytree(base, folder)
            models.save_model(Qwen2ForCausalLM(shape), folder, base=base, final=folder)
            # What an update leaves beside whole weights.
            save_file({"0.exp_avg": torch.zeros(1)}, folder / MOMENTS_FILE)
            continue
        model = models.add_lora(models.load_model(base, dtype="float32"), LoraConfig(rank=8, alpha=16), seed)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.2)
        models.save_model(model, folder, base=base, final=folder)
    encoder = tokenizer.load(world.path("sft_policy"))
    prompts = [
        encoder.encode(text) for text in ("<|task|> put a mug in shelf.<|act|>", "<|obs|> Nothing happens.<|act|>")
    ]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    environment["VLLM_CACHE_ROOT"] = str(tmp_path / "compiled")
    if split > 1:  # a core for each part
        environment["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(map(str, sorted(os.sched_getaffinity(0))[:split]))
    given = map(json.dumps, ([str(folder) for folder in folders], prompts, encoder.eos_id, split, dtype))
    command = [str(PYTHON), str(script), *given]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3600, check=False)
    assert "RESULT" in done.stdout, done.stderr[-3000:]
    results, started = json.loads(done.stdout.split("RESULT")[1].splitlines()[0])
    assert (len(results), started) == (2, starts)
    for folder, (contexts, logprobs) in zip(folders, results, strict=True):
        trained = models.load_model(folder, dtype=dtype, trainable=True).eval()
        for ids, recorded in zip(contexts, logprobs, strict=True):
            sampled = torch.tensor([recorded]) != 0
            sampled[0, 0] = False
            with torch.no_grad():
                expected = token_logprobs(trained, torch.tensor([ids]), sampled).float().numpy()
            assert len(expected) >= 2
            apart = np.abs(np.array(recorded)[sampled[0].numpy()] - expected)
            print(f"{dtype}: {apart.mean():.5f} in the mean, {apart.max():.5f} at most")
            assert apart.max() < AGREES[dtype]


@pytest.fixture
def engines(monkeypatch, tmp_path):
    """A stand-in for the package vllm on a GPU; the engines that were made, with what they were asked for."""
    made = []
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path / "compiled"))
    monkeypatch.setattr(vllm, "_has_gpu", lambda: True)
    monkeypatch.setattr(vllm, "free_share", lambda _: 0.99)

    class LLM:
        def __init__(self, folder, **settings):
            self.folder = folder
            self.settings, self.prompts, self.sampling, self.adapters = settings, [], [], []
            self.called, self.read = [], []
            self.llm_engine, self.running = self, []
            made.append(self)

        def sleep(self, level):
            self.called.append(("sleep", level))

        def wake_up(self, tags):
            self.called.append(("wake_up", tags))

        def collective_rpc(self, method, kwargs):
            if method == "update_config":
                assert kwargs == {"overrides": {"load_config": {"load_format": "auto"}}}
                return
            self.called.append((method, kwargs["weights_path"]))
            self.read.append({path.name: path.resolve() for path in Path(kwargs["weights_path"]).iterdir()})

        def reset_prefix_cache(self):
            self.called.append(("reset_prefix_cache",))

        def add_request(self, name, prompt, sampling, *, lora_request):
            self.sampling.append(sampling)
            self.adapters.append(lora_request)
            self.prompts.append(list(prompt["prompt_token_ids"]))
            self.running.append(name)

        def abort_request(self, names):
            self.called.append(("abort", names))
            self.running = [name for name in self.running if name not in names]

        def step(self):
            name, step = self.running.pop(0), {7: SimpleNamespace(logprob=-0.5)}
            return [SimpleNamespace(request_id=name, outputs=[SimpleNamespace(token_ids=[7], logprobs=[step])])]

    package, lora = ModuleType("vllm"), ModuleType("vllm.lora.request")
    package.LLM, package.SamplingParams = LLM, lambda **settings: settings
    lora.LoRARequest = lambda name, number, path: (name, number, path)
    inputs, sampling = ModuleType("vllm.inputs"), ModuleType("vllm.sampling_params")
    inputs.tokens_input = lambda ids: {"type": "token", "prompt_token_ids": ids}
    sampling.RequestOutputKind = SimpleNamespace(FINAL_ONLY="last")
    parts = {"vllm.inputs": inputs, "vllm.sampling_params": sampling, "vllm.lora.request": lora}
    for name, module in {"vllm": package, "vllm.lora": ModuleType("vllm.lora"), **parts}.items():
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


def test_a_request_may_be_sent_while_others_wait_and_each_slot_gets_its_own_answer(world, engines):
    engine = OpenPolicy(world.path("sft_policy"), dtype="float32", engine="vllm").sampler(3)
    assert isinstance(engine, Unordered)
    for slot in range(2):
        engine.submit(Request(slot, [1, slot], True, np.zeros(1)), 1.0, 1)
    engines[0].running.reverse()
    assert [slot for slot, _ in engine.answered(wait=True)] == [1]
    engine.submit(Request(2, [1, 2], True, np.zeros(1)), 1.0, 1)
    engine.submit(Request(1, [9], False, np.zeros(1)), 1.0, 1)
    assert [slot for _ in range(3) for slot, _ in engine.answered(wait=True)] == [0, 2, 1]
    assert engines[0].prompts == [[1, 0], [1, 1], [1, 2], [1, 1, 7, 9]]
    assert engine.answered(wait=True) == []


def test_cancelled_requests_leave_the_engine_and_are_never_answered(world, engines):
    running = Engine()
    first = OpenPolicy(world.path("sft_policy"), dtype="float32", engine="vllm", running=running).sampler(2)
    first.submit(Request(0, [1, 2], True, np.zeros(1)), 1.0, 1)
    first.cancel()
    assert engines[0].called[-1] == ("abort", ["0"])
    second = OpenPolicy(world.path("sft_policy"), dtype="float32", engine="vllm", running=running).sampler(2)
    engines[0].running.append("0")  # an answer that was under way
    second.submit(Request(1, [3], True, np.zeros(1)), 1.0, 1)
    assert second.answered(wait=False) == []
    assert [slot for slot, _ in second.answered(wait=True)] == [1]


def test_vllm_sees_no_moments_of_an_optimiser_which_it_would_take_for_weights(world, tmp_path, engines):
    """It reads every safetensors file of a folder without an index, and refuses names that the model does not have."""
    trained = Path(shutil.copytree(world.path("sft_policy"), tmp_path / "policy"))
    there = {path.name: path for path in trained.iterdir()}
    save_file({"0.exp_avg": torch.zeros(1)}, trained / MOMENTS_FILE)
    sampler("vllm", str(trained), slots=1, dtype="float32", eos_id=1)
    assert engines[0].read == [there]


def test_vllm_stops_where_the_other_engines_stop(world, engines):
    """A model's generation_config.json may name further tokens to stop at, which vLLM would take by itself."""
    engine = OpenPolicy(world.path("sft_policy"), dtype="float32", engine="vllm").sampler(1)
    engine.sample([Request(0, [1, 2], True, np.zeros(1))], 1.0, 1)
    assert engines[0].sampling[0]["stop_token_ids"] == [engine.eos_id]
    assert engines[0].sampling[0]["ignore_eos"] is True


def test_vllm_draws_at_the_temperature_by_the_rollouts_own_number_and_says_what_it_drew_from(world, engines):
    engine = OpenPolicy(world.path("sft_policy"), dtype="float32", engine="vllm").sampler(2)
    for temperature in (0.7, 0.0):
        (response,) = engine.sample([Request(1, [1, 2], True, np.array([0.25, 0.9]))], temperature, 2)
        assert (response.ids, response.logprobs) == ([7], [-0.5])
    drawn, greedy = engines[0].sampling
    assert (drawn["temperature"], drawn["seed"], drawn["max_tokens"], drawn["logprobs"]) == (0.7, 2**51, 2, 0)
    assert (greedy["temperature"], greedy["seed"]) == (0.0, None)
    assert engines[0].settings["logprobs_mode"] == "processed_logprobs", "of the distribution at the temperature"


def test_vllm_reserves_memory_for_the_longest_context_of_the_agent_and_no_more(world, engines):
    policy = OpenPolicy(world.path("sft_policy"), dtype="float32", engine="vllm")
    positions = json.loads((world.path("sft_policy") / "config.json").read_text())["max_position_embeddings"]
    for longest in (None, 100, positions + 1):
        policy.sampler(1, longest=longest)
    assert [engine.settings["max_model_len"] for engine in engines] == [positions, 100, positions]


@pytest.fixture
def adapters(world, tmp_path):
    """Adapters of two runs and seeds on one base."""
    base = world.path("sft_policy")
    model = models.add_lora(models.load_model(base, dtype="float32"), LoraConfig(rank=4, alpha=8), 0)
    folders = [tmp_path / run / f"seed{seed}" / "round02" / "policy" for run in ("gigpo", "rloo") for seed in (0, 1)]
    for folder in folders:
        models.save_model(model, folder, base=base, final=folder)
    return folders


def once(running, folder, **settings):
    """One response, and the engine at rest."""
    policy = OpenPolicy(folder, dtype="float32", engine="vllm", running=running)
    policy.sampler(**{"slots": 1, **settings}).sample([Request(0, [1, 2], True, np.zeros(1))], 1.0, 1)
    running.sleep()


def test_a_kept_engine_starts_once_and_reads_the_weights_of_each_policy_when_it_wakes(world, engines):
    running = Engine()
    folders = [world.path("sft_policy"), world.path("sft_policy"), world.path("base")]
    for folder in folders:
        once(running, folder)
    reads = [
        [("wake_up", ["weights"]), ("reload_weights", str(folder)), ("wake_up", ["kv_cache"]), ("reset_prefix_cache",)]
        for folder in folders[1:]
    ]
    assert len(engines) == 1
    first = [("reload_weights", str(folders[0])), ("reset_prefix_cache",)]
    assert engines[0].called == [*first, ("sleep", 2), *reads[0], ("sleep", 2), *reads[1], ("sleep", 2)]


def test_what_vllm_compiles_for_one_policy_serves_the_next_one_in_another_job(world, tmp_path, engines):
    """The path that vLLM starts with is in the key of what it compiles: it is the same for all policies of a shape."""
    other = Path(shutil.copytree(world.path("sft_policy"), tmp_path / "other"))
    wider = Path(shutil.copytree(world.path("sft_policy"), tmp_path / "wider"))
    described = json.loads((other / "config.json").read_text())
    (wider / "config.json").write_text(json.dumps({**described, "max_position_embeddings": 64}))
    for folder in (world.path("sft_policy"), other, wider):
        sampler("vllm", str(folder), slots=1, dtype="float32", eos_id=1)
    first, second, third = (engine.folder for engine in engines)
    assert first == second
    assert second != third
    assert [path.name for path in Path(first).iterdir()] == ["config.json"]
    assert json.loads((Path(first) / "config.json").read_text()) == described
    assert {engine.settings["load_format"] for engine in engines} == {"dummy"}
    assert [engine.called[0] for engine in engines[:2]] == [
        ("reload_weights", str(folder)) for folder in (world.path("sft_policy"), other)
    ]


def test_adapters_base_and_on_the_cpu_tied_embeddings_are_read_as_an_engine_starts(
    world, adapters, engines, monkeypatch
):
    sampler("vllm", str(adapters[0]), slots=1, dtype="float32", eos_id=1)
    monkeypatch.setattr(vllm, "_has_gpu", lambda: False)
    sampler("vllm", str(world.path("sft_policy")), slots=1, dtype="float32", eos_id=1)
    assert [engine.settings["load_format"] for engine in engines] == ["auto"] * 2
    assert [engine.folder for engine in engines] == [str(world.path("sft_policy"))] * 2


def test_on_the_cpu_an_engine_of_tied_embeddings_starts_again(world, engines, monkeypatch):
    """vLLM's build for CPUs keeps a packed copy of the head, which reading weights again does not reach."""
    assert json.loads((world.path("sft_policy") / "config.json").read_text())["tie_word_embeddings"]
    monkeypatch.setattr(vllm, "_has_gpu", lambda: False)
    running = Engine()
    for _ in range(2):
        once(running, world.path("sft_policy"))
    assert [engine.called for engine in engines] == [[("sleep", 2)]] * 2


def test_a_kept_engine_reads_no_moments_of_an_optimiser(world, tmp_path, engines):
    running, trained = Engine(), Path(shutil.copytree(world.path("sft_policy"), tmp_path / "policy"))
    there = {path.name: path for path in trained.iterdir()}
    save_file({"0.exp_avg": torch.zeros(1)}, trained / MOMENTS_FILE)
    once(running, world.path("sft_policy"))
    once(running, trained)
    assert engines[0].read[1:] == [there]


def test_the_base_of_adapters_waits_and_every_adapter_has_a_name_and_a_number_of_its_own(adapters, engines):
    """vLLM's caches of adapters and prefixes tell them apart by these; the adapter of a folder may change, too."""
    running = Engine()
    for folder in (*adapters, adapters[0]):
        once(running, folder)
    (engine,) = engines
    assert [path for _, _, path in engine.adapters] == [str(folder) for folder in (*adapters, adapters[0])]
    assert len({name for name, _, _ in engine.adapters}) == len({number for _, number, _ in engine.adapters}) == 5
    assert min(number for _, number, _ in engine.adapters) > 0
    assert {call[1] for call in engine.called if call[0] == "sleep"} == {1}
    assert "reload_weights" not in {call[0] for call in engine.called}


@pytest.mark.parametrize(
    ("then", "starts"),
    [
        ({"slots": 2, "longest": 100}, 1),
        ({"slots": 1, "longest": 50}, 1),
        ({"slots": 3, "longest": 50}, 2),
        ({"slots": 1, "longest": 101}, 2),
    ],
)
def test_a_kept_engine_starts_again_for_more_slots_or_longer_contexts_and_has_room_for_both(
    world, engines, then, starts
):
    running = Engine()
    for settings in ({"slots": 2, "longest": 100}, then, {"slots": 2, "longest": 100}):
        once(running, world.path("sft_policy"), **settings)
    assert len(engines) == starts
    assert engines[-1].settings["max_num_seqs"] == max(2, then["slots"])
    assert engines[-1].settings["max_model_len"] == max(100, then["longest"])


def test_an_engine_that_is_told_how_many_slots_a_job_needs_starts_once(world, engines):
    """A job of rounds begins with an evaluation, of fewer games than a round has rollouts."""
    running = Engine(slots=4)
    for slots in (1, 4, 2):
        once(running, world.path("sft_policy"), slots=slots, longest=100)
    assert [engine.settings["max_num_seqs"] for engine in engines] == [4]


def test_a_kept_engine_starts_again_for_another_model_another_base_and_after_its_end(
    world, tmp_path, adapters, engines
):
    running = Engine()
    other = Path(shutil.copytree(world.path("sft_policy"), tmp_path / "other"))
    described = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**described, "max_position_embeddings": 32}))
    for number, folder in enumerate((world.path("sft_policy"), other, adapters[0], world.path("sft_policy")), start=1):
        sampler("vllm", str(folder), slots=1, dtype="float32", eos_id=1, running=running)
        assert len(engines) == number
    assert engines[1].settings["max_model_len"] == 32
    running.end()
    once(running, world.path("sft_policy"))
    assert len(engines) == 5


def test_a_model_is_split_over_the_gpus_that_a_player_is_given(world, engines):
    policy = OpenPolicy(world.path("sft_policy"), dtype="float32", engine="vllm", running=Engine())
    for gpus in (1, 2, 2):
        policy.sampler(1, gpus=gpus)
    assert [engine.settings["tensor_parallel_size"] for engine in engines] == [1, 2]


def test_only_an_engine_that_is_kept_on_a_gpu_learns_to_sleep(world, engines, monkeypatch):
    """vLLM's memory that can sleep costs a little, and its build for CPUs refuses it."""
    for gpu in (False, True):
        monkeypatch.setattr(vllm, "_has_gpu", lambda gpu=gpu: gpu)
        once(Engine(), world.path("sft_policy"))
        sampler("vllm", str(world.path("sft_policy")), slots=1, dtype="float32", eos_id=1)
    assert [engine.settings["enable_sleep_mode"] for engine in engines] == [False, False, True, False]


@pytest.mark.parametrize(("free", "share"), [(0.99, 0.92), (0.94, 0.92), (0.6, 0.58)])
def test_an_engine_takes_what_other_processes_leave_of_its_gpu_and_says_so(
    world, engines, monkeypatch, capsys, free, share
):
    """vLLM refuses to start where less is free than it is to take."""
    monkeypatch.setattr(vllm, "free_share", lambda gpus: free if gpus == 2 else 0.0)
    OpenPolicy(world.path("sft_policy"), dtype="float32", engine="vllm", running=Engine()).sampler(1, gpus=2)
    assert engines[0].settings["gpu_memory_utilization"] == share
    assert ("vLLM takes 58% of its GPU's memory" in capsys.readouterr().out) == (share < 0.92)


DRIVER = """
#include <stddef.h>
static int now;
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *gpu, int number) { *gpu = number; return number > 1; }
int cuDevicePrimaryCtxRetain(void **context, int gpu) { *context = (void *)(size_t)(gpu + 1); return 0; }
int cuCtxSetCurrent(void *context) { now = (int)(size_t)context - 1; return 0; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { *total = 80UL << 30; *free = (now ? 20UL : 60UL) << 30; return 0; }
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="a driver that stands in is compiled")
def test_the_free_share_of_memory_is_that_of_the_fullest_gpu_that_an_engine_gets(tmp_path, monkeypatch):
    (tmp_path / "driver.c").write_text(DRIVER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "libcuda.so.1", "driver.c"], cwd=tmp_path, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert [free_share(gpus) for gpus in (1, 2, 3)] == [0.75, 0.25, 1.0]  # of a third one nothing is known


def test_on_the_cpu_a_prompt_is_read_at_once_however_long_it_is(world, engines, monkeypatch):
    """vLLM 0.32 ends with "CPU Generator does not use offset" where it reads a prompt with a seed in parts."""
    for gpu in (False, True):
        monkeypatch.setattr(vllm, "_has_gpu", lambda gpu=gpu: gpu)
        sampler("vllm", str(world.path("sft_policy")), slots=1, dtype="float32", eos_id=1)
    on_cpu, on_gpu = (engine.settings for engine in engines)
    assert on_cpu["enable_chunked_prefill"] is False
    assert on_cpu["max_num_batched_tokens"] >= on_cpu["max_model_len"]
    assert not {"enable_chunked_prefill", "max_num_batched_tokens"} & on_gpu.keys()


def test_without_vllm_the_error_says_what_to_do(world):
    if __import__("importlib").util.find_spec("vllm"):
        pytest.skip("vllm is installed here")
    with pytest.raises(UserError, match=r"needs the package vllm.*gpu-rollout\.yaml"):
        sampler("vllm", str(world.path("sft_policy")), slots=1, dtype="float32", eos_id=1)
