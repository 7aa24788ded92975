"""Episodes of other versions of verifiers than the tested one: stand-ins whose nodes hold tensors of any name."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from tests.importers import files
from turncredit.bridges.verifiers import assign_advantages


class Open(BaseModel):
    """A part of an episode, with whatever fields it is given."""

    model_config = ConfigDict(extra="allow")


class Trace(Open):
    id: str
    nodes: list[Open]


class Episode(Open):
    id: str
    traces: list[Trace]


def episode(number: int, **tensors: Any) -> Episode:
    row = files.episode(number)
    for node in row["traces"][0]["nodes"]:
        node.update(tensors)
    return Episode.model_validate(row)


def advantages(episodes: list[Episode]) -> list[Any]:
    assign_advantages(episodes, "flat_grpo")
    nodes: list[Any] = [node for one in episodes for node in one.traces[0].nodes]
    return [node.advantages for node in nodes if node.sampled]


def test_fields_that_are_no_json_are_not_read_whatever_they_are_called() -> None:
    """prime-rl's checkouts have versions in which `sampling_mask` is `kept_tokens`, and nodes hold pixels."""
    raw = {"kept_tokens": {"__nd__": True, "data": b"\xff\xfe"}, "multi_modal_data": {"data": b"\xff"}}
    found = advantages([episode(number, **raw) for number in range(2)])
    assert found == advantages([episode(number) for number in range(2)])
    assert found[0][0] > 0 > found[2][0]
