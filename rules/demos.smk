rule demos:
    input:
        unpack(reads("demos")),
    output:
        **makes("demos"),
    log:
        PLAN.layout.log("demos"),
    conda:
        CORE
    threads: threads("demos")
    resources:
        **ask("demos"),
    params:
        config=part("demos"),
    message:
        "Demonstrations of the expert"
    script:
        "../workflow_scripts/demos.py"
