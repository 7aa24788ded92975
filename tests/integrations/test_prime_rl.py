"""prime-rl's algorithm on real episodes of verifiers. prime-rl is a stand-in with the signatures of its base class."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verifiers.v1", reason="verifiers has an environment of its own: make test-integrations")

from tests.integrations.test_verifiers import episodes
from turncredit.bridges.verifiers import assign_advantages
from turncredit.errors import UserError

pytestmark = pytest.mark.integrations


class Algorithm:
    """What is called of the class `Algorithm` of prime-rl 28930450: when it is made, and when a group is complete."""

    def __init__(self, config: Any, clients: Any) -> None:
        assert config.method
        self.clients = clients

    async def score_group(self, episodes: list[Any]) -> None:
        raise NotImplementedError

    async def finalize_group(self, episodes: list[Any]) -> None:
        await self.score_group(episodes)


def iter_trainable_traces(group: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Traces without errors, of agents that are trained, in which something was sampled; each with its episode."""
    for episode in group:
        for trace in episode.traces:
            sampled = any(sum(node.mask) for node in trace.nodes)
            if sampled and trace.agent.trainable and not trace.has_error:
                yield episode, trace


@pytest.fixture
def algorithm(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("prime_rl", "prime_rl.orchestrator", "prime_rl.orchestrator.algo", "prime_rl.orchestrator.algo.base"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    vars(sys.modules["prime_rl.orchestrator.algo.base"]).update(
        Algorithm=Algorithm, iter_trainable_traces=iter_trainable_traces
    )
    monkeypatch.delitem(sys.modules, "turncredit.bridges.prime_rl", raising=False)
    from turncredit.bridges.prime_rl import CreditAlgorithm

    return lambda method, **params: CreditAlgorithm(SimpleNamespace(method=method, params=params), clients=None)


def pair(folder: Path) -> list[Any]:
    """The two episodes of a group, which ended well."""
    group = episodes(folder)[:2]
    for episode in group:
        episode.traces[0].ok = True
    return group


def advantages(episode: Any) -> list[list[float] | None]:
    return [node.advantages for node in episode.traces[0].nodes]


def test_a_groups_episodes_get_the_methods_advantages(algorithm: Any, tmp_path: Path) -> None:
    group, same = pair(tmp_path), pair(tmp_path)
    asyncio.run(algorithm("gigpo", gamma=0.5).finalize_group(group))
    assign_advantages(same, "gigpo", gamma=0.5)
    made = [advantages(episode) for episode in group]
    assert made == [advantages(episode) for episode in same]
    assert len({values[0] for nodes in made for values in nodes if values}) > 1


def test_a_trace_that_failed_is_no_part_of_its_group(algorithm: Any, tmp_path: Path) -> None:
    group, same = [*pair(tmp_path), pair(tmp_path)[1]], pair(tmp_path)
    group[2].traces[0].ok = False
    asyncio.run(algorithm("flat_grpo").finalize_group(group))
    assign_advantages(same, "flat_grpo")
    assert [advantages(episode) for episode in group[:2]] == [advantages(episode) for episode in same]
    assert advantages(group[2]) == [None] * 5


def test_a_group_in_which_every_trace_failed_is_left_as_it_is(algorithm: Any, tmp_path: Path) -> None:
    group = pair(tmp_path)[:1]
    group[0].traces[0].ok = False
    asyncio.run(algorithm("flat_grpo").finalize_group(group))
    assert advantages(group[0]) == [None] * 5


def test_a_method_that_needs_labels_is_refused_when_the_algorithm_is_made(algorithm: Any) -> None:
    with pytest.raises(UserError, match=r"orchestrator\.algo\.method: triage needs labels"):
        algorithm("triage")
