# The report on all results of the experiment, and its part in `snakemake --report`.


report: "captions/workflow.rst"


rule report:
    input:
        unpack(reads("report")),
    output:
        **makes(
            "report",
            page=shown("page", "the whole report"),
            summary=shown("summary", "all numbers"),
            curves=shown("curves", "learning curves"),
        ),
    log:
        PLAN.layout.log("report"),
    conda:
        CORE
    threads: threads("report")
    resources:
        **ask("report"),
    params:
        config=part("report"),
    message:
        "Report"
    script:
        "../workflow_scripts/report.py"
