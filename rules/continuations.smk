# Continuations from the states of a round's rollouts, for methods whose credit is made from them. They lie beside the
# turns and are named after how many there are, so that all methods that want as many share them.


rule continuations:
    input:
        unpack(reads("continuations")),
    output:
        **makes("continuations"),
    log:
        PLAN.layout.log("continuations"),
    priority: earlier_first
    conda:
        PLAYING
    container:
        PLAYING_IMAGE
    threads: threads("continuations")
    resources:
        **ask("continuations"),
    params:
        config=part("continuations"),
    message:
        "Continuations ({wildcards.continued}) of the rollouts of {wildcards.policy}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/continuations.py"
