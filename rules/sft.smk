rule sft:
    input:
        unpack(reads("sft")),
    output:
        **makes("sft", start=starts.SFT),
    log:
        layout.fill(PLAN.layout.log("sft"), {"start": starts.SFT}),
    conda:
        CORE
    threads: threads("sft")
    resources:
        **ask("sft"),
    params:
        config=part("sft"),
    message:
        "Supervised warm start"
    script:
        "../workflow_scripts/sft.py"


if EXPERIMENT.agents:

    # The same for each further agent.
    use rule sft as sft_of_agents with:
        output:
            **makes("sft"),
        log:
            PLAN.layout.log("sft"),
        wildcard_constraints:
            start=OTHER_AGENTS,
        message:
            "Supervised warm start ({wildcards.start})"
