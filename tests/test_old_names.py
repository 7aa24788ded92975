"""Modules that moved still import under the names that the documentation of version 0.3 gave."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path

import pytest

from turncredit.data import plugins
from turncredit.data.old_names import MOVED, new_name

OWN = """
from turncredit.credit.compose import compute
from turncredit.integrations.spans import *
from turncredit.tables import KEYS
from turncredit.turns import Turns
from turncredit.words import Words

WORDS = Words(game="a game of mine")


def mine(turns: Turns):
    return turns.reward_N
"""


@pytest.fixture(autouse=True)
def _afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No old name has been imported yet."""
    for name in [name for name in sys.modules if new_name(name)]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_is_the_module_of_the_new_one_and_a_warning(old: str) -> None:
    with pytest.warns(DeprecationWarning, match=MOVED[old].replace(".", r"\.")):
        module = importlib.import_module(old)
    assert module is importlib.import_module(MOVED[old])
    assert module.__spec__.name == MOVED[old]


def test_what_is_inside_a_moved_package_is_loaded_once() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old = importlib.import_module("turncredit.importers.base")
    assert old is importlib.import_module("turncredit.bridges.importers.base")


def test_a_file_of_ones_own_that_imports_old_names_still_loads(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = plugins.from_file("a method", tmp_path / "mine.py")
    from turncredit.data.env_wording import Words

    assert isinstance(module.WORDS, Words)


def test_a_name_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match="turnz"):
        importlib.import_module("turncredit.turnz")
