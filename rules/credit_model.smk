# The model of a round is trained on the rounds before it. These jobs need nothing of their own round, so they run in
# parallel with the policy's update. The first round's model is untrained.


rule credit_model:
    input:
        unpack(reads("credit_model")),
    output:
        **makes("credit_model"),
    log:
        PLAN.layout.log("credit_model"),
    priority: earlier_first
    conda:
        CORE
    threads: threads("credit_model")
    resources:
        **ask("credit_model"),
    params:
        config=part("credit_model"),
    message:
        "Credit model of {wildcards.method} on the rollouts of {wildcards.policy}, seed {wildcards.seed}, for round {wildcards.round}"
    script:
        "../workflow_scripts/credit_model.py"
