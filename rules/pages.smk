# Pages to read: rollouts of the audited run turn by turn, with every method's credit beside the ground truth.

if EXPERIMENT.audit.pages:
    AUDIT_RESULTS.append(f"{AUDIT}/pages/index.html")


rule pages:
    input:
        turns=audited_turns,
        branches=f"{AUDIT}/branches.parquet",
        credits=audit_credits,
        values=audit_values,
        probes=audit_probes,
        labels=audited_labels,
    output:
        index=f"{AUDIT}/pages/index.html",
        metrics=f"{AUDIT}/metrics/pages.json",
    log:
        f"{LOGS}/audit/{{run}}-seed{{seed}}-round{{round}}-pages.log",
    priority: evaluation_later
    conda:
        CORE
    threads: EXPERIMENT.resource("pages").threads
    resources:
        **ask("pages"),
    params:
        stage="pages",
        reads=reads("pages"),
        methods=audit_methods(),
        learned=audit_learned(),
    message:
        "Audit: credit pages of {wildcards.run}'s rollouts, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/pages.py"
