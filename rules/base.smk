rule base:
    input:
        unpack(reads("base")),
    output:
        **makes("base"),
    log:
        PLAN.layout.log("base"),
    conda:
        CORE
    threads: threads("base")
    resources:
        **ask("base"),
    params:
        config=part("base"),
    message:
        "Tokenizer and untrained policy"
    script:
        "../workflow_scripts/base.py"
