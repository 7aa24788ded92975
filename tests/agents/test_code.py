"""The code agent: what the model is told, and how code is read from its answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.test_agents import Chat
from turncredit import agents
from turncredit.agents import Parsed
from turncredit.data.env_wording import Words
from turncredit.envs.appworld import WORDS


def agent(words=WORDS):
    spec = agents.load("code")
    return spec.make(Chat(), spec.Settings(), words)()


TWO_LINES = "for app in apps:\n    print(app)"


@pytest.mark.parametrize(
    ("case", "text", "action", "well_formed"),
    [
        ("a block", f"```python\n{TWO_LINES}\n```", TWO_LINES, True),
        ("words around it", f"First I look.\n```python\n{TWO_LINES}\n```\nThen I see.", TWO_LINES, True),
        ("a thought before it", f"<think>```python\nno\n```</think>\n```python\n{TWO_LINES}\n```", TWO_LINES, True),
        ("two blocks: the first", "```python\na = 1\n```\n```python\nb = 2\n```", "a = 1", True),
        ("empty lines in it", "```python\n\na = 1\n\n\nb\n```", "\na = 1\n\n\nb", True),
        ("space after the opening", "```python  \na\n```", "a", True),
        ("an empty block", "```python\n```", "", True),
        ("no block", "print(1)", "", False),
        ("nothing", "", "", False),
        ("a block that is not closed", "```python\nprint(1)", "", False),
        ("another language", "```bash\nls\n```", "", False),
        ("no language", "```\nprint(1)\n```", "", False),
        ("code on the line of the opening", "```python print(1)```", "", False),
        ("a thought that is not closed", "<think>hm\n```python\na\n```", "a", False),
    ],
)
def test_the_action_is_the_code_of_the_first_block_and_every_way_to_break_the_form_is_known(
    case, text, action, well_formed
):
    assert agent().parse(text) == Parsed(action, well_formed), case


@given(st.text(st.characters(exclude_characters="`\r"), max_size=40).filter(lambda code: code == code.rstrip("\n")))
def test_a_demonstrated_action_is_read_back(code):
    coder = agent()
    assert coder.parse(coder.target({"action": code})).action == code.removesuffix("\n")


def test_a_chat_model_is_told_to_write_a_block_and_sees_replies_as_messages():
    chat, coder = Chat(), agent()
    first = chat.decode(coder.open("pay the bill.", "You act for Ada.", []).ids)
    assert WORDS.setting in first
    assert "```python\nprint(apis.api_docs.show_app_descriptions())\n```" in first
    assert "Task: pay the bill.\nYou act for Ada." in first
    later = coder.follow([1, chat.eos_id], coder.parse("x"), "Execution successful.", [])
    assert not later.reset
    assert "Execution successful." in chat.decode(later.ids)
    assert "For example" not in chat.decode(agent(Words()).open("a", "b", []).ids)
