rule tasks:
    output:
        tasks=f"{RESULTS}/tasks/{{split}}.parquet",
        metrics=f"{RESULTS}/tasks/metrics/tasks_{{split}}.json",
    log:
        f"{LOGS}/tasks/{{split}}.log",
    conda:
        CORE
    threads: EXPERIMENT.resource("tasks").threads
    resources:
        **ask("tasks"),
    params:
        stage="tasks",
        reads=reads("tasks"),
    message:
        "Games of the {wildcards.split} split"
    script:
        "../workflow_scripts/tasks.py"
