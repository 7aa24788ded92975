rule fidelity:
    input:
        unpack(reads("fidelity")),
    output:
        **makes("fidelity"),
    log:
        PLAN.layout.log("fidelity"),
    priority: evaluation_later
    conda:
        CORE
    threads: threads("fidelity")
    resources:
        **ask("fidelity"),
    params:
        config=part("fidelity"),
    message:
        "Fidelity of all methods on the rollouts of {wildcards.policy}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/fidelity.py"
