rule resolved_config:
    output:
        config=f"{RESULTS}/config.json",
    log:
        f"{LOGS}/config.log",
    conda:
        CORE
    params:
        stage="config",
        reads=EXPERIMENT.model_dump(mode="json"),
    message:
        "Resolved configuration"
    script:
        "../workflow_scripts/resolved_config.py"
