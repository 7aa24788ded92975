# Hidden states, for learned credit models. Those of the SFT policy's rollouts are shared by all methods that read them
# at the same point.


rule hiddens:
    input:
        unpack(reads("hiddens")),
    output:
        **makes("hiddens"),
    log:
        PLAN.layout.log("hiddens"),
    priority: earlier_first
    conda:
        CORE
    threads: threads("hiddens")
    resources:
        **ask("hiddens"),
    params:
        config=part("hiddens"),
    message:
        "Hidden states ({wildcards.read}, {wildcards.point}) on the rollouts of {wildcards.policy}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/hiddens.py"
