"""Real episodes of verifiers: what it writes is imported, what is assigned is what it reads."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("verifiers.v1", reason="verifiers has an environment of its own: make test-integrations")

from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.episode import WireEpisode
from verifiers.v1.state import State
from verifiers.v1.task import WireTaskData
from verifiers.v1.trace import Trace
from verifiers.v1.utils.trace_store import read_episodes, write_episode

from tests.importers import files
from turncredit import credit
from turncredit.bridges import importers
from turncredit.bridges.verifiers import assign_advantages
from turncredit.data import tables
from turncredit.errors import UserError

pytestmark = pytest.mark.integrations
KIND = Trace[WireTaskData, State, WireAgentConfig]


def episodes(folder: Path) -> list[WireEpisode]:
    """The episodes of tests/importers, read by verifiers itself."""
    rows = [files.episode(number) for number in range(4)]
    for row in rows:
        trace = row["traces"][0]
        trace["task"] = row["task"]
        trace["verifiers"] = {"version": "0.4.0"}
        trace["agent"] = {"config": {}, **trace["agent"]}
        for node in trace["nodes"]:
            node["message"] |= {"tool_call_id": "1"} if node["message"]["role"] == "tool" else {}
    files.lines(folder / "traces.jsonl", rows)
    return read_episodes(folder, KIND)


def test_what_verifiers_writes_is_imported(tmp_path: Path) -> None:
    read = episodes(tmp_path)
    (tmp_path / "again").mkdir()
    for episode in read:
        write_episode(tmp_path / "again", episode)
    outs = []
    for folder in (tmp_path, tmp_path / "again"):
        report = importers.run([folder / "traces.jsonl"], folder / "out.parquet", strict=True)
        assert report.rollouts == 4
        outs.append(tables.read(folder / "out.parquet").drop_columns("source"))
    assert outs[0].equals(outs[1])


@pytest.mark.parametrize("method", ["gigpo", "flat_grpo", "step_grpo"])
def test_a_node_has_its_turns_advantage_on_each_sampled_token(method: str, tmp_path: Path) -> None:
    read = episodes(tmp_path)
    importers.run([tmp_path / "traces.jsonl"], tmp_path / "out.parquet", strict=True)
    expected = credit(tables.read(tmp_path / "out.parquet"), method)["advantage"].to_pylist()
    assign_advantages(read, method)
    nodes = [node for episode in read for node in episode.traces[0].nodes]
    assert [node.advantages for node in nodes if node.sampled] == [[value] * 2 for value in expected]
    assert [node.advantages for node in nodes if not node.sampled] == [None] * 12
    first = dict.fromkeys(expected[:2])
    assert {value for value in read[0].traces[0].branches[0].advantages if value} == {value for value in first if value}


def test_a_trace_without_a_reward_is_an_error(tmp_path: Path) -> None:
    read = episodes(tmp_path)
    read[1].traces[0].rewards = {}
    with pytest.raises(UserError, match="episode episode1: reward is missing or null"):
        assign_advantages(read)


def test_methods_that_read_progress_take_the_scores_of_states(tmp_path: Path) -> None:
    """`trace.info["turn_rewards"]`, as prime-rl's pull request 3282 has it."""
    group = episodes(tmp_path)[:2]
    for episode, scores in zip(group, ([0.0, 1.0], [0.0, 0.0]), strict=True):
        episode.traces[0].info["turn_rewards"] = scores
    assign_advantages(group, "has_progressive")
    found = [[node.advantages[0] for node in episode.traces[0].nodes if node.sampled] for episode in group]
    assert found[0][1] > found[0][0]
    with pytest.raises(UserError, match="has_progressive needs the column 'progress"):
        assign_advantages(episodes(tmp_path)[:2], "has_progressive")
