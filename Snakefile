# The targets. What jobs there are follows from the loop (turncredit/pipeline/loop.py) and from the stages' records.


configfile: "config.yaml"


include: "rules/common.smk"
include: "rules/start.smk"
include: "rules/stages.smk"
include: "rules/rounds.smk"


localrules:
    all,
    runs,
    audit,


# All rounds of all runs, with their evaluations and invariants, but no audit and no report.
rule runs:
    input:
        PLAN.layout.path("config"),
        known(
            PLAN.layout.path("invariants", method=m, seed=s)
            for m, s in EXPERIMENT.runs()
        ),


rule audit:
    input:
        PLAN.layout.path("config"),
        known(path for at in PLAN.audited for path in PLAN.audit_outputs(at)),


rule all:
    default_target: True
    input:
        rules.runs.input,
        rules.audit.input,
        PLAN.layout.path("report"),
        PLAN.layout.metrics("track") if EXPERIMENT.tracking.enabled else [],
