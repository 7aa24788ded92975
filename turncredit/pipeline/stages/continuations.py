"""Stage `continuations`: the policy that sampled continues from every state of a round's rollouts, several times."""

from __future__ import annotations

from collections.abc import Mapping

from turncredit.config import ContinuationsConfig
from turncredit.config.layout import continuations_name, named_continuations
from turncredit.config.stages import ROLLOUTS, Stage, table
from turncredit.credit.parts.configured import continuations_of
from turncredit.errors import UserError
from turncredit.pipeline.job import Job, JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.playing import PlayingSlice, as_sampled, open_player, played_with, sampled_turns
from turncredit.pipeline.resources.work import Played, Work


class Config(PlayingSlice):
    """Environment, agent, and how many continuations."""

    continuations: ContinuationsConfig
    slots: int


def config(plan: Plan, at: JobKeys) -> Config:
    """How the policy plays; the number of continuations is among the keys."""
    return Config(
        **played_with(plan, at),
        continuations=named_continuations(at.continuations),
        slots=plan.sampling(at.policy).slots,
    )


inputs, runtime_options = sampled_turns, as_sampled


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


def needed(plan: Plan, method: str) -> bool:
    """Whether credit is made from continuations."""
    return "continuations" in plan.method(method).needs


def keys(plan: Plan, turns: JobKeys, method: str) -> JobKeys:
    """Their number is a key. Raises UserError for a method that reads none."""
    settings = continuations_of(plan.experiment, method)
    if settings is None:
        raise UserError(f"continuations: the method '{method}' reads no continuations; name one that does")
    return plan.beside(turns, continuations=continuations_name(settings))


def gpu_work(work: Work) -> Played:
    """The same number from every state; one in any case, if the budget is small (rollouts/continuations.py)."""
    states, settings = work.rollouts * work.turns, named_continuations(work.at.continuations)
    per_state = settings.per_state or 1
    if settings.budget_turns is not None:
        per_state = max(1, min(per_state, int(settings.budget_turns / (states * work.turns_left))))
    number = round(states * per_state)
    return Played(number, work.turns_left, number)


STAGE = Stage(
    name="continuations",
    after="measures",
    phase="signal",
    message="Continuations ({continuations}) of the rollouts of {policy}, seed {seed}, round {round}",
    makes={"continuations": table("continuations", f"{ROLLOUTS}/continuations", "{continuations}")},
    folder=ROLLOUTS,
    file="continuations-{continuations}",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    varies_by=("policy", "continuations"),
    runtime_options=runtime_options,
    warning=warning,
    needed=needed,
    keys=keys,
    policy="samples",
    gpu_work=gpu_work,
)
