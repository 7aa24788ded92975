# Does a learned credit model know how a rollout ended from its length or its last turn? One job for all of them.

if audit_learned():
    AUDIT_RESULTS.append(f"{AUDIT}/leaks.parquet")


rule leaks:
    input:
        turns=audited_turns,
        branches=f"{AUDIT}/branches.parquet",
        models=audit_models,
        hiddens=lambda wildcards: [
            audit_hiddens_of(at) for at in of_methods(wildcards, audit_learned())
        ],
        labels=lambda wildcards: [
            path for path in learned_labels(wildcards).values() if path
        ],
    output:
        leaks=f"{AUDIT}/leaks.parquet",
        metrics=f"{AUDIT}/metrics/leaks.json",
    log:
        f"{LOGS}/audit/{{run}}-seed{{seed}}-round{{round}}-leaks.log",
    priority: evaluation_later
    conda:
        CORE
    threads: EXPERIMENT.resource("leaks").threads
    resources:
        **ask("leaks"),
    params:
        stage="leaks",
        reads=reads("leaks"),
        learned=audit_learned(),
        labels=learned_labels,
    message:
        "Audit: do credit models read how {wildcards.run}'s rollouts end, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/leaks.py"
