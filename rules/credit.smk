rule credit:
    input:
        unpack(side_tables),
        turns=turns_of,
        method=method_file_of,
    output:
        credits=f"{RUN}/credits.parquet",
        metrics=f"{RUN}/metrics/credit.json",
    log:
        f"{LOGS}/credit/{{method}}-seed{{seed}}-round{{round}}.log",
    priority: earlier_first
    conda:
        CORE
    threads: EXPERIMENT.resource("credit").threads
    resources:
        **ask("credit"),
    params:
        stage="credit",
        reads=reads("credit"),
    message:
        "Credit by {wildcards.method}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/credit.py"
