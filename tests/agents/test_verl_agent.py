"""verl-agent's prompts, letter for letter, and its reading of replies."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import presets
from tests.agents.test_agents import Chat
from turncredit import agents, envs
from turncredit.config import from_mapping, merge
from turncredit.data.env_wording import Words
from turncredit.data.yaml_files import read_mapping
from turncredit.errors import UserError
from turncredit.pipeline import checks


def agent(world: str, **settings):
    return agents.agent_factory(agents.load("verl_agent"), Plain(), settings, envs.load(world).words)()


class Plain(Chat):
    """A tokenizer without a chat template, so that a prompt is the text itself."""

    has_chat_template = False


def laid_over_the_default(settings):
    return from_mapping(merge(read_mapping(presets.DEFAULT), settings))


def text(prompt) -> str:
    assert prompt.reset
    return Plain().decode(prompt.ids)


def reply(action: str) -> str:
    return f"<think>so</think><action>{action}</action>"


SHOP = """
You are an expert autonomous agent operating in the WebShop e\u2011commerce environment.{space}
Your task is to: i need a red hat.
{middle}
Your admissible actions of the current situation are:{blank}
[
{actions}
].

Now it's your turn to take one action for the current step.
You should first reason step-by-step about the current situation, then think carefully which admissible action best advances the shopping goal. This reasoning process MUST be enclosed within <think> </think> tags.{blank}
Once you've finished your reasoning, you should choose an admissible action for current step and present it within <action> </action> tags.
"""  # noqa: E501


def shop(middle: str, actions: str, *, later: bool) -> str:
    return SHOP.format(space="" if later else " ", middle=middle, blank=" ", actions=actions)


def test_webshops_prompts_are_verl_agents():
    """The golden prompt of the first page is what verl-agent's manager shows: `click[search]` is listed, too."""
    it = agent("webshop")
    first = text(it.open("i need a red hat", "WebShop [SEP] Search", ["search[<your query>]"]))
    listed = "'search[<your query>]',\n'click[search]',"
    assert first == shop("Your current observation is: 'Search'.", listed, later=False)
    results = "Back to Search [SEP] Page 1 (Total results: 1) [SEP] B00000000H [SEP] Red Hat [SEP] $9.99"
    actions = ["click[Back to Search]", "click[B00000000H]"]
    second = text(it.follow([], it.parse(reply("search[Red Hat]")), results, actions))
    page = "'Back to Search' [SEP] 'Page 1 (Total results: 1)' [SEP] 'B00000000H' [SEP] 'Red Hat' [SEP] '$9.99'"
    history = "[Observation 1: ''Search'', Action 1: 'search[red hat]']"
    middle = (
        "Prior to this step, you have already taken {} step(s). Below are the most recent {} observations and the "
        "corresponding actions you took: {}\nYou are now at step {} and your current observation is: {}."
    )
    listed = "'click[back to search]',\n'click[b00000000h]',"
    assert second == shop(middle.format(1, 1, history, 2, page), listed, later=True)
    item = "Back to Search [SEP] < Prev [SEP] size [SEP] s [SEP] m [SEP] Red Hat [SEP] Price: $9.99 [SEP] Buy Now"
    buttons = ["Back to Search", "< Prev", "s", "m", "Description", "Features", "Reviews", "Buy Now"]
    third = text(it.follow([], it.parse(reply("click[B00000000H]")), item, [f"click[{one}]" for one in buttons]))
    history += f"\n[Observation 2: '{page}', Action 2: 'click[b00000000h]']"
    assert f"the most recent 2 observations and the corresponding actions you took: {history}\n" in third
    order = ["back to search", "< prev", "description", "features", "reviews", "buy now", "s", "m"]
    assert "[\n" + "\n".join(f"'click[{one}]'," for one in order) + "\n]." in third


def test_a_later_webshop_prompt_of_more_than_13000_characters_loses_its_history():
    it = agent("webshop")
    it.open("i need a red hat", "WebShop [SEP] Search", [])
    long = text(it.follow([], it.parse(reply("search[hat]")), "x" * 13_000, []))
    assert "Prior to this step" not in long
    assert "x" * 13_000 in long


HOUSE = """
You are an expert agent operating in the ALFRED Embodied Environment.{opening}Your admissible actions of the current situation are: [{actions}].

Now it's your turn to take an action.
You should first reason step-by-step about the current situation. This reasoning process MUST be enclosed within <think> </think> tags.
Once you've finished your reasoning, you should choose an admissible action for current step and present it within <action> </action> tags.
"""  # noqa: E501


def test_alfworlds_prompts_are_verl_agents():
    it = agent("household", history=1)
    shown = "-= Welcome to TextWorld, ALFRED! =-\n\nA room.\n\nYour task is to: put a mug in shelf."
    first = text(it.open("put a mug in shelf.", "A room.", ["go to shelf 1", "help", "look"]))
    assert first == HOUSE.format(
        opening=f"\nYour current observation is: {shown}\n", actions="'go to shelf 1'\n 'look'"
    )
    it.follow([], it.parse(reply("look")), "A room.", ["look"])
    third = text(it.follow([], it.parse(reply("Go To Shelf 1")), "You arrive at shelf 1.", ["look"]))
    assert third == HOUSE.format(
        opening=(
            " Your task is to: put a mug in shelf.\nPrior to this step, you have already taken 2 step(s). Below are "
            "the most recent 1 observations and the corresponding actions you took: [Observation 2: 'A room.', "
            "Action 2: 'go to shelf 1']\nYou are now at step 3 and your current observation is: You arrive at shelf "
            "1.\n"
        ),
        actions="'look'",
    )


QUESTION = """
You are an expert agent tasked with answering the given question step-by-step.
Your question: Who?
{history}
Now it's your turn to respond for the current step.
You should first conduct reasoning process. This process MUST be enclosed within <think> </think> tags.{blank}
After completing your reasoning, choose only one of the following actions (do not perform both):
(1) If you find you lack some knowledge, you can call a search engine to get more external information using format: <search> your query </search>.
(2) If you have enough knowledge to answer the question confidently, provide your final answer within <answer> </answer> tags, without detailed illustrations. For example, <answer>Beijing</answer>.
"""  # noqa: E501


def test_searchs_prompts_are_verl_agents():
    it = agent("searchqa")
    assert text(it.open("Who?", "No documents yet.", [])) == QUESTION.format(history="", blank=" ")
    it.follow([], it.parse("<think>a</think><search> one </search>"), "<information>Doc\n1</information>", [])
    third = text(it.follow([], it.parse("<search>two</search>"), "<information>2</information>", []))
    history = (
        "\nPrior to this step, you have already taken 2 step(s). Below is the interaction history where <search> "
        "</search> wrapped your past search queries and <information> </information> wrapped the corresponding search "
        "results returned by the external search engine. History:\n<search>one</search> <information>Doc 1"
        "</information>\n\n<search>two</search> <information>2</information>\n\n"
    )
    assert third == QUESTION.format(history=history, blank=" ")


@pytest.mark.parametrize(
    ("reply", "action", "valid"),
    [
        ("<think>a</think> <action> Click[Buy Now] </action>", "click[buy now]", True),
        ("<think>a</think><action>look</action><action>help</action>", "look", True),
        ("<action>look</action>", "look", False),
        ("<THINK>a</THINK><action>look</action>", "look", False),
        ("<think>a</think><ACTION>look</ACTION>", "look", True),
        ("<think>好</think><action>look</action>", "look", False),
        ("</action><think></think><action>look", "", True),
        ("<think>a</think> I would go TO the shelf number 1", "the shelf number 1", False),
    ],
)
def test_webshops_and_alfworlds_replies_are_read_as_verl_agent_reads_them(reply, action, valid):
    """Lower-cased, the first tags count, thoughts are asked for; without tags the last 20 or 30 characters."""
    for world, kept in (("webshop", 20), ("household", 30)):
        parsed = agent(world).parse(reply)
        wanted = reply.lower()[-kept:] if "<action>" not in reply.lower() else action
        assert (parsed.action, parsed.well_formed) == (wanted, valid)


@pytest.mark.parametrize(
    ("reply", "action", "valid"),
    [
        ("<think>a</think><search> Who Wrote It </search>", "<search>Who Wrote It</search>", True),
        ("<answer>Ann</answer>", "<answer>Ann</answer>", True),
        ("<answer>Ann</answer><search>b</search>", "<search>b</search>", False),
        ("<search>a</search><search>b</search>", "<search>a</search>", False),
        ("<answer>a</answer><answer>b</answer>", "<answer>a</answer>", False),
        ("<search>cut off", "", False),
        ("", "", False),
    ],
)
def test_searchs_replies_are_read_as_verl_agent_reads_them(reply, action, valid):
    parsed = agent("searchqa").parse(reply)
    assert (parsed.action, parsed.well_formed) == (action, valid)


@given(st.text(alphabet="<>/actionthksermw你 \n"))
def test_any_reply_is_read(reply):
    for world in ("household", "webshop", "searchqa"):
        parsed = agent(world).parse(reply)
        assert parsed == agent(world).parse(reply)
        assert not parsed.well_formed or parsed.columns.keys() == {"thought"}


@pytest.mark.parametrize("world", ["household", "webshop", "searchqa"])
def test_it_plays_every_game_that_verl_agent_has(world):
    environment = envs.load(world)
    settings = environment.Settings(**({"actions": "tags"} if world == "searchqa" else {}))
    row = environment.make_tasks("train", 1, 0, settings)[0]
    env, it = environment.open_task(row, settings), agent(world)
    expert = environment.expert(env, random.Random(0))
    observation = env.reset()
    expert.observe(observation)
    it.open(row["goal"], observation, ())
    while True:
        parsed = it.parse(it.target({"action": expert.act(), "thought": "so"}))
        step = env.step(parsed.action)
        if step.done:
            break
        expert.observe(step.observation)
        assert row["goal"] in text(it.fork().follow([], parsed, step.observation, ()))
    assert (step.success, parsed.well_formed, parsed.columns) == (True, True, {"thought": "so"})


def test_where_verl_agent_has_no_prompt_it_is_refused_before_any_job():
    with pytest.raises(UserError, match=r"'verl_agent' has no prompt for a text game"):
        agents.agent_factory(agents.load("verl_agent"), Plain(), {}, Words())
    settings = {"agent": {"name": "verl_agent"}, "env": {"name": "virtualhome"}}
    experiment = laid_over_the_default(settings)
    with pytest.raises(UserError, match=r"agent: 'verl_agent' cannot play in 'virtualhome'"):
        checks.check(experiment, installed=False)


def test_it_cannot_learn_from_demonstrations_without_thoughts():
    experiment = laid_over_the_default({"agent": {"name": "verl_agent"}})
    with pytest.raises(UserError, match=r"'verl_agent' learns from the columns thought of the demonstrations"):
        checks.check(experiment, installed=False)


def test_search_lists_no_actions_and_so_needs_none():
    words = {world: envs.load(world).words for world in ("household", "webshop", "searchqa")}
    spec = agents.load("verl_agent")
    assert {world: spec.lists_admissible({}, one) for world, one in words.items()} == {
        "household": True,
        "webshop": True,
        "searchqa": False,
    }
