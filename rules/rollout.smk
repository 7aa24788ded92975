# In round 1 all methods share the SFT policy's rollouts; from round 2 on each run has its own.


rule rollout:
    input:
        unpack(reads("rollout")),
    output:
        **makes("rollout"),
    log:
        PLAN.layout.log("rollout"),
    wildcard_constraints:
        policy=SHARED if FUSED else layout.KEYS["policy"],
    priority: earlier_first
    conda:
        PLAYING
    container:
        PLAYING_IMAGE
    threads: threads("rollout")
    resources:
        **ask("rollout"),
    params:
        config=part("rollout"),
    message:
        "Rollouts of {wildcards.policy}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/rollout.py"
