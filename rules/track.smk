rule track:
    input:
        config=f"{RESULTS}/config.json",
        evals=all_evaluations(),
        updates=all_updates(),
    output:
        metrics=f"{RESULTS}/metrics/track.json",
    log:
        f"{LOGS}/track.log",
    conda:
        CORE
    params:
        stage="track",
        results=lambda wildcards, input: str(Path(input.config).parent),
        reads=EXPERIMENT.tracking.model_dump(mode="json"),
    message:
        "MLflow: metrics, parameters and links of all stages"
    script:
        "../workflow_scripts/track.py"
