"""The papers' presets: they load over the default configuration, and the plan of each has the paper's own numbers."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from turncredit import agents
from turncredit.agents.window import Settings
from turncredit.config import AgentConfig, load
from turncredit.credit.configured import configured_method
from turncredit.stages import checks
from turncredit.stages.plan import Plan

ROOT = Path(__file__).parents[2]
PRESETS = sorted((ROOT / "config" / "paper").glob("*.yaml"))
NAMES = [preset.stem for preset in PRESETS]

#: (presets, methods of the preset, where it is stated, the planned setting, its value)
STATED: list[tuple[str, str, str, str, Any]] = [
    ("scpo_*", "*", "SCPO table 3, group size n", "rollout.group_size", 8),
    ("scpo_*", "*", "SCPO table 3, train batch size 16 tasks / step", "rollout.tasks", 16),
    ("scpo_*", "*", "SCPO table 3, validation batch size 128 episodes", "eval.games", 128),
    ("scpo_*", "*", "SCPO table 3, learning rate", "update.lr", 1e-6),
    ("scpo_*", "*", "SCPO table 3, optimizer", "update.optimizer", "adamw"),
    ("scpo_*", "*", "SCPO table 3, KL coefficient", "update.kl_coefficient", 0.01),
    ("scpo_*", "*", "SCPO table 3, invalid-action penalty", "params.penalty", 0.1),
    ("scpo_*", "*", "verl-agent's is_action_valid: the response has its tags", "params.column", "well_formed"),
    ("scpo_table1_*", "rloo", "verl-agent's compute_mean_std_cross_steps", "params.weighting", "row"),
    ("scpo_*", "scpo*", "verl-agent's compute_mean_std_cross_steps", "params.weighting", "row"),
    ("scpo_*", "*", "SCPO table 3, max response length", "agent.max_response_tokens", 512),
    ("scpo_*", "*", "SCPO table 3, history context K", "agent.window.history", 2),
    ("scpo_*", "*", "SCPO table 3, training iterations", "rounds", 150),
    ("scpo_*", "*", "SCPO table 3, validation every 5 steps", "eval.every", 5),
    ("scpo_*", "*", "SCPO table 3, rollout temperature", "rollout.temperature", 1.0),
    ("scpo_*", "*", "SCPO table 3, validation temperature", "eval.modes.0.temperature", 0.4),
    ("scpo_table*", "*", "SCPO table 3, random seeds", "seeds", (0, 1, 2)),
    ("scpo_sensitivity", "*", "SCPO appendix C.3, single-seed runs", "seeds", (0,)),
    ("scpo_*", "*", "SCPO section 4.1 and A.6, VALID_SEEN", "tasks.eval_split", "valid_seen"),
    ("scpo_*", "*", "SCPO A.6, a fixed set", "eval.fresh", False),
    ("scpo_*", "*", "SCPO A.1, T_max", "env.household.horizon", 50),
    ("scpo_*", "*", "verl-agent's ALFWorld: 10 for a won game, 0 else", "env.household.success_reward", 10),
    ("scpo_*", "*", "verl-agent's default clip_ratio", "update.clip_low", 0.2),
    ("scpo_*", "*", "verl-agent's default clip_ratio", "update.clip_high", 0.2),
    ("scpo_*", "gigpo", "SCPO table 3, discount gamma", "params.gamma", 0.95),
    ("scpo_*", "scpo*", "SCPO table 3, discount gamma", "params.gamma", 0.95),
    ("scpo_*", "scpo*", "SCPO table 4, match threshold theta", "params.theta", 0.6),
    ("scpo_*", "scpo*", "SCPO table 4, soft base lambda", "params.soft_base", 0.4),
    ("scpo_*", "scpo*", "SCPO table 4, alpha on ALFWorld", "params.alpha", 0.5),
    ("scpo_*", "scpo", "SCPO table 4, reference: longest success", "params.reference", "longest"),
    ("scpo_*", "scpo", "SCPO table 4, default order: reordered", "params.order", "balanced"),
    ("scpo_*", "scpo", "SCPO table 4, monotonic credit", "params.repeat", False),
    ("scpo_*", "scpo*", "SCPO table 4, cross-encoder", "params.scorer", "cross-encoder:BAAI/bge-reranker-v2-m3"),
    ("scpo_table2", "scpo_chronological", "SCPO table 2, chronological order", "params.order", "chronological"),
    ("scpo_table2", "scpo_repeat", "SCPO table 2, - monotonicity", "params.repeat", True),
    ("scpo_table2", "scpo_shortest", "SCPO table 2, shortest reference", "params.reference", "shortest"),
    ("scpo_table1_*", "ppo", "verl's cliprange_value, at rewards of 10 and 0", "model.value_clip", 0.5),
    ("scpo_table1_1p5b", "*", "SCPO table 1", "policy.source", "Qwen/Qwen2.5-1.5B-Instruct"),
    ("scpo_table1_7b", "*", "SCPO table 1", "policy.source", "Qwen/Qwen2.5-7B-Instruct"),
    ("scpo_table2", "*", "SCPO table 2", "policy.source", "Qwen/Qwen2.5-1.5B-Instruct"),
    ("has_*", "*", "HAS tables 4 and 6, base model", "policy.source", "Qwen/Qwen2.5-1.5B-Instruct"),
    ("has_table2", "*", "HAS table 6, LoRA rank", "policy.lora.rank", 32),
    ("has_table3", "*", "HAS table 3, a LoRA-rank-16 setup", "policy.lora.rank", 16),
    ("has_table2", "*", "HAS table 6, rounds", "rounds", 10),
    ("has_ablations", "*", "HAS appendix C, rounds 0-11 of the larger TurnRD", "rounds", 12),
    ("has_table*", "*", "HAS algorithm 1, line 4, with M = 80 of table 6", "rollout.tasks", 80),
    ("has_table*", "*", "HAS table 6, rollouts per task K", "rollout.group_size", 8),
    ("has_*", "*", "HAS table 6, learning rate", "update.lr", 5e-6),
    ("has_*", "*", "HAS table 6, PPO clip", "update.clip_low", 0.2),
    ("has_*", "*", "HAS table 6, PPO clip", "update.clip_high", 0.2),
    ("has_*", "*", "HAS table 6, target KL (adaptive)", "update.kl_target", 0.04),
    ("has_*", "*", "HAS appendix B, KL-penalty coefficient", "update.kl_coefficient", 0.04),
    ("has_*", "*", "HAS table 6, batch size 4 x grad-accum 2", "update.minibatch", 8),
    ("has_*", "*", "HAS table 6, rollout temperature", "rollout.temperature", 1.0),
    ("has_*", "*", "HAS table 6, 1,000-game subset", "tasks.train", 1000),
    ("has_*", "*", "HAS table 6, max_steps", "env.household.horizon", 40),
    ("has_*", "*", "HAS table 6, eval episodes", "eval.games", 100),
    ("has_*", "*", "HAS table 6, greedy", "eval.modes.0.temperature", 0.0),
    ("has_*", "*", "HAS table 4, held-out / round", "eval.every", 1),
    ("has_table2", "*", "HAS appendix C, skipping groups of identical rewards", "update.skip_dead_groups", True),
    ("has_table2", "has_*", "HAS table 6, mixing coefficient alpha", "params.alpha", 0.5),
    ("has_table3", "has_turnrd_075", "HAS table 3", "params.alpha", 0.75),
    ("has_table3", "has_turnrd_050", "HAS table 3", "params.alpha", 0.5),
    ("has_table3", "has_turnrd_025", "HAS table 3", "params.alpha", 0.25),
    ("has_table*", "has_turnrd*", "HAS table 6, encoder H", "model.hidden", 128),
    ("has_table*", "has_turnrd*", "HAS table 6, encoder layers", "model.layers", 2),
    ("has_table*", "has_turnrd*", "HAS table 6, encoder heads", "model.heads", 4),
    ("has_table*", "has_turnrd*", "HAS table 6, dropout", "model.dropout", 0.1),
    ("has_table*", "has_turnrd*", "HAS table 6, max_turns", "model.max_turns", 50),
    ("has_table*", "has_turnrd*", "HAS table 6, TurnRD learning rate", "model.lr", 5e-4),
    ("has_table*", "has_turnrd*", "HAS table 6, TurnRD epochs / round", "model.epochs", 5),
    ("has_table*", "has_turnrd*", "HAS table 6, lambda_V", "model.lambda_value", 1.0),
    ("has_table*", "has_turnrd*", "HAS table 6, lambda_rank", "model.lambda_rank", 0.1),
    ("has_table*", "has_turnrd*", "HAS table 6, lambda_prog", "model.lambda_progress", 0.01),
    ("has_table*", "has_turnrd*", "HAS table 6, rank margin", "model.rank_margin", 0.1),
    ("has_table*", "has_turnrd*", "HAS table 6, recency half-life", "model.half_life", 4.0),
    ("has_table2", "has_turnrd_film", "HAS table 6, zero-init FiLM", "model.film", True),
    ("triage_*", "*", "TRIAGE appendix C, group size 8", "rollout.group_size", 8),
    ("triage_*", "*", "TRIAGE appendix C, steps 150", "rounds", 150),
    ("triage_*", "*", "TRIAGE appendix C, clip ratio", "update.clip_low", 0.2),
    ("triage_*", "*", "TRIAGE appendix C, clip ratio", "update.clip_high", 0.2),
    ("triage_*", "*", "TRIAGE appendix C, KL coefficient", "update.kl_coefficient", 0.01),
    ("triage_*", "*", "TRIAGE appendix C, responses of 512", "agent.max_response_tokens", 512),
    ("triage_*", "*", "TRIAGE appendix C, batch size 64 (prompts, as in verl)", "rollout.tasks", 64),
    ("triage_*", "*", "TRIAGE appendix D, 150 optimisation steps: one a batch", "update.minibatch", 512),
    ("triage_table[356]*", "*", "TRIAGE section 5.1, ten independent runs", "seeds", tuple(range(10))),
    ("triage_table[356]*", "triage*", "TRIAGE section 4, lambda on ALFWorld (secondary)", "params.lam", 0.2),
    ("triage_table5", "value_baseline", "TRIAGE appendix D, matched to TRIAGE's value", "params.lam", 0.2),
    ("triage_table5", "value_baseline", "TRIAGE appendix D, 10-step head warmup", "model.warmup_steps", 10),
    ("triage_table6", "triage_no_regression", "TRIAGE table 6", "params.regression", 0.0),
    ("triage_table6", "triage_no_exploration", "TRIAGE table 6", "params.exploration", 0.0),
    ("triage_*", "*", "TRIAGE section 5.3, the judge", "judge.model", "Qwen/Qwen3-8B"),
    ("triage_*", "*", "TRIAGE appendix H, at most five turns before and after", "judge.window", 5),
    ("triage_table3*_no_think", "*", "TRIAGE table 3, no-think judge", "judge.thinking", False),
    ("triage_table3*_no_evidence", "*", "TRIAGE table 3, no evidence", "judge.evidence", False),
    ("triage_table3*_no_evidence", "*", "TRIAGE table 3, thinking judge, no evidence", "judge.thinking", True),
    ("triage_table3_1p7b*", "*", "TRIAGE table 3", "policy.source", "Qwen/Qwen3-1.7B"),
    ("triage_table[56]", "*", "TRIAGE section 5.4", "policy.source", "Qwen/Qwen2.5-7B-Instruct"),
    ("mgr_table1*", "*", "MGR A.5, group size", "rollout.group_size", 8),
    ("mgr_table1*", "*", "MGR A.5, 16 different groups per rollout", "rollout.tasks", 16),
    ("mgr_table1*", "*", "MGR A.5, maximum response length", "agent.max_response_tokens", 512),
    ("mgr_table1*", "*", "MGR A.5, up to 50 environment steps", "env.household.horizon", 50),
    ("mgr_table1*", "*", "MGR section 3.1: the prompt has the entire history, of 50 turns", "agent.window.history", 50),
    ("mgr_*", "*", "MGR A.5, rollout temperature", "rollout.temperature", 1.0),
    ("mgr_*", "mgr*", "MGR section 4.3, AdamW", "update.optimizer", "adamw"),
    ("mgr_*", "mgr*", "MGR section 4.3, constant learning rate", "update.lr", 5e-7),
    ("mgr_*", "mgr*", "MGR section 4.3, constant learning rate", "update.final_lr", 1.0),
    ("mgr_*", "mgr", "MGR section 3.1, no KL term", "update.kl", "none"),
    ("mgr_*", "mgr", "MGR section 4.3, beta", "params.beta", 0.1),
    ("mgr_*", "mgr", "MGR section 4.3, alpha", "params.repetition", 0.5),
    ("mgr_*", "mgr*", "MGR section 4.3, q", "params.free", 2),
    ("mgr_*", "mgr", "MGR table 4, gamma", "params.damping", 1.0),
    ("mgr_*", "mgr*", "MGR A.5, decay factor", "params.decay", 1.5),
    ("mgr_*", "mgr*", "MGR A.5, minimum retention probability", "params.floor", 0.1),
    ("mgr_table1*", "gigpo", "GiGPO's recipe: penalty .1 at rewards of 10 and 0", "params.penalty", 0.1),
    ("mgr_table1*", "*", "GiGPO's recipe: penalty .1 at rewards of 10 and 0", "env.household.success_reward", 10),
    ("mgr_[as]*", "*", "MGR A.5, 6 rollouts of a task in AppWorld", "rollout.group_size", 6),
    ("mgr_[as]*", "*", "MGR A.5, 40 randomly sampled tasks", "rollout.tasks", 40),
    ("mgr_[as]*", "*", "MGR A.5, maximum response length in AppWorld", "agent.max_response_tokens", 2048),
    ("mgr_[as]*", "*", "MGR A.5, up to 35 environment steps", "env.appworld.horizon", 35),
    ("mgr_[as]*", "*", "MGR A.5, 72 tasks", "tasks.train", 72),
    ("mgr_[as]*", "*", "MGR A.5, its task IDs", "tasks.train_split", "mgr_train"),
    ("mgr_table2", "*", "MGR A.5, 6 rollouts of a task in AppWorld", "rollout.group_size", 6),
    ("mgr_table2", "*", "MGR A.5, 40 randomly sampled tasks", "rollout.tasks", 40),
    ("mgr_table2", "*", "MGR A.5, maximum response length in AppWorld", "agent.max_response_tokens", 2048),
    ("mgr_table2", "*", "MGR A.5, up to 35 environment steps", "env.appworld.horizon", 35),
    ("mgr_table2", "*", "MGR A.5, 72 tasks", "tasks.train", 72),
    ("mgr_table2", "*", "MGR A.5, its task IDs", "tasks.train_split", "mgr_train"),
    ("mgr_table1", "*", "MGR table 1", "policy.source", "Qwen/Qwen2.5-7B-Instruct"),
    ("mgr_table1_qwen3_8b", "*", "MGR table 1", "policy.source", "Qwen/Qwen3-8B"),
    ("mgr_appworld_table1", "*", "MGR table 1", "policy.source", "Qwen/Qwen2.5-7B-Instruct"),
    ("mgr_appworld_table1_qwen3_8b", "*", "MGR table 1", "policy.source", "Qwen/Qwen3-8B"),
    ("mgr_table2", "*", "MGR section 4.6", "policy.source", "Qwen/Qwen3-8B"),
    ("mgr_table2", "mgr_no_gate", "MGR table 2", "params.gate", "keep"),
    ("mgr_table2", "mgr_no_repetition", "MGR table 2", "params.repetition", 0.0),
    ("mgr_sensitivity", "beta_03", "MGR table 3", "params.beta", 0.3),
    ("mgr_sensitivity", "damping_08", "MGR table 4", "params.damping", 0.8),
    ("mgr_sensitivity", "damping_14", "MGR table 4", "params.damping", 1.4),
    ("mgr_sensitivity", "repetition_20", "MGR table 5", "params.repetition", 2.0),
    ("hipif_*", "*", "HIPIF appendix B, maximum response length", "agent.max_response_tokens", 512),
    ("hipif_*", "*", "HIPIF appendix B, actor learning rate", "update.lr", 1e-6),
    ("hipif_*", "[!p]*", "HIPIF appendix B, group size", "rollout.group_size", 8),
    ("hipif_*", "[!p]*", "HIPIF appendix B, 16 groups", "rollout.tasks", 16),
    ("hipif_*", "ppo", "HIPIF appendix B, PPO: 128 independent environments", "rollout.tasks", 128),
    ("hipif_*", "ppo", "HIPIF appendix B, PPO: 128 independent environments", "rollout.group_size", 1),
    ("hipif_*", "*", "HIPIF appendix B, rollout temperature", "rollout.temperature", 1.0),
    ("hipif_*", "*", "HIPIF appendix B, validation temperature", "eval.modes.0.temperature", 0.4),
    ("hipif_*", "*", "HIPIF appendix B, KL coefficient", "update.kl_coefficient", 0.01),
    ("hipif_[gt]*", "*", "HIPIF appendix B, terminal reward", "env.household.success_reward", 10),
    ("hipif_[gt]*", "*", "HIPIF appendix A, 50 interaction turns", "env.household.horizon", 50),
    ("hipif_sensitivity", "*", "HIPIF appendix B, terminal reward", "env.household.success_reward", 10),
    ("hipif_sensitivity", "*", "HIPIF appendix A, 50 interaction turns", "env.household.horizon", 50),
    ("hipif_scienceworld_*", "*", "HIPIF appendix B, terminal reward", "env.scienceworld.success_reward", 10),
    ("hipif_scienceworld_*", "*", "HIPIF appendix A, 40 interaction turns", "env.scienceworld.horizon", 40),
    ("hipif_virtualhome_*", "*", "HIPIF appendix B, terminal reward", "env.virtualhome.success_reward", 10),
    ("hipif_virtualhome_*", "*", "HIPIF appendix A, 50 interaction turns", "env.virtualhome.horizon", 50),
    ("hipif_*_7b", "*", "HIPIF appendix B, 150 epochs of 7B", "rounds", 150),
    ("hipif_*_3b", "*", "HIPIF appendix B, 200 epochs of 3B", "rounds", 200),
    ("hipif_*_7b", "*", "HIPIF section 4.1", "policy.source", "Qwen/Qwen2.5-7B-Instruct"),
    ("hipif_*_3b", "*", "HIPIF section 4.1", "policy.source", "Qwen/Qwen2.5-3B-Instruct"),
    ("hipif_gigpo", "*", "HIPIF figure 14, the 3B setting", "policy.source", "Qwen/Qwen2.5-3B-Instruct"),
    ("hipif_*", "hipif*", "HIPIF appendix B, prompts of 8,192 tokens", "agent.hipif.max_prompt_tokens", 8192),
    ("hipif_*", "hipif*", "HIPIF appendix B, penalty", "params.penalty", 0.1),
    ("hipif_*", "hipif*", "HIPIF appendix B, for the third time", "params.repeats", 3),
    ("hipif_*", "hipif", "HIPIF eq. 9, over all steps of the group", "params.weighting", "row"),
    ("hipif_table1_*", "[prgf]*", "HIPIF appendix B, .1 for missing tags in all methods", "params.penalty", 0.1),
    ("hipif_table1_*", "[prgf]*", "HIPIF appendix B, .1 for missing tags", "params.column", "well_formed"),
    ("hipif_table*", "hipif", "HIPIF section 3.2", "agent.hipif.reflection", True),
    ("hipif_table1_*", "hiagent_grpo", "HiAgent has no reflection", "agent.hipif.reflection", False),
    ("hipif_table1_*", "hiagent_grpo", "HiAgent folds subgoals", "agent.hipif.subgoals", True),
    ("hipif_table2_*", "no_reflection", "HIPIF table 2, w/o reflection", "agent.hipif.reflection", False),
    ("hipif_table2_*", "no_reflection", "HIPIF table 2, only reflection is removed", "agent.hipif.subgoals", True),
    ("hipif_table2_*", "no_subgoal", "HIPIF table 2, w/o subgoal", "agent.hipif.subgoals", False),
    ("hipif_sensitivity", "repeats_2", "HIPIF figure 6, the first repeated pair", "params.repeats", 2),
    ("hipif_sensitivity", "penalty_005", "HIPIF figure 6", "params.penalty", 0.05),
    ("hipif_sensitivity", "penalty_02", "HIPIF figure 6", "params.penalty", 0.2),
]


@cache
def plan_of(name: str) -> Plan:
    return Plan(load([ROOT / "config.yaml", ROOT / "config" / "paper" / f"{name}.yaml"]))


def planned(name: str, method: str) -> dict[str, Any]:
    """What the preset plans for a run of the method: sections as the run has them, its parameters, its model."""
    plan = plan_of(name)
    whole = plan.experiment
    values = whole.model_dump()
    values["update"] = whole.section_for(method, "update").model_dump()
    values["rollout"] = whole.section_for(method, "rollout").model_dump()
    values["agent"] = agent_of(whole.agent_of(method))
    values["params"] = plan.method(method).params()
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


def cases() -> Iterator[tuple[str, str, str, str, Any]]:
    """`STATED` for every single preset and method. A row that meets none is a mistake in the table."""
    for presets, methods, source, path, value in STATED:
        hits = [
            (name, method)
            for name in NAMES
            if fnmatch(name, presets)
            for method in plan_of(name).experiment.trained()
            if fnmatch(method, methods)
        ]
        assert hits, f"no run of {presets} is {methods}"
        for name, method in hits:
            yield name, method, source, path, value


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_plans_the_numbers_that_its_paper_states(name: str) -> None:
    wrong = [
        f"{method}: {path} is {found(planned(name, method), path)!r}, not {value!r} ({source})"
        for preset, method, source, path, value in cases()
        if preset == name and found(planned(name, method), path) != value
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.stem)
def test_a_preset_opens_with_what_it_departs_from(preset: Path) -> None:
    head = preset.read_text().split("experiment:")[0]
    assert "# Stated by the paper and run here:" in head
    assert "# Departures, and what the paper leaves open:\n# - " in head


def test_there_is_a_preset_for_each_table() -> None:
    assert set(NAMES) >= {
        "has_table2",
        "has_table3",
        "has_ablations",
        "scpo_table1_1p5b",
        "scpo_table1_7b",
        "scpo_table2",
        "scpo_sensitivity",
        "triage_table3",
        "triage_table3_no_think",
        "triage_table3_no_evidence",
        "triage_table3_1p7b",
        "triage_table3_1p7b_no_think",
        "triage_table3_1p7b_no_evidence",
        "triage_table5",
        "triage_table6",
        "triage_table10",
        "mgr_table1",
        "mgr_table1_qwen3_8b",
        "mgr_appworld_table1",
        "mgr_appworld_table1_qwen3_8b",
        "mgr_table2",
        "mgr_sensitivity",
        "hipif_table1_3b",
        "hipif_table1_7b",
        "hipif_table2_3b",
        "hipif_table2_7b",
        "hipif_sensitivity",
        "hipif_gigpo",
        "hipif_scienceworld_3b",
        "hipif_scienceworld_7b",
        "hipif_virtualhome_3b",
        "hipif_virtualhome_7b",
    }


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.stem)
def test_a_preset_is_valid_and_names_itself(preset: Path) -> None:
    experiment = load([ROOT / "config.yaml", preset])
    if experiment.env.name == "scienceworld":
        pytest.importorskip("scienceworld", reason="its simulator is not in the environment of make test-fast")
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
    asking = {name for name, one in windows.items() if Settings.model_validate(one.agent.chosen().settings).think}
    assert asking == {name for name, one in windows.items() if not one.sft.epochs}
    assert asking != windows.keys()


def test_only_the_papers_with_a_binary_reward_have_one() -> None:
    chosen = {name: plan_of(name).experiment.env for name in NAMES}
    household = [name for name in NAMES if chosen[name].name == "household"]
    rewards = {name: chosen[name].chosen().settings.get("success_reward", 1) for name in household}
    assert {name.split("_")[0] for name, reward in rewards.items() if reward == 1} == {"has", "triage"}
    assert {name.split("_")[0] for name, reward in rewards.items() if reward == 10} == {"scpo", "mgr", "hipif"}


@pytest.mark.parametrize("size", ["3b", "7b"])
def test_hipif_without_reward_learns_from_success_alone_and_plays_with_the_same_agent(size: str) -> None:
    plan = plan_of(f"hipif_table2_{size}")
    assert [part.name for part in plan.method("hipif").shapers] == ["hipif"]
    assert not plan.method("no_reward").shapers
    assert plan.experiment.agent_of("no_reward") == plan.experiment.agent_of("hipif")


def test_a_group_size_of_has_changes_the_rollouts_and_not_the_tasks_of_a_round() -> None:
    sizes = {name: planned("has_ablations", name)["rollout"] for name in ("has_turnrd", "k4", "k12")}
    assert {name: (size["tasks"], size["group_size"]) for name, size in sizes.items()} == {
        "has_turnrd": (80, 8),
        "k4": (80, 4),
        "k12": (80, 12),
    }
