"""turncredit: which turn deserves the credit? Credit assignment for multi-turn language-model agents.

`from turncredit import credit` and `credit(turns, method="scpo")` run a method on any table of turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turncredit.data import old_names

if TYPE_CHECKING:
    from turncredit.credit import credit as credit

old_names.install()
__version__ = "0.4.0"


def __getattr__(name: str) -> Any:
    """`turncredit.credit`, imported when it is first asked for; it can be called."""
    if name == "credit":
        from importlib import import_module

        return import_module("turncredit.credit")
    raise AttributeError(f"module 'turncredit' has no attribute '{name}'")
