rule rollout_sft:
    input:
        policy=f"{RESULTS}/sft/policy",
        tasks=f"{RESULTS}/tasks/train.parquet",
    output:
        turns=f"{SHARED_ROLLOUTS}/turns.parquet",
        metrics=f"{SHARED_ROLLOUTS}/metrics/rollout.json",
    log:
        f"{LOGS}/rollout/sft-{{sampling}}-seed{{seed}}.log",
    priority: earlier_first
    conda:
        PLAYING
    threads: EXPERIMENT.resource("rollout").threads
    resources:
        **ask("rollout"),
    params:
        stage="rollout",
        rollout=lambda wildcards: SAMPLINGS[wildcards.sampling].model_dump(mode="json"),
        reads=lambda wildcards: plan.reads(EXPERIMENT, "rollout", method="sft")
        | {"rollout": wildcards.sampling},
    message:
        "Rollouts of the SFT policy ({wildcards.sampling}, seed {wildcards.seed}), for round 1 of all methods"
    script:
        "../workflow_scripts/rollout.py"


rule rollout:
    input:
        policy=policy_before,
        tasks=f"{RESULTS}/tasks/train.parquet",
    output:
        turns=f"{RUN}/rollouts/turns.parquet",
        metrics=f"{RUN}/metrics/rollout.json",
    log:
        f"{LOGS}/rollout/{{method}}-seed{{seed}}-round{{round}}.log",
    wildcard_constraints:
        round=r"0[2-9]|[1-9]\d\d?",
    priority: earlier_first
    conda:
        PLAYING
    threads: EXPERIMENT.resource("rollout").threads
    resources:
        **ask("rollout"),
    params:
        stage="rollout",
        reads=reads("rollout"),
    message:
        "Rollouts of {wildcards.method}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/rollout.py"
