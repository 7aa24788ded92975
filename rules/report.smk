rule report:
    input:
        config=f"{RESULTS}/config.json",
        evals=all_evaluations(),
        updates=all_updates(),
    output:
        page=f"{RESULTS}/report/index.html",
        summary=f"{RESULTS}/report/summary.parquet",
    log:
        f"{LOGS}/report.log",
    conda:
        CORE
    threads: EXPERIMENT.resource("report").threads
    resources:
        **ask("report"),
    params:
        stage="report",
        results=lambda wildcards, input: str(Path(input.config).parent),
        reads=reads("report"),
    message:
        "Report"
    script:
        "../workflow_scripts/report.py"
