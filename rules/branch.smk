# Ground truth for the credit of sampled turns. It needs the policy that sampled, and an environment in which rollouts
# can be played.


rule branch:
    input:
        unpack(reads("branch")),
    output:
        **makes("branch"),
    log:
        PLAN.layout.log("branch"),
    priority: evaluation_later
    conda:
        PLAYING
    container:
        PLAYING_IMAGE
    threads: threads("branch")
    resources:
        **ask("branch"),
    params:
        config=part("branch"),
    message:
        "Ground truth for the rollouts of {wildcards.policy}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/branch.py"
