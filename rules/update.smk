# With `keep_policies: last` a round's policy is deleted once the next round and its evaluation have read it; the last
# one is kept, and so are those that sampled the rounds that are audited.
policy_of_a_round = temp if EXPERIMENT.keep_policies == "last" else lambda path: path


rule update:
    input:
        policy=policy_before,
        reference=f"{RESULTS}/sft/policy",
        turns=turns_of,
        credits=f"{RUN}/credits.parquet",
    output:
        policy=policy_of_a_round(directory(f"{RUN}/policy")),
        updates=f"{RUN}/updates.parquet",
        metrics=f"{RUN}/metrics/update.json",
    log:
        f"{LOGS}/update/{{method}}-seed{{seed}}-round{{round}}.log",
    priority: earlier_first
    conda:
        CORE
    threads: EXPERIMENT.resource("update").threads
    resources:
        **ask("update"),
    params:
        stage="update",
        reads=reads("update"),
    message:
        "Policy update of {wildcards.method}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/update.py"


if EXPERIMENT.keep_policies == "last":

    use rule update as update_last with:
        output:
            policy=directory(f"{RUN}/policy"),
            updates=f"{RUN}/updates.parquet",
            metrics=f"{RUN}/metrics/update.json",
        wildcard_constraints:
            round=f"{EXPERIMENT.rounds:02d}",

    ruleorder: update_last > update

    # The policy of round r-1 plays round r.
    AUDITED_POLICIES = {round - 1 for _, round in EXPERIMENT.audited()} - {0}
    if AUDITED_POLICIES:

        use rule update as update_audited with:
            output:
                policy=directory(f"{RUN}/policy"),
                updates=f"{RUN}/updates.parquet",
                metrics=f"{RUN}/metrics/update.json",
            wildcard_constraints:
                method=re.escape(EXPERIMENT.audit.run),
                seed="|".join(sorted({str(seed) for seed, _ in EXPERIMENT.audited()})),
                round="|".join(f"{round:02d}" for round in sorted(AUDITED_POLICIES)),

        ruleorder: update_audited > update
