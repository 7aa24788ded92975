configfile: "config.yaml"


include: "rules/planning.smk"
include: "rules/common.smk"
include: "rules/models.smk"
include: "rules/audited.smk"
include: "rules/checked.smk"
include: "rules/config.smk"
include: "rules/tasks.smk"
include: "rules/demos.smk"
include: "rules/base.smk"
include: "rules/sft.smk"
include: "rules/rollout.smk"
include: "rules/label.smk"
include: "rules/hiddens.smk"
include: "rules/credit_model.smk"
include: "rules/values.smk"
include: "rules/credit.smk"
include: "rules/update.smk"
include: "rules/eval.smk"
include: "rules/audit.smk"
include: "rules/branch.smk"
include: "rules/fidelity.smk"
include: "rules/gradients.smk"
include: "rules/leaks.smk"
include: "rules/pages.smk"
include: "rules/invariants.smk"
include: "rules/report.smk"
include: "rules/track.smk"


localrules:
    all,
    audit,
    resolved_config,
    report,
    track,


rule all:
    default_target: True
    input:
        f"{RESULTS}/config.json",
        f"{RESULTS}/report/index.html",
        f"{RESULTS}/metrics/track.json" if EXPERIMENT.tracking.enabled else [],
        all_invariants(),
        audit_outputs(),


rule audit:
    input:
        audit_outputs(),
