rule base:
    input:
        unpack(reads("base")),
    output:
        **makes("base", start=starts.SFT),
    log:
        layout.fill(PLAN.layout.log("base"), {"start": starts.SFT}),
    conda:
        CORE
    threads: threads("base")
    resources:
        **ask("base"),
    params:
        config=part("base"),
    message:
        "Tokenizer and untrained policy"
    script:
        "../workflow_scripts/base.py"


if EXPERIMENT.agents:

    # The same for each further agent.
    use rule base as base_of_agents with:
        output:
            **makes("base"),
        log:
            PLAN.layout.log("base"),
        wildcard_constraints:
            start=OTHER_AGENTS,
        message:
            "Tokenizer and untrained policy of {wildcards.start}"
