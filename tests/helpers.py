"""What tests of several rooms use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import pytest

from turncredit.envs.scienceworld import simulator

Item = TypeVar("Item")


def nonempty(items: Iterable[Item]) -> list[Item]:
    """The items as a list, of which there must be at least one: a loop over none would check nothing."""
    found = list(items)
    assert found, "there is nothing here to check"
    return found


def as_if_simulators_were_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks of a configuration take ScienceWorld's and AppWorld's for installed, which they do not start."""
    monkeypatch.setattr(simulator, "java", lambda: "java")
    monkeypatch.setattr(simulator, "find_spec", lambda _: True)
    monkeypatch.setenv("APPWORLD_ROOT", "/appworld")
