"""Stage `hiddens`: a policy's last hidden state at each turn, for learned credit models.

Those of the SFT policy on its own rollouts are shared by all methods that read them at the same point.
"""

from __future__ import annotations

import numpy as np

from turncredit.config.stages import ROLLOUTS, Stage, table
from turncredit.config.warm_starts import SFT
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.work import second_pass


class Config(Slice):
    """How the policy is loaded, and the number of tokens per pass."""

    dtype: str
    tokens_per_pass: int


def config(plan: Plan, at: JobKeys) -> Config:
    """The part of `policy` and `update` that is needed to read a policy."""
    experiment = plan.experiment
    return Config(dtype=experiment.policy.dtype, tokens_per_pass=experiment.update.tokens_per_pass)


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """The frozen SFT policy, or the one that sampled; and the turns."""
    policy = plan.sft_policy(at) if at.hidden_policy == SFT else plan.sampler(at)
    return {"policy": policy, "turns": plan.layout.path("turns", at.keys)}


def runtime_options(plan: Plan, at: JobKeys) -> str:
    """The name of the frozen SFT policy, for the record."""
    return plan.warm_start(at)


def run(job: Job) -> dict[str, float]:
    """Write the hidden states; returns their number, width and size."""
    from turncredit.credit.models.hiddens import COLUMNS, hiddens
    from turncredit.training.sequences import contexts

    turns, config, at = job.table("turns", columns=COLUMNS), job.config, job.at
    table = hiddens(
        job.policy("policy"),
        turns,
        reader=job.runtime_options if at.hidden_policy == SFT else None,
        point=at.hidden_position,  # type: ignore[arg-type]
        tokens_per_pass=config.tokens_per_pass,
        where=job.path("turns"),
    )
    job.write("hiddens", table)
    sequences = contexts(turns, job.path("turns"))
    hidden = table.column("hidden").combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return {
        "turns": float(table.num_rows),
        "contexts": float(len(sequences)),
        "tokens": float(sum(len(sequence.ids) for sequence in sequences)),
        "width": float(len(hidden) / table.num_rows),
        "rms": float(np.sqrt(np.mean(hidden.astype(np.float32) ** 2))),
    }


def needed(plan: Plan, method: str) -> bool:
    """Whether a learned credit model reads them."""
    return plan.learns(method)


def keys(plan: Plan, turns: JobKeys, method: str) -> JobKeys:
    """Whose states, and where in a turn. In round 1 the SFT policy is the current one."""
    _, model = plan.model(method)
    return plan.beside(
        turns, hidden_policy=SFT if turns.round == 1 else model.hidden_policy, hidden_position=model.hidden_position
    )


STAGE = Stage(
    name="hiddens",
    after="label",
    phase="signal",
    message="Hidden states ({hidden_policy}, {hidden_position}) of rollouts of {policy}, seed {seed}, round {round}",
    makes={"hiddens": table("hiddens", f"{ROLLOUTS}/hiddens", "{hidden_policy}-{hidden_position}")},
    folder=ROLLOUTS,
    file="hiddens-{hidden_policy}-{hidden_position}",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    runtime_options=runtime_options,
    needed=needed,
    keys=keys,
    policy="reads",
    gpu_work=second_pass,
)
