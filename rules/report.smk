# The report over everything that the experiment made, and its part in `snakemake --report`.


report: "captions/workflow.rst"


rule report:
    input:
        config=f"{RESULTS}/config.json",
        evals=all_evaluations(),
        updates=all_updates(),
        invariants=all_invariants(),
        audit=audit_outputs(),
    output:
        page=report(
            f"{RESULTS}/report/index.html",
            caption="captions/page.rst",
            category="Report",
            labels={"what": "the whole report"},
        ),
        summary=report(
            f"{RESULTS}/report/summary.csv",
            caption="captions/summary.rst",
            category="Report",
            labels={"what": "all numbers"},
        ),
        table=f"{RESULTS}/report/summary.parquet",
        curves=(
            report(
                f"{RESULTS}/report/learning_curves.svg",
                caption="captions/curves.rst",
                category="Report",
                labels={"what": "learning curves"},
            )
            if EXPERIMENT.runs()
            else []
        ),
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
