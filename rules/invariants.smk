# What must hold of every round (docs/invariants.md). One job reads all rounds of a run, one more each audited round.

AUDIT_RESULTS.append(AUDIT_INVARIANTS)


rule invariants:
    input:
        lambda wildcards: files_of(checked_rounds(wildcards)),
    output:
        invariants=f"{RESULTS}/runs/{{method}}/seed{{seed}}/invariants.parquet",
        metrics=f"{RESULTS}/runs/{{method}}/seed{{seed}}/metrics/invariants.json",
    log:
        f"{LOGS}/invariants/{{method}}-seed{{seed}}.log",
    conda:
        CORE
    threads: EXPERIMENT.resource("invariants").threads
    resources:
        **ask("invariants"),
    params:
        stage="invariants",
        reads=reads("invariants"),
        rounds=checked_rounds,
    message:
        "Invariants of {wildcards.method}, seed {wildcards.seed}"
    script:
        "../workflow_scripts/invariants.py"


rule audit_invariants:
    input:
        lambda wildcards: files_of([checked_audit(wildcards)]),
    output:
        invariants=AUDIT_INVARIANTS,
        metrics=f"{AUDIT}/metrics/invariants.json",
    log:
        f"{LOGS}/audit/{{run}}-seed{{seed}}-round{{round}}-invariants.log",
    priority: evaluation_later
    conda:
        CORE
    threads: EXPERIMENT.resource("invariants").threads
    resources:
        **ask("invariants"),
    params:
        stage="invariants",
        reads=reads("invariants"),
        rounds=lambda wildcards: [checked_audit(wildcards)],
    message:
        "Audit: invariants of {wildcards.run}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/invariants.py"
