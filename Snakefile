configfile: "config.yaml"


include: "rules/planning.smk"
include: "rules/common.smk"
include: "rules/start.smk"
include: "rules/config.smk"
include: "rules/tasks.smk"
include: "rules/demos.smk"
include: "rules/base.smk"
include: "rules/sft.smk"
include: "rules/rollout.smk"
include: "rules/measures.smk"
include: "rules/continuations.smk"
include: "rules/forks.smk"
include: "rules/label.smk"
include: "rules/hiddens.smk"
include: "rules/implicit_model.smk"
include: "rules/logprobs.smk"
include: "rules/credit_model.smk"
include: "rules/values.smk"
include: "rules/credit.smk"
include: "rules/eval.smk"
include: "rules/rounds.smk" if FUSED else "rules/update.smk"
include: "rules/branch.smk"
include: "rules/fidelity.smk"
include: "rules/gradients.smk"
include: "rules/leaks.smk"
include: "rules/rollout_invariants.smk"
include: "rules/pages.smk"


if not FUSED:

    include: "rules/invariants.smk"


include: "rules/report.smk"
include: "rules/track.smk"
include: "rules/collect.smk"


localrules:
    all,
    config,
    report,
    track,


# A hub's model is copied where Snakemake runs, from the cache into which it was fetched there.
if EXPERIMENT.policy.source != "scratch":

    localrules:
        base,

    if EXPERIMENT.agents:

        localrules:
            base_of_agents,


rule all:
    default_target: True
    input:
        rules.runs.input,
        rules.audit.input,
        PLAN.layout.path("report"),
        PLAN.layout.metrics("track") if EXPERIMENT.tracking.enabled else [],
