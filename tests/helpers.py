"""What tests of several rooms use."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import pytest

from turncredit.envs.household import real
from turncredit.envs.scienceworld import simulator
from turncredit.envs.virtualhome import engine, tasks
from turncredit.envs.webshop import catalogue

Item = TypeVar("Item")


def nonempty(items: Iterable[Item]) -> list[Item]:
    """The items as a list, of which there must be at least one: a loop over none would check nothing."""
    found = list(items)
    assert found, "there is nothing here to check"
    return found


def as_if_simulators_were_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks of a configuration take ScienceWorld's, AppWorld's and VirtualHome's for installed, and find all data."""
    monkeypatch.setattr(simulator, "java", lambda: "java")
    monkeypatch.setattr(simulator, "find_spec", lambda _: True)
    monkeypatch.setenv("APPWORLD_ROOT", "/appworld")
    monkeypatch.setattr(engine, "package", lambda: None)
    monkeypatch.setattr(tasks, "data_root", lambda _: Path("/virtualhome"))
    monkeypatch.setattr(real, "data_root", lambda _: Path("/alfworld"))
    monkeypatch.setattr(catalogue, "data_files", lambda _: (Path("/products"), Path("/attributes"), None))
