"""Merging of configurations, as Snakemake merges files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge(base: Mapping[str, Any], *others: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings merged key by key; later ones win, lists are replaced whole."""
    out = dict(base)
    for other in others:
        for key, value in other.items():
            both = isinstance(value, Mapping) and isinstance(out.get(key), Mapping)
            out[key] = merge(out[key], value) if both else value
    return out
