# The implicit reward model of a round learns from the rounds before it: the jobs of this rule need nothing of their own
# round, and run beside the policy's update. In round 1 it is the SFT policy.


rule implicit_model:
    input:
        unpack(reads("implicit_model")),
    output:
        **makes(
            "implicit_model",
            **({"implicit": temp} if EXPERIMENT.keep_policies == "last" else {}),
        ),
    log:
        PLAN.layout.log("implicit_model"),
    priority: earlier_first
    conda:
        CORE
    threads: threads("implicit_model")
    resources:
        **ask("implicit_model"),
    params:
        config=part("implicit_model"),
    message:
        "Implicit reward model of {wildcards.method} on the rollouts of {wildcards.policy}, seed {wildcards.seed}, for round {wildcards.round}"
    script:
        "../workflow_scripts/implicit_model.py"
