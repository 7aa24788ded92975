# Signal and noise of the policy gradient that each method's advantages give on the same rollouts.

AUDIT_RESULTS.append(f"{AUDIT}/gradients.parquet")


rule gradients:
    input:
        policy=audited_policy,
        turns=audited_turns,
        credits=audit_credits,
    output:
        gradients=f"{AUDIT}/gradients.parquet",
        metrics=f"{AUDIT}/metrics/gradients.json",
    log:
        f"{LOGS}/audit/{{run}}-seed{{seed}}-round{{round}}-gradients.log",
    priority: evaluation_later
    conda:
        CORE
    threads: EXPERIMENT.resource("gradients").threads
    resources:
        **ask("gradients"),
    params:
        stage="gradients",
        reads=reads("gradients"),
        methods=audit_methods(),
    message:
        "Audit: gradients of all methods on {wildcards.run}'s rollouts, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/gradients.py"
