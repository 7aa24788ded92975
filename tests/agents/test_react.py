"""ReAct: what the model is told, and how a thought and an action are read from its answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import tiny
from tests.agents.test_agents import ADMISSIBLE, Chat, agent
from turncredit.agents.react import read
from turncredit.config import AgentSlice
from turncredit.envs.household import WORDS
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.policy import base, tokenizer
from turncredit.training import sft


@pytest.mark.parametrize(
    ("case", "text", "action", "thought", "well_formed"),
    [
        ("thought and action", "Thought: a mug?\nAction: go to shelf 1", "go to shelf 1", "a mug?", True),
        ("no thought", "Action: look", "look", None, True),
        ("several lines of thought", "Thought: one\n\ntwo\nAction: look", "look", "one\n\ntwo", True),
        ("a label alone on its line", "Thought:\none\nAction: look", "look", "one", True),
        ("space around everything", "\n Thought:  one \r\n  Action:  go  to\tshelf 1 \n", "go to shelf 1", "one", True),
        ("nothing", "", "", None, False),
        ("only space", " \n ", "", None, False),
        ("no labels", "I would\nopen drawer 1", "open drawer 1", None, False),
        ("a thought alone", "Thought: one", "Thought: one", None, False),
        ("both on one line", "Thought: one Action: look", "Thought: one Action: look", None, False),
        ("an empty thought", "Thought:\nAction: look", "look", None, False),
        ("an empty action", "Thought: one\nAction:", "", "one", False),
        ("text before the thought", "Well.\nThought: one\nAction: look", "look", None, False),
        ("text without a label before the action", "Well.\nAction: look", "look", None, False),
        ("text after the action", "Thought: one\nAction: look\nThat is all.", "look", "one", False),
        ("an action of two lines", "Action: go to\nshelf 1", "go to", None, False),
        ("two actions", "Action: look\nAction: help", "look", None, False),
        ("an imagined turn", "Thought: one\nAction: look\nObservation: a mug\nAction: help", "look", "one", False),
        ("an observation first", "Thought: one\nObservation: x\nAction: look", "look", "one\nObservation: x", False),
        ("two thoughts", "Thought: one\nThought: two\nAction: look", "look", "one\nThought: two", False),
        ("the thought after the action", "Action: look\nThought: one", "look", None, False),
        ("labels in small letters", "thought: one\naction: look", "action: look", None, False),
        ("a control character for a line's end", "Thought: one\x0bAction: look", "look", "one", True),
    ],
)  # fmt: skip
def test_a_response_is_read_and_every_way_to_break_its_form_is_known(case, text, action, thought, well_formed):
    assert read(text) == (action, thought, well_formed), case


@given(st.text(max_size=80))
def test_an_action_is_one_line_whatever_the_model_says(said):
    for text in (said, f"Thought: {said}\nAction: {said}"):
        action, thought, well_formed = read(text)
        assert "\n" not in action
        assert not (well_formed and not action)
        assert thought is None or thought.strip()


def test_its_context_is_a_transcript_with_another_instruction():
    """A chat model reads the format; every later prompt is the observation alone."""
    chat = Chat()
    it = agent("react", chat)
    opening = it.open("find a mug.", "You see a shelf 1.", ADMISSIBLE)
    told = chat.decode(opening.ids)
    assert opening.reset
    assert "Thought: your reasoning\nAction: the action\nTask: find a mug.\nYou see a shelf 1." in told
    assert "- go to {place}\n" in told
    reply = [*chat.encode("Thought: on it?\nAction: go to shelf 1"), chat.eos_id]
    later = it.follow(reply, it.parse(chat.decode(reply[:-1])), "On it, a mug 1.", ADMISSIBLE)
    assert not later.reset
    assert chat.decode(later.ids) == "\n<|im_start|>user\nOn it, a mug 1.<|im_end|>\n<|im_start|>assistant\n"


def test_without_a_chat_template_prompts_are_those_of_the_transcript(world):
    encoder = tokenizer.load(world.path("base"))
    openings = [agent(name, encoder).open("find a mug.", "You see.", ADMISSIBLE) for name in ("react", "transcript")]
    assert openings[0] == openings[1]


@pytest.mark.parametrize(
    ("turn", "text"),
    [
        ({"action": "look"}, "Action: look"),
        ({"action": "look", "reflection": None}, "Action: look"),
        ({"action": "look", "reflection": " "}, "Action: look"),
        ({"action": "look", "reflection": "no mug\nAction: here"}, "Thought: no mug Action: here\nAction: look"),
    ],
)
def test_a_demonstration_teaches_the_experts_reflection_and_makes_up_none(turn, text):
    it = agent("react", Chat())
    assert it.target(turn) == text
    assert it.parse(text).action == "look"
    assert it.parse(text).well_formed


def test_the_labels_are_one_token_each_and_demonstrations_become_sequences(world, tmp_path):
    """A base model of its own, as the pipeline builds it for this agent."""
    plan = Plan(tiny.experiment(agent={"name": "react"}))
    demos = world.job("sft", JobKeys(), tmp_path).table("demos", "demos")
    made = plan.slice("base", JobKeys())
    assert made.own_columns == ("reflection",), "what demonstrations teach as thoughts is text for the tokenizer, too"
    base.new_base(demos, made.scratch, tmp_path / "base", own_columns=made.own_columns, vocabulary=made.vocabulary)
    encoder = tokenizer.load(tmp_path / "base")
    assert len(encoder.encode("Thought:")) == len(encoder.encode("Action:")) == 1
    assert encoder.decode(encoder.encode("Thought: no mug\nAction: look")) == "Thought: no mug\nAction: look"
    sequences = sft.demonstrations(demos.slice(0, 40), encoder, AgentSlice(name="react"), WORDS)
    assert "Action: " in encoder.decode(sequences[0].ids.tolist())
