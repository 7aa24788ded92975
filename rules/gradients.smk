rule gradients:
    input:
        unpack(reads("gradients")),
    output:
        **makes("gradients"),
    log:
        PLAN.layout.log("gradients"),
    priority: evaluation_later
    conda:
        CORE
    threads: threads("gradients")
    resources:
        **ask("gradients"),
    params:
        config=part("gradients"),
    message:
        "Gradients of all methods on the rollouts of {wildcards.policy}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/gradients.py"
