rule values:
    input:
        model=f"{RUN}/credit_model",
        turns=turns_of,
        hiddens=hiddens_of,
    output:
        values=f"{RUN}/values.parquet",
        metrics=f"{RUN}/metrics/values.json",
    log:
        f"{LOGS}/values/{{method}}-seed{{seed}}-round{{round}}.log",
    priority: earlier_first
    conda:
        CORE
    threads: EXPERIMENT.resource("values").threads
    resources:
        **ask("values"),
    params:
        stage="values",
        reads=reads("values"),
    message:
        "Values by the credit model of {wildcards.method}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/values.py"
