"""What tests of several rooms use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")


def nonempty(items: Iterable[Item]) -> list[Item]:
    """The items as a list, of which there must be at least one: a loop over none would check nothing."""
    found = list(items)
    assert found, "there is nothing here to check"
    return found
