rule sft:
    input:
        unpack(reads("sft")),
    output:
        **makes("sft"),
    log:
        PLAN.layout.log("sft"),
    conda:
        CORE
    threads: threads("sft")
    resources:
        **ask("sft"),
    params:
        config=part("sft"),
    message:
        "Supervised warm start"
    script:
        "../workflow_scripts/sft.py"
