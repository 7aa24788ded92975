"""What prompts tell of the possible actions: to every agent of a table the same, and of the answer nothing."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from tests import presets
from tests.agents.test_agents import Chat
from tests.envs.playing import play
from tests.envs.test_every_world import ANY, rows, settings_of
from tests.helpers import nonempty
from turncredit import agents, envs
from turncredit.config import AgentConfig
from turncredit.data.env_wording import Words

LISTED = "a marked admissible action"
#: worlds, some of which need a package or Java to play, but none for its words
BUILT_IN = ("household", "webshop", "searchqa", "virtualhome", "scienceworld", "desk")
#: words of admissible actions that neither templates nor observations have
COMMANDS = {
    "household": {"help"},
    "webshop": {"your", "query"},
    "virtualhome": {"drop", "read"},
    "desk": {"name", "address", "method", "variant", "credit"},
}
#: worlds whose sentence is what somebody says in the world, and so a part of what is observed
SAID = {"desk"}


class Help(NamedTuple):
    """Whether a prompt lists the admissible actions, and the environment's templates and examples that it shows."""

    lists: bool
    templates: frozenset[str]
    examples: frozenset[str]


def prompts(name: str, settings: dict, words: Words, goal: str, observation: str, admissible: list[str]) -> list[str]:
    """The first prompt and the one after a turn."""
    chat = Chat()
    agent = agents.agent_factory(agents.load(name), chat, settings, words)()
    first = agent.open(goal, observation, admissible)
    later = agent.follow([chat.eos_id], agent.parse("<think>x</think><action>x</action>"), observation, admissible)
    return [chat.decode(first.ids), chat.decode((first.ids if not later.reset else []) + later.ids)]


def help_of(name: str, settings: dict, words: Words) -> Help:
    """What both prompts show."""
    shown = [
        Help(
            LISTED in text,
            *(frozenset(one for one in forms if one in text) for forms in (words.templates, words.examples)),
        )
        for text in prompts(name, settings, words, "a goal", "an observation", [LISTED])
    ]
    assert shown[0] == shown[1]
    return shown[0]


def played(experiment) -> list[AgentConfig]:
    """The agents of an experiment that play, baselines without training included."""
    return [experiment.agent_of(name) for name in (*experiment.starts(), *experiment.trained())]


@pytest.mark.parametrize("name", presets.PRETRAINED)
def test_all_agents_of_a_preset_are_shown_the_same_help(name):
    experiment = presets.experiment(name)
    words = envs.load(experiment.env.name).words
    shown = {help_of(one.name, one.chosen().settings, words) for one in nonempty(played(experiment))}
    assert len(shown) == 1, shown


@pytest.mark.parametrize("name", [name for name in presets.PAPERS if name.startswith("hipif_")])
def test_agents_of_hipifs_tables_get_action_templates_and_no_list(name):
    """By appendix E of the paper."""
    experiment = presets.experiment(name)
    words = envs.load(experiment.env.name).words
    for one in played(experiment):
        shown = help_of(one.name, one.chosen().settings, words)
        assert (shown.lists, shown.templates) == (False, frozenset(words.templates))
        assert len(words.templates) > 10


@pytest.mark.parametrize("world", BUILT_IN)
@pytest.mark.parametrize("name", sorted(agents.BUILT_IN.keys() - {"code", "tools", "verl_agent"}))
def test_an_agent_that_lists_no_actions_shows_every_template(name, world):
    environment = envs.load(world)
    settings = {"max_prompt_tokens": 8192} if name == "hipif" else {}
    if agents.load(name).shows_admissible:
        settings["show_admissible"] = False
    shown = help_of(name, settings, environment.words)
    assert (shown.lists, shown.templates) == (False, frozenset(nonempty(environment.words.templates)))


def test_without_templates_it_shows_the_examples():
    words = Words(examples=("jump", "sing loudly"))
    for name in ("transcript", "react", "hipif"):
        settings = {"max_prompt_tokens": 8192} if name == "hipif" else {}
        assert help_of(name, settings, words).examples == {"jump", "sing loudly"}
    assert help_of("transcript", {}, Words()) == Help(False, frozenset(), frozenset())


def words_of(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", text.lower()))


@pytest.mark.parametrize("world", [one for one in ANY if "admissible" in envs.load(one.values[0]).capabilities])
def test_an_admissible_action_names_nothing_but_what_observations_have_shown(world):
    """So no list gives away where to go, what to search for, or which product to open."""
    environment = envs.load(world)
    known = words_of(" ".join(re.sub(r"\{.*?\}", "", form) for form in environment.words.templates))
    known |= COMMANDS.get(world, set())
    for row in rows(world):
        env = environment.open_task(row, settings_of(world))
        seen = words_of(env.reset()) | (words_of(row["goal"]) if world in SAID else set())
        for turn in play(environment, row, settings_of(world), 0.2, 0.2, 1):
            for action in nonempty(env.admissible()):
                assert words_of(action) <= known | seen, action
            seen |= words_of(env.step(turn.action).observation)


@pytest.mark.parametrize("name", ["window", "verl_agent", "react", "transcript"])
def test_on_webshops_first_page_prompts_differ_by_the_instruction_alone(name):
    """verl-agent lists the form of a search, and no search of its own."""
    environment, settings = envs.load("webshop"), settings_of("webshop")
    opened = [environment.open_task(row, settings) for row in rows("webshop", count=12)]
    assert {env.admissible() for env in opened} == {("search[<your query>]",)}
    shown = {tuple(prompts(name, {}, environment.words, "G", env.reset(), list(env.admissible()))) for env in opened}
    assert len(shown) == 1
    titles = [env.shop.by_asin[env.goal.asin].title for env in opened]
    assert not any(title in text for title in titles for texts in shown for text in texts)
