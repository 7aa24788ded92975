rule leaks:
    input:
        unpack(reads("leaks")),
    output:
        **makes("leaks"),
    log:
        PLAN.layout.log("leaks"),
    priority: evaluation_later
    conda:
        CORE
    threads: threads("leaks")
    resources:
        **ask("leaks"),
    params:
        config=part("leaks"),
    message:
        "Leak tests of credit models on the rollouts of {wildcards.policy}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/leaks.py"
