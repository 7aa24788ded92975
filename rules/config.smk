rule config:
    output:
        **makes("config"),
    log:
        PLAN.layout.log("config"),
    conda:
        CORE
    params:
        config=part("config"),
    message:
        "Resolved configuration"
    script:
        "../workflow_scripts/config.py"
