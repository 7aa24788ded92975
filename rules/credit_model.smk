# The model of a round learns from the rounds before it: the jobs of this rule need nothing of their own round, and run
# beside the policy's update. The first round's model is untrained.


rule credit_model:
    input:
        turns=lambda wildcards: [turns_of(at) for at in rounds_before(wildcards)],
        hiddens=hiddens_before,
        credits=credits_before,
        previous=model_before,
    output:
        model=directory(f"{RUN}/credit_model"),
        metrics=f"{RUN}/metrics/credit_model.json",
    log:
        f"{LOGS}/credit_model/{{method}}-seed{{seed}}-round{{round}}.log",
    priority: earlier_first
    conda:
        CORE
    threads: EXPERIMENT.resource("credit_model").threads
    resources:
        **ask("credit_model"),
    params:
        stage="credit_model",
        reads=reads("credit_model"),
    message:
        "Credit model of {wildcards.method}, seed {wildcards.seed}, for round {wildcards.round}"
    script:
        "../workflow_scripts/credit_model.py"
