"""GiGPO's credit in TRL's trainer: a tiny model plays the household on the CPU (python examples/trl_gigpo.py)."""

import torch
from datasets import Dataset
from transformers import ByT5Tokenizer, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig

from turncredit.bridges.trl import CreditGRPOTrainer
from turncredit.envs.household import Settings, make_tasks, open_task

GAMES = {game["task_id"]: game for game in make_tasks("train", 2, 0, Settings())}
TOKENS = ByT5Tokenizer(extra_ids=0)


def play(prompts, trainer):  # six turns a rollout; the model's answer is one digit, the number of a command
    rows = {name: [] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask", "turns", "progress")}
    for env in (open_task(GAMES[prompt], Settings()) for prompt in prompts):
        seen, prompt, ids, mask, logprobs, turns = env.reset(), [], [], [], [], []
        for turn in range(6):
            new, commands = TOKENS.encode(seen, add_special_tokens=False), env.admissible()[:10]
            prompt, ids, mask = (new, [], []) if turn == 0 else (prompt, ids + new, mask + [0] * len(new))
            digits = torch.tensor(TOKENS.convert_tokens_to_ids([str(digit) for digit in range(len(commands))]))
            with torch.no_grad():
                logprob = trainer.model(torch.tensor([prompt + ids])).logits[0, -1, digits].log_softmax(-1)
            choice, before = int(logprob.exp().multinomial(1)), (seen, env.progress())
            seen = env.step(commands[choice]).observation
            gain = env.progress() - before[1]
            turns.append({"observation": before[0], "action": commands[choice], "reward": gain})
            ids, mask = [*ids, int(digits[choice])], [*mask, 1]
            logprobs += [0.0] * (len(ids) - 1 - len(logprobs)) + [float(logprob[choice])]
        for name, value in zip(rows, (prompt, ids, logprobs, mask, turns, env.progress()), strict=True):
            rows[name].append(value)
    return rows


small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
CreditGRPOTrainer(
    Qwen2ForCausalLM(Qwen2Config(vocab_size=len(TOKENS), num_key_value_heads=1, **small)),
    lambda progress, **_: progress,
    args=GRPOConfig("results/trl", use_cpu=True, bf16=False, report_to=[], max_steps=2, num_generations=4),
    train_dataset=Dataset.from_dict({"prompt": list(GAMES) * 4}),
    processing_class=TOKENS,
    rollout_func=play,
    credit="gigpo",
    credit_params={"gamma": 0.9},
).train()
