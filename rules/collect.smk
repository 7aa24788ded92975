# Targets: what a command can ask for by name instead of by path. `all`, the default, has to be in the Snakefile.


localrules:
    runs,
    audit,


# All rounds of all runs, with their evaluations and invariants, but no audit and no report.
rule runs:
    input:
        PLAN.layout.path("config"),
        [PLAN.layout.path("invariants", method=m, seed=s) for m, s in EXPERIMENT.runs()],


rule audit:
    input:
        [path for at in PLAN.audited for path in PLAN.audit_outputs(at)],
