"""Settings of a model's chat template: from the configuration into the model's folder, and from there into prompts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests import tiny
from turncredit import agents
from turncredit.agents import agent_factory
from turncredit.data.env_wording import Words
from turncredit.data.provenance import folder_hashes
from turncredit.errors import UserError
from turncredit.pipeline import checks
from turncredit.pipeline.stages.base import STAGE
from turncredit.policy import models, tokenizer
from turncredit.policy.base import fetch_base
from turncredit.policy.open import OpenPolicy

#: The part of Qwen3's template that its switch is in (tokenizer_config.json of Qwen/Qwen3-8B).
THINKS = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
NO_THOUGHTS = "<think>\n\n</think>\n\n"
SAID = [{"role": "user", "content": "go"}]


@pytest.fixture(params=["chat_template.jinja", "tokenizer_config.json"])
def source(request, world, tmp_path) -> Path:
    """A model whose chat template has the switch, in a file of its own or in the tokenizer's."""
    folder = tmp_path / "source"
    shutil.copytree(world.path("base"), folder)
    if request.param == "chat_template.jinja":
        (folder / request.param).write_text(THINKS)
    else:
        file = folder / request.param
        file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": THINKS}))
    return folder


def fetched(source: Path, name: str, **settings) -> Path:
    """The model as the stage `base` writes it."""
    folder = source.with_name(name)
    folder.mkdir()
    fetch_base(str(source), None, folder, chat_template=settings)
    return folder


def test_a_setting_reaches_the_template_and_every_policy_that_is_trained_from_the_model(source):
    thinking, silent = fetched(source, "thinking"), fetched(source, "silent", enable_thinking=False)
    assert tokenizer.load(thinking).chat(SAID).endswith("assistant\n")
    trained = source.with_name("trained")
    models.save_model(models.load_model(silent, dtype="float32"), trained, base=silent, final=trained)
    again = fetched(trained, "again")  # a policy as the source of another experiment
    for folder in (silent, trained, again):
        assert tokenizer.load(folder).chat(SAID).endswith(f"assistant\n{NO_THOUGHTS}")
    assert folder_hashes(silent)[0] != folder_hashes(thinking)[0]


def test_a_trained_policy_has_its_template_when_the_policy_before_it_is_deleted(source):
    """A resumed run whose first stage is an update; `keep_policies: last` deletes the policy that it trained."""
    (source / "provenance.json").unlink(missing_ok=True)  # the fixture has changed a file
    before = OpenPolicy(fetched(source, "before"), dtype="float32")
    assert before.tokenizer.encode("go")
    after = before.trained_into(fetched(source, "after"))
    shutil.rmtree(before.folder)
    assert after.tokenizer is before.tokenizer
    assert after.tokenizer.chat(SAID).endswith("assistant\n")


@pytest.mark.parametrize("name", ["transcript", "window"])
def test_the_first_and_the_later_prompts_of_an_agent_have_the_setting(source, name):
    """All engines are given these tokens, vLLM, too."""
    encoder = tokenizer.load(fetched(source, "silent", enable_thinking=False))
    words = Words(setting="You are in a house.")
    agent = agent_factory(agents.load(name), encoder, {}, words)()
    first = agent.open("put a mug in the sink", "You see a mug.", ["look"])
    later = agent.follow([encoder.eos_id], agent.parse("look"), "You see a sink.", ["look"])
    for prompt in (first, later):
        assert encoder.decode(prompt.ids).endswith(NO_THOUGHTS)


def test_a_setting_that_the_template_does_not_read_is_refused_with_the_nearest_one(source, world, tmp_path):
    with pytest.raises(UserError, match=r"does not read 'enable_thinkin' \(did you mean 'enable_thinking'\?\)$"):
        fetched(source, "misspelt", enable_thinkin=False)
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match="has no chat template"):
        fetch_base(str(world.path("base")), None, tmp_path / "none", chat_template={"enable_thinking": False})


def test_a_model_that_thinks_because_nobody_has_set_its_switch_is_warned_about(source):
    for settings, warned in (({}, True), ({"enable_thinking": True}, False), ({"enable_thinking": False}, False)):
        folder = source.with_name(f"with{len(settings)}{settings.get('enable_thinking')}")
        folder.mkdir()
        line = STAGE.warning(fetch_base(str(source), None, folder, chat_template=settings))
        assert ("policy.chat_template" in (line or "")) is warned


@pytest.mark.parametrize(
    ("template", "warned"),
    [
        (THINKS, False),
        (THINKS.replace("<|im_end|>", "<end_of_turn>"), True),  # Gemma's, whose eos_token is <eos>
        (THINKS.replace("'<|im_end|>", "eos_token + '"), False),
        ("{{ raise_exception('roles must be user only') }}", False),
    ],
    ids=["its own", "another", "by name", "renders none"],
)
def test_a_template_that_ends_replies_with_another_token_than_sampling_stops_at_is_warned_about(
    world, tmp_path, template, warned
):
    source = tmp_path / "source"
    shutil.copytree(world.path("base"), source)
    (source / "chat_template.jinja").write_text(template)
    (tmp_path / "copy").mkdir()
    line = STAGE.warning(fetch_base(str(source), None, tmp_path / "copy"))
    assert ("eos_token" in (line or "")) is warned


def test_what_an_agent_gives_a_template_is_no_setting_and_a_model_from_scratch_has_no_template():
    with pytest.raises(UserError, match="'tools' is given by the agent"):
        tiny.experiment(policy={"source": "org/model", "chat_template": {"tools": "none"}})
    with pytest.raises(UserError, match="a model from scratch has no chat template"):
        checks.check(tiny.experiment(policy={"chat_template": {"enable_thinking": False}}))


def test_a_hub_models_files_are_those_of_the_revision_that_is_asked_for(tmp_path, monkeypatch):
    asked = {}

    def download(name, **settings):
        asked.update(name=name, **settings)
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(UserError, match=r"'org/model' is neither a local folder .*no network"):
        fetch_base("org/model", "a1b2", tmp_path)
    assert (asked["name"], asked["revision"]) == ("org/model", "a1b2")
