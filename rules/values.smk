rule values:
    input:
        unpack(reads("values")),
    output:
        **makes("values"),
    log:
        PLAN.layout.log("values"),
    priority: earlier_first
    conda:
        CORE
    threads: threads("values")
    resources:
        **ask("values"),
    params:
        config=part("values"),
    message:
        "Values by {wildcards.method} on the rollouts of {wildcards.policy}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/values.py"
