rule demos:
    input:
        tasks=f"{RESULTS}/tasks/train.parquet",
    output:
        demos=f"{RESULTS}/demos/demos.parquet",
        metrics=f"{RESULTS}/demos/metrics/demos.json",
    log:
        f"{LOGS}/demos.log",
    conda:
        CORE
    threads: EXPERIMENT.resource("demos").threads
    resources:
        **ask("demos"),
    params:
        stage="demos",
        reads=reads("demos"),
    message:
        "Demonstrations of the expert"
    script:
        "../workflow_scripts/demos.py"
