"""Remove secrets from configurations, for everything that is shown to others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "(not shown)"
_WORDS = {"secret", "token", "password", "passwd", "apikey", "credential", "credentials", "authorization"}


def redacted(data: Mapping[str, Any]) -> dict[str, Any]:
    """`data` without the values of secret keys, and without users and passwords in addresses.

    A key is recognised by its words: `api_key` and `hub_token` are secrets, `tokens_per_pass` is not.
    """
    return {key: HIDDEN if names_a_secret(key) else _value(value) for key, value in data.items()}


def names_a_secret(key: str) -> bool:
    """Whether a key's words indicate that its value is a secret."""
    words = set(re.split(r"[^a-z]+", key.lower()))
    return bool(words & _WORDS or re.search(r"(api|access|private)_?key", key.lower()))


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return redacted(value)
    if isinstance(value, (list, tuple)):
        return [_value(part) for part in value]
    return re.sub(r"://[^/\s]+@", "://", value) if isinstance(value, str) else value
