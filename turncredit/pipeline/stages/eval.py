"""Stage `eval`: a policy on the held-out games of a round. A warm start's are those of the run of its name.

With `eval.fresh: false` every round has the same games. A warm start, the same policy in all rounds, then plays them
once: its later rounds repeat the rows of its first.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from turncredit.config import EvalMode
from turncredit.config.layout import round_name
from turncredit.config.stages import RUN, Stage, table
from turncredit.config.warm_starts import is_start
from turncredit.errors import UserError
from turncredit.pipeline.job import Inputs, Job, JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.playing import PlayingSlice, as_configured, cut_short, open_player, played_with
from turncredit.pipeline.resources.work import Played, Work


class Config(PlayingSlice):
    """Environment, agent, and how the games are played.

    `part` is the index of the round's slice of the held-out games, in the order in which rounds are evaluated. With
    `eval.every` above 1 another number of rounds moves the last three, and with them their parts; `eval.rounds` fixes
    them. `slots` decides how samples are batched.
    """

    games: int
    modes: tuple[EvalMode, ...]
    part: int
    slots: int


def config(plan: Plan, at: JobKeys) -> Config:
    """`eval` for this round."""
    experiment = plan.experiment
    rounds = experiment.eval_rounds()
    if at.round not in rounds:
        raise UserError(f"round {at.round} is not evaluated; with these settings of eval and rounds it is {rounds}")
    return Config(
        **played_with(plan, at),
        games=experiment.eval.games,
        modes=experiment.eval.modes,
        part=experiment.eval_part(at.round),
        slots=experiment.rollout.slots,
    )


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """The round's policy, and the held-out games; or the rows that are repeated."""
    if (first := _repeats(plan, at)) is not None:
        return {"evals": plan.layout.path("evals", at.keys | {"round": first})}
    policy = plan.sft_policy(at) if is_start(at.method) else plan.layout.path("policy", at.keys)
    return {"policy": policy, "tasks": plan.layout.path("tasks", split="eval"), **plan.plugin_files(at)}


def _repeats(plan: Plan, at: JobKeys) -> int | None:
    """The round in which the same policy has played the same games; None if this one has to play."""
    experiment = plan.experiment
    first = experiment.eval_rounds()[0]
    return first if is_start(at.method) and not experiment.eval.fresh and at.round != first else None


runtime_options = as_configured
warning = cut_short


def run(job: Job) -> dict[str, float]:
    """Write one row per rollout; returns each mode's success, and how many contexts were full, if any."""
    from turncredit.rollouts.evaluate import evaluate

    config, at = job.config, job.at
    if "evals" in job.input:
        first = job.table("evals")
        column = first.column_names.index("round")
        table = first.set_column(
            column, first.field("round"), pa.array([at.round] * first.num_rows, first.field("round").type)
        )
        return _written(job, table)
    player = open_player(job, min(config.slots, config.games))
    rows = range(config.part * config.games, (config.part + 1) * config.games)
    common = {
        "policy_id": at.method if is_start(at.method) else round_name(at.method, at.seed, at.round),
        "method": at.method,
        "seed": at.seed,
        "round": at.round,
    }
    table = evaluate(player, config.modes, rows, common)
    return _written(job, table)


def _written(job: Job, table: pa.Table) -> dict[str, float]:
    """Write `table`; returns the metrics of `run`."""
    job.write("evals", table)
    mode_N, success_N = np.array(table.column("mode").to_pylist()), np.array(table.column("success").to_pylist())
    full = sum(table.column("context_full").to_pylist()) if "context_full" in table.column_names else 0
    return {
        **{f"success_{mode.name}": float(np.mean(success_N[mode_N == mode.name])) for mode in job.config.modes},
        **({"context_full": float(full), "rollouts": float(len(table))} if full else {}),
    }


def keys(plan: Plan, turns: JobKeys, method: str) -> JobKeys | None:
    """Not every round is evaluated."""
    return plan.run_at(method, turns) if turns.round in plan.experiment.eval_rounds() else None


def gpu_work(work: Work) -> Played:
    """The games of every mode."""
    games = work.experiment.eval.games * len(work.experiment.eval.modes)
    return Played(games, work.turns, games)


STAGE = Stage(
    name="eval",
    after="update",
    phase="round",
    message="Evaluation of {method}, seed {seed}, round {round}",
    makes={"evals": table("evals", RUN)},
    folder=RUN,
    file="eval",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    varies_by=("round", "method"),
    runtime_options=runtime_options,
    warning=warning,
    keys=keys,
    policy="samples",
    gpu_work=gpu_work,
    lags=True,
)
