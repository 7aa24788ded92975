rule track:
    input:
        unpack(reads("track")),
    output:
        **makes("track"),
    log:
        PLAN.layout.log("track"),
    conda:
        CORE
    params:
        config=part("track"),
    message:
        "MLflow: metrics, parameters and links of all stages"
    script:
        "../workflow_scripts/track.py"
