# Checks of all artifacts of an audited round (docs/invariants.md).


rule rollout_invariants:
    input:
        unpack(reads("rollout_invariants")),
    output:
        **makes("rollout_invariants"),
    log:
        PLAN.layout.log("rollout_invariants"),
    priority: evaluation_later
    conda:
        CORE
    threads: threads("rollout_invariants")
    resources:
        **ask("rollout_invariants"),
    params:
        config=part("rollout_invariants"),
    message:
        "Invariants of the rollouts of {wildcards.policy}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/rollout_invariants.py"
