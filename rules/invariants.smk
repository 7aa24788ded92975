# Checks of every round (docs/invariants.md). One job reads all rounds of a run.


rule invariants:
    input:
        unpack(reads("invariants")),
    output:
        **makes("invariants"),
    log:
        PLAN.layout.log("invariants"),
    conda:
        CORE
    threads: threads("invariants")
    resources:
        **ask("invariants"),
    params:
        config=part("invariants"),
    message:
        "Invariants of {wildcards.method}, seed {wildcards.seed}"
    script:
        "../workflow_scripts/invariants.py"
