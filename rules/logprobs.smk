# A second pass over turns, for methods that ask a policy about each response once more. What the SFT policy says, and what
# the policy that sampled says in hindsight, is shared by all methods that read it.


rule logprobs:
    input:
        unpack(reads("logprobs")),
    output:
        **makes("logprobs"),
    log:
        PLAN.layout.log("logprobs"),
    priority: earlier_first
    conda:
        CORE
    threads: threads("logprobs")
    resources:
        **ask("logprobs"),
    params:
        config=part("logprobs"),
    message:
        "Log-probabilities by {wildcards.reader} on the rollouts of {wildcards.policy}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/logprobs.py"
