"""The papers' presets: they load over the default configuration, and the plan of each has the paper's own numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.envs.conftest import DATA
from tests.helpers import as_if_simulators_were_here, nonempty
from turncredit import agents
from turncredit.agents.window import Settings as Window
from turncredit.config import AgentConfig, from_mapping, load, merge
from turncredit.credit.configured import configured_method
from turncredit.credit.models.protocol import load_kind
from turncredit.data.yaml_files import read_mapping
from turncredit.envs.webshop.settings import Settings
from turncredit.envs.webshop.tasks import real_split
from turncredit.pipeline import checks
from turncredit.pipeline.plan import Plan

ROOT = Path(__file__).parents[2]
PRESETS = sorted((ROOT / "config" / "paper").glob("*.yaml"))
NAMES = [preset.stem for preset in PRESETS]
APPWORLD = "mgr_[!t]* mgr_table2"
#: presets that play ALFWorld's games: all of them, for training
GAMES = "scpo_* triage_* mgr_table1* hipif_* !hipif_scienceworld_* !hipif_virtualhome_* !*_webshop_* !triage_table10"
#: WebShop as in verl-agent; the rows of all other settings are those of ALFWorld
SHOP = "*_webshop_* triage_table10"
#: HAS on ALFWorld
HAS = "has_table2 has_table3 has_ablations"
ELSEWHERE = "!hipif_scienceworld_* !hipif_virtualhome_*"
#: methods: those with TurnRD, TRIAGE with roles, the agent that folds, and what is compared with it
TURNRD = "!flat_grpo !has_progressive !has_judge"
ROLES = "triage* lam* r0* r10 !triage_scalar"
FOLDING = "hipif* repeats_* penalty_* no_*"
WHOLE = "ppo rloo flat_grpo gigpo"
BASELINES = f"{WHOLE} hiagent_grpo"
SHAPED = "scpo* theta_* base_* alpha_*"
RERANKER = "cross-encoder:BAAI/bge-reranker-v2-m3"
CROSS_STEPS = "verl-agent's compute_mean_std_cross_steps"
#: Keys of presets that say how a run is computed, not what: no row of the table is about them.
HOW = (
    "experiment methods audit.rounds keep_policies resources.* rollout.slots env.appworld.servers agent.name "
    "policy.dtype policy.train_dtype policy.moments_dtype policy.engine policy.train_gpus sft.shards judge.serve.* "
    "update.gradient_checkpointing eval.modes env.scienceworld.gold"
)

#: (presets, methods of the preset, where it is stated, the planned setting, its value). Presets and methods are
#: patterns, separated by blanks. What a paper does not state is here too, marked "ours" or whose it is, so that it
#: changes on purpose only.
STATED: list[tuple[str, str, str, str, Any]] = [
    # Every paper.
    ("*", "*", "ours: how the advantage is scaled is the method's", "update.advantage_scale", "none"),
    ("*", "*", "constant learning rates: no paper names a schedule", "update.warmup_steps", 0),
    ("*", "*", "constant learning rates: no paper names a schedule", "update.final_lr", 1.0),
    ("*", "*", "a fixed set (SCPO A.6; the others do not say)", "eval.fresh", False),
    ("!has_*", "*", "SCPO, HIPIF: the released model; the others do not say", "sft.epochs", 0),
    ("!has_*", "*", "verl's default", "update.weight_decay", 0.01),
    ("!has_*", "*", "verl's default", "update.betas", (0.9, 0.999)),
    ("!has_*", "*", "verl's default", "update.loss_aggregation", "token-mean"),
    ("!has_*", "*", "verl keeps groups of equal returns", "update.skip_dead_groups", False),
    ("!has_*", "*", "verl's default clip_ratio; TRIAGE appendix C", "update.clip_low", 0.2),
    ("!has_*", "*", "verl's default clip_ratio; TRIAGE appendix C", "update.clip_high", 0.2),
    ("!has_*", "*", "SCPO table 3, HIPIF appendix B; else GiGPO's", "eval.modes.0.temperature", 0.4),
    ("!has_*", "*", "it samples", "eval.primary", "sampled"),
    ("!has_*", "*", "SCPO table 3, every 5 steps; else GiGPO's", "eval.every", 5),
    ("!has_* !mgr_*", "*", "verl-agent's kl_loss_type", "update.kl", "k3"),
    (f"{HAS} {GAMES}", "*", "ALFWorld", "env.name", "household"),
    (f"{HAS} {GAMES}", "*", "ALFWorld", "env.household.source", "real"),
    (GAMES, "*", "all of ALFWorld's", "tasks.train", 3553),
    (GAMES, "*", "ALFWorld", "tasks.train_split", "train"),
    (GAMES, "*", "SCPO A.6", "tasks.eval_split", "valid_seen"),
    (GAMES, "*", "SCPO A.1, T_max", "env.household.horizon", 50),
    (GAMES, "*", "SCPO table 3", "eval.games", 128),
    (GAMES, "*", "SCPO table 3", "tasks.eval", 128),
    (SHOP, "*", "WebShop", "env.name", "webshop"),
    (SHOP, "*", "WebShop", "env.webshop.source", "real"),
    (SHOP, "*", "SCPO A.1, T_max; GiGPO's", "env.webshop.horizon", 15),
    (SHOP, "*", "not stated; verl-agent's human_goals: False", "env.webshop.goals", "synthetic"),
    (SHOP, "*", "not stated; verl-agent's", "env.webshop.splits", "verl-agent"),
    (SHOP, "*", "not stated; all of verl-agent's", "tasks.train", 6410),
    (SHOP, "*", "not stated; verl-agent's", "tasks.train_split", "train"),
    (SHOP, "*", "not stated; verl-agent's", "tasks.eval_split", "test"),
    (SHOP, "*", "SCPO table 3, validation batch size 128 episodes; GiGPO's", "eval.games", 128),
    (SHOP, "*", "SCPO table 3, validation batch size 128 episodes; GiGPO's", "tasks.eval", 128),
    ("triage_table10 triage_webshop_*", "*", "TRIAGE section 2, binary", "env.webshop.reward", "success"),
    # SCPO.
    ("scpo_*", "*", "SCPO table 3, group size n", "rollout.group_size", 8),
    ("scpo_*", "*", "SCPO table 3, train batch size 16 tasks / step", "rollout.tasks", 16),
    ("scpo_* !*_webshop_*", "*", "SCPO table 3, 256 turns: of about 10 rollouts", "update.minibatch", 10),
    ("scpo_webshop_*", "*", "SCPO table 3, 256 turns: of about 32 rollouts", "update.minibatch", 32),
    ("scpo_*", "*", "SCPO table 3, learning rate", "update.lr", 1e-6),
    ("scpo_*", "*", "SCPO table 3, optimizer", "update.optimizer", "adamw"),
    ("scpo_*", "*", "SCPO table 3, KL coefficient", "update.kl_coefficient", 0.01),
    ("scpo_*", "*", "SCPO table 3, invalid-action penalty", "params.penalty", 0.1),
    ("scpo_*", "*", "verl-agent's is_action_valid: the response has its tags", "params.column", "well_formed"),
    ("scpo_*", "!hgpo !ppo", CROSS_STEPS, "params.weighting", "row"),
    ("scpo_*table1_*", "[!s]*", "SCPO table 3, invalid-action penalty", "shapers", ("invalid_penalty",)),
    ("scpo_*", SHAPED, "SCPO section 3, on GiGPO's recipe", "shapers", ("scpo", "invalid_penalty")),
    ("scpo_*", "*", "SCPO table 3, max response length", "agent.max_response_tokens", 512),
    ("scpo_*", "*", "SCPO table 3, history context K", "agent.window.history", 2),
    ("scpo_*", "*", "SCPO table 3, training iterations", "rounds", 150),
    ("scpo_*", "*", "SCPO table 3, rollout temperature", "rollout.temperature", 1.0),
    ("!scpo_sensitivity scpo_*", "*", "SCPO table 3, random seeds", "seeds", (0, 1, 2)),
    ("scpo_sensitivity", "*", "SCPO appendix C.3, single-seed runs", "seeds", (0,)),
    ("scpo_webshop_*", "*", "SCPO A.4.1, a graded score", "env.webshop.reward", "score"),
    ("scpo_webshop_*", "*", "SCPO A.4.1, in [0, 10]", "env.webshop.success_reward", 10),
    ("scpo_webshop_*", "scpo", "SCPO table 4, success threshold on WebShop", "params.success_above", 9.0),
    ("scpo_webshop_*", "scpo", "SCPO table 4, alpha on WebShop", "params.alpha", 1.0),
    ("scpo_webshop_* triage_webshop_table5", "gigpo scpo", "verl-agent's mean_norm", "params.norm", "mean"),
    ("scpo_* !*_webshop_*", "gigpo scpo*", "verl-agent's mean_std_norm", "params.norm", "mean_std"),
    ("scpo_* !*_webshop_*", "*", "verl-agent's ALFWorld: 10 or 0", "env.household.success_reward", 10),
    ("scpo_*", "gigpo scpo*", "SCPO table 3, discount gamma", "params.gamma", 0.95),
    ("scpo_*", "scpo* base_* alpha_*", "SCPO table 4, match threshold theta", "params.theta", 0.6),
    ("scpo_*", "scpo* theta_* alpha_*", "SCPO table 4, soft base lambda", "params.soft_base", 0.4),
    ("scpo_* !*_webshop_*", "scpo* theta_* base_*", "SCPO table 4, alpha on ALFWorld", "params.alpha", 0.5),
    ("scpo_*", f"{SHAPED} !scpo_*", "SCPO table 4, longest success", "params.reference", "longest"),
    ("scpo_*", f"{SHAPED} !scpo_*", "SCPO table 4, default order: reordered", "params.order", "balanced"),
    ("scpo_*", f"{SHAPED} !scpo_*", "SCPO table 4, monotonic credit", "params.repeat", False),
    ("scpo_*", SHAPED, "SCPO table 4, cross-encoder", "params.scorer", RERANKER),
    ("scpo_table2", "scpo_chronological", "SCPO table 2, chronological order", "params.order", "chronological"),
    ("scpo_table2", "scpo_repeat", "SCPO table 2, - monotonicity", "params.repeat", True),
    ("scpo_table2", "scpo_shortest", "SCPO table 2, shortest reference", "params.reference", "shortest"),
    ("scpo_sensitivity", "theta_05", "figure 6, whose values are ours", "params.theta", 0.5),
    ("scpo_sensitivity", "theta_07", "figure 6, whose values are ours", "params.theta", 0.7),
    ("scpo_sensitivity", "theta_08", "figure 6, whose values are ours", "params.theta", 0.8),
    ("scpo_sensitivity", "base_02", "figure 6, whose values are ours", "params.soft_base", 0.2),
    ("scpo_sensitivity", "base_03", "figure 6, whose values are ours", "params.soft_base", 0.3),
    ("scpo_sensitivity", "base_05", "figure 6, whose values are ours", "params.soft_base", 0.5),
    ("scpo_sensitivity", "alpha_025", "ours: the figure does not vary alpha", "params.alpha", 0.25),
    ("scpo_sensitivity", "alpha_10", "ours: the figure does not vary alpha", "params.alpha", 1.0),
    ("scpo_*table1_*", "ppo", "verl's cliprange_value, at rewards of 10 and 0", "model.value_clip", 0.5),
    ("scpo_*_7b", "*", "SCPO table 1", "policy.source", "Qwen/Qwen2.5-7B-Instruct"),
    ("scpo_* !scpo_*_7b", "*", "SCPO tables 1 and 2", "policy.source", "Qwen/Qwen2.5-1.5B-Instruct"),
    # HAS.
    ("has_*", "*", "HAS tables 4 and 6, base model", "policy.source", "Qwen/Qwen2.5-1.5B-Instruct"),
    ("!has_table3 has_*", "*", "HAS table 4, LoRA rank", "policy.lora.rank", 32),
    ("!has_table3 has_*", "*", "ours: twice the rank", "policy.lora.alpha", 64),
    ("has_table3", "*", "HAS table 3, a LoRA-rank-16 setup", "policy.lora.rank", 16),
    ("has_table3", "*", "ours: twice the rank", "policy.lora.alpha", 32),
    ("has_table1 has_table2", "*", "HAS tables 5 and 6, rounds", "rounds", 10),
    ("has_table3", "*", "HAS appendix C has pilots of five rounds; table 3 does not say", "rounds", 5),
    ("has_ablations", "*", "HAS appendix C, rounds 0-11 of the larger TurnRD", "rounds", 12),
    ("has_table1 has_table2", "*", "HAS section 5.1: three on WebShop, multiple on ALFWorld", "seeds", (0, 1, 2)),
    ("has_table3 has_ablations", "*", "ours: the pilots are single curves", "seeds", (0,)),
    ("has_*", "*", "HAS algorithm 1, line 4, with M = 80 of table 6", "rollout.tasks", 80),
    ("has_*", "[!k]*", "HAS table 6, rollouts per task K", "rollout.group_size", 8),
    ("has_ablations", "k4", "HAS appendix C, K=4", "rollout.group_size", 4),
    ("has_ablations", "k12", "HAS appendix B, K=12", "rollout.group_size", 12),
    ("has_*", "*", "HAS table 6, learning rate", "update.lr", 5e-6),
    ("has_*", "*", "HAS table 6, PPO clip", "update.clip_low", 0.2),
    ("has_*", "*", "HAS table 6, PPO clip", "update.clip_high", 0.2),
    ("has_*", "*", "HAS table 6, target KL (adaptive)", "update.kl_target", 0.04),
    ("has_*", "*", "HAS appendix B, KL-penalty coefficient", "update.kl_coefficient", 0.04),
    ("has_*", "*", "ours: its estimator is not stated", "update.kl", "k3"),
    ("has_*", "*", "HAS table 6, batch size 4 x grad-accum 2", "update.minibatch", 8),
    ("has_*", "[!n]*", "HAS appendix C, skipping groups of identical rewards", "update.skip_dead_groups", True),
    ("has_ablations", "no_dead_skip", "HAS appendix C, without it", "update.skip_dead_groups", False),
    ("has_*", "*", "HAS table 6, rollout temperature", "rollout.temperature", 1.0),
    (HAS, "*", "HAS table 6, 1,000-game subset", "tasks.train", 1000),
    ("has_*", "*", "HAS appendix B, of the training split", "tasks.train_split", "train"),
    (HAS, "*", "ours: the held-out split is not named", "tasks.eval_split", "valid_unseen"),
    (HAS, "*", "HAS table 6, max_steps", "env.household.horizon", 40),
    ("has_*", "*", "HAS table 6, eval episodes", "eval.games", 100),
    ("has_*", "*", "HAS table 6, eval episodes", "tasks.eval", 100),
    ("has_*", "*", "HAS table 6, greedy", "eval.modes.0.temperature", 0.0),
    ("has_*", "*", "HAS table 6, greedy", "eval.primary", "greedy"),
    ("has_*", "*", "HAS table 4, held-out / round", "eval.every", 1),
    ("has_*", "*", "ours: the prompt is not described", "agent.max_response_tokens", 512),
    ("has_*", "*", "ours: the prompt is not described", "agent.window.history", 2),
    ("has_*", "*", "ours: demonstrations have no thoughts", "agent.window.think", False),
    (HAS, "*", "HAS section 4, a warm start on oracle trajectories, whose number is ours", "demos.count", 500),
    ("has_*", "*", "ours: the warm start has no numbers", "demos.noise", 0.05),
    ("has_*", "*", "HAS section 4, oracle trajectories", "demos.slips", 0),
    ("has_*", "*", "ours: the warm start has no numbers", "sft.epochs", 2),
    ("has_*", "*", "ours: the warm start has no numbers", "sft.batch", 16),
    ("has_*", "*", "ours: the warm start has no numbers", "sft.lr", 1e-5),
    ("has_*", "*", "ours: the warm start has no numbers", "sft.warmup_steps", 10),
    ("has_*", "*", "ours: the warm start has no numbers", "sft.optimizer", "adamw"),
    ("!has_table3 has_*", "[!f]*", "HAS table 6, mixing coefficient alpha", "params.alpha", 0.5),
    ("has_table3", "has_turnrd_075", "HAS table 3", "params.alpha", 0.75),
    ("has_table3", "has_turnrd_050", "HAS table 3", "params.alpha", 0.5),
    ("has_table3", "has_turnrd_025", "HAS table 3", "params.alpha", 0.25),
    ("has_*", "[!f]*", "HAS section 3.3, position-wise", "params.turn_norm", "position"),
    ("has_*", TURNRD, "HAS table 6, v-projection clamp", "params.clip", 2.0),
    ("has_*", TURNRD, "HAS section 3.3, the policy's hidden states", "model.read", "current"),
    ("has_*", f"{TURNRD} !large", "HAS table 6, encoder H", "model.hidden", 128),
    ("has_*", f"{TURNRD} !large", "HAS table 6, encoder layers", "model.layers", 2),
    ("has_*", TURNRD, "HAS table 6, encoder heads", "model.heads", 4),
    ("has_*", TURNRD, "HAS table 6, non-causal", "model.causal", False),
    ("has_*", TURNRD, "HAS table 6, dropout", "model.dropout", 0.1),
    (HAS, TURNRD, "HAS table 6, max_turns", "model.max_turns", 50),
    ("has_*", TURNRD, "HAS table 6, TurnRD learning rate", "model.lr", 5e-4),
    ("has_*", TURNRD, "HAS table 6, TurnRD epochs / round", "model.epochs", 5),
    (HAS, f"{TURNRD} !progress_2_1", "HAS table 6, lambda_V", "model.lambda_value", 1.0),
    ("has_*", TURNRD, "HAS table 6, lambda_rank", "model.lambda_rank", 0.1),
    ("has_*", f"{TURNRD} !progress_*", "HAS table 6, lambda_prog", "model.lambda_progress", 0.01),
    ("has_*", TURNRD, "HAS table 6, rank margin", "model.rank_margin", 0.1),
    ("has_*", f"{TURNRD} !half_life_*", "HAS table 6, recency half-life", "model.half_life", 4.0),
    ("has_*", f"{TURNRD} !has_turnrd_film", "HAS table 2, no FiLM", "model.film", False),
    ("has_table2", "has_turnrd_film", "HAS table 6, zero-init FiLM", "model.film", True),
    ("has_table1", "*", "HAS table 5", "env.name", "webshop"),
    ("has_table1", "*", "HAS section 4, 1,000 products", "env.webshop.source", "real"),
    ("has_table1", "*", "ours: not stated", "env.webshop.goals", "synthetic"),
    ("has_table1", "*", "ours: not stated", "env.webshop.splits", "original"),
    ("has_table1", "*", "HAS table 5, max_steps", "env.webshop.horizon", 15),
    ("has_table1", "*", "HAS section 4, sparse terminal success rewards", "env.webshop.reward", "success"),
    ("has_table1", "*", "ours: all of the original's", "tasks.train", 5410),
    ("has_table1", "*", "ours: the split is not named", "tasks.eval_split", "test"),
    ("has_table1", "*", "HAS section 4, oracle trajectories, whose number is ours", "demos.count", 2000),
    ("has_table1", "has_turnrd", "HAS table 5, lambda_V", "model.lambda_value", 0.5),
    ("has_table1", "has_turnrd", "HAS table 5, max_turns", "model.max_turns", 16),
    ("has_table1", "*", "HAS section 4, LLM-Judge", "judge.kind", "llm"),
    ("has_table1", "*", "ours: the judge's model is not stated", "judge.model", "Qwen/Qwen3-8B"),
    ("has_table1", "*", "ours: the judge's model is not stated", "judge.thinking", True),
    ("has_ablations", "large", "HAS appendix C, a larger TurnRD, whose size is ours", "model.hidden", 256),
    ("has_ablations", "large", "HAS appendix C, a larger TurnRD, whose size is ours", "model.layers", 4),
    ("has_ablations", "progress_*", "HAS appendix C, lambda_prog 1.0", "model.lambda_progress", 1.0),
    ("has_ablations", "progress_2_1", "HAS appendix C, lambda_V 2.0", "model.lambda_value", 2.0),
    ("has_ablations", "half_life_2", "HAS appendix C, replay, whose half-lives are ours", "model.half_life", 2.0),
    ("has_ablations", "half_life_8", "HAS appendix C, replay, whose half-lives are ours", "model.half_life", 8.0),
    # TRIAGE. The headings of its table of settings (appendix C) are lost from the text that we have.
    ("triage_*", "*", "TRIAGE appendix C, group size 8", "rollout.group_size", 8),
    ("triage_*", "*", "TRIAGE appendix C, steps 150", "rounds", 150),
    ("triage_*", "*", "TRIAGE appendix C, KL coefficient", "update.kl_coefficient", 0.01),
    ("triage_*", "*", "TRIAGE appendix C, responses of 512", "agent.max_response_tokens", 512),
    ("triage_*", "*", "TRIAGE appendix C, batch size 64 (prompts, as in verl)", "rollout.tasks", 64),
    ("triage_*", "*", "TRIAGE appendix D, 150 optimisation steps: one a batch", "update.minibatch", 512),
    ("triage_*", "*", "lost; GiGPO's", "update.lr", 1e-6),
    ("triage_*", "*", "not stated; GiGPO's", "rollout.temperature", 1.0),
    ("triage_*", "*", "not stated; GiGPO's", "agent.window.history", 2),
    ("triage_*table[356]*", "*", "TRIAGE section 5.1, ten independent runs", "seeds", tuple(range(10))),
    ("triage_table10 triage_sensitivity", "*", "ours: the number of runs is not stated", "seeds", (0, 1, 2)),
    ("triage_*", "triage* lam02_* r*", "TRIAGE section 4, on ALFWorld and WebShop (secondary)", "params.lam", 0.2),
    ("triage_*", ROLES, "TRIAGE eq. 3 (secondary)", "params.decisive", 1.0),
    ("triage_*", f"{ROLES} !triage_no_exploration", "TRIAGE eq. 3 (secondary)", "params.exploration", 0.5),
    ("triage_*", ROLES, "TRIAGE eq. 3 (secondary)", "params.no_progress", -0.1),
    ("triage_*", "triage triage_no_exploration *r05", "TRIAGE eq. 3 (secondary)", "params.regression", -0.5),
    ("triage_*table5", "value_baseline", "TRIAGE appendix D, matched to TRIAGE's value", "params.lam", 0.2),
    ("triage_*table5", "value_baseline", "TRIAGE appendix D, 10 rounds of 160 steps", "model.warmup_steps", 1600),
    ("triage_*table5", "value_baseline", "ours: its source is not known", "model.gamma", 0.99),
    ("triage_*table5", "value_baseline", "ours: the bound is lost", "params.clip", 0.5),
    ("triage_*table6", "triage_no_regression", "TRIAGE table 6", "params.regression", 0.0),
    ("triage_*table6", "triage_no_exploration", "TRIAGE table 6", "params.exploration", 0.0),
    ("triage_table10", "lam01_*", "TRIAGE table 10, whose lambdas are lost: ours", "params.lam", 0.1),
    ("triage_table10", "lam04_*", "TRIAGE table 10, whose lambdas are lost: ours", "params.lam", 0.4),
    ("triage_table10 triage_sensitivity", "*r00", "TRIAGE appendix F, no penalty", "params.regression", 0.0),
    ("triage_table10 triage_sensitivity", "*r025", "TRIAGE appendix F, halved", "params.regression", -0.25),
    ("triage_table10 triage_sensitivity", "*r10", "TRIAGE appendix F, doubled", "params.regression", -1.0),
    ("triage_*", "*", "TRIAGE section 4, an LLM judge", "judge.kind", "llm"),
    ("triage_*", "*", "TRIAGE section 5.3, the judge", "judge.model", "Qwen/Qwen3-8B"),
    ("triage_*", "*", "TRIAGE appendix H, its temperature, whose number is lost: 0", "judge.temperature", 0.0),
    ("triage_*", "*", "TRIAGE appendix H, at most five turns before and after", "judge.window", 5),
    ("triage_* !*_no_think", "*", "TRIAGE section 5.3, with thinking enabled", "judge.thinking", True),
    ("triage_* !*_no_evidence", "*", "TRIAGE appendix H, evidence for every segment", "judge.evidence", True),
    ("triage_*_no_think", "*", "TRIAGE table 3, no-think judge", "judge.thinking", False),
    ("triage_*_no_evidence", "*", "TRIAGE table 3, no evidence", "judge.evidence", False),
    ("triage_*1p7b*", "*", "TRIAGE table 3", "policy.source", "Qwen/Qwen3-1.7B"),
    ("triage_* !*1p7b*", "*", "TRIAGE sections 5.1, 5.4, appendix F", "policy.source", "Qwen/Qwen2.5-7B-Instruct"),
    # MGR.
    ("mgr_table1*", "*", "MGR A.5, group size", "rollout.group_size", 8),
    ("mgr_table1*", "*", "MGR A.5, 16 different groups per rollout", "rollout.tasks", 16),
    ("mgr_table1*", "*", "MGR A.5, maximum response length", "agent.max_response_tokens", 512),
    ("mgr_table1*", "*", "MGR section 3.1: the prompt has the entire history, of 50 turns", "agent.window.history", 50),
    ("mgr_*", "*", "MGR A.5, rollout temperature", "rollout.temperature", 1.0),
    ("mgr_*", "*", "not stated; GiGPO's", "rounds", 150),
    ("mgr_*", "*", "ours: not stated", "seeds", (0, 1, 2)),
    ("mgr_*", "*", "not stated; GiGPO's 256 turns: of about 10 rollouts", "update.minibatch", 10),
    ("mgr_*", "*", "MGR section 4.3, AdamW", "update.optimizer", "adamw"),
    ("mgr_*", "*", "MGR section 4.3, constant learning rate (the baselines' is not stated)", "update.lr", 5e-7),
    ("mgr_*", "!mgr_kl", "MGR section 3.1, no KL term (the baselines' is not stated)", "update.kl", "none"),
    ("mgr_*", "!mgr_kl", "MGR section 3.1, no KL term (the baselines' is not stated)", "update.kl_coefficient", 0.0),
    ("mgr_table2", "mgr_kl", "MGR table 2, with KL, whose form is ours", "update.kl", "k3"),
    ("mgr_table2", "mgr_kl", "MGR table 2, with KL, whose coefficient is ours", "update.kl_coefficient", 0.01),
    ("mgr_*", "mgr* damping_* repetition_*", "MGR section 4.3, beta", "params.beta", 0.1),
    ("mgr_*", "mgr* damping_* beta_* !mgr_no_repetition", "MGR section 4.3, alpha", "params.repetition", 0.5),
    ("mgr_*", "mgr* damping_* repetition_* beta_*", "MGR section 4.3, q", "params.free", 2),
    ("mgr_*", "mgr* repetition_* beta_*", "MGR table 4, gamma", "params.damping", 1.0),
    ("mgr_*", "mgr* damping_* repetition_* beta_*", "MGR A.5, decay factor", "params.decay", 1.5),
    ("mgr_*", "mgr* damping_* repetition_* beta_*", "MGR A.5, minimum retention probability", "params.floor", 0.1),
    ("mgr_table1*", "flat_grpo gigpo", "GiGPO's recipe: penalty .1 at rewards of 10 and 0", "params.penalty", 0.1),
    ("mgr_table1*", "flat_grpo gigpo", "GiGPO's recipe: penalty .1", "shapers", ("invalid_penalty",)),
    ("mgr_table1*", "flat_grpo gigpo", "verl-agent's is_action_valid", "params.column", "well_formed"),
    ("mgr_table1*", "flat_grpo gigpo", CROSS_STEPS, "params.weighting", "row"),
    ("mgr_table1*", "*", "GiGPO's recipe: penalty .1 at rewards of 10 and 0", "env.household.success_reward", 10),
    (APPWORLD, "*", "AppWorld", "env.name", "appworld"),
    (APPWORLD, "*", "MGR A.5, 6 rollouts of a task in AppWorld", "rollout.group_size", 6),
    (APPWORLD, "*", "MGR A.5, 40 randomly sampled tasks", "rollout.tasks", 40),
    (APPWORLD, "*", "MGR A.5, maximum response length in AppWorld", "agent.max_response_tokens", 2048),
    (APPWORLD, "*", "MGR A.5, up to 35 environment steps", "env.appworld.horizon", 35),
    (APPWORLD, "*", "MGR A.5, 72 tasks", "tasks.train", 72),
    (APPWORLD, "*", "MGR A.5, its task IDs", "tasks.train_split", "mgr_train"),
    (APPWORLD, "*", "ours: the tasks that are evaluated are not stated", "tasks.eval_split", "test_normal"),
    (APPWORLD, "*", "all of test_normal", "tasks.eval", 168),
    (APPWORLD, "*", "all of test_normal", "eval.games", 168),
    ("mgr_table1 mgr_appworld_table1", "*", "MGR table 1", "policy.source", "Qwen/Qwen2.5-7B-Instruct"),
    ("mgr_*_qwen3_8b", "*", "MGR table 1", "policy.source", "Qwen/Qwen3-8B"),
    ("mgr_table2 mgr_sensitivity", "*", "MGR section 4.6", "policy.source", "Qwen/Qwen3-8B"),
    ("mgr_table2", "mgr_no_gate", "MGR table 2", "params.gate", "keep"),
    ("mgr_table2", "mgr_no_repetition", "MGR table 2", "params.repetition", 0.0),
    ("mgr_sensitivity", "beta_00", "MGR table 3", "params.beta", 0.0),
    ("mgr_sensitivity", "beta_03", "MGR table 3", "params.beta", 0.3),
    ("mgr_sensitivity", "beta_05", "MGR table 3", "params.beta", 0.5),
    ("mgr_sensitivity", "damping_08", "MGR table 4", "params.damping", 0.8),
    ("mgr_sensitivity", "damping_12", "MGR table 4", "params.damping", 1.2),
    ("mgr_sensitivity", "damping_14", "MGR table 4", "params.damping", 1.4),
    ("mgr_sensitivity", "repetition_00", "MGR table 5", "params.repetition", 0.0),
    ("mgr_sensitivity", "repetition_10", "MGR table 5", "params.repetition", 1.0),
    ("mgr_sensitivity", "repetition_20", "MGR table 5", "params.repetition", 2.0),
    # HIPIF.
    ("hipif_*", "*", "HIPIF appendix B, maximum response length", "agent.max_response_tokens", 512),
    ("hipif_*", "*", "HIPIF appendix B, actor learning rate", "update.lr", 1e-6),
    ("hipif_*", "!ppo", "HIPIF appendix B, group size", "rollout.group_size", 8),
    ("hipif_*", "!ppo", "HIPIF appendix B, 16 groups", "rollout.tasks", 16),
    ("hipif_*", "ppo", "HIPIF appendix B, PPO: 128 independent environments", "rollout.tasks", 128),
    ("hipif_*", "ppo", "HIPIF appendix B, PPO: 128 independent environments", "rollout.group_size", 1),
    ("hipif_*", "*", "HIPIF appendix B, mini-batches of 256 turns: of about 10 rollouts", "update.minibatch", 10),
    ("hipif_*", "*", "HIPIF appendix B, rollout temperature", "rollout.temperature", 1.0),
    ("hipif_*", "*", "HIPIF appendix B, KL coefficient", "update.kl_coefficient", 0.01),
    ("hipif_*", "*", "ours: not stated", "seeds", (0, 1, 2)),
    (f"hipif_* {ELSEWHERE}", "*", "HIPIF appendix B, terminal reward", "env.household.success_reward", 10),
    ("hipif_scienceworld_*", "*", "HIPIF table 1, ScienceWorld", "env.name", "scienceworld"),
    ("hipif_scienceworld_*", "*", "HIPIF appendix B, terminal reward", "env.scienceworld.success_reward", 10),
    ("hipif_scienceworld_*", "*", "HIPIF appendix B, of successes", "env.scienceworld.reward", "success"),
    ("hipif_scienceworld_*", "*", "HIPIF appendix A, 40 interaction turns", "env.scienceworld.horizon", 40),
    ("hipif_scienceworld_*", "*", "ours: all variations of the official split", "tasks.train", 3592),
    ("hipif_scienceworld_*", "*", "ours: the official split", "tasks.train_split", "train"),
    ("hipif_scienceworld_*", "*", "ours: the official split", "tasks.eval_split", "test"),
    ("hipif_scienceworld_*", "*", "ours: 256 of the test split", "tasks.eval", 256),
    ("hipif_scienceworld_*", "*", "ours: 256 of the test split", "eval.games", 256),
    ("hipif_virtualhome_*", "*", "HIPIF table 1, VirtualHome", "env.name", "virtualhome"),
    ("hipif_virtualhome_*", "*", "HIPIF appendix B, terminal reward", "env.virtualhome.success_reward", 10),
    ("hipif_virtualhome_*", "*", "HIPIF appendix A, 50 interaction turns", "env.virtualhome.horizon", 50),
    ("hipif_virtualhome_*", "*", "recorded programs", "env.virtualhome.source", "real"),
    ("hipif_virtualhome_*", "*", "ours: all recorded programs", "tasks.train", 237),
    ("hipif_virtualhome_*", "*", "ours: all recorded programs", "tasks.train_split", "train"),
    ("hipif_virtualhome_*", "*", "ours: all recorded programs", "tasks.eval_split", "eval"),
    ("hipif_virtualhome_*", "*", "ours: all recorded programs", "tasks.eval", 101),
    ("hipif_virtualhome_*", "*", "ours: 64 of them", "eval.games", 64),
    ("hipif_*_7b", "*", "HIPIF appendix B, 150 epochs of 7B", "rounds", 150),
    ("hipif_*_3b hipif_gigpo hipif_sensitivity", "*", "HIPIF appendix B, 200 epochs of 3B", "rounds", 200),
    ("hipif_*_7b", "*", "HIPIF section 4.1", "policy.source", "Qwen/Qwen2.5-7B-Instruct"),
    ("hipif_*_3b", "*", "HIPIF section 4.1", "policy.source", "Qwen/Qwen2.5-3B-Instruct"),
    ("hipif_gigpo", "*", "HIPIF figure 14, the 3B setting", "policy.source", "Qwen/Qwen2.5-3B-Instruct"),
    ("hipif_sensitivity", "*", "ours: figure 6 does not say", "policy.source", "Qwen/Qwen2.5-3B-Instruct"),
    ("hipif_*", f"{FOLDING} hiagent_grpo", "HIPIF appendix B, prompts", "agent.hipif.max_prompt_tokens", 8192),
    (f"hipif_* {ELSEWHERE}", WHOLE, "HIPIF section 2, whole histories", "agent.window.history", 50),
    ("hipif_scienceworld_*", WHOLE, "HIPIF section 2, whole histories", "agent.window.history", 40),
    ("hipif_virtualhome_*", WHOLE, "HIPIF section 2, whole histories", "agent.window.history", 50),
    ("hipif_scienceworld_*", WHOLE, "ours: templates", "agent.window.show_admissible", False),
    ("hipif_* !hipif_sensitivity", f"{FOLDING} !no_reward", "HIPIF appendix B, penalty", "params.penalty", 0.1),
    ("hipif_sensitivity", "hipif repeats_*", "HIPIF appendix B, penalty", "params.penalty", 0.1),
    ("hipif_* !hipif_sensitivity", f"{FOLDING} !no_reward", "HIPIF appendix B, the third", "params.repeats", 3),
    ("hipif_sensitivity", "hipif penalty_*", "HIPIF appendix B, the third", "params.repeats", 3),
    ("hipif_*", f"{FOLDING} !hipif_gigpo", "HIPIF eq. 9, over all steps of the group", "params.weighting", "row"),
    ("hipif_gigpo", "gigpo hipif_gigpo", CROSS_STEPS, "params.weighting", "row"),
    ("hipif_*", "rloo flat_grpo gigpo hiagent_grpo", CROSS_STEPS, "params.weighting", "row"),
    ("hipif_*", BASELINES, "HIPIF appendix B, .1 for missing tags in all methods", "params.penalty", 0.1),
    ("hipif_*", BASELINES, "HIPIF appendix B, .1 for missing tags", "params.column", "well_formed"),
    ("hipif_*", BASELINES, "HIPIF appendix B, .1 for missing tags", "shapers", ("invalid_penalty",)),
    ("hipif_*", "hipif", "HIPIF section 3.2", "agent.hipif.reflection", True),
    ("hipif_*", "hiagent_grpo", "HiAgent has no reflection", "agent.hipif.reflection", False),
    ("hipif_*", "hiagent_grpo", "HiAgent folds subgoals", "agent.hipif.subgoals", True),
    ("hipif_table2_*", "no_reflection", "HIPIF table 2, w/o reflection", "agent.hipif.reflection", False),
    ("hipif_table2_*", "no_reflection", "HIPIF table 2, only reflection is removed", "agent.hipif.subgoals", True),
    ("hipif_table2_*", "no_subgoal", "HIPIF table 2, w/o subgoal", "agent.hipif.subgoals", False),
    ("hipif_sensitivity", "repeats_none", "HIPIF figure 6, none: 50 turns cannot have it", "params.repeats", 51),
    ("hipif_sensitivity", "repeats_2", "HIPIF figure 6, the first repeated pair", "params.repeats", 2),
    ("hipif_sensitivity", "penalty_005", "HIPIF figure 6", "params.penalty", 0.05),
    ("hipif_sensitivity", "penalty_02", "HIPIF figure 6", "params.penalty", 0.2),
]


@cache
def plan_of(name: str) -> Plan:
    return Plan(load([ROOT / "config.yaml", ROOT / "config" / "paper" / f"{name}.yaml"]))


def planned(plan: Plan, method: str) -> dict[str, Any]:
    """What a plan has for a run of the method: sections as the run has them, its parameters, its model, its shapers."""
    whole = plan.experiment
    values = whole.model_dump()
    values["update"] = whole.section_for(method, "update").model_dump()
    values["rollout"] = whole.section_for(method, "rollout").model_dump()
    values["agent"] = agent_of(whole.agent_of(method))
    values["params"] = plan.method(method).params()
    values["shapers"] = tuple(part.name for part in plan.method(method).shapers)
    values["model"] = plan.model(method)[1].model_dump() if plan.method(method).model else {}
    return values


def agent_of(config: AgentConfig) -> dict[str, Any]:
    """The agent that plays, with all of its settings under its name."""
    spec, chosen = agents.load(config.name), config.chosen()
    return {**config.model_dump(), config.name: spec.Settings.model_validate(chosen.settings).model_dump()}


def found(values: Any, path: str) -> Any:
    for key in path.split("."):
        values = values[int(key)] if key.isdigit() else values[key]
    return values


def matches(name: str, patterns: str) -> bool:
    """Whether one of the patterns, separated by blanks, is the name's, and none that begins with `!`."""
    wanted = [pattern for pattern in patterns.split() if not pattern.startswith("!")] or ["*"]
    unwanted = [pattern[1:] for pattern in patterns.split() if pattern.startswith("!")]
    return any(fnmatch(name, one) for one in wanted) and not any(fnmatch(name, one) for one in unwanted)


@cache
def cases() -> tuple[tuple[str, str, str, str, Any], ...]:
    """`STATED` for every single preset and method. A row that meets none is a mistake in the table."""
    out: list[tuple[str, str, str, str, Any]] = []
    for presets, methods, source, path, value in STATED:
        hits = [
            (name, method, source, path, value)
            for name in NAMES
            if matches(name, presets)
            for method in plan_of(name).experiment.trained()
            if matches(method, methods)
        ]
        assert hits, f"no run of {presets} is {methods} ({path})"
        out += hits
    return tuple(out)


def wrong(name: str, plan: Plan) -> list[str]:
    """What a plan of the preset has otherwise than the table, a line each."""
    values = {method: planned(plan, method) for method in plan.experiment.trained()}
    return [
        f"{method}: {path} is {found(values[method], path)!r}, not {value!r} ({source})"
        for preset, method, source, path, value in cases()
        if preset == name and found(values[method], path) != value
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_plans_the_numbers_that_its_paper_states(name: str) -> None:
    assert not wrong(name, plan_of(name))


def leaves(values: Any, path: str = "") -> Iterator[str]:
    """The keys of a mapping, those of mappings inside joined by dots."""
    if not isinstance(values, dict):
        yield path
        return
    for key, value in values.items():
        yield from leaves(value, f"{path}.{key}" if path else key)


def set_by(preset: Path) -> set[tuple[str, str]]:
    """The settings that a preset gives, each with a method that has it, under the names of `planned`."""
    raw, experiment = read_mapping(preset), plan_of(preset.stem).experiment
    own, played = raw.pop("define", {}), raw.pop("agents", {})
    out = set()
    for method in experiment.trained():
        entry = own.get(method, {})
        agent = entry.get("agent", "")
        given = {**raw, **({"agent": played[agent]} if agent in played else {})}
        out |= {(method, path) for path in leaves(given)}
        out |= {(method, path) for path in leaves(entry) if path not in ("base", "agent", "params.shapers")}
        out |= {(method, "shapers")} if "shapers" in entry.get("params", {}) else set()
    return {(method, path) for method, path in out if not matches(path, HOW)}


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.stem)
def test_the_table_has_every_setting_of_a_preset(preset: Path) -> None:
    """So that none can be changed unnoticed: a setting is stated by the paper, or said to be ours.

    Not in it: `HOW`, agents that only play a warm start, and demonstrations that nothing imitates.
    """
    tabled = {(method, path) for name, method, _, path, _ in cases() if name == preset.stem}
    without_warm_start = plan_of(preset.stem).experiment.sft.epochs == 0
    unread = "demos.*" if without_warm_start else "!*"
    assert sorted((m, path) for m, path in set_by(preset) - tabled if not matches(path, unread)) == []


def changed(name: str, change: dict[str, Any]) -> Plan:
    """The plan of a preset with other settings laid over it."""
    return Plan(from_mapping(merge(*(read_mapping(path) for path in (ROOT / "config.yaml", preset_of(name))), change)))


def preset_of(name: str) -> Path:
    return ROOT / "config" / "paper" / f"{name}.yaml"


def of(method: str, **sections: Any) -> dict[str, Any]:
    return {"define": {method: sections}}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("has_ablations", of("progress_2_1", model={"lambda_value": 7, "lambda_progress": 3})),
        ("has_ablations", {"update": {"skip_dead_groups": False}}),
        ("has_ablations", of("large", model={"hidden": 64})),
        ("has_ablations", of("half_life_2", model={"half_life": 5})),
        ("has_ablations", of("k12", rollout={"group_size": 6})),
        ("has_table3", {"update": {"skip_dead_groups": False}}),
        ("has_table3", {"rounds": 1}),
        ("has_table1", of("has_turnrd", model={"lambda_value": 1.0})),
        ("has_table1", {"env": {"webshop": {"reward": "score"}}}),
        ("triage_table10", of("lam01_r025", params={"lam": 0.9})),
        ("triage_table10", of("lam02_r05", params={"regression": 5.0})),
        ("triage_table10", {"env": {"webshop": {"reward": "score"}}}),
        ("triage_sensitivity", of("r10", params={"regression": -0.5})),
        ("triage_table3", {"judge": {"thinking": False}}),
        ("triage_table3", {"judge": {"temperature": 0.7}}),
        ("triage_table3", {"update": {"lr": 1e-4}}),
        ("triage_table3", {"rollout": {"temperature": 0.1}}),
        ("scpo_webshop_table1_7b", of("scpo", params={"success_above": 0})),
        ("triage_webshop_table3", {"env": {"webshop": {"reward": "score"}}}),
        ("scpo_sensitivity", of("base_02", params={"soft_base": 0.9})),
        ("mgr_sensitivity", of("repetition_10", params={"repetition": 0.1})),
        ("hipif_sensitivity", of("repeats_none", params={"repeats": 3})),
    ],
)
def test_the_table_notices_a_setting_that_is_not_the_papers(name: str, change: dict[str, Any]) -> None:
    assert wrong(name, changed(name, change))


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.stem)
def test_a_preset_opens_with_what_it_departs_from(preset: Path) -> None:
    head = preset.read_text().split("experiment:")[0]
    assert "# Stated by the paper and run here:" in head
    assert "# Departures, and what the paper leaves open:\n# - " in head


#: The papers' tables and figures that are of trained policies, by what these play: paper -> environment -> which.
#: Without curves of a table's runs, settings and cases.
RESULTS: dict[str, dict[str, set[str]]] = {
    "HAS": {"ALFWorld": {"2", "3", "appendix B", "appendix C"}, "WebShop": {"1"}},
    "SCPO": {"ALFWorld": {"1", "2", "figure 6"}, "WebShop": {"1"}},
    "TRIAGE": {
        "ALFWorld": {"3", "5", "6", "9", "appendix F"},
        "WebShop": {"3", "5", "6", "9", "10"},
        "Search-QA": {"3", "5", "6", "appendix F"},
    },
    "MGR": {"ALFWorld": {"1"}, "AppWorld": {"1", "2", "3", "4", "5"}},
    "HIPIF": {
        "ALFWorld": {"1", "2", "5", "figure 6", "figure 14"},
        "ScienceWorld": {"1", "2", "5", "figure 14"},
        "VirtualHome": {"1", "2", "5", "figure 14"},
    },
}


def listed() -> list[tuple[str, str, str, str]]:
    """(paper, table, environment, presets or the reason for none) of every row of docs/papers.md, a table each."""
    out, paper = [], ""
    for line in (ROOT / "docs" / "papers.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) < 4 or cells[0] == "paper" or set(cells[0]) == {"-"}:
            continue
        paper = cells[0].partition(" ")[0] or paper
        out += [(paper, table.strip(), cells[2], cells[3]) for table in cells[1].split(",")]
    return out


def test_the_page_of_papers_lists_every_table_once_with_its_presets_or_the_reason_for_none() -> None:
    known = [
        (paper, table, env) for paper, where in RESULTS.items() for env, tables in where.items() for table in tables
    ]
    rows = listed()
    assert sorted((paper, table, env) for paper, table, env, _ in rows) == sorted(known)
    assert [row for row in rows if len(row[3]) < len("the same")] == []


def test_the_page_of_papers_names_the_presets_that_there_are() -> None:
    with_preset = [said for *_, said in listed() if said.startswith("`")]
    assert {name for said in with_preset for name in re.findall(r"`(\w+)`", said)} == set(NAMES)


def test_a_preset_plays_what_the_page_of_papers_says() -> None:
    worlds = {"ALFWorld": "household"}
    rows = [(env, name) for *_, env, said in listed() if said.startswith("`") for name in re.findall(r"`(\w+)`", said)]
    other = {name: env for env, name in rows if plan_of(name).experiment.env.name != worlds.get(env, env.lower())}
    assert rows
    assert other == {}


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.stem)
def test_a_preset_is_valid_and_names_itself(preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_if_simulators_were_here(monkeypatch)
    experiment = load([ROOT / "config.yaml", preset])
    checks.check(experiment)
    assert experiment.experiment == preset.stem
    for name in experiment.define:
        assert name in experiment.methods
    for name in experiment.trained():
        configured_method(experiment, name)


def test_a_prompt_asks_for_thoughts_only_where_no_demonstrations_without_them_are_imitated() -> None:
    experiments = {name: plan_of(name).experiment for name in NAMES}
    experiments["qwen"] = load([ROOT / "config.yaml", ROOT / "config" / "qwen2.5-1.5b.yaml"])
    windows = {name: one for name, one in experiments.items() if one.agent.name == "window"}
    asking = {name for name, one in windows.items() if Window.model_validate(one.agent.chosen().settings).think}
    assert asking == {name for name, one in windows.items() if not one.sft.epochs}
    assert asking != windows.keys()


def test_rewards_are_one_or_ten_and_graded_where_the_paper_says_so() -> None:
    games = {name: plan_of(name).experiment.env for name in NAMES}
    played = {name: env for name, env in games.items() if env.name in ("household", "webshop")}
    settings = {name: env.chosen().settings for name, env in played.items()}
    one = {name.split("_")[0] for name, chosen in settings.items() if chosen.get("success_reward", 1) == 1}
    assert one == {"has", "triage"}
    ten = {name.split("_")[0] for name, chosen in settings.items() if chosen.get("success_reward", 1) == 10}
    assert ten == {"scpo", "mgr", "hipif"}
    graded = {name for name, chosen in settings.items() if chosen.get("reward") == "score"}
    assert graded == {"scpo_webshop_table1_1p5b", "scpo_webshop_table1_7b"}


def test_webshops_files_have_the_goals_that_its_presets_take(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(os.environ.get("WEBSHOP_DATA", DATA / "webshop"))
    if not folder.exists():
        pytest.skip("WebShop's files are not here: their folder is in $WEBSHOP_DATA")
    monkeypatch.setenv("WEBSHOP_DATA", str(folder))
    shops = [plan_of(name).experiment for name in NAMES if plan_of(name).experiment.env.name == "webshop"]
    for experiment in nonempty(shops):
        settings = Settings.model_validate(experiment.env.chosen().settings)
        tasks = experiment.tasks
        assert tasks.train == len(real_split(tasks.train_split, settings))
        assert tasks.eval <= len(real_split(tasks.eval_split, settings))


@pytest.mark.parametrize("name", ["triage_table5", "triage_webshop_table5"])
def test_the_value_baseline_has_the_papers_ten_rounds_without_its_head(name: str) -> None:
    plan = plan_of(name)
    kind, settings = load_kind("value_head"), plan.model("value_baseline")[1]
    rollout = plan.experiment.section_for("value_baseline", "rollout")
    steps = len(list(kind.minibatches([rollout.tasks * rollout.group_size], settings, 0, np.random.default_rng(0))))
    used = [kind.ready(steps * (round_ - 1), settings) for round_ in range(1, 13)]
    assert used == [False] * 10 + [True] * 2


@pytest.mark.parametrize("size", ["3b", "7b"])
def test_hipif_without_reward_learns_from_success_alone_and_plays_with_the_same_agent(size: str) -> None:
    plan = plan_of(f"hipif_table2_{size}")
    assert [part.name for part in plan.method("hipif").shapers] == ["hipif"]
    assert not plan.method("no_reward").shapers
    assert plan.experiment.agent_of("no_reward") == plan.experiment.agent_of("hipif")


def test_a_group_size_of_has_changes_the_rollouts_and_not_the_tasks_of_a_round() -> None:
    sizes = {name: planned(plan_of("has_ablations"), name)["rollout"] for name in ("has_turnrd", "k4", "k12")}
    assert {name: (size["tasks"], size["group_size"]) for name, size in sizes.items()} == {
        "has_turnrd": (80, 8),
        "k4": (80, 4),
        "k12": (80, 12),
    }
