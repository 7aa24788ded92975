"""Seeds. Each purpose draws from its own generator, so that one purpose never shifts the numbers of another."""

from __future__ import annotations

import hashlib

import numpy as np


def derive_seed(*parts: str | int) -> int:
    """A 63-bit seed from the parts, the same on every machine: `derive_seed(seed, "rollout", round)`.

    Parts differ by type and position: `("a", 1)`, `("a", "1")` and `("a1",)` give different seeds.
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(*parts: str | int) -> np.random.Generator:
    """A NumPy generator for the purpose that `parts` name."""
    return np.random.default_rng(derive_seed(*parts))
