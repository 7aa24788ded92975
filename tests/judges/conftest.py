from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from turncredit.config.judge import JudgeConfig
from turncredit.judges import client

from .chat_server import ChatServer


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer() as running:
        yield running


@pytest.fixture
def llm(server: ChatServer) -> Callable[..., JudgeConfig]:
    """A language-model judge at the test's server."""

    def config(**changes: Any) -> JudgeConfig:
        given = {"kind": "llm", "model": "tiny", "base_url": server.url, "thinking": False, "timeout": 5.0}
        return JudgeConfig(**{**given, **changes})

    return config


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries are not what most tests are about."""
    monkeypatch.setattr(client, "_WAIT", lambda _: 0.01)


def turns_table(rollouts: int = 2, length: int = 3, **columns: Any) -> pa.Table:
    """Household turns whose windows are all different."""
    rows = [
        {
            "group_id": "g0",
            "rollout_id": f"r{rollout}",
            "turn": turn,
            "env": "household",
            "goal": "put a mug in cabinet.",
            "action": f"go to shelf {rollout * 100 + turn}",
            "next_observation": f"You arrive at shelf {rollout * 100 + turn}. On the shelf, you see nothing.",
            **columns,
        }
        for rollout in range(rollouts)
        for turn in range(length)
    ]
    return pa.Table.from_pylist(rows)
