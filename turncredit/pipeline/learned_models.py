"""What is known of a configuration's models before any job, without reading weights, asking a hub or torch."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from turncredit.config import Experiment
from turncredit.errors import UserError
from turncredit.policy.shapes import PUBLISHED, Shapes, shapes_of, shapes_of_scratch


@cache
def config_of(source: str, revision: str | None) -> dict[str, Any] | None:
    """A model's `config.json`: a folder's, a published model's, or what the hub's cache has; None if none is known."""
    file = Path(source) / "config.json"
    if file.is_file():
        try:
            return dict(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None  # the stage `base` says what is wrong with it
    if source in PUBLISHED:
        return PUBLISHED[source]
    if Path(source).exists() or source.count("/") != 1:
        return None
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(source, "config.json", revision=revision)
    return dict(json.loads(Path(cached).read_text(encoding="utf-8"))) if isinstance(cached, str) else None


def shapes(experiment: Experiment) -> Shapes | None:
    """The shapes of the experiment's policy; None where they are not known yet (a hub's model), or not computed."""
    policy = experiment.policy
    if policy.source == "scratch":
        return shapes_of_scratch(policy.scratch)
    return _published(policy.source, policy.revision)


def judge_shapes(experiment: Experiment) -> Shapes | None:
    """The shapes of the judge that label jobs serve; None where they are not known, or no judge is served."""
    return None if experiment.judge.serve is None else _published(experiment.judge.model, None)


def _published(source: str, revision: str | None) -> Shapes | None:
    config = config_of(source, revision)
    try:
        return None if config is None else shapes_of(config, source)
    except UserError:
        return None  # an architecture that transformers knows, and this does not


def positions(experiment: Experiment) -> int | None:
    """Tokens of the longest context that the experiment's policy reads; None where it is not known before any job."""
    policy = experiment.policy
    if policy.source == "scratch":
        return policy.scratch.max_positions
    return (config_of(policy.source, policy.revision) or {}).get("max_position_embeddings")
