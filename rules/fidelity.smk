# Every method's credit against the ground truth of an audited round.

AUDIT_RESULTS.append(f"{AUDIT}/fidelity.parquet")


rule fidelity:
    input:
        turns=audited_turns,
        branches=f"{AUDIT}/branches.parquet",
        credits=audit_credits,
        labels=lambda wildcards: [
            path
            for path in audited_labels(wildcards)
            if path.endswith("-role.parquet")
        ],
    output:
        fidelity=f"{AUDIT}/fidelity.parquet",
        json=f"{AUDIT}/fidelity.json",
        metrics=f"{AUDIT}/metrics/fidelity.json",
    log:
        f"{LOGS}/audit/{{run}}-seed{{seed}}-round{{round}}-fidelity.log",
    priority: evaluation_later
    conda:
        CORE
    threads: EXPERIMENT.resource("fidelity").threads
    resources:
        **ask("fidelity"),
    params:
        stage="fidelity",
        reads=reads("fidelity"),
    message:
        "Audit: fidelity of all methods on {wildcards.run}'s turns, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/fidelity.py"
