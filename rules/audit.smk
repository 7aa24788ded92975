# Every method's credit on the rollouts of one run. A learned method's model of a round is trained on the audited run's
# rounds before, just as it would be in a run of its own, and from the model of the round before: so all rounds up to the
# last audited one get a model. Nothing here is read by the runs.


rule audit_hiddens:
    input:
        policy=lambda wildcards: (
            audited_policy(wildcards)
            if wildcards.read == "current"
            else f"{RESULTS}/sft/policy"
        ),
        turns=audited_turns,
    output:
        hiddens=f"{AUDIT}/hiddens_{{read}}{{point}}.parquet",
        metrics=f"{AUDIT}/metrics/hiddens_{{read}}{{point}}.json",
    log:
        f"{LOGS}/audit/{{run}}-seed{{seed}}-round{{round}}-hiddens_{{read}}{{point}}.log",
    wildcard_constraints:
        point="|_action",
    priority: earlier_first
    conda:
        CORE
    threads: EXPERIMENT.resource("hiddens").threads
    resources:
        **ask("hiddens"),
    params:
        stage="hiddens",
        read=lambda wildcards: wildcards.read,
        reads=reads("hiddens"),
    message:
        "Audit: hidden states of {wildcards.run}'s rollouts, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/hiddens.py"


rule audit_model:
    input:
        turns=lambda wildcards: [
            audited_turns(at) for at in audit_rounds_before(wildcards)
        ],
        hiddens=lambda wildcards: [
            audit_hiddens_of(at)
            for at in audit_rounds_before(wildcards) or [wildcards]
        ],
        credits=audit_credits_before,
        previous=audit_model_before,
    output:
        model=directory(f"{AUDIT}/models/{{method}}"),
        metrics=f"{AUDIT}/metrics/model-{{method}}.json",
    log:
        f"{LOGS}/audit/{{run}}-seed{{seed}}-round{{round}}-model-{{method}}.log",
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
        "Audit: credit model of {wildcards.method} on {wildcards.run}, seed {wildcards.seed}, for round {wildcards.round}"
    script:
        "../workflow_scripts/credit_model.py"


rule audit_values:
    input:
        model=f"{AUDIT}/models/{{method}}",
        turns=audited_turns,
        hiddens=audit_hiddens_of,
    output:
        values=f"{AUDIT}/values/{{method}}.parquet",
        metrics=f"{AUDIT}/metrics/values-{{method}}.json",
    log:
        f"{LOGS}/audit/{{run}}-seed{{seed}}-round{{round}}-values-{{method}}.log",
    priority: earlier_first
    conda:
        CORE
    threads: EXPERIMENT.resource("values").threads
    resources:
        **ask("values"),
    params:
        stage="values",
        reads=reads("values"),
    message:
        "Audit: values by {wildcards.method} on {wildcards.run}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/values.py"


rule audit_credit:
    input:
        unpack(audit_side_tables),
        turns=audited_turns,
        method=method_file_of,
    output:
        credits=f"{AUDIT}/credits/{{method}}.parquet",
        metrics=f"{AUDIT}/metrics/credit-{{method}}.json",
    log:
        f"{LOGS}/audit/{{run}}-seed{{seed}}-round{{round}}-credit-{{method}}.log",
    priority: earlier_first
    conda:
        CORE
    threads: EXPERIMENT.resource("credit").threads
    resources:
        **ask("credit"),
    params:
        stage="credit",
        reads=reads("credit"),
    message:
        "Audit: credit by {wildcards.method} on {wildcards.run}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/credit.py"
