rule sft:
    input:
        base=f"{RESULTS}/sft/base",
        demos=f"{RESULTS}/demos/demos.parquet",
    output:
        policy=directory(f"{RESULTS}/sft/policy"),
        log=f"{RESULTS}/sft/log.parquet",
        metrics=f"{RESULTS}/sft/metrics/sft.json",
    log:
        f"{LOGS}/sft.log",
    conda:
        CORE
    threads: EXPERIMENT.resource("sft").threads
    resources:
        **ask("sft"),
    params:
        stage="sft",
        reads=reads("sft"),
    message:
        "Supervised warm start"
    script:
        "../workflow_scripts/sft.py"
