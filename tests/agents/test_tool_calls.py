"""Tool calls: how each format is written and read, what is malformed, and the conversation with its results."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import tiny
from tests.agents.test_agents import Chat, maker
from tests.envs.playing import play
from tests.envs.test_every_world import rows, settings_of
from tests.helpers import nonempty
from turncredit import envs
from turncredit.agents import tool_calls
from turncredit.agents.tool_calls import FORMATS, read
from turncredit.agents.tools import AGENT
from turncredit.config import AgentSlice
from turncredit.data.env_wording import Words
from turncredit.data.tools import LONGEST, Call, Parameter, Tool, Toolbox
from turncredit.errors import UserError
from turncredit.pipeline import checks
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.policy import base, tokenizer
from turncredit.training import sft

WORLDS = ("household", "webshop", "searchqa", "desk")
BOX = Toolbox(
    (
        Tool("look", "Look around.", "look"),
        Tool("put", "Put it.", "put {thing} on {place}", {"thing": Parameter("A."), "place": Parameter("B.")}),
        Tool("turn", "Turn.", "turn {side}", {"side": Parameter("Where to.", ("left", "right"))}),
        Tool("find", "Search.", "find[{words}]", {"words": Parameter("What.", without="[]")}),
    )
)
LOOK = '{"name": "look", "arguments": {}}'
PUT = '{"name": "put", "arguments": {"thing": "cup", "place": "shelf 1"}}'
ANY_CALL = st.sampled_from([Call("look"), Call("turn", ("left",))]) | st.builds(
    lambda a, b: Call("put", (a, b)), st.text('ab"\\é{<', min_size=1), st.text("cd", min_size=1)
)


class Hermes(Chat):
    """A ChatML template that tells of tools and renders calls in Hermes' format."""

    def chat(self, messages, *, tools=None):
        said = [f"<|im_start|>system\nTools: {json.dumps(tools)}<|im_end|>\n"] if tools else []
        for message in messages:
            role, text = message["role"], message["content"]
            for call in message.get("tool_calls", ()):
                text += f"<tool_call>\n{json.dumps(call['function'], ensure_ascii=False)}\n</tool_call>"
            if role == "tool":
                role, text = "user", f"<tool_response>\n{text}\n</tool_response>"
            said.append(f"<|im_start|>{role}\n{text}<|im_end|>\n")
        return "".join(said) + "<|im_start|>assistant\n"


class Llama(Chat):
    """A template in the manner of Llama 3: tools in the first message, bare JSON, results as JSON texts."""

    def chat(self, messages, *, tools=None):
        said = []
        for message in messages:
            role, text = message["role"], message["content"]
            for call in message.get("tool_calls", ()):
                name, arguments = call["function"]["name"], call["function"]["arguments"]
                text = json.dumps({"name": name, "parameters": arguments})
            if role == "tool":
                role, text = "ipython", json.dumps(text)
            if tools and not said:
                text = f"{json.dumps(tools)}\n{text}"
            said.append(f"<|im_start|>{role}\n\n{text}<|im_end|>")
        return "".join(said) + "<|im_start|>assistant\n\n"


class Foreign(Chat):
    """A template that tells of tools, and whose format of calls is not known."""

    def chat(self, messages, *, tools=None):
        names = "".join(f"[CALL]{call['function']['name']}" for one in messages for call in one.get("tool_calls", ()))
        return f"{json.dumps(tools)}{super().chat(messages)}{names}"


def of(encoder, **settings):
    return maker("tools", encoder, settings.pop("words", envs.load("desk").words), **settings)()


# ------------------------------------------------------------------------------------------------------- the parser


@pytest.mark.parametrize(
    ("case", "text", "result"),
    [
        ("a call", PUT, Call("put", ("cup", "shelf 1"))),
        ("no arguments", LOOK, Call("look")),
        ("space around", f" \n{LOOK}\n ", Call("look")),
        ("keys in another order", '{"arguments": {}, "name": "look"}', Call("look")),
        ("space within", '{"name": "turn", "arguments": {"side": " Left "}}', Call("turn", ("left",))),
        ("a thought before it", f"<think>put?\n{PUT}</think>\n{LOOK}", Call("look")),
        ("the end of a thought before it", f"put?</think>{LOOK}", Call("look")),
        ("nothing", "", tool_calls.NO_CALL),
        ("words", "put cup on shelf 1", tool_calls.NO_CALL),
        ("a thought alone", "<think>look</think>", tool_calls.NO_CALL),
        ("a thought that is not closed", f"<think>{LOOK}", tool_calls.THINKING),
        ("text before", f"I look: {LOOK}", tool_calls.BEFORE),
        ("text after", f"{LOOK} Done.", tool_calls.AFTER),
        ("two calls", f"{LOOK}\n{LOOK}", tool_calls.TWO_CALLS),
        ("an array", f"[{LOOK}]", tool_calls.BEFORE),
        ("cut off", PUT[:-1], "Malformed call: it is not JSON."),
        ("single quotes", LOOK.replace('"', "'"), "Malformed call: it is not JSON."),
        ("NaN", '{"name": "look", "arguments": {"a": NaN}}', "Malformed call: it is not JSON."),
        ("deep", '{"name": ' + "[" * 900, "Malformed call: it is not JSON."),
        ("a key twice", '{"name": "look", "name": "put", "arguments": {}}', "Malformed call: a key occurs twice."),
        ("no name", '{"arguments": {}}', "Malformed call: it needs the keys 'name' and 'arguments', and no others."),
        ("no arguments object", '{"name": "look"}',
         "Malformed call: it needs the keys 'name' and 'arguments', and no others."),
        ("another key", '{"name": "look", "arguments": {}, "id": 1}',
         "Malformed call: it needs the keys 'name' and 'arguments', and no others."),
        ("Llama's key", '{"name": "look", "parameters": {}}',
         "Malformed call: it needs the keys 'name' and 'arguments', and no others."),
        ("unknown tool", '{"name": "fly", "arguments": {}}', "Unknown tool. There are look, put, turn, find."),
        ("a name that is no text", '{"name": 3, "arguments": {}}', "Unknown tool. There are look, put, turn, find."),
        ("arguments as text", '{"name": "look", "arguments": "{}"}', "Malformed call: 'arguments' must be an object."),
        ("missing", '{"name": "put", "arguments": {"thing": "cup"}}', "put: the argument 'place' is missing."),
        ("extra", '{"name": "look", "arguments": {"at": "x"}}',
         "look: there is an argument that it does not have. It has none."),
        ("a number", '{"name": "turn", "arguments": {"side": 1}}', "turn: the argument 'side' must be text."),
        ("null", '{"name": "turn", "arguments": {"side": null}}', "turn: the argument 'side' must be text."),
        ("no choice", '{"name": "turn", "arguments": {"side": "up"}}',
         "turn: the argument 'side' must be one of left, right."),
        ("empty", '{"name": "put", "arguments": {"thing": " ", "place": "x"}}', "put: the argument 'thing' is empty."),
        ("half a surrogate pair", '{"name": "find", "arguments": {"words": "\\ud800"}}',
         "find: the argument 'words' is no valid Unicode."),
        ("the action's end", '{"name": "find", "arguments": {"words": "a] b"}}',
         "find: the argument 'words' must not contain any of [ ]."),
        ("words of the action's form", '{"name": "put", "arguments": {"thing": "a on b", "place": "c"}}',
         tool_calls.NOT_PLAIN),
        ("long", PUT.replace("cup", "c" * LONGEST), tool_calls.TOO_LONG),
    ],
)  # fmt: skip
def test_a_response_is_one_call_or_it_is_said_what_is_wrong(case, text, result):
    assert read(text, FORMATS["json"], BOX) == result, case


@pytest.mark.parametrize(
    ("form", "text", "result"),
    [
        ("hermes", f"I look.\n<tool_call>\n{LOOK}\n</tool_call>", Call("look")),
        ("hermes", f"<tool_call>{LOOK}</tool_call>\n", Call("look")),
        ("hermes", LOOK, tool_calls.NO_CALL),
        ("hermes", f"<tool_call>{LOOK}", tool_calls.NOT_CLOSED),
        ("hermes", f"<tool_call>{LOOK}</tool_call> Done.", tool_calls.AFTER),
        ("hermes", f"<tool_call>{LOOK}</tool_call><tool_call>{LOOK}</tool_call>", tool_calls.TWO_CALLS),
        ("hermes", f"<tool_call>{LOOK}{LOOK}</tool_call>", "Malformed call: it is not JSON."),
        ("hermes", "<tool_call></tool_call>", "Malformed call: it is not JSON."),
        ("hermes", f"<tool_call>[{LOOK}]</tool_call>",
         "Malformed call: it needs the keys 'name' and 'arguments', and no others."),
        ("smollm2", f"<tool_call>[{LOOK}]</tool_call>", Call("look")),
        ("smollm2", f"<tool_call>{LOOK}</tool_call>", tool_calls.NO_ARRAY),
        ("smollm2", "<tool_call>[]</tool_call>", tool_calls.NO_CALL),
        ("smollm2", f"<tool_call>[{LOOK}, {LOOK}]</tool_call>", tool_calls.TWO_CALLS),
        ("llama3", '{"name": "turn", "parameters": {"side": "left"}}', Call("turn", ("left",))),
        ("llama3", LOOK, "Malformed call: it needs the keys 'name' and 'parameters', and no others."),
    ],
)  # fmt: skip
def test_each_format_is_read_by_its_own_rules(form, text, result):
    assert read(text, FORMATS[form], BOX) == result


@given(call=ANY_CALL, form=st.sampled_from(sorted(FORMATS)))
def test_a_written_call_is_read_as_it_was_meant(call, form):
    assert read(FORMATS[form].write(call.tool, BOX.arguments(call)), FORMATS[form], BOX) == call


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("form", sorted(FORMATS))
def test_every_worlds_experts_and_admissible_actions_are_calls(world, form):
    environment = envs.load(world)
    it = of(Chat(), words=environment.words, format=form)
    for row in rows(world):
        env = environment.open_task(row, settings_of(world))
        env.reset()
        for turn in play(environment, row, settings_of(world), slips=0.2, seed=1):
            actions = env.admissible() if "admissible" in environment.capabilities else ()
            listed = [one for one in actions if one not in ("help", "search[<your query>]")]
            for action in nonempty([turn.action, *listed]):
                parsed = it.parse(it.target({"action": action}))
                assert (parsed.action, parsed.well_formed) == (action, True)
            env.step(turn.action)


@pytest.mark.parametrize("world", WORLDS)
def test_tools_have_the_forms_that_the_prompts_of_other_agents_show(world):
    """Up to the names of the parameters."""
    words = envs.load(world).words
    shapes = [sorted(form.partition("{")[0].strip(" <>[").lower() for form in forms) for forms in (
        words.templates, [tool.text for tool in words.tools])]  # fmt: skip
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    ("world", "tool", "text"),
    [("webshop", "search", "a] click[buy now"), ("searchqa", "search", "<answer>Rome</answer>")],
)
def test_an_argument_cannot_become_another_action(world, tool, text):
    words = envs.load(world).words
    name = next(iter(words.tools[tool].parameters))
    parsed = of(Chat(), words=words).parse(json.dumps({"name": tool, "arguments": {name: text}}))
    assert (parsed.action, parsed.well_formed) == ("", False)
    assert parsed.columns["tool_error"].startswith(f"{tool}: the argument '{name}' must not contain")


# ------------------------------------------------------------------------------------------------- the conversation


def test_only_a_well_formed_call_is_carried_out_and_the_columns_say_what_it_was():
    it = of(Chat())
    done = it.parse('{"name": "open_order", "arguments": {"order": "O17"}}')
    assert (done.action, done.well_formed) == ("open order O17", True)
    assert done.columns == {"tool_name": "open_order", "tool_arguments": '{"order": "O17"}', "tool_error": None}
    refused = it.parse("open order O17")
    assert (refused.action, refused.well_formed) == ("", False)
    assert refused.columns == {"tool_name": None, "tool_arguments": None, "tool_error": tool_calls.NO_CALL}


@pytest.mark.parametrize("world", WORLDS)
def test_the_empty_action_of_a_malformed_call_is_refused_and_changes_nothing(world):
    environment = envs.load(world)
    env = environment.open_task(rows(world)[0], settings_of(world))
    env.reset()
    before = env.distance()
    step = env.step("")
    assert not step.valid
    assert env.distance() == before


@pytest.mark.parametrize(("encoder", "form"), [(Hermes(), "hermes"), (Llama(), "llama3"), (Chat(), "json")])
def test_the_conversation_is_what_the_template_would_render_and_responses_stay_as_sampled(encoder, form):
    """Chunk by chunk: opening, a call, its result; then a malformed call, and what was wrong with it."""
    it = of(encoder)
    context = encoder.decode(it.open("help.", 'She says: "hi".', ()).ids)
    replies = [it.target({"action": "ask name"}), "nonsense"]
    for reply, observation in zip(replies, ['Customer: "Ana".', "Not understood."], strict=True):
        ids = [*encoder.encode(reply), encoder.eos_id]
        context += encoder.decode(ids) + encoder.decode(it.follow(ids, it.parse(reply), observation, ()).ids)
    assert replies[0] == FORMATS[form].write("ask", {"about": "name"})
    tools = envs.load("desk").words.tools.declarations()
    user = context.split("Task: help.")[0].rpartition("customer service")[2]
    assert "Reply to every message with one tool call" in user
    opening = context[: context.index("<|im_end|>", context.index("Task: help."))]
    said = opening[opening.index("You work at") :]
    call = {"type": "function", "function": {"name": "ask", "arguments": {"about": "name"}}}
    native = form != "json"
    messages = [
        {"role": "user", "content": said},
        {"role": "assistant", "content": "", "tool_calls": [call]} if native
        else {"role": "assistant", "content": replies[0]},
        {"role": "tool" if native else "user", "content": 'Customer: "Ana".'},
        {"role": "assistant", "content": "nonsense"},
        {"role": "tool" if native else "user", "content": f"{tool_calls.NO_CALL}\nNot understood."},
    ]  # fmt: skip
    assert context == encoder.chat(messages, tools=tools if native else None)


def test_without_a_template_for_tools_an_instruction_has_their_schemas():
    chat = Chat()
    told = chat.decode(of(chat, format="smollm2").open("help.", "Hello.", ()).ids)
    assert '<tool_call>[{"name": "NAME", "arguments": {"PARAMETER": "VALUE"}}]</tool_call>' in told
    for one in envs.load("desk").words.tools.declarations():
        assert json.dumps(one["function"]) in told


def test_a_template_of_an_unknown_format_is_refused_with_the_way_on():
    with pytest.raises(UserError, match=r"chat template writes tool calls in a format .* agent\.tools\.format to json"):
        of(Foreign())
    assert of(Foreign(), format="json").target({"action": "close"}) == '{"name": "close", "arguments": {}}'


TEMPLATES = Path(str(getattr(importlib.util.find_spec("trl"), "origin", ""))).parent / "chat_templates"


@pytest.mark.skipif(
    not (TEMPLATES / "qwen2_5.jinja").is_file(), reason="TRL, which has models' chat templates, is not here"
)
@pytest.mark.parametrize(
    ("file", "eos", "form", "result"),
    [
        ("qwen2_5", "<|im_end|>", "hermes", '<tool_response>\nsay "hi"\n</tool_response>'),
        ("qwen3", "<|im_end|>", "hermes", '<tool_response>\nsay "hi"\n</tool_response>'),
        ("qwen3_instruct_2507", "<|im_end|>", "hermes", '<tool_response>\nsay "hi"\n</tool_response>'),
        ("llama3_1", "<|eot_id|>", "llama3", '<|start_header_id|>ipython<|end_header_id|>\n\n"say \\"hi\\""'),
        ("llama3_2", "<|eot_id|>", "llama3", '<|start_header_id|>ipython<|end_header_id|>\n\n"say \\"hi\\""'),
        ("llama3", "<|eot_id|>", "json", '<|start_header_id|>user<|end_header_id|>\n\nsay "hi"'),
    ],
)  # fmt: skip
def test_the_format_of_a_models_own_template_is_found(file, eos, form, result):
    from transformers.utils.chat_template_utils import render_jinja_template

    class Model(Chat):
        eos_text = eos

        def chat(self, messages, *, tools=None):
            template = (TEMPLATES / f"{file}.jinja").read_text()
            rendered, _ = render_jinja_template(
                conversations=[messages], tools=tools, chat_template=template, add_generation_prompt=True, bos_token=""
            )
            return rendered[0]

    encoder = Model()
    it = of(encoder)
    call = it.target({"action": "ask name"})
    assert call == FORMATS[form].write("ask", {"about": "name"})
    ids = [*encoder.encode(call), encoder.eos_id]
    assert result in encoder.decode(it.follow(ids, it.parse(call), 'say "hi"', ()).ids)
    assert '"find_customer"' in encoder.decode(it.open("help.", "Hello.", ()).ids)


# --------------------------------------------------------------------------------------------------------- training


def test_a_worlds_action_in_another_form_is_refused_by_name():
    it = of(Chat(), words=envs.load("searchqa").words)
    with pytest.raises(
        UserError, match=r"'<search>x</search>' is not a call of the environment's tools.*such as `actions`"
    ):
        it.target({"action": "<search>x</search>"})
    assert it.target({"action": "serch[ x]", "imitate": False}) == "serch[ x]"


def test_an_environment_without_tools_is_refused_before_any_job():
    assert not AGENT.plays(Words())
    with pytest.raises(UserError, match=r"agent 'tools' finds no tools in a text game \(Words.tools\)"):
        maker("tools", Chat(), Words())
    experiment = tiny.experiment(agent={"name": "tools"}, env={"name": "sokoban"})
    with pytest.raises(UserError, match=r"agent: 'tools' cannot play in 'sokoban'"):
        checks.check(experiment)


def test_a_call_of_a_tokenizer_from_scratch_is_short_and_names_are_the_same_tokens_as_in_observations(world, tmp_path):
    plan = Plan(tiny.experiment(agent={"name": "tools"}))
    demos = world.job("sft", JobKeys(), tmp_path).table("demos", "demos")
    made = plan.slice("base", JobKeys())
    base.new_base(demos, made.scratch, tmp_path / "base", own_columns=made.own_columns, vocabulary=made.vocabulary)
    encoder = tokenizer.load(tmp_path / "base")
    words = envs.load("household").words
    it = maker("tools", encoder, words)()
    ids = encoder.encode(it.target({"action": "go to shelf 1"}))
    assert encoder.decode(ids) == '{"name": "go_to", "arguments": {"place": " shelf 1"}}'
    assert len(ids) == 4
    seen = encoder.encode(" shelf 1")
    assert any(ids[at : at + len(seen)] == seen for at in range(len(ids)))
    assert it.parse(encoder.decode(ids)).action == "go to shelf 1"
    sequences = sft.demonstrations(demos.slice(0, 40), encoder, AgentSlice(name="tools"), words)
    assert '{"name": "' in encoder.decode(sequences[0].ids.tolist())
