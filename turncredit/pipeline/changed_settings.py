"""Which settings differ from those of an experiment's last run: the reason why finished results are made again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from turncredit.pipeline.plan import Plan

#: How many settings are named, and characters of a value.
NAMED, LONGEST = 4, 40


def changed_settings(plan: Plan) -> list[str]:
    """`update.lr: 0.0007, now 0.0003` for each setting with another value in the `config.json` of the last run.

    Empty if there was none. Settings that only one of them has are not compared: they are another version's.
    """
    try:
        before = json.loads(Path(plan.layout.path("config")).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    now = plan.experiment.model_dump(mode="json")
    return [f"{key}: {_short(old)}, now {_short(new)}" for key, old, new in _differences(before, now)]


def in_words(changed: list[str]) -> str:
    """Changed settings in half a sentence, the first few by name."""
    more = len(changed) - NAMED
    return "; ".join(changed[:NAMED]) + (f"; and {more} more" if more > 0 else "")


def _differences(before: Any, now: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in (name for name in now if name in before):
            yield from _differences(before[name], now[name], f"{key}.{name}" if key else name)
    elif before != now:
        yield key, before, now


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."
