"""Demonstrations by an expert with a plan, and an agent that learns it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tests import tiny
from tests.agents.test_contexts import FOLDING
from turncredit import envs
from turncredit.agents.transcript import Transcript
from turncredit.config import AgentConfig, AgentSlice
from turncredit.data import tables
from turncredit.envs.household import ENVIRONMENT, WORDS
from turncredit.envs.household.expert import Expert
from turncredit.errors import UserError
from turncredit.pipeline.checks import check
from turncredit.pipeline.job import JobKeys
from turncredit.policy import tokenizer
from turncredit.training.sft import demonstrations

FOLDING_AGENT = {"name": FOLDING, "max_response_tokens": 12, "folding": {"every": 2}}


def demos(world, folder, changes=None, threads=1):
    """The demonstrations of the tiny experiment with `changes`."""
    ran = world.run("demos", JobKeys(), folder, changes or {}, threads=threads)
    return tables.read(ran.output["demos"], "demos")


class Planning(Expert):
    """The household's expert, which says of each action what it is for."""

    def act(self):
        self.action = super().act()
        return self.action

    def columns(self):
        return {"plan": f"use {' '.join(self.action.split()[-2:])}"}


@pytest.fixture
def planning(monkeypatch):
    """The household with an expert that writes its plan."""
    household = replace(ENVIRONMENT, expert=Planning, expert_columns={"plan": pa.string()})
    monkeypatch.setattr(envs, "load", lambda _name: household)
    return household


@pytest.mark.parametrize("threads", [1, 2])
def test_an_experts_plan_is_a_column_and_changes_nothing_else(world, tmp_path, planning, monkeypatch, threads):
    monkeypatch.setattr("turncredit.rollouts.demos._BLOCK", 5)
    changes = {"demos": {"count": 12, "noise": 0.3}}
    planned = demos(world, tmp_path / "planned", changes, threads)
    monkeypatch.undo()
    plain = demos(world, tmp_path / "plain", changes)
    assert planned.schema.field("plan").type == planning.expert_columns["plan"]
    common = planned.drop_columns("plan")
    assert common.equals(plain.select(common.column_names))
    table = planned.to_pandas()
    imitated = table[table.imitate]
    assert (imitated.plan == "use " + imitated.action.str.split().str[-2:].str.join(" ")).all()


@pytest.fixture
def planned(world, tmp_path, planning):
    """Demonstrations with plans, the words of prompts, and the tokenizer made from them for the folding agent."""
    changes = {"agent": FOLDING_AGENT, "demos": {"count": 30, "noise": 0.3}}
    made = world.run("demos", JobKeys(), tmp_path, changes).output["demos"]
    base = world.run("base", JobKeys(), tmp_path, changes, demos=made).output["model"]
    return tables.read(made, "demos"), planning.words, tokenizer.load(base)


def test_an_agent_teaches_the_plan_with_the_action_in_contexts_that_it_folds(planned):
    table, words, encoder = planned
    sequences = demonstrations(table, encoder, AgentConfig(**FOLDING_AGENT).chosen(), words)
    rows = table.to_pandas()
    said = {row: encoder.decode(s.ids[s.turn == row]) for s in sequences for row in set(s.turn.tolist()) - {-1}}
    learnt = rows[rows.imitate]
    assert said == {row.Index: f"<keep> {row.plan}<act> {row.action}" for row in learnt.itertuples()}
    assert len(sequences) == learnt.groupby(["rollout_id", learnt.turn // 2]).ngroups
    later = [encoder.decode(s.ids) for s in sequences if rows.turn[s.turn.max()] > 2]
    assert later
    assert all("use " in text.split("<keep>")[0] for text in later), "the folded history holds what the plan was"


def test_a_tokenizer_made_from_scratch_knows_the_agents_tags_and_the_plans_words(world, planned):
    encoder = planned[2]
    assert [len(encoder.encode(tag)) for tag in ("<keep>", "<act>", " use")] == [1, 1, 1]
    assert len(tokenizer.load(world.path("base")).encode("<keep>")) > 1
    text = "<keep> use shelf 1<act> go to shelf 1"
    assert encoder.decode(encoder.encode(text)) == text


def test_an_agent_that_needs_a_plan_is_refused_where_the_expert_has_none(world):
    message = "'folding' learns from the columns plan of the demonstrations, which the expert of 'household' does not"
    with pytest.raises(UserError, match=message):
        check(tiny.experiment(agent=FOLDING_AGENT))
    check(tiny.experiment(agent=FOLDING_AGENT, sft={"epochs": 0}))
    table = tables.read(world.path("demos"), "demos")
    with pytest.raises(UserError, match="agent 'folding' reads the column 'plan' of the demonstrations"):
        demonstrations(table, tokenizer.load(world.path("base")), AgentConfig(**FOLDING_AGENT).chosen(), WORDS)


@pytest.mark.usefixtures("planning")
@pytest.mark.parametrize(
    ("columns", "message"),
    [({}, "the expert wrote no 'plan'"), ({"plan": ["go"]}, "the expert's column 'plan' is not string")],
)
def test_a_plan_that_is_not_what_was_declared_names_the_column(world, tmp_path, monkeypatch, columns, message):
    monkeypatch.setattr(Planning, "columns", lambda _self: columns)
    with pytest.raises(UserError, match=message):
        demos(world, tmp_path)
    assert not list(tmp_path.rglob("*.parquet"))


def test_an_agent_that_reads_its_own_target_as_another_action_is_refused(world, monkeypatch):
    monkeypatch.setattr(Transcript, "target", lambda _self, turn: f"{turn['action']} now")
    table = tables.read(world.path("demos"), "demos")
    message = r"demo000000, turn 0: agent 'transcript' teaches .*; its target and parse"
    with pytest.raises(UserError, match=message):
        demonstrations(table, tokenizer.load(world.path("base")), AgentSlice(), WORDS)
