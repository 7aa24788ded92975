# Progress and distance of each turn, where a method or an audit reads them: the recorded actions, replayed.


rule measures:
    input:
        unpack(reads("measures")),
    output:
        **makes("measures"),
    log:
        PLAN.layout.log("measures"),
    priority: earlier_first
    conda:
        CORE
    threads: threads("measures")
    resources:
        **ask("measures"),
    params:
        config=part("measures"),
    message:
        "Progress and distance on the rollouts of {wildcards.policy}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/measures.py"
