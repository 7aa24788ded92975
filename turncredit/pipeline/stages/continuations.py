"""Stage `continuations`: the policy that sampled continues from every state of a round's rollouts, several times."""

from __future__ import annotations

from collections.abc import Mapping

from turncredit.config import ContinuationsConfig
from turncredit.config.layout import named_continuations
from turncredit.pipeline.job import At, Job
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.playing import PlayingSlice, as_sampled, open_player, played_with, sampled_turns


class Config(PlayingSlice):
    """Environment, agent, and how many continuations."""

    continuations: ContinuationsConfig
    slots: int


def config(plan: Plan, at: At) -> Config:
    """How the policy plays; the number of continuations is among the keys."""
    return Config(
        **played_with(plan, at),
        continuations=named_continuations(at.continued),
        slots=plan.sampling(at.policy).slots,
    )


OUTPUTS = {"continuations": "continuations"}
VARIES_BY = ("policy", "continued")
inputs, operation = sampled_turns, as_sampled


def warning(metrics: Mapping[str, float]) -> str | None:
    """A line where the budget was exceeded, or left states with fewer continuations than were asked for."""
    made, wanted, played = (int(metrics[name]) for name in ("per_state", "per_state_wanted", "turns"))
    budget = int(metrics.get("budget_turns", played))  # without one nothing is bound
    if made >= wanted and played <= budget:
        return None
    return (
        f"{made:,} of {wanted:,} continuations from each state, in {played:,} turns of budget_turns "
        f"{budget:,}: one from each state is played whatever it costs, further ones as far as they are estimated to fit"
    )


def run(job: Job) -> dict[str, float]:
    """Write the returns of each state's continuations; returns their number and their cost."""
    from turncredit.rollouts.continuations import state_returns

    config, at = job.config, job.at
    player = open_player(job, config.slots)
    turns = job.table("turns", "turns")
    table, metrics = state_returns(
        player, turns, config.continuations, seed=at.seed, round=at.round, where=job.path("turns")
    )
    job.write("continuations", table)
    return metrics
