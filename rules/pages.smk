rule pages:
    input:
        unpack(reads("pages")),
    output:
        **makes("pages"),
    log:
        PLAN.layout.log("pages"),
    priority: evaluation_later
    conda:
        CORE
    threads: threads("pages")
    resources:
        **ask("pages"),
    params:
        config=part("pages"),
    message:
        "Credit pages of the rollouts of {wildcards.policy}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/pages.py"
