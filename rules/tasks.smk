rule tasks:
    input:
        unpack(reads("tasks")),
    output:
        **makes("tasks"),
    log:
        PLAN.layout.log("tasks"),
    conda:
        CORE
    threads: threads("tasks")
    resources:
        **ask("tasks"),
    params:
        config=part("tasks"),
    message:
        "Games of the {wildcards.split} split"
    script:
        "../workflow_scripts/tasks.py"
