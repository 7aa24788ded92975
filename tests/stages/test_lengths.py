"""How long contexts are estimated to be, against prompts that agents write, and the GPU hours that follow."""

from __future__ import annotations

import re
from dataclasses import astuple
from statistics import mean

import numpy as np
import pytest

from benchmarks.env.lengths import BUILT_IN, measured
from tests import presets, tiny
from turncredit import agents, envs
from turncredit.agents import agent_factory
from turncredit.cli.plan import gpu_hours, submitted_jobs
from turncredit.pipeline.all_jobs import every_job
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.learned_models import shapes
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.assumed import TYPICAL
from turncredit.pipeline.resources.work import Work, contexts
from turncredit.policy.shapes import PUBLISHED

QWEN = next(name for name in PUBLISHED if "Qwen2.5-1.5B" in name)
RESPONSE, HORIZON = 100, 20
TOKEN = re.compile(r"<\|\w+\|>|[A-Za-z]{1,7}|\d|[^\w \t]|\n")


class Encoder:
    """A chat model's tokenizer: a token for seven letters, a digit, a mark or a line, about as many as a real one."""

    eos_text, eos_id, has_chat_template, special_tokens = "<|im_end|>", 0, True, ()

    def encode(self, text):
        return [1] * len(TOKEN.findall(text))

    def chat(self, messages):
        turns = "".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in messages)
        system = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        return f"{system}{turns}<|im_start|>assistant\n"


def experiment(name, settings, response=RESPONSE):
    """The household with a horizon of `HORIZON`, played by an agent whose mean response has `response` tokens."""
    agent = {"name": name, "max_response_tokens": round(response / TYPICAL.response), name: settings}
    env = {"name": "household", "household": {"horizon": HORIZON}}
    return tiny.experiment(agent=agent, env=env, policy={"source": QWEN}, sft={"epochs": 0})


def played(name, settings, say):
    """Tokens of every context, with its response, of an agent that plays at random for 70% of the horizon."""
    household, rng, encoder = envs.load("household"), np.random.default_rng(0), Encoder()
    chosen = household.Settings(horizon=HORIZON)
    spec = agents.load(name)
    found = []
    for row in household.make_tasks("train", 6, 0, chosen):
        agent = agent_factory(spec, encoder, settings, household.words)()
        env = household.open_task(row, chosen)
        prompt = agent.open(row["goal"], env.reset(), env.admissible())
        context = 0
        for turn in range(round(TYPICAL.turns * HORIZON)):
            context = len(prompt.ids) + (0 if prompt.reset else context)
            found.append(context + RESPONSE)
            context += RESPONSE
            action = household.random_command(env, rng)
            step = env.step(action)
            prompt = agent.follow([1] * RESPONSE, agent.parse(say(turn, action)), step.observation, env.admissible())
        env.close()
    return mean(found)


def tagged(_turn, action):
    return f"<think>why</think><action>{action}</action>"


def planned(turn, action):
    """HIPIF's reply, with a new subgoal every fourth turn."""
    subgoal = f"<subgoal>find thing {turn}</subgoal>" if turn % 4 == 0 else ""
    return f"<reflection>The current subgoal is completed. why</reflection>{subgoal}<action>{action}</action>"


@pytest.mark.parametrize(
    ("name", "settings", "say"),
    [
        ("window", {}, tagged),
        ("window", {"history": 0}, tagged),
        ("window", {"history": 50, "show_admissible": False}, tagged),
        ("verl_agent", {}, tagged),
        ("transcript", {}, lambda _, action: action),
        ("react", {}, lambda _, action: f"Thought: why\nAction: {action}"),
        ("hipif", {"max_prompt_tokens": 8192}, planned),
        ("hipif", {"max_prompt_tokens": 8192, "subgoals": False}, planned),
        ("hipif", {"max_prompt_tokens": 500}, planned),
    ],
)
def test_an_estimated_context_is_as_long_as_the_agents_prompts(name, settings, say):
    plan = Plan(experiment(name, settings))
    estimated = contexts(plan.experiment, shapes(plan.experiment))
    assert estimated.response == RESPONSE
    assert estimated.mean == pytest.approx(played(name, settings, say), rel=0.2)


@pytest.mark.parametrize(("name", "settings", "split"), BUILT_IN, ids=[name for name, _, _ in BUILT_IN])
def test_an_environment_states_the_lengths_of_its_texts(name, settings, split):
    environment = envs.load(name)
    stated = environment.lengths(environment.Settings.model_validate(settings))
    found = measured(name, settings, split, lambda text: len(TOKEN.findall(text)), games=6)
    assert astuple(stated) == pytest.approx(astuple(found), rel=0.45, abs=6)


def test_a_rollouts_sequences_are_one_a_turn_or_one_in_all():
    window, transcript = (Plan(experiment(name, {})).experiment for name in ("window", "transcript"))
    turns = TYPICAL.turns * HORIZON
    rebuilt, grown = (contexts(one, shapes(one)) for one in (window, transcript))
    assert rebuilt.whole == pytest.approx(turns * rebuilt.mean, rel=0.01)
    assert grown.mean < grown.whole < 2 * grown.mean
    assert grown.fresh < rebuilt.fresh


def test_each_method_is_estimated_by_the_agent_that_plays_for_it():
    plan = Plan(presets.experiment("hipif_table1_7b"))
    model = shapes(plan.experiment)
    window, folding = (Work(plan, JobKeys(method=name), model).length for name in ("flat_grpo", "hipif"))
    assert folding.mean < 0.75 * window.mean
    assert contexts(plan.experiment, model).mean > window.mean  # ReAct's, which keeps all thoughts


@pytest.mark.parametrize(("name", "hours"), [("scpo_table1_1p5b", 371), ("hipif_table1_7b", 3110)])
def test_the_gpu_hours_of_a_papers_table_follow_from_shapes_and_lengths(name, hours):
    """1,125 and 17,268 before lengths were measured and histories taken to hold actions alone, with a pass less."""
    plan = Plan(presets.experiment(name))
    assert sum(gpu_hours(plan, submitted_jobs(plan, every_job(plan))).values()) == pytest.approx(hours, rel=0.03)
