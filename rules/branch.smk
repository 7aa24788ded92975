# Ground truth for the credit of sampled turns. It needs the policy that played, on the machine that can play.

AUDIT_RESULTS.append(f"{AUDIT}/branches.parquet")


rule branch:
    input:
        policy=audited_policy,
        tasks=f"{RESULTS}/tasks/train.parquet",
        turns=audited_turns,
    output:
        branches=f"{AUDIT}/branches.parquet",
        metrics=f"{AUDIT}/metrics/branch.json",
    log:
        f"{LOGS}/audit/{{run}}-seed{{seed}}-round{{round}}-branch.log",
    priority: evaluation_later
    conda:
        PLAYING
    threads: EXPERIMENT.resource("branch").threads
    resources:
        **ask("branch"),
    params:
        stage="branch",
        reads=reads("branch"),
    message:
        "Audit: ground truth for {wildcards.run}'s turns, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/branch.py"
