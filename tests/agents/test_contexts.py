"""An agent whose context grows at some turns and is replaced at others, from the rollout to what the update reads."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from tests import tiny
from tests.agents.folding import Folding
from turncredit import agents
from turncredit.config import AgentSlice
from turncredit.credit.models.hiddens import hiddens
from turncredit.data import tables
from turncredit.data.seeding import derive_seed
from turncredit.data.turns import Turns
from turncredit.envs.household import WORDS
from turncredit.errors import UserError
from turncredit.policy import models, tokenizer
from turncredit.policy.open import OpenPolicy
from turncredit.rollouts.play import Player, Start
from turncredit.rollouts.restore import restored
from turncredit.rollouts.rollout import rollout, turn_table
from turncredit.rollouts.tasks import Games
from turncredit.training.sequences import contexts, cut, list_column, stack, token_logprobs
from turncredit.training.sft import demonstrations

FOLDING = str(Path(__file__).with_name("folding.py"))
EVERY = 3


CONFIG = AgentSlice(name=FOLDING, max_response_tokens=6, settings={"every": EVERY})
COMMON = {"env": "household", "policy_id": "sft", "agent": "folding", "seed": 0, "temperature": 1.0}


def player(world, config=CONFIG, *, engine="lockstep", slots=5, processes=1, split="train"):
    games = Games(world.plan.env, tables.read(world.path("tasks", split=split), "tasks"))
    policy = OpenPolicy(world.path("sft_policy"), dtype="float32", engine=engine)
    return Player(policy, config, games, slots, processes=processes)


def roll(world, config=CONFIG, **given):
    """The table of turns of a round that an agent plays."""
    made = player(world, config, **given)
    played = rollout(made, world.experiment.rollout, seed=0, round=1)
    return turn_table(played, COMMON, made.agent.turn_columns)


@pytest.fixture(scope="module")
def folded(world, tmp_path_factory):
    """Turns of the folding agent."""
    out = tmp_path_factory.mktemp("folded") / "turns.parquet"
    tables.write(roll(world), out, "turns", {})
    return out


def sequences_of(table):
    names = table.column("rollout_id").to_pylist()
    order = {name: number for number, name in enumerate(dict.fromkeys(names))}
    lists = [list_column(table, name) for name in ("prompt_ids", "response_ids", "response_logprobs")]
    return cut([order[name] for name in names], table.column("context_reset").to_pylist(), *lists)


def check_training_reads_what_was_sampled(world, table, most=None):
    """A sequence for each context; read alone, it gives every response token the probability it was drawn with."""
    sequences = sequences_of(table)
    assert sorted({int(row) for s in sequences for row in s.turn if row >= 0}) == list(range(table.num_rows))
    model = models.load_model(world.path("sft_policy"), dtype="float32").eval()
    for sequence in sequences[:most]:
        ids, turn, logprobs = stack([sequence], torch.device("cpu"))
        with torch.no_grad():
            again = token_logprobs(model, ids, turn >= 0)
        np.testing.assert_allclose(again.numpy(), logprobs[turn >= 0].numpy(), atol=1e-4)


def check_the_longest_rollout_is_continued_from_any_turn(table, made, column):
    """With the rollout's own random numbers the continuation is the rest of the rollout, token for token."""
    view = Turns(table)
    (one,) = restored(view, [np.argmax(view.length_R)], made, columns=(column,))
    assert one.replayed == [True] * len(one.turns)
    seed = derive_seed(0, "rollout", 1, one.turns[0]["task_id"], int(one.rollout_id.split("#")[1]))
    starts = [Start("", "", one.task, seed, checkpoint) for checkpoint in one.checkpoints]
    for played, checkpoint in zip(made.play(starts, temperature=1.0), one.checkpoints, strict=True):
        rest = one.turns[checkpoint.turn :]
        assert [turn.response.ids for turn in played.turns] == [turn["response_ids"] for turn in rest]
        assert [turn.columns[column] for turn in played.turns] == [turn[column] for turn in rest]
    return one.turns


def test_the_turns_say_when_the_context_was_replaced_and_hold_the_agents_own_columns(folded):
    frame = tables.read(folded, "turns").to_pandas()
    assert set(frame.agent) == {"folding"}
    assert frame.turn.max() > EVERY
    assert (frame.context_reset == (frame.turn % EVERY == 0)).all()
    assert (frame.folds == frame.turn // EVERY).all()
    sizes = []
    for row in frame.itertuples():
        sizes.append(len(row.prompt_ids) + (0 if row.context_reset else sizes[-1]))
    assert frame.prompt_tokens.tolist() == sizes, "a replaced context starts to count again"
    kept = frame.note.notna()
    assert (frame.well_formed == kept).all()
    assert not (frame.valid & ~frame.well_formed).any()


def test_the_agents_columns_have_their_declared_types_and_can_be_read_alone(folded):
    for name, kind in agents.load(FOLDING).turn_columns.items():
        assert tables.read(folded, "turns").schema.field(name).type == kind
        assert tables.read(folded, "turns", columns=[name]).column_names == [name]


def test_the_agents_columns_come_back_from_several_processes(world, folded):
    many, one = roll(world, processes=2), tables.read(folded, "turns")
    assert many.drop_columns("response_logprobs").equals(one.drop_columns("response_logprobs"))


@pytest.mark.parametrize("engine", ["lockstep", "transformers"])
def test_what_is_trained_on_is_what_was_sampled_from(world, engine):
    table = roll(world, engine=engine)
    check_training_reads_what_was_sampled(world, table)
    folds = sum(table.column("context_reset").to_pylist())
    assert len(sequences_of(table)) == folds > table.column("turn").to_pylist().count(0)


def test_a_credit_model_reads_one_state_for_each_turn(world, folded):
    table = tables.read(folded, "turns")
    policy = OpenPolicy(world.path("sft_policy"), dtype="float32")
    states = hiddens(policy, table, reader="sft", point="observation", tokens_per_pass=2048)
    assert len(contexts(table, "turns")) == sum(table.column("context_reset").to_pylist())
    body = models.load_model(world.path("sft_policy"), dtype="float32").eval().get_decoder()
    context = []
    found = np.array(states.column("hidden").to_pylist(), dtype=np.float32)
    for number, row in enumerate(table.slice(0, 8).to_pylist()):
        context = ([] if row["context_reset"] else context) + row["prompt_ids"]
        with torch.no_grad():
            state = body(input_ids=torch.tensor([context])).last_hidden_state[0, -1].numpy()
        assert found[number] == pytest.approx(state, abs=5e-3, rel=1e-3)
        context = context + row["response_ids"]


@pytest.mark.parametrize("engine", ["lockstep", "transformers"])
def test_a_rollout_is_continued_from_any_turn_before_and_after_a_fold(world, engine):
    table, made = roll(world, engine=engine), player(world, engine=engine)
    assert len(check_the_longest_rollout_is_continued_from_any_turn(table, made, "folds")) > EVERY


# ---------------------------------------------------------------- what an agent may not do


def changed(world, monkeypatch, **replaced):
    """A player of the folding agent with some of its methods replaced."""
    made = player(world, slots=2)
    agent = type("Changed", (Folding,), replaced)
    encoder = tokenizer.load(world.path("sft_policy"))
    monkeypatch.setattr(made, "new_agent", lambda: agent(encoder, made.agent.Settings(), WORDS))
    return made, [Start("g", "g#0", made.games.rows[0], 0)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"notes": "x", "folds": 0, "prompt_tokens": 1}, r"g#0, turn 0: agent 'folding' wrote 'notes', .*mean 'note'"),
        ({"note": "x", "folds": 0}, "g#0, turn 0: agent 'folding' wrote no 'prompt_tokens'; use None for no value"),
    ],
)
def test_columns_that_were_not_declared_are_refused_at_the_first_turn(world, monkeypatch, columns, message):
    made, starts = changed(world, monkeypatch, parse=lambda _self, text: agents.Parsed(text, True, columns))
    with pytest.raises(UserError, match=message):
        made.play(starts, temperature=1.0)


def test_a_value_of_another_type_names_the_column(world, monkeypatch):
    columns = {"note": "x", "folds": "many", "prompt_tokens": 1}
    made, starts = changed(world, monkeypatch, parse=lambda _self, text: agents.Parsed(text, True, columns))
    played = made.play(starts, temperature=1.0)
    with pytest.raises(UserError, match="the agent's column 'folds' is not int32"):
        turn_table(played, COMMON, made.agent.turn_columns)


def test_a_first_prompt_that_appends_is_refused(world, monkeypatch):
    made, starts = changed(world, monkeypatch, open=lambda *_: agents.Prompt([5], reset=False))
    with pytest.raises(UserError, match=r"agent 'folding': open must return the whole context"):
        made.play(starts, temperature=1.0)


# ---------------------------------------------------------------- agents by name


@pytest.mark.parametrize(
    ("replaced", "turn", "message"),
    [
        ({"open": lambda *_: 1 / 0}, "turn 0", "open() raised ZeroDivisionError: division by zero"),
        (
            {"open": lambda *_: agents.Prompt([], reset=True)},
            "turn 0",
            "open() returned a context without",
        ),
        (
            {"open": lambda *_: agents.Prompt(["5"], reset=True)},
            "turn 0",
            "open() must return token ids",
        ),
        ({"parse": lambda *_: "look"}, "turn 0", "parse() must return a Parsed, not a str"),
        (
            {"parse": lambda *_: agents.Parsed(None, True)},
            "turn 0",
            "parse() must give a text as action",
        ),
        ({"parse": lambda *_: agents.Parsed("x", True, None)}, "turn 0", "parse() must give a mapping"),
        ({"follow": lambda *_: "a prompt"}, "turn 1", "follow() must return a Prompt, not a str"),
        ({"follow": lambda *_: {}["goal"]}, "turn 1", "follow() raised KeyError: 'goal'"),
    ],
)
def test_a_fault_of_an_own_agent_names_it_its_rollout_and_its_turn(world, monkeypatch, replaced, turn, message):
    made, starts = changed(world, monkeypatch, **replaced)
    with pytest.raises(UserError, match=re.escape(f"g#0, {turn}: agent 'folding': {message}")):
        made.play(starts, temperature=1.0)


def test_a_fault_of_an_own_agent_names_its_demonstration(world, monkeypatch):
    broken = type("Broken", (), {"open": lambda *_: 1 / 0})
    spec = replace(agents.load(FOLDING), make=lambda *_: broken, demo_columns=())
    monkeypatch.setattr(agents, "load", lambda _: spec)
    encoder = tokenizer.load(world.path("sft_policy"))
    with pytest.raises(UserError, match=r"^demos: demo000000, turn 0: agent 'folding': open\(\) raised ZeroDivision"):
        demonstrations(tables.read(world.path("demos"), "demos"), encoder, CONFIG, WORDS)


def test_built_in_agents_are_declared_as_entry_points_too():
    import tomllib

    project = tomllib.loads((tiny.ROOT / "pyproject.toml").read_text())
    assert project["project"]["entry-points"][agents.GROUP] == agents.BUILT_IN
    assert {name: agents.load(name).name for name in agents.BUILT_IN} == {name: name for name in agents.BUILT_IN}


def test_an_installed_package_brings_an_agent(tmp_path, monkeypatch):
    """As pip lays one out: a module, and a folder of metadata that names it."""
    (tmp_path / "packaged_agent.py").write_text(Path(FOLDING).read_text(encoding="utf-8"))
    info = tmp_path / "packaged_agent-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: packaged-agent\nVersion: 1.0\n")
    points = "[turncredit.agents]\nfolding = packaged_agent:AGENT\nbroken = packaged_agent:NOTHING\nwindow = os:path\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    agents.plugins.installed.cache_clear()
    try:
        assert agents.load("folding").name == "folding"
        assert agents.load("window").name == "window", "no package replaces a built-in agent"
        with pytest.raises(UserError, match=r"'broken': packaged_agent:NOTHING of the package packaged-agent"):
            agents.load("broken")
        with pytest.raises(UserError, match=r"unknown agent 'foldng' \(did you mean 'folding'\?\)"):
            agents.load("foldng")
    finally:
        agents.plugins.installed.cache_clear()


OF = "from pydantic import BaseModel\nfrom turncredit.agents import AgentSpec as A\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "has no AGENT; declare it as AGENT = AgentSpec"),
        ("AGENT = 'window'", "is described by a str, not by an AgentSpec"),
        ("import no_such_module_at_all", "cannot be imported: ModuleNotFoundError"),
        (f"{OF}AGENT = A('x', None, turn_columns={{'reward': 3}})", "the turns have a column 'reward' already"),
        (f"{OF}AGENT = A('x', None, Settings=BaseModel)", "must inherit from turncredit.agents.AgentSettings"),
    ],
)
def test_a_file_that_describes_no_agent_is_one_line_with_its_name(tmp_path, text, message):
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        agents.load(str(path))
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_may_declare_several_agents_by_name(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("from turncredit.agents import AgentSpec\nSHORT = AgentSpec('short', make=None)\n")
    assert agents.load(f"{path}:SHORT").name == "short"
    with pytest.raises(UserError, match=r"mine\.py: has no LONG; declare it as LONG = AgentSpec"):
        agents.load(f"{path}:LONG")


def test_a_config_names_an_agent_and_its_settings():
    config = AgentSlice(name=FOLDING, settings={"every": 2})
    assert agents.load(config.name).Settings.model_validate(config.settings).every == 2
    assert agents.load(config.name).turn_columns["note"] == pa.string()
