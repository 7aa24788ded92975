"""What tests of several rooms use."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
import yaml

from turncredit.cli.main import main
from turncredit.envs.household import real
from turncredit.envs.scienceworld import simulator
from turncredit.envs.virtualhome import engine, tasks
from turncredit.envs.webshop import catalogue

Item = TypeVar("Item")


def others_reach(folder: Path) -> None:
    """Let other users into a folder that pytest made for this one alone, a level deeper with several processes."""
    for above in (folder, *folder.parents[:3]):
        above.chmod(above.stat().st_mode | 0o055)


def nonempty(items: Iterable[Item]) -> list[Item]:
    """The items as a list, of which there must be at least one: a loop over none would check nothing."""
    found = list(items)
    assert found, "there is nothing here to check"
    return found


def turncredit(*arguments: str | Path, cwd: Path | str = ".") -> CompletedProcess[str]:
    """What the command line prints and its exit status, in this process: starting another takes a second."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    status: Any = 0
    words = ["turncredit", *map(str, arguments)]
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with contextlib.chdir(cwd), patch.object(sys, "argv", words), streams[0], streams[1]:
        try:
            main()
        except SystemExit as ended:
            status = ended.code or 0
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return CompletedProcess(words, status, *texts)


def cases(table: str) -> list[Any]:
    """Parameters (keys, what follows) of each line `KEY: VALUE, ... -> what follows`, named by the line."""
    lines = [line for line in table.strip().splitlines() if not line.startswith("#")]
    found = [(line, *line.split(" -> ")) for line in lines]
    return [pytest.param(yaml.safe_load(f"{{{keys}}}"), said, id=line) for line, keys, said in found]


def as_if_simulators_were_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks of a configuration take ScienceWorld's, AppWorld's and VirtualHome's for installed, and find all data."""
    monkeypatch.setattr(simulator, "java", lambda: "java")
    monkeypatch.setattr(simulator, "find_spec", lambda _: True)
    monkeypatch.setenv("APPWORLD_ROOT", "/appworld")
    monkeypatch.setattr(engine, "package", lambda: None)
    monkeypatch.setattr(tasks, "data_root", lambda _: Path("/virtualhome"))
    monkeypatch.setattr(real, "data_root", lambda _: Path("/alfworld"))
    monkeypatch.setattr(catalogue, "data_files", lambda _: (Path("/products"), Path("/attributes"), None))
