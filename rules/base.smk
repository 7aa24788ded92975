rule base:
    input:
        demos=f"{RESULTS}/demos/demos.parquet",
    output:
        model=directory(f"{RESULTS}/sft/base"),
        metrics=f"{RESULTS}/sft/metrics/base.json",
    log:
        f"{LOGS}/base.log",
    conda:
        CORE
    threads: EXPERIMENT.resource("base").threads
    resources:
        **ask("base"),
    params:
        stage="base",
        reads=reads("base"),
    message:
        "Tokenizer and untrained policy"
    script:
        "../workflow_scripts/base.py"
