"""Stage `rollout_invariants`: checks of all artifacts of an audited round (docs/audit.md)."""

from __future__ import annotations

from turncredit.audit.checked_round import RoundFiles
from turncredit.config.layout import sampler_id
from turncredit.config.stages import ROLLOUTS, Stage, stages_in, table
from turncredit.pipeline.job import Inputs, JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.stages.invariants import Config, check_settings, continuations_files, every_file, run


def config(plan: Plan, at: JobKeys) -> Config:
    """All methods of the audit, the judge, and the turns' sampling."""
    return Config(checks=check_settings(plan, at.policy, plan.audit_methods))


def audited_files(plan: Plan, at: JobKeys) -> RoundFiles:
    """The credits of all methods of the audit on these turns, and the tables that the audit made."""
    path = plan.layout.path
    labelled = [name for name in plan.audit_methods if "labels" in plan.method(name).needs]
    hiddens = {plan.read_by("hiddens", at, name) for name in plan.audit_learned}
    reading = [name for name in plan.audit_methods if "logprobs" in plan.method(name).needs]
    logprobs = {plan.read_by("logprobs", at, name) for name in reading}
    audits = [one for one in stages_in("audit") if one.name != "rollout_invariants" and one.needed(plan, at.policy)]
    audit_tables = [kind.name for one in audits for kind in one.makes.values() if kind.schema]
    return RoundFiles.model_validate(
        {
            "run": at.policy,
            "seed": at.seed,
            "round": at.round,
            "sampler": sampler_id(at.policy, at.seed, at.round),
            "turns": path("turns", at.keys),
            "measures": path("measures", at.keys) if plan.measurable(at) else None,
            "credits": {name: path("credits", at.keys, method=name) for name in plan.audit_methods},
            "values": {name: path("values", at.keys, method=name) for name in plan.audit_learned},
            "continuations": continuations_files(plan, at, plan.audit_methods),
            "labels": sorted({plan.read_by("labels", at, name) for name in labelled}),
            "beside": [
                *(("hiddens", file) for file in sorted(hiddens)),
                *(("logprobs", file) for file in sorted(logprobs)),
                *((name, path(name, at.keys)) for name in audit_tables),
            ],
        }
    )


def runtime_options(plan: Plan, at: JobKeys) -> list[RoundFiles]:
    """The inputs by name."""
    return [audited_files(plan, at)]


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """Every artifact of the audit of these turns."""
    return {"artifacts": every_file([audited_files(plan, at)])}


STAGE = Stage(
    name="rollout_invariants",
    after="pages",
    phase="audit",
    message="Invariants of the rollouts of {policy}, seed {seed}, round {round}",
    makes={"invariants": table("rollout_invariants", ROLLOUTS, "invariants", schema="invariants")},
    folder=ROLLOUTS,
    file="invariants",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    runtime_options=runtime_options,
)
