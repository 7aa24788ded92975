# A method's credit on a round's rollouts, whichever run they belong to: its own, or an audited one.


rule credit:
    input:
        unpack(reads("credit")),
    output:
        **makes("credit"),
    log:
        PLAN.layout.log("credit"),
    priority: earlier_first
    conda:
        CORE
    threads: threads("credit")
    resources:
        **ask("credit"),
    params:
        config=part("credit"),
    message:
        "Credit by {wildcards.method} on the rollouts of {wildcards.policy}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/credit.py"
