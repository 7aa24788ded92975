rule eval:
    input:
        unpack(reads("eval")),
    output:
        **makes("eval"),
    log:
        PLAN.layout.log("eval"),
    wildcard_constraints:
        method=layout.START if FUSED else layout.KEYS["method"],
    priority: evaluation_later
    conda:
        PLAYING
    container:
        PLAYING_IMAGE
    threads: threads("eval")
    resources:
        **ask("eval"),
    params:
        config=part("eval"),
    message:
        "Evaluation of {wildcards.method}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/eval.py"
