# Rollouts that fork from states of a round's rollouts, for methods that credit a tree of each task (CARL). Unlike
# continuations they are trained on.


rule forks:
    input:
        unpack(reads("forks")),
    output:
        **makes("forks"),
    log:
        PLAN.layout.log("forks"),
    priority: earlier_first
    conda:
        PLAYING
    container:
        PLAYING_IMAGE
    threads: threads("forks")
    resources:
        **ask("forks"),
    params:
        config=part("forks"),
    message:
        "Forks ({wildcards.forked}) of the rollouts of {wildcards.policy}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/forks.py"
