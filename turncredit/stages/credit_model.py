"""Stage `credit_model`: a learned credit model for a round, trained on the rounds before it.

It needs nothing of its own round (in round 1, only the width of the hidden states), so it runs in parallel with the
policy's update. The model of round 1 is untrained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turncredit.credit_models.settings import learns_from_credits
from turncredit.stages.job import At, Inputs, Job, Slice
from turncredit.stages.plan import Plan


class Config(Slice):
    """Which model, and its settings."""

    kind: str
    settings: dict[str, Any]


def config(plan: Plan, at: At) -> Config:
    """The model behind the method."""
    kind, settings = plan.model(at.method)
    return Config(kind=kind, settings=settings.model_dump(mode="json"))


def inputs(plan: Plan, at: At) -> Inputs:
    """Turns and hidden states of the rounds that it learns from, their credits for a critic, the model before."""
    rounds = plan.rounds_before(at)
    kind, _ = plan.model(at.method)
    path = plan.layout.path
    before = plan.round_before(at)
    return {
        "turns": [path("turns", round.keys) for round in rounds],
        "hiddens": [path("hiddens", plan.hiddens_at(round, at.method).keys) for round in rounds or [at]],
        "credits": [path("credits", round.keys) for round in rounds] if learns_from_credits(kind) else [],
        "previous": [] if before is None else [path("model", before.keys)],
    }


OUTPUTS = {"model": "model"}


def run(job: Job) -> dict[str, float]:
    """Train the model and write its folder; returns metrics of the training."""
    from turncredit.credit_models import replay
    from turncredit.credit_models.protocol import load_kind
    from turncredit.credit_models.train import check_settings, load, next_model, save

    config, at = job.config, job.at
    settings = load_kind(config.kind).settings_from(config.settings)
    previous = next((load(folder) for folder in job.paths("previous")), None)
    if previous is not None:
        check_settings(previous, settings, job.paths("previous")[0])
    credits: Sequence[str | None] = job.paths("credits") or [None] * len(job.paths("turns"))
    pairs = load_kind(config.kind).reads_pairs
    columns = [*replay.COLUMNS, *(replay.PAIR if pairs else ())]
    rounds = [
        replay.load(
            job.store.table(turns, columns=columns),
            job.store.table(hiddens, "hiddens"),
            job.store.table(credit, "credits") if credit else None,
            where=turns,
            pairs=pairs,
        )[1]
        for turns, hiddens, credit in zip(job.paths("turns"), job.paths("hiddens"), credits, strict=False)
    ]
    width = len(job.store.table(job.paths("hiddens")[0], columns=["hidden"]).column("hidden")[0])
    model, metrics = next_model(
        config.kind, settings, previous=previous, rounds=rounds, width=width, seed=at.seed, round=at.round
    )
    with job.folder("model") as folder:
        save(model, folder)
    return {"steps_total": float(model.steps), **metrics}
