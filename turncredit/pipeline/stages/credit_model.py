"""Stage `credit_model`: a learned credit model for a round, trained on the rounds before it.

It needs nothing of its own round (in round 1, only the width of the hidden states), so it runs in parallel with the
policy's update. The model of round 1 is untrained.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from turncredit.config.stages import ROLLOUTS, Artifact, Stage
from turncredit.credit.models.settings import learns_from_credits
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice, own_code
from turncredit.pipeline.own_code import code_of_model
from turncredit.pipeline.plan import Plan


class Config(Slice):
    """Which model, and its settings; and its code, if it is not built in."""

    kind: str
    settings: dict[str, Any]
    code: str | None = own_code()


def config(plan: Plan, at: JobKeys) -> Config:
    """The model behind the method."""
    kind, settings = plan.model(at.method)
    return Config(kind=kind, settings=settings.recorded(), code=code_of_model(kind))


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """Turns, hidden states and other tables of the rounds that it learns from, the last model, the user's own file."""
    rounds = plan.rounds_before(at)
    kind, _ = plan.model(at.method)
    path = plan.layout.path
    before = plan.round_before(at)
    return {
        "turns": [path("turns", round.keys) for round in rounds],
        "hiddens": [plan.read_by("hiddens", round, at.method) for round in rounds or [at]],
        "measures": [path("measures", round.keys) for round in rounds] if plan.model_reads_measures(at.method) else [],
        "credits": [path("credits", round.keys) for round in rounds] if learns_from_credits(kind) else [],
        "previous": [] if before is None else [path("model", before.keys)],
        **plan.model_file(at.method),
    }


#: what a kind of model may learn from beside turns and hidden states
MORE = ("credits", "measures")


def run(job: Job) -> dict[str, float]:
    """Train the model and write its folder; returns metrics of the training."""
    from turncredit.credit.models import replay
    from turncredit.credit.models.protocol import load_kind
    from turncredit.credit.models.train import check_settings, load, next_model, save

    config, at = job.config, job.at
    settings = load_kind(config.kind).recorded_settings(config.settings)
    previous = next((load(folder) for folder in job.paths("previous")), None)
    if previous is not None:
        check_settings(previous, settings, job.paths("previous")[0])
    pairs = load_kind(config.kind).reads_pairs
    columns = [*replay.COLUMNS, *(replay.PAIR if pairs else ())]
    rounds = []
    for number, (turns, hiddens) in enumerate(zip(job.paths("turns"), job.paths("hiddens"), strict=False)):
        more = {name: job.store.table(job.paths(name)[number], name) for name in MORE if job.paths(name)}
        rows, states = job.store.table(turns, columns=columns), job.store.table(hiddens, "hiddens")
        rounds.append(replay.load(rows, states, **more, where=turns, pairs=pairs)[1])
    width = len(job.store.table(job.paths("hiddens")[0], columns=["hidden"]).column("hidden")[0])
    model, metrics = next_model(
        config.kind, settings, previous=previous, rounds=rounds, width=width, seed=at.seed, round=at.round
    )
    with job.folder("model") as folder:
        save(model, folder)
    return {"steps_total": float(model.steps), **metrics}


def needed(plan: Plan, method: str) -> bool:
    """Whether a learned credit model is behind the method."""
    return plan.learns(method)


def keys(plan: Plan, turns: JobKeys, method: str) -> JobKeys:
    """Each method has a model of its own."""
    return replace(turns, method=method)


STAGE = Stage(
    name="credit_model",
    after="logprobs",
    phase="signal",
    message="Credit model of {method} for the rollouts of {policy}, seed {seed}, round {round}",
    makes={"model": Artifact("model", f"{ROLLOUTS}/models/{{method}}", folder=True)},
    folder=ROLLOUTS,
    file="model-{method}",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    needed=needed,
    keys=keys,
    hiddens=True,
)
