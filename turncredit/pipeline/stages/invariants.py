"""Stage `invariants`: checks of every round of a run (docs/audit.md). One job reads all rounds."""

from __future__ import annotations

from collections.abc import Sequence

from turncredit.audit.checked_round import CheckSettings, RoundFiles, StepSettings
from turncredit.config.judge import JudgeConfig, decides
from turncredit.config.layout import sampler_id
from turncredit.config.stages import RUNS, Stage, table
from turncredit.data.progress import progress
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.work import Work
from turncredit.pipeline.stages.tasks import learned_games


class Config(Slice):
    """The part of the configuration that the checks read."""

    checks: CheckSettings


def check_settings(plan: Plan, policy: str, methods: Sequence[str]) -> CheckSettings:
    """The part of the configuration for checking these methods' credit on turns with the key `policy`."""
    experiment = plan.experiment
    return CheckSettings(
        methods={name: experiment.definition(name) for name in methods},
        # Requests in flight decide nothing. The record has the number that it always had: older results stay valid.
        judge=JudgeConfig.model_validate({**decides(experiment.judge), "concurrency": 64}),
        temperature=plan.sampling(policy).temperature,
        dtype=experiment.policy.dtype,
        dropout=experiment.policy.lora.dropout if experiment.policy.lora else 0.0,
        tokens_per_pass=experiment.update.tokens_per_pass,
    )


def config(plan: Plan, at: JobKeys) -> Config:
    """The run's own method, its judge, its sampling, and how its policy is loaded."""
    return Config(checks=run_settings(plan, at.method))


def run_settings(plan: Plan, method: str) -> CheckSettings:
    """The part of the configuration for checking the run of `method`."""
    update = plan.experiment.section_for(method, "update")
    asked = StepSettings(**{name: getattr(update, name) for name in StepSettings.model_fields})
    own = {"update": asked, "env": plan.experiment.env.name, "shared": plan.experiment.tasks.shared}
    return check_settings(plan, method, [method]).model_copy(update=own)


def round_files(plan: Plan, method: str, seed: int, round: int) -> RoundFiles:
    """The artifacts of one round of a run.

    The policy that sampled is read only if it is kept anyway: always in round 1, later with `keep_policies: all`.
    """
    path = plan.layout.path
    turns = plan.turns_at(method, seed, round)
    own = {**turns.keys, "method": method}
    needs = plan.method(method).needs
    labels, forks = plan.keys_for("label", turns, method), plan.keys_for("forks", turns, method)
    kept = round == 1 or plan.experiment.keep_policies == "all"
    evaluated = round in plan.experiment.eval_rounds()
    read = {name: plan.keys_for(name, turns, method) for name in ("hiddens", "logprobs")}
    return RoundFiles.model_validate(
        {
            "run": method,
            "seed": seed,
            "round": round,
            "sampler": sampler_id(turns.policy, seed, round),
            "turns": path("turns", own),
            "measures": path("measures", own) if plan.keys_for("measures", turns, method) else None,
            "credits": {method: path("credits", own)},
            "values": {method: path("values", own)} if "values" in needs else {},
            "continuations": continuations_files(plan, turns, [method]),
            "forks": {method: path("forks", forks.keys)} if forks else {},
            "labels": [path("labels", labels.keys)] if labels else [],
            "beside": [(name, path(name, at.keys)) for name, at in read.items() if at],
            "updates": path("updates", own),
            "evals": path("evals", own) if evaluated else None,
            **({"learned": learned_games(plan), "eval_tasks": path("tasks", split="eval")} if round == 1 else {}),
            "policy": plan.policy_before(method, seed, round) if kept else None,
        }
    )


def continuations_files(plan: Plan, turns: JobKeys, methods: Sequence[str]) -> dict[str, str]:
    """The continuations, of these turns, that each of these methods reads, if it reads any."""
    reading = [name for name in methods if "continuations" in plan.method(name).needs]
    return {name: plan.read_by("continuations", turns, name) for name in reading}


def run_files(plan: Plan, at: JobKeys) -> list[RoundFiles]:
    """The artifacts of all rounds of a run."""
    return [round_files(plan, at.method, at.seed, round) for round in range(1, plan.experiment.rounds + 1)]


def runtime_options(plan: Plan, at: JobKeys) -> list[RoundFiles]:
    """The inputs by name."""
    return run_files(plan, at)


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """Every artifact of the run."""
    return {"artifacts": every_file(run_files(plan, at))}


def every_file(rounds: Sequence[RoundFiles]) -> list[str]:
    """Every file and folder of these rounds, each once."""
    paths = [str(path) for files in rounds for path in (*(path for _, path in files.all()), files.policy) if path]
    return list(dict.fromkeys(paths))


def run(job: Job) -> dict[str, float]:
    """Check every round, print violations, and write the table.

    A violation is recorded and is not an error; the report states it in its first line.
    """
    from turncredit.audit.invariants import table
    from turncredit.audit.logprobs import check_all

    rows = []
    for number, files in enumerate(job.runtime_options):
        rows += check_all(job.config.checks, files)
        progress(number + 1, len(job.runtime_options))
    broken = [row for row in rows if not row["holds"]]
    for row in broken:
        print(f"{row['name']}, round {row['round']}: {row['detail']}")
    job.write("invariants", table(rows))
    return {"checked": float(len(rows)), "broken": float(len(broken))}


#: The share of a round's sequences that is read again: four rollouts (audit/logprobs.py).
CHECKED = 0.02


def gpu_work(work: Work) -> float:
    """A few sequences of every round."""
    return CHECKED * work.experiment.rounds * work.forward(work.rollouts)


STAGE = Stage(
    name="invariants",
    after="eval",
    phase="end",
    message="Invariants of {method}, seed {seed}",
    makes={"invariants": table("invariants", RUNS)},
    folder=RUNS,
    file="invariants",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    runtime_options=runtime_options,
    policy="reads",
    gpu_work=gpu_work,
)
